"""The tables and figures of the paper, read from paper/*.toml: the runs of each, and the paper's own numbers.

common.toml holds what they share: protocols (where) and rows (what). Every other file is one table or figure, whose
[[runs]] name a protocol, rows, and lists of noises and rates; `seed` replaces the protocol's seeds, `seeds_of` those of
single rows. A result never depends on the file that asked for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labelloop.bench.experiment import Experiment
from labelloop.bench.grid import require
from labelloop.config.build import merge, read_toml
from labelloop.errors import UsageError, nearest

COMMON = "common"
SCALES = ("small", "full")
ITEM_KEYS = ("place", "label", "title", "shows", "values", "note", "runs", "published")
PROTOCOL_KEYS = ("scale", "title", "dataset", "dataset_options", "clean", "noise", "recipe", "config", "seed", "choose")
OF_A_PROTOCOL = ("clean", "noise_options", "dataset_options")  # what a [[runs]] entry may set
RUN_KEYS = ("protocol", "beside", "title", "rows", *OF_A_PROTOCOL, "config", "noise", "rate", "seed", "seeds_of")
ROW_KEYS = ("method", "like", "recipe", "config", "on", "clean_share", "candidates")
KINDS = ("symmetric", "asymmetric", "instance")  # the order of the paper's columns, each with rates 0.2, 0.4, 0.6
RATES = (0.2, 0.4, 0.6)


@dataclass(frozen=True)
class Part:
    """Runs of one protocol that make one table or one panel."""

    protocol: str
    scale: str
    title: str
    beside: str  # which of the paper's own numbers belong to it
    experiments: list[Experiment]


@dataclass(frozen=True)
class Item:
    """One table or figure of the paper."""

    name: str
    place: str
    label: str
    title: str
    shows: str
    parts: list[Part]
    values: Sequence[str] = ("last", "best")
    note: str = ""
    published: dict[str, Any] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """The note, at the end of a message."""
        return f": {self.note}" if self.note else ""

    def at(self, scale: str) -> list[Part]:
        return [part for part in self.parts if part.scale == scale]

    def published_value(self, beside: str, value: str, row: str, noise: str, rate: float) -> float | None:
        """The paper's own number, or None."""
        numbers = self.published.get(beside, {}).get(value, {}).get(row)
        if numbers is None:
            return None
        if len(numbers) == 1:
            return float(numbers[0])
        kind = noise.split("-")[0]
        if kind not in KINDS or rate not in RATES:
            return None
        return float(numbers[len(RATES) * KINDS.index(kind) + RATES.index(rate)])


def paper_folder() -> Path:
    """The folder of the grids, which are package data."""
    return Path(__file__).parent / "toml"


def read_items(folder: Path | None = None) -> dict[str, Item]:
    """All tables and figures by name, tables first."""
    folder = folder or paper_folder()
    names = item_names(folder)
    names.sort(key=lambda name: (not name.startswith("table"), not name.startswith("figure"), name))
    common = read_toml(folder / f"{COMMON}.toml")
    return {name: _item(name, folder, common) for name in names}


def item_names(folder: Path | None = None) -> list[str]:
    """The names of all tables and figures."""
    return sorted(path.stem for path in (folder or paper_folder()).glob("*.toml") if path.stem != COMMON)


def read_item(name: str, folder: Path | None = None) -> Item:
    """One table or figure.

    Raises:
        UsageError: There is none of that name, or its file or common.toml is wrong.
    """
    folder = folder or paper_folder()
    known = item_names(folder)
    if name not in known:
        raise UsageError(f"the paper has no {name!r}; {nearest(name, known)}")
    return _item(name, folder, read_toml(folder / f"{COMMON}.toml"))


def _item(name: str, folder: Path, common: dict[str, Any]) -> Item:
    path = folder / f"{name}.toml"
    content = read_toml(path)
    require(content, ITEM_KEYS, str(path))
    parts = [_part(run, common, f"{path}, [[runs]]") for run in content.pop("runs", [])]
    if content["shows"] == "tally":  # some rows are run in fewer cells
        parts = _joined(parts)
    return Item(name=name, parts=parts, **content)


def _part(run: Mapping[str, Any], common: Mapping[str, Any], source: str) -> Part:
    require(run, RUN_KEYS, source)
    name = run["protocol"]
    if name not in common["protocols"]:
        raise UsageError(f"{source}: unknown protocol {name!r}; {nearest(name, common['protocols'])}")
    protocol = dict(common["protocols"][name])
    require(protocol, PROTOCOL_KEYS, f"protocol {name!r}")
    protocol.pop("choose", None)
    scale, title, seeds = (protocol.pop(key) for key in ("scale", "title", "seed"))
    settings = protocol | {key: run[key] for key in OF_A_PROTOCOL if key in run}
    settings["config"] = merge(protocol.get("config", {}), run.get("config", {}))
    wrong = common.get("wrong", {})
    noises, rates = run.get("noise", [protocol.get("noise")]), run.get("rate", [0.0])
    seeds, seeds_of = run.get("seed", seeds), run.get("seeds_of", {})
    require(seeds_of, tuple(run["rows"]), f"{source}, seeds_of")
    experiments = [
        experiment_of(
            row,
            row_on(row, common["rows"], name, source, noise),
            settings | {"noise": noise, "rate": rate},
            seed,
            wrong,
        )
        for row in run["rows"]
        for noise, rate, seed in itertools.product(noises, rates, seeds_of.get(row, seeds))
    ]
    return Part(name, scale, run.get("title", title), run.get("beside", name), experiments)


def _joined(parts: list[Part]) -> list[Part]:
    """Parts of one title as one."""
    joined: dict[str, Part] = {}
    for part in parts:
        before = joined.get(part.title)
        joined[part.title] = replace(part, experiments=[*before.experiments, *part.experiments]) if before else part
    return list(joined.values())


def row_on(name: str, rows: Mapping[str, Any], protocol: str, source: str, noise: str) -> dict[str, Any]:
    """A row on a protocol: the row that it is `like` comes first, what applies only there comes last.

    `on."PROTOCOL NOISE"` applies to one noise of the protocol.
    """
    if name not in rows:
        raise UsageError(f"{source}: unknown row {name!r}; {nearest(name, rows)}")
    row = dict(rows[name])
    require(row, ROW_KEYS, f"row {name!r}")
    base = row_on(row.pop("like"), rows, protocol, source, noise) if "like" in row else {}
    there = row.pop("on", {})
    here = (there.get(protocol, {}), there.get(f"{protocol} {noise}", {}))
    return base | row | {"config": merge(base.get("config", {}), row.get("config", {}), *here)}


def experiment_of(
    title: str, row: Mapping[str, Any], settings: Mapping[str, Any], seed: int, wrong: Mapping[str, float]
) -> Experiment:
    share = row.get("clean_share", 1.0)
    options = dict(settings.get("dataset_options", {}))
    clean = round(share * settings["clean"])
    if share < 1 and not settings["clean"]:  # the data set defines its clean rows
        options["clean_fraction"] = share
    config = {
        key: round(wrong[settings["noise"]] * settings["rate"], 4) if value == "wrong" else value
        for key, value in merge(settings["config"], row["config"]).items()
    }
    return Experiment(
        dataset=settings["dataset"],
        dataset_options=options,
        clean=clean,
        noise=settings["noise"],
        rate=settings["rate"],
        noise_options=settings.get("noise_options", {}),
        method=row["method"],
        recipe=row.get("recipe", settings["recipe"]),
        config=config,
        name=title,
        seed=seed,
    )

"""Chooses the open settings of every method by one rule, the same for ours: most held-out clean rows right.

`python benchmarks/choose_settings.py` runs what is missing of what `paper/toml/common.toml` asks for (`--row`,
`--protocol` and `--noise` narrow it down), keeps every candidate's held-out number in evidence/chosen.json after each
run, and says where common.toml has other settings than the rule chose.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelloop.bench.experiment import Experiment
from labelloop.bench.grid import require
from labelloop.config.build import merge, read_toml
from labelloop.errors import UsageError
from labelloop.paper.grids import COMMON, PROTOCOL_KEYS, experiment_of, paper_folder, read_items, row_on
from labelloop.runs.run_json import versions
from labelloop.seeds import stream
from labelloop.splits import stratified_split
from labelloop.types import Labels, Problem, Rows, Truth
from labelloop.workflows.compose import METHODS, RunOptions, load_data, make_task, noisy_problem

CHOSEN = Path(__file__).resolve().parents[1] / "evidence" / "chosen.json"
FILTERS = ("row", "protocol", "noise")
MOST_CANDIDATES = 3
FIT_SHARE = 0.8
SEED = 100  # of the runs that choose settings; no table reports it
CHOOSE_KEYS = ("noise", "rate", "noise_options")


@dataclass(frozen=True)
class Choice:
    """The candidate settings of a row on one cell of a protocol."""

    row: str  # the method's own
    protocol: str
    noise: str
    rate: float
    candidates: list[dict[str, Any]]  # what each sets
    experiments: list[Experiment]  # one for each
    now: Experiment  # the row with chosen settings as the tables have it


def read_choices(folder: Path | None = None) -> list[Choice]:
    """Every choice of settings in common.toml: a row with candidates, on a cell that a protocol names."""
    common = read_toml((folder or paper_folder()) / f"{COMMON}.toml")
    asked = {
        (e.title, part.protocol)
        for item in read_items(folder).values()
        for part in item.parts
        for e in part.experiments
    }
    choices = []
    for name, protocol in common["protocols"].items():
        source = f"protocol {name!r}"
        require(protocol, PROTOCOL_KEYS, source)
        for cell in protocol.get("choose", []):
            require(cell, CHOOSE_KEYS, f"{source}, choose")
            settings = {
                key: value for key, value in protocol.items() if key not in ("scale", "title", "seed", "choose")
            }
            settings = {"config": {}} | settings | cell
            for title, own in common["rows"].items():
                candidates = own.get("candidates", [])
                if not candidates or (title, name) not in asked:
                    continue
                row = row_on(title, common["rows"], name, source, cell["noise"])
                tried = [
                    experiment_of(title, row | {"config": merge(row["config"], each)}, settings, SEED, common["wrong"])
                    for each in candidates
                ]
                now = experiment_of(title, row, settings, SEED, common["wrong"])
                choices.append(Choice(own["like"], name, cell["noise"], cell["rate"], candidates, tried, now))
    return choices


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in FILTERS:
        parser.add_argument(f"--{name}", action="append", help=f"only this {name}; may be repeated")
    parser.add_argument("--check", action="store_true", help="run nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = [
        choice
        for choice in read_choices()
        if all(not getattr(options, key) or getattr(choice, key) in getattr(options, key) for key in FILTERS)
    ]
    if not options.check:
        for choice in wanted:
            choose(choice)
    stored = read_chosen()
    differing = [text for choice in wanted if (text := difference(choice, stored.get(name_of(choice))))]
    print("\n".join(differing) or f"common.toml agrees with {len(stored)} choices")
    return int(bool(differing))


def choose(choice: Choice) -> None:
    """Runs the candidates that are not stored, and stores each as soon as it is known."""
    for number, experiment in enumerate(choice.experiments):
        tried = list(read_chosen().get(name_of(choice), {}).get("candidates", []))
        if any(one["experiment"] == plain(experiment) for one in tried):
            continue
        start = time.perf_counter()
        right, of = held_out_right(experiment)
        tried.append({
            "sets": choice.candidates[number], "right": right, "of": of, "experiment": plain(experiment),
            "seconds": round(time.perf_counter() - start, 1), "commit": versions().get("commit"),
        })  # fmt: skip
        print(f"{name_of(choice)}: {choice.candidates[number]} {right} of {of}", flush=True)
        store(choice, tried)


def store(choice: Choice, tried: list[dict[str, Any]]) -> None:
    """Keeps the candidates that common.toml still names, in its order, and the one chosen once all are known."""
    known = [one for each in choice.experiments for one in tried if one["experiment"] == plain(each)]
    complete = len(known) == len(choice.experiments)
    entry = {
        "row": choice.row, "protocol": choice.protocol, "noise": choice.noise, "rate": choice.rate,
        "seed": SEED, "fit_share": FIT_SHARE, "candidates": known,
        "chosen": known[best_of([one["right"] for one in known])]["sets"] if complete else None,
    }  # fmt: skip
    with Path(__file__).open() as lock:  # another process may be at other choices
        fcntl.flock(lock, fcntl.LOCK_EX)
        chosen = read_chosen() | {name_of(choice): entry}
        text = json.dumps(dict(sorted(chosen.items())), indent=1, ensure_ascii=False) + "\n"
        CHOSEN.write_text(text, encoding="utf-8")


def held_out_right(experiment: Experiment) -> tuple[int, int]:
    """The number of held-out clean rows that a method classifies correctly after its last epoch, and of all of them.

    It is trained with the other clean rows. Neither test rows nor true training labels are used.
    """
    if METHODS[experiment.method].is_oracle:
        raise UsageError(f"method {experiment.method!r} is given the true labels; there is nothing to choose")
    problem, _, _ = noisy_problem(experiment, load_data(experiment))
    shown, validation = without_some_clean(problem, experiment.seed)
    task = make_task(experiment.method, experiment.method_config, shown, Truth(None, validation))
    runtime = RunOptions(experiment.seed, device="cpu", progress=False).runtime(truth=task.truth)
    METHODS[experiment.method].fit(task.problem, task.config, runtime)
    return round(runtime.history[-1]["test_accuracy"] * len(validation)), len(validation)


def without_some_clean(problem: Problem, seed: int) -> tuple[Problem, Rows]:
    """The problem with 80% of its clean rows, and the other clean rows for evaluation."""
    fit, held_out = stratified_split(problem.clean.clean_labels, FIT_SHARE, stream(seed, "choose"))
    return replace(problem, clean=_take(problem.clean, fit)), _take(problem.clean, held_out)


def best_of(right: Sequence[int]) -> int:
    """The position of the chosen candidate: the first one with the most correct predictions."""
    if not 0 < len(right) <= MOST_CANDIDATES:
        raise UsageError(f"{len(right)} candidates; the rule allows from 1 to {MOST_CANDIDATES}")
    return int(np.argmax(right))


def _take(rows: Rows, position: Labels) -> Rows:
    extra = None if rows.extra is None else rows.extra[position]
    return Rows(rows.inputs, rows.index[position], rows.labels[position], rows.clean_labels[position], extra)


def read_chosen() -> dict[str, Any]:
    return json.loads(CHOSEN.read_text(encoding="utf-8")) if CHOSEN.exists() else {}


def difference(choice: Choice, entry: dict[str, Any] | None) -> str:
    """In words, what common.toml has to say otherwise; empty where it agrees or nothing is chosen yet."""
    if entry is None or entry["chosen"] is None:
        return ""
    config = asdict(choice.now.method_config)
    wrong = {key: value for key, value in entry["chosen"].items() if config[key] != value}
    return f"{name_of(choice)}: common.toml should set {wrong}" if wrong else ""


def name_of(choice: Choice) -> str:
    return f"{choice.row}, {choice.protocol}, {choice.noise}"


def plain(experiment: Experiment) -> dict[str, Any]:
    return json.loads(json.dumps({key: value for key, value in asdict(experiment).items() if key != "name"}))


if __name__ == "__main__":
    sys.exit(main())

"""Several runs side by side: methods, noises, ablations, and their spread over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean, stdev
from typing import Any

from labelloop.report.facts import Facts, Share, facts, is_bounded, percent, row_facts, with_interval
from labelloop.report.page import bullets, data_block, figures, page, table
from labelloop.runs.survey import Survey

PICTURES = ("compare", "tests", "curves")
SCRIPTS = ("plot.js", "unpack.js", "pictures.js", "rows.js", "report.js")
MOST_SOURCES, MOST_SETTINGS = 5, 8  # in the head of the page; in the table of the runs


def compare_page(runs: Sequence[Survey]) -> str:
    """The whole page of several runs, as HTML."""
    short = [run.name for run in runs]
    names = [name if short.count(name) == 1 else str(run.path) for name, run in zip(short, runs, strict=True)]
    found = [facts(run, row_facts(run)) for run in runs]
    settings = [_setting(run) for run in runs]
    keys = dict.fromkeys(key for each in settings for key in each if key != "seed")
    differing = [key for key in keys if len({_text(each.get(key)) for each in settings}) > 1]
    groups = _groups(settings, differing)
    sources = list(dict.fromkeys(str(_data(run).get("source") or "unknown data") for run in runs))
    about = " · ".join(sources[:MOST_SOURCES] + ["…"] * (len(sources) > MOST_SOURCES))
    drawn = _pictures(runs, names, found, groups)
    gaps = [escape(f"{name}: {text}") for run, name in zip(runs, names, strict=True) for text in run.missing]
    body = (
        f"<header><h1>{len(runs)} runs side by side</h1><p class='about'>{escape(about)}</p></header><main>"
        "<section id='answer'><h2>The answer</h2><p class='says'>Mean ± standard deviation over seeds, in %. Settings"
        f" are named by what differs between the runs.</p>{_spread(groups, found, runs)}</section>"
        f"<section id='pictures'><h2>Pictures</h2>{figures(PICTURES, drawn)}</section>"
        f"<section id='runs'><h2>The runs</h2>{_runs(runs, names, found, settings, differing)}</section>"
        + (f"<section id='missing'><h2>What is missing</h2>{bullets(gaps)}</section>" if gaps else "")
        + "</main>"
    )
    data: dict[str, Any] = {"classes": [], "pictures": drawn, "rows": None}
    return page(
        f"{len(runs)} runs · LabelLoop",
        body,
        styles=("design.css", "report.css"),
        scripts=SCRIPTS,
        blocks=[data_block("report-data", data)],
    )


def _data(run: Survey) -> Mapping[str, Any]:
    return run.record.get("data") or {}


def _setting(run: Survey) -> dict[str, Any]:
    """The settings of a run, flattened: method, data, noise and configuration."""
    record = run.record
    about = {"method": record.get("method"), "data": _data(run).get("source"), "noisy rows": _data(run).get("noisy")}
    about |= {key: record[key] for key in ("noise", "rate", "dataset", "recipe", "refitted_from") if key in record}
    return about | _flat(record.get("config") or {})


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + str(key): value}
    return flat


def _groups(settings: Sequence[Mapping[str, Any]], differing: Sequence[str]) -> dict[str, list[int]]:
    """Runs that differ only in the seed, under a name made of the settings that differ."""
    groups: dict[str, list[int]] = {}
    for place, each in enumerate(settings):
        others = [f"{key} {_text(each[key])}" for key in differing if key in each and key != "method"]
        if len(others) > 4:  # another method has other settings altogether
            others = [*others[:3], f"and {len(others) - 3} more settings"]
        groups.setdefault(", ".join([str(each.get("method") or "unknown"), *others]), []).append(place)
    return groups


def _spread(groups: Mapping[str, Sequence[int]], found: Sequence[Facts], runs: Sequence[Survey]) -> str:
    """A line for each setting: its seeds, and the mean of its runs."""
    lines = []
    for name, places in groups.items():
        mine = [found[place] for place in places]
        shares = ([each.before for each in mine], [each.after for each in mine])
        means = [_mean([_value(share) for share in part]) for part in shares]
        means += [_mean([each.true_after for each in mine]), _mean([each.test_accuracy for each in mine])]
        seeds = ", ".join(str(runs[place].record.get("seed", "?")) for place in places)
        lines.append([escape(name), escape(seeds), *means])
    head = ("setting", "seeds", "given labels right", "corrected labels right", "by the true labels", "test accuracy")
    return table("Settings", head, lines)


def _runs(
    runs: Sequence[Survey],
    names: Sequence[str],
    found: Sequence[Facts],
    settings: Sequence[Mapping[str, Any]],
    differing: Sequence[str],
) -> str:
    shown = differing[:MOST_SETTINGS]
    lines = []
    for run, name, fact, setting in zip(runs, names, found, settings, strict=True):
        seconds = sum(float(value) for row in run.metrics for value in (row.get("seconds") or {}).values())
        cells = [
            name,
            str(run.record.get("state") or "unknown"),
            str(run.record.get("seed", "")),
            *(_text(setting.get(key)) for key in shown),
            "" if fact.changed is None else f"{fact.changed:,}",
            "" if fact.after is None else with_interval(fact.after),
            "" if fact.test_accuracy is None else percent(fact.test_accuracy),
            f"{seconds:,.1f}",
        ]
        lines.append([escape(cell) for cell in cells])
    head = ("run", "state", "seed", *shown, "changed", "corrected labels right", "test accuracy", "seconds")
    return table("Runs", head, lines)


def _pictures(
    runs: Sequence[Survey], names: Sequence[str], found: Sequence[Facts], groups: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    setting = {place: name for name, places in groups.items() for place in places}
    points: dict[str, list[dict[str, Any]]] = {name: [] for name in PICTURES}
    for place, (run, name, fact) in enumerate(zip(runs, names, found, strict=True)):
        mine = {"run": name, "setting": setting[place]}
        for what, share in (("given", fact.before), ("corrected", fact.after)):
            if share is not None:
                ends = {end: share[end] for end in ("low", "high")}
                points["compare"].append({"run": name, "what": what, "value": _value(share), **ends})
        if fact.test_accuracy is not None:
            points["tests"].append(mine | {"value": fact.test_accuracy})
        tested = [row for row in run.metrics if row.get("test_accuracy") is not None]
        points["curves"] += [mine | {"epoch": row["epoch"], "value": row["test_accuracy"]} for row in tested]
    return {name: {"points": each} if each else None for name, each in points.items()}


def _value(share: Share | None) -> float | None:
    """None where only bounds are known: no value between them is better than another."""
    return None if share is None or is_bounded(share) else share["value"]


def _mean(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    spread = f" ± {stdev(known):.1f}" if len(known) > 1 else ""
    return f"{fmean(known):.1f}{spread}" if known else "–"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)

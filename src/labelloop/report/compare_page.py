"""Several runs side by side: methods, noises, ablations, and their spread over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean, stdev
from typing import Any

from labelloop.report.facts import Facts, facts, percent, row_facts, within
from labelloop.report.page import data_block, page
from labelloop.runs.survey import Survey

TITLES = {
    "compare": ("Labels that are right", "Given and corrected, by held-out clean rows, with 95% intervals."),
    "tests": ("Test accuracy", "After the last epoch. One dot per run; the bar is the mean over seeds."),
    "curves": ("Test accuracy by epoch", "One line per run."),
}
IGNORED = ("seed",)  # runs that differ only in this are one setting


def compare_page(runs: Sequence[Survey]) -> str:
    """The whole page of several runs, as HTML."""
    names = _names(runs)
    found = [facts(run, row_facts(run)) for run in runs]
    settings = [_setting(run) for run in runs]
    differing = [key for key in _keys(settings) if len({_text(each.get(key)) for each in settings}) > 1]
    groups = _groups(settings, differing)
    body = "".join(
        [
            f"<header><h1>{len(runs)} runs side by side</h1><p class='about'>{escape(_sources(runs))}</p></header>",
            "<main>",
            _spread_section(groups, found, runs),
            "<section id='pictures'><h2>Pictures</h2><div class='pictures'>",
            *(
                f"<figure data-picture='{name}'><h3 id='title-{name}'>{title}</h3><p class='says'>{says}</p>"
                "<div class='chart'><noscript>The pictures need JavaScript.</noscript></div></figure>"
                for name, (title, says) in TITLES.items()
            ),
            f"</div></section>{_runs_section(runs, names, found, settings, differing)}{_missing(runs, names)}</main>",
        ]
    )
    blocks = [
        data_block("report-data", {"classes": [], "pictures": _pictures(runs, names, found, groups), "rows": None})
    ]
    scripts = ("plot.js", "unpack.js", "pictures.js", "rows.js", "report.js")
    return page(
        f"{len(runs)} runs · LabelLoop", body, styles=("design.css", "report.css"), scripts=scripts, blocks=blocks
    )


def _names(runs: Sequence[Survey]) -> list[str]:
    """A name for every run: that of its folder, or its path if two folders have the same name."""
    short = [run.name for run in runs]
    return [name if short.count(name) == 1 else str(run.path) for name, run in zip(short, runs, strict=True)]


def _setting(run: Survey) -> dict[str, Any]:
    """The settings of a run, flattened: method, data, noise and configuration."""
    record = run.record
    data = record.get("data") or {}
    about = {"method": record.get("method"), "data": data.get("source"), "noisy rows": data.get("noisy")}
    about |= {key: record[key] for key in ("noise", "rate", "dataset", "recipe", "refitted_from") if key in record}
    return about | _flat(record.get("config") or {})


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + str(key): value}
    return flat


def _keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    keys: dict[str, None] = {}
    for each in settings:
        keys |= dict.fromkeys(each)
    return [key for key in keys if key not in IGNORED]


def _groups(settings: Sequence[Mapping[str, Any]], differing: Sequence[str]) -> dict[str, list[int]]:
    """Runs that differ only in the seed, under a name made of the settings that differ."""
    groups: dict[str, list[int]] = {}
    for place, each in enumerate(settings):
        own = [key for key in differing if key in each]
        method = str(each.get("method") or "unknown")
        others = [f"{key} {_text(each[key])}" for key in own if key != "method"]
        if len(others) > 4:  # another method has other settings altogether
            others = [*others[:3], f"and {len(others) - 3} more settings"]
        groups.setdefault(", ".join([method, *others]), []).append(place)
    return groups


def _spread_section(groups: Mapping[str, Sequence[int]], found: Sequence[Facts], runs: Sequence[Survey]) -> str:
    lines = []
    for name, places in groups.items():
        seeds = ", ".join(str(runs[place].record.get("seed", "?")) for place in places)
        cells = [
            _mean([_part(found[place].before) for place in places]),
            _mean([_part(found[place].after) for place in places]),
            _mean([found[place].true_after for place in places]),
            _mean([found[place].test_accuracy for place in places]),
        ]
        lines.append(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(seeds)}</td>{_cells(cells)}</tr>")
    head = ("setting", "seeds", "given labels right", "corrected labels right", "by the true labels", "test accuracy")
    return (
        "<section id='answer'><h2>The answer</h2><p class='says'>Mean ± standard deviation over seeds, in %. Settings"
        " are named by what differs between the runs.</p>"
        f"<div class='wide' tabindex='0' role='region' aria-label='Settings'><table>{_head(head)}"
        f"<tbody>{''.join(lines)}</tbody></table></div></section>"
    )


def _runs_section(
    runs: Sequence[Survey],
    names: Sequence[str],
    found: Sequence[Facts],
    settings: Sequence[Mapping[str, Any]],
    differing: Sequence[str],
) -> str:
    shown = list(differing)[:8]
    lines = []
    for run, name, fact, setting in zip(runs, names, found, settings, strict=True):
        cells = [
            str(run.record.get("state") or "unknown"),
            str(run.record.get("seed", "")),
            *(_text(setting.get(key)) for key in shown),
            "" if fact.changed is None else f"{fact.changed:,}",
            "" if fact.after is None else f"{percent(fact.after['value'])} ({within(fact.after)})",
            "" if fact.test_accuracy is None else percent(fact.test_accuracy),
            f"{_seconds(run):,.1f}",
        ]
        lines.append(f"<tr><th scope='row'>{escape(name)}</th>{_cells(map(escape, cells))}</tr>")
    head = ("run", "state", "seed", *shown, "changed", "corrected labels right", "test accuracy", "seconds")
    return (
        "<section id='runs'><h2>The runs</h2><div class='wide' tabindex='0' role='region' aria-label='Runs'>"
        f"<table>{_head(head)}<tbody>{''.join(lines)}</tbody></table></div></section>"
    )


def _pictures(
    runs: Sequence[Survey], names: Sequence[str], found: Sequence[Facts], groups: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    setting = {place: name for name, places in groups.items() for place in places}
    labels = [
        {"run": names[place], "what": what, **{key: share[key] for key in ("value", "low", "high")}}
        for place, fact in enumerate(found)
        for what, share in (("given", fact.before), ("corrected", fact.after))
        if share is not None
    ]
    tests = [
        {"run": names[place], "setting": setting[place], "value": fact.test_accuracy}
        for place, fact in enumerate(found)
        if fact.test_accuracy is not None
    ]
    curves = [
        {"run": names[place], "setting": setting[place], "epoch": row["epoch"], "value": row["test_accuracy"]}
        for place, run in enumerate(runs)
        for row in run.metrics
        if row.get("test_accuracy") is not None
    ]
    return {
        "compare": {"points": labels} if labels else None,
        "tests": {"points": tests} if tests else None,
        "curves": {"points": curves} if curves else None,
    }


def _missing(runs: Sequence[Survey], names: Sequence[str]) -> str:
    items = [
        f"<li>{escape(name)}: {escape(text)}</li>"
        for run, name in zip(runs, names, strict=True)
        for text in run.missing
    ]
    if not items:
        return ""
    return f"<section id='missing'><h2>What is missing</h2><ul>{''.join(items)}</ul></section>"


def _sources(runs: Sequence[Survey]) -> str:
    sources = dict.fromkeys(str((run.record.get("data") or {}).get("source") or "unknown data") for run in runs)
    return " · ".join(list(sources)[:5]) + (" · …" if len(sources) > 5 else "")


def _seconds(run: Survey) -> float:
    return sum(float(value) for row in run.metrics for value in (row.get("seconds") or {}).values())


def _part(found: Mapping[str, Any] | None) -> float | None:
    return None if found is None else float(found["value"])


def _mean(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    spread = f" ± {stdev(known):.1f}" if len(known) > 1 else ""
    return f"{fmean(known):.1f}{spread}" if known else "–"


def _head(names: Sequence[str]) -> str:
    return f"<thead><tr>{''.join(f'<th scope=col>{escape(name)}</th>' for name in names)}</tr></thead>"


def _cells(cells: Any) -> str:
    return "".join(f"<td>{cell}</td>" for cell in cells)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)

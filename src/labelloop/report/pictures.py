"""The data of a report's figures, as plain numbers, each with a sentence on what it shows in this run ("here").

A figure without data is None.
"""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError
from labelloop.report.facts import RowFacts, percent, share
from labelloop.runs.labels import label_counts, noise_matrix
from labelloop.runs.result_files import FEATURES, read_row_arrays
from labelloop.runs.survey import Survey
from labelloop.types import MISSING

MOST_CLASSES = 300  # classes in a noise matrix; beyond a few the page zooms into it
READABLE = 12  # classes that keep their own order; more are put beside those they are confused with
TINY = 0.0005  # shares of a noise matrix that are left out where there are many classes
MOST_FLOWS = 16
ENOUGH = 10  # clean rows that show whether confidences are right
MOST_DOTS, ROUGH = 100_000, 0.5  # rows in a map; one that shows less of how rows differ is rough
MOST_FEATURES = 2**30  # bytes of features that are read to draw one
THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
CURVES = {
    "test_accuracy": "test accuracy",
    "clean_accuracy": "accuracy on clean rows",
    "corrected_label_accuracy": "corrected labels that are right",
    "given_label_accuracy": "given labels that are right",
}

Picture = dict[str, Any] | None


def pictures(run: Survey, rows: RowFacts | None) -> dict[str, Picture]:
    """The data of all figures of a run by name."""
    return {
        "map": row_map(run, rows),
        "noise": _noise(run, rows),
        "flows": _flows(run, rows),
        "dynamics": _dynamics(run),
        "weights": _weights(run),
        "reliability": _reliability(run),
        "coverage": _coverage(run, rows),
        "seconds": _seconds(run),
    }


def _noise(run: Survey, rows: RowFacts | None) -> Picture:
    """The noise matrix T[true, given] and its largest confusions; many classes are clustered."""
    if rows is None or run.targets is None or run.targets.ndim != 2:
        return None
    names = run.classes
    if len(names) != run.targets.shape[1] or not len(names):
        return None
    counts = label_counts(rows.given, run.targets, len(names))
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:MOST_CLASSES])
    matrix = noise_matrix(counts)
    if len(shown) > READABLE:
        shown = shown[_clustered(matrix[np.ix_(shown, shown)])]
    off = np.where(np.eye(len(names), dtype=bool), 0, counts)
    top = [divmod(int(k), len(names)) for k in np.argsort(-off, axis=None, kind="stable")[:10]]
    confusions: list[dict[str, Any]] = [
        {"true": names[i], "given": names[j], "given_code": j, "true_code": i, "share": _number(matrix[i, j], 4),
         "rows": _number(counts[i, j], 1)}
        for i, j in top
        if off[i, j] >= 0.5
    ]  # fmt: skip
    here = "By the corrected labels, hardly any given label is wrong."
    if confusions:
        most = confusions[0]
        here = (
            f"Most often, rows of class {most['true']} came labelled {most['given']}: {percent(most['share'])} of that"
            f" class, about {most['rows']:,.0f} rows. All rows are counted here, by the probabilities of their labels;"
            " the numbers at the top are measured on held-out clean rows, so the two need not add up."
        )
    kept = [(r, c) for r, i in enumerate(shown) for c, j in enumerate(shown) if matrix[i, j] >= TINY]
    return {
        "classes": [names[k] for k in shown],
        "codes": [int(k) for k in shown],
        "all_classes": len(names),
        "cells": [
            [r, c, _number(matrix[shown[r], shown[c]], 4), _number(counts[shown[r], shown[c]], 1)] for r, c in kept
        ],
        "confusions": confusions,
        "here": here,
    }


def _clustered(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """An order in which classes that are confused stand beside each other."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    alike = np.nan_to_num(matrix)
    alike = alike + alike.T
    far = 1 / (alike + 1e-3)
    np.fill_diagonal(far, 0)
    return leaves_list(linkage(squareform(far, checks=False), "average")).astype(np.int64)


def _flows(run: Survey, rows: RowFacts | None) -> Picture:
    """The number of labels that changed from each class to each other class."""
    if rows is None or not rows.changed.any():
        return None
    names, found = run.classes, rows.pairs(rows.changed, len(run.classes))
    flows: list[dict[str, Any]] = [
        {"from": names[a], "to": names[b], "from_code": a, "to_code": b, "rows": count} for a, b, count in found
    ]
    first, total = flows[0], int(rows.changed.sum())
    return {
        "flows": flows[:MOST_FLOWS],
        "all_flows": len(found),
        "left_out": sum(count for _, _, count in found[MOST_FLOWS:]),
        "here": f"The largest change is from {first['from']} to {first['to']}: {first['rows']:,} rows,"
        f" {percent(first['rows'] / total)} of all changes."
        + (f" Shown are the {MOST_FLOWS} largest of {len(found):,} such pairs." if len(found) > MOST_FLOWS else ""),
    }


def _dynamics(run: Survey) -> Picture:
    """Loss and accuracies by epoch, with the rounds and the learning rate drops."""
    if not run.metrics:
        return None
    config = run.record.get("config") or {}
    epochs, drops = config.get("epochs"), config.get("learning_rate_drops") or config.get("lr_drops") or []
    curves = {key: title for key, title in CURVES.items() if any(_is_number(row.get(key)) for row in run.metrics)}
    here = f"The network was trained for {len(run.metrics)} epochs."
    for key, title in list(curves.items())[:1]:
        values = [(row[key], row["epoch"]) for row in run.metrics if _is_number(row.get(key))]
        best, when = max(values)
        here = (
            f"{title.capitalize()} ended at {percent(values[-1][0])}; the best was {percent(best)}, after epoch {when}."
        )
    return {
        "here": here,
        "epochs": [row["epoch"] for row in run.metrics],
        "loss": [_number(row.get("loss"), 5) for row in run.metrics],
        "curves": [
            {"name": title, "values": [_number(row.get(key), 5) for row in run.metrics]}
            for key, title in curves.items()
        ],
        "rounds": [each["epoch"] for each in run.record.get("rounds") or [] if _is_number(each.get("epoch"))],
        "drops": [round(drop * epochs) for drop in drops if _is_number(drop)] if _is_number(epochs) else [],
    }


def _weights(run: Survey) -> Picture:
    """The combination weights of every round, the given label or the first labels first; else those of the sources."""
    rounds = [each for each in run.record.get("rounds") or [] if each.get("weights")]
    by_round = any(max(each["weights"]) < 0.999 for each in rounds)  # else bars of one colour each
    named = run.record.get("weights")
    if by_round:
        parts: dict[Any, dict[str, float]] = {
            each.get("round", k): {_name(each, c): weight for c, weight in enumerate(each["weights"])}
            for k, each in enumerate(rounds, start=1)
        }
        last = list(parts.values())[-1]
    elif isinstance(named, dict) and named:
        parts = {"with a given label": named, "without one": run.record.get("weights_without_label") or {}}
        last = named
    else:
        return None
    bars = [
        {"round": part, "component": str(name), "weight": _number(weight, 4)}
        for part, weights in parts.items()
        for name, weight in weights.items()
        if weight >= 0.0005
    ]
    if not by_round and len({bar["weight"] for bar in bars}) < 2:
        return None  # a picture of one number, or of equal ones, shows nothing
    name, weight = max(last.items(), key=lambda pair: pair[1])
    here = f"Where a row has a given label, “{name}” counts for {percent(weight, 0)}."
    if by_round:
        here = f"In the last round, {name} counts for {percent(weight, 0)} of the labels."
    return {"kind": "rounds" if by_round else "sources", "bars": bars, "here": here}


def _name(entry: dict[str, Any], number: int) -> str:
    """A component of a round; in records from before components had names, they are the paper's."""
    names = [*(entry.get("components") or ["given label"]), *(f"round {k}" for k in range(1, number + 1))]
    return str(names[number])


def _reliability(run: Survey) -> Picture:
    """Accuracy against confidence, on held-out clean rows."""
    bins = (run.record.get("estimate") or {}).get("reliability")
    if not bins or sum(each["rows"] for each in bins) < ENOUGH:
        return None
    most = max(bins, key=lambda each: each["rows"])
    here = (
        f"Most labels have a confidence of {percent(most['from'], 0)} to {percent(most['to'], 0)}. On {most['rows']:,}"
        f" such clean rows, the mean confidence was {percent(most['confidence'])}, and {percent(most['value'])} were"
        " right."
    )
    return {"bins": bins, "here": here}


def _coverage(run: Survey, rows: RowFacts | None) -> Picture:
    """For every confidence threshold: how many changes are left, and the share of such labels that are right."""
    if rows is None or not rows.changed.any():
        return None
    confidence = rows.confidence[rows.changed]
    bins = (run.record.get("estimate") or {}).get("reliability") or []
    points: list[dict[str, Any]] = []
    for least in THRESHOLDS:
        kept = confidence >= least
        held = [each for each in bins if each["from"] >= least - 1e-9]
        hits, judges = sum(each["value"] * each["rows"] for each in held), sum(each["rows"] for each in held)
        at_edge = not bins or abs(least * 10 - round(least * 10)) < 1e-9  # bins are a tenth wide
        points.append(
            {
                "least": least,
                "changes": int(kept.sum()),
                "claimed": _number(float(confidence[kept].mean()), 4) if kept.any() else None,
                "right": share(round(hits), judges) if at_edge else None,
            }
        )
    at = next(point for point in points if point["least"] == 0.9)
    here = f"With --min-confidence 0.9, {at['changes']:,} of {len(confidence):,} changes are left"
    if at["right"]:
        here += f"; of such labels, {percent(at['right']['low'])} to {percent(at['right']['high'])} are right"
    return {"points": points, "all_changes": int(rows.changed.sum()), "here": f"{here}."}


def row_map(run: Survey, rows: RowFacts | None) -> Picture:
    """The rows in two components of their features, packed as numbers from 0 to 65,535; at most MOST_DOTS rows."""
    if rows is None or run.path is None:
        return None
    try:
        if (run.path / FEATURES).stat().st_size > MOST_FEATURES:
            return None
        kept = read_row_arrays(run.path).inputs
    except (OSError, ValueError, DataError):
        return None
    name = next((name for name in ("features", "inputs", "table_inputs", "scores") if name in kept), None)
    known = np.flatnonzero(rows.corrected != MISSING)
    if name is None or kept[name].ndim != 2 or len(kept[name]) != len(rows.given) or len(known) < 3:
        return None
    if len(known) > MOST_DOTS:  # changes first, the others by chance
        by_chance = known[np.random.default_rng(0).permutation(len(known))]
        known = np.sort(by_chance[np.argsort(~rows.changed[by_chance], kind="stable")[:MOST_DOTS]])
    places, held = _two_components(np.nan_to_num(kept[name][known].astype(np.float32)), name == "table_inputs")
    low, high = places.min(axis=0), places.max(axis=0)
    scaled = np.round((places - low) / np.maximum(high - low, 1e-9) * 65_535)
    what = f"All {len(known):,}" if len(known) == len(rows.given) else f"{len(known):,} of {len(rows.given):,}"
    changed = int(rows.changed[known].sum())
    return {
        "row": packed(known, np.uint32),
        "x": packed(scaled[:, 0], np.uint16),
        "y": packed(scaled[:, 1], np.uint16),
        "label": packed(rows.corrected[known], np.uint16),
        "changed": packed(rows.changed[known], np.uint8),
        "here": f"{what} rows{f', {changed:,} of them with a changed label' if changed else ''}. The picture shows"
        f" {percent(held, 0)} of how they differ{', so it is rough' if held < ROUGH else ''}.",
    }


def _two_components(features: NDArray[np.float32], columns: bool) -> tuple[NDArray[np.float32], float]:
    """The two principal components [n, 2], and the share of the variance in them."""
    centred = features - features.mean(axis=0)
    if columns:  # of a table: on one scale
        spread = centred.std(axis=0)
        centred /= np.where(spread > 0, spread, 1)
    sample = centred[:: len(centred) // 4000 + 1].astype(np.float64)
    found = np.random.default_rng(0).normal(size=(features.shape[1], min(2, features.shape[1])))
    for _ in range(30):  # subspace iteration
        found, _ = np.linalg.qr(sample.T @ (sample @ found))
    total = float((sample**2).sum())
    held = float(((sample @ found) ** 2).sum()) / total if total else 0.0
    places = centred @ found.astype(np.float32)
    return np.column_stack([places, np.zeros((len(places), 2 - places.shape[1]), np.float32)]), held


def packed(values: NDArray, kind: Any) -> str:
    """Numbers as text for a page."""
    return base64.b64encode(np.ascontiguousarray(values.astype(np.dtype(kind).newbyteorder("<"))).tobytes()).decode()


def _seconds(run: Survey) -> Picture:
    """Seconds of every phase, over all epochs."""
    totals: Counter[str] = Counter()
    for each in (*run.metrics, run.record):
        totals.update({phase: took for phase, took in (each.get("seconds") or {}).items() if _is_number(took)})
    if not totals:
        return None
    longest, everything = max(totals, key=lambda name: totals[name]), sum(totals.values())
    share_of = percent(totals[longest] / everything, 0) if everything else "all"
    return {
        "phases": [{"phase": name, "seconds": round(value, 3)} for name, value in totals.items()],
        "here": f"Of {everything:,.1f} seconds, {share_of} went into: {longest}.",
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _number(value: Any, digits: int) -> float | None:
    if not _is_number(value) and not isinstance(value, np.floating):
        return None
    return None if value != value else round(float(value), digits)

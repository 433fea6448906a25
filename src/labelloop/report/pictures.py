"""The data of a report's figures, as plain numbers. A figure without data is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelloop.report.facts import RowFacts, share
from labelloop.runs.labels import label_counts, noise_matrix
from labelloop.runs.survey import Survey

MOST_CLASSES = 30  # classes in a noise matrix: more would be unreadable
MOST_FLOWS = 40
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
        "noise": _noise(run, rows),
        "flows": _flows(run, rows),
        "dynamics": _dynamics(run),
        "weights": _weights(run),
        "reliability": _reliability(run),
        "coverage": _coverage(run, rows),
        "seconds": _seconds(run),
    }


def _noise(run: Survey, rows: RowFacts | None) -> Picture:
    """The noise matrix T[true, given]; if there are many classes, those with the most wrong labels."""
    if rows is None or run.targets is None or run.targets.ndim != 2:
        return None
    names = run.classes
    if len(names) != run.targets.shape[1] or not len(names):
        return None
    counts = label_counts(rows.given, run.targets, len(names))
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:MOST_CLASSES])
    matrix = noise_matrix(counts)
    return {
        "classes": [names[k] for k in shown],
        "all_classes": len(names),
        "share": [[_number(matrix[i, j], 4) for j in shown] for i in shown],
        "rows": [[_number(counts[i, j], 1) for j in shown] for i in shown],
    }


def _flows(run: Survey, rows: RowFacts | None) -> Picture:
    """The number of labels that changed from each class to each other class."""
    if rows is None or not rows.changed.any():
        return None
    names = run.classes
    pairs = rows.given[rows.changed] * len(names) + rows.corrected[rows.changed]
    found, counts = np.unique(pairs, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = order[:MOST_FLOWS]
    return {
        "flows": [
            {
                "from": names[int(found[k]) // len(names)],
                "to": names[int(found[k]) % len(names)],
                "rows": int(counts[k]),
            }
            for k in shown
        ],
        "all_flows": len(found),
        "left_out": int(counts[order[MOST_FLOWS:]].sum()),
    }


def _dynamics(run: Survey) -> Picture:
    """Loss and accuracies by epoch, with the rounds and the learning rate drops."""
    if not run.metrics:
        return None
    config = run.record.get("config") or {}
    epochs, drops = config.get("epochs"), config.get("learning_rate_drops") or config.get("lr_drops") or []
    curves = {key: title for key, title in CURVES.items() if any(_is_number(row.get(key)) for row in run.metrics)}
    return {
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
    """The combination weights of every round: the given label or the first labels, then each round's correction."""
    rounds = [each for each in run.record.get("rounds") or [] if each.get("weights")]
    if rounds:
        return {
            "kind": "rounds",
            "bars": [
                {"round": each.get("round", k), "component": _name(each, c), "weight": _number(weight, 4)}
                for k, each in enumerate(rounds, start=1)
                for c, weight in enumerate(each["weights"])
                if weight >= 0.0005
            ],
        }
    named = run.record.get("weights")
    if not isinstance(named, dict) or not named:
        return None
    parts = {"with a given label": named, "without one": run.record.get("weights_without_label") or {}}
    bars = [
        {"round": rows, "component": str(name), "weight": _number(weight, 4)}
        for rows, weights in parts.items()
        for name, weight in weights.items()
        if weight >= 0.0005
    ]
    return {"kind": "sources", "bars": bars}


def _name(entry: dict[str, Any], number: int) -> str:
    """A component of a round; in records from before components had names, they are the paper's."""
    names = entry.get("components") or []
    return str(names[number]) if number < len(names) else _component(number)


def _component(place: int) -> str:
    return "given label" if place == 0 else f"round {place}"


def _reliability(run: Survey) -> Picture:
    """Accuracy against confidence, on held-out clean rows."""
    bins = (run.record.get("estimate") or {}).get("reliability")
    return {"bins": bins} if bins else None


def _coverage(run: Survey, rows: RowFacts | None) -> Picture:
    """For every confidence threshold: how many changes are left, and the share of such labels that are right."""
    if rows is None or not rows.changed.any():
        return None
    confidence = rows.confidence[rows.changed]
    estimate = run.record.get("estimate") or {}
    bins = estimate.get("reliability") or []
    measured = {round(float(each["from"]), 3): each for each in estimate.get("changes_by_confidence") or []}
    points = []
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
                "changes_right": measured.get(round(least, 3)),
            }
        )
    return {"points": points, "all_changes": int(rows.changed.sum())}


def _seconds(run: Survey) -> Picture:
    """Seconds of every phase, over all epochs."""
    totals: dict[str, float] = {}
    for row in run.metrics:
        for phase, seconds in (row.get("seconds") or {}).items():
            totals[phase] = totals.get(phase, 0.0) + float(seconds)
    for phase, seconds in (run.record.get("seconds") or {}).items():
        if _is_number(seconds):
            totals[phase] = totals.get(phase, 0.0) + float(seconds)
    if not totals:
        return None
    return {"phases": [{"phase": name, "seconds": round(value, 3)} for name, value in totals.items()]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _number(value: Any, digits: int) -> float | None:
    if not _is_number(value) and not isinstance(value, np.floating):
        return None
    return None if value != value else round(float(value), digits)

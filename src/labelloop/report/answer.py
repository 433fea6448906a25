"""The first screen of a report: the answer in words and numbers, as plain HTML that needs no script."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from labelloop.report.facts import Facts, is_share, percent, within
from labelloop.runs.run_json import export_name
from labelloop.runs.survey import Survey

WIDE = 0.06  # a wider interval is worth narrowing


def answer(run: Survey, found: Facts) -> str:
    """The main results of a run: tiles, what is missing, and what to do next."""
    tiles = [_wrong(found), _changed(found), _quality(found), _choice(run, found), _test(run, found)]
    steps = "".join(f"<li>{step}</li>" for step in next_steps(run, found))
    return (
        f"{_missing(run)}<div class='tiles'>{''.join(tiles)}</div>"
        f"<div class='next'><h3>What to do next</h3><ol>{steps}</ol></div>"
    )


def _missing(run: Survey) -> str:
    if not run.missing:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in run.missing)
    return f"<div class='missing' role='note'><h3>This report is incomplete</h3><ul>{items}</ul></div>"


def _tile(title: str, value: str, *lines: str) -> str:
    below = "".join(f"<p>{line}</p>" for line in lines if line)
    return f"<div class='tile'><h3>{escape(title)}</h3><div class='value'>{value}</div>{below}</div>"


def _wrong(found: Facts) -> str:
    title = "Given labels that were wrong"
    if found.wrong is None:
        return _tile(title, "unknown", "Only clean rows with a given label can show this.")
    wrong = found.wrong
    count = ""
    if found.noisy:
        low, middle, high = (round(found.noisy * wrong[key]) for key in ("low", "value", "high"))
        count = f"about {middle:,} of {found.noisy:,} ({low:,} to {high:,})"
    return _tile(
        title, percent(wrong["value"]), count, f"95% interval {within(wrong)}, from {wrong['rows']:,} clean rows"
    )


def _changed(found: Facts) -> str:
    if found.changed is None:
        return _tile("Labels changed", "none yet", "Labels are made at the end of a run.")
    share = f"{percent(found.changed / found.noisy)} of the {found.noisy:,} noisy rows" if found.noisy else ""
    fixed = "" if found.fixed is None else f"fixed: {percent(found.fixed['value'], 0)} of the wrong labels"
    broken = "" if found.broken is None else f"broken: {percent(found.broken['value'])} of the good ones"
    return _tile("Labels changed", f"{found.changed:,}", share, "; ".join(part for part in (fixed, broken) if part))


def _quality(found: Facts) -> str:
    title = "Labels that are right"
    before, after = found.before, found.after
    truth = ""
    if found.true_before is not None and found.true_after is not None:
        truth = (
            f"by the true labels: {percent(found.true_before)} before, {percent(found.true_after)} after the last epoch"
        )
    if after is None:
        value = "unknown" if not truth else f"{percent(found.true_before)} → {percent(found.true_after)}"
        return _tile(title, value, truth or "No held-out clean rows can evaluate these labels.")
    start = "" if before is None else f"<span class='before'>{percent(before['value'])}</span> → "
    bars = _bar("given", before) + _bar("corrected", after)
    judged = f"95% interval {within(after)}, from {after['rows']:,} held-out clean rows"
    return _tile(title, f"{start}{percent(after['value'])}", bars, judged, truth)


def _bar(name: str, found: Mapping[str, Any] | None) -> str:
    """A bar with its interval, as SVG."""
    if found is None:
        return ""
    value, low, high = (100 * float(found[key]) for key in ("value", "low", "high"))
    return (
        f"<span class='bar {name}'><svg viewBox='0 0 100 8' preserveAspectRatio='none' aria-hidden='true'>"
        f"<rect class='back' width='100' height='8'/><rect class='fill' width='{value:.2f}' height='8'/>"
        f"<rect class='range' x='{low:.2f}' y='3' width='{max(high - low, 0.4):.2f}' height='2'/></svg>"
        f"<span>{name}</span></span>"
    )


def _choice(run: Survey, found: Facts) -> str:
    """Where the labels come from, and what they were compared with."""
    title = "Where the labels come from"
    chosen = run.record.get("labels_from") or run.record.get("method")
    if not chosen:
        return _tile(title, "unknown", "run.json does not say.")
    lines = [escape(text) for text in choice_lines(run.record)]
    if not lines:
        lines = ["The run compared no other source of labels."]
    return _tile(title, f"<span class='word'>{escape(str(chosen))}</span>", *lines)


def choice_lines(record: Mapping[str, Any]) -> list[str]:
    """What was chosen over what, by how much and how surely, in words."""
    lines = []
    estimate = record.get("estimate") or {}
    ours, theirs = estimate.get("corrected_label_accuracy"), estimate.get("loop_label_accuracy")
    if is_share(ours) and is_share(theirs):
        lines.append(
            f"{percent(ours['value'])} right, compared with {percent(theirs['value'])} of the loop's own labels"
            f" (on the same clean rows)"
        )
    guard = record.get("guard")
    if isinstance(guard, Mapping) and isinstance(guard.get("line"), str):
        lines.append(guard["line"])
    return lines


def _test(run: Survey, found: Facts) -> str:
    title = "Test accuracy"
    if found.test_accuracy is None:
        if run.record.get("method") == "correct":
            return _tile(title, "no model", "Labels were corrected without training a classifier.")
        classifier = (run.record.get("estimate") or {}).get("classifier_accuracy")
        if is_share(classifier):
            return _tile(title, percent(classifier["value"]), f"of the clean rows; 95% interval {within(classifier)}")
        return _tile(title, "no test set", "Give one with --test to measure the classifier.")
    rows = ((run.record.get("data") or {}).get("test") or {}).get("rows")
    where = f"on {rows:,} rows not used for training" if rows else "on rows not used for training"
    return _tile(title, percent(found.test_accuracy), where, "after the last epoch")


def next_steps(run: Survey, found: Facts) -> list[str]:
    """What to do next, as HTML."""
    folder = escape(_quoted(str(run.path or "RUN")))
    state = run.record.get("state")
    if run.record and state not in (None, "finished"):
        return [
            f"Continue it: <code>labelloop fit DATA --resume --output-dir {folder}</code>, with the options it had.",
            f"Then write this page again: <code>labelloop report {folder}</code>.",
        ]
    steps = []
    if found.before is None:
        steps.append(
            "Label some random rows and <strong>keep their given label</strong>: only such pairs show how many labels"
            " are wrong."
        )
    elif found.after is not None and found.after["high"] - found.after["low"] > WIDE:
        more = max(50, round(3 * found.after["rows"]))
        steps.append(
            f"The estimate is uncertain ({within(found.after)}). About {more:,} more <em>random</em> clean rows would"
            " halve the interval."
        )
    if found.doubtful and run.record.get("method") in ("labelloop", "closed-loop", "correct"):
        steps.append(
            f"Review the most doubtful rows: about {found.doubtful_wrong:.0f} of the first {found.doubtful} are wrong"
            f" by their own confidence. <code>labelloop review {folder}</code>, or as a file: <code>labelloop plan"
            f" {folder}</code>."
        )
    if found.changed:
        to = export_name(run.record.get("source"))
        steps.append(
            f"Export labels: <code>labelloop export {folder} --to {to}</code>; with <code>--min-confidence 0.9</code>"
            " only confident changes."
        )
    return steps or ["Nothing: the run has no labels to use yet."]


def _quoted(text: str) -> str:
    return (
        text
        if all(letter.isalnum() or letter in "/._-+" for letter in text)
        else "'" + text.replace("'", "'\\''") + "'"
    )

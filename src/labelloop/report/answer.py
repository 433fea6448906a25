"""The first screen of a report: three numbers, what to do next, and warnings; then the classes."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from labelloop.report.facts import Facts, RowFacts, is_bounded, is_share, percent, unproved, within
from labelloop.report.page import bullets, table
from labelloop.runs.run_json import export_name
from labelloop.runs.survey import Survey
from labelloop.types import DIFFER, MISSING

WIDE, GOOD = 0.06, 0.98  # a wider interval is worth narrowing; labels that are better need no review first
VAGUE = 0.4  # an interval that is wider is shown instead of a number
WORTH = 0.85  # of the width of an interval: random rows that leave more of it are not worth asking for
FEW, FEW_OF_CLASS = 50, 5  # clean rows
ASKED = 50  # random rows to answer at a time
MOST_NAMED = 5  # classes in one sentence
SAMPLE = 5_000  # rows in which leaks are looked for
LEAK, REPEATED = 0.98, 5  # a column leaks if so much of the label follows from it, in values that so many rows share


def answer(run: Survey, found: Facts, rows: RowFacts | None) -> str:
    """The main results of a run, as plain HTML that needs no script."""
    first, *others = next_steps(run, found)
    more = bullets(others) if others else ""
    lists = (run.missing, careful(run, found, rows))
    missing, warnings = (bullets(map(escape, texts)) if texts else "" for texts in lists)
    return (
        (f"<div class='missing' role='note'><h3>This report is incomplete</h3>{missing}</div>" if missing else "")
        + f"<div class='tiles'>{_wrong(found)}{_right(found)}{_changed(found, _guard(run))}</div>"
        f"<div class='next'><h3>What to do next</h3><p>{first}</p>{more}</div>"
        + (f"<div class='careful'><h3>Be careful about</h3>{warnings}</div>" if warnings else "")
    )


def _tile(title: str, value: str, words: str, *lines: str) -> str:
    below = "".join(f"<p>{line}</p>" for line in lines if line)
    said = f"<p class='words'>{words}</p>" if words else ""
    return f"<div class='tile'><h3>{escape(title)}</h3><div class='value'>{value}</div>{said}{below}</div>"


def _is_vague(found: Mapping[str, Any]) -> bool:
    """Whether one number would say more than is known."""
    return is_bounded(found) or found["high"] - found["low"] > VAGUE


def _number(found: Mapping[str, Any]) -> str:
    """A share as text; as a range, where hardly more is known."""
    return f"{100 * found['low']:.0f} to {percent(found['high'], 0)}" if _is_vague(found) else percent(found["value"])


def in_words(found: Mapping[str, Any]) -> str:
    """The interval of a share as a sentence."""
    low, high = percent(found["low"]), percent(found["high"])
    if found.get("how") == "assumed":
        return f"Between {low} and {high}, if the noise is as the run assumes."
    if is_bounded(found):
        return "Anything in between is possible: too few clean rows have a given label."
    if _is_vague(found):
        return "With 95% certainty. There are too few clean rows for a narrower range."
    return f"Between {low} and {high}, with 95% certainty."


def _wrong(found: Facts) -> str:
    title = "Wrong as given"
    if found.wrong is None:
        return _tile(title, "<span class='word'>not known</span>", "Only clean rows with a given label can show this.")
    wrong, count = found.wrong, ""
    if found.noisy and not _is_vague(wrong):
        count = f"About {round(found.noisy * wrong['value']):,} of {found.noisy:,} given labels."
    return _tile(title, _number(wrong), in_words(wrong), count, _rows(wrong))


def _right(found: Facts) -> str:
    title = "Right now"
    before, after = found.before, found.after
    truth = ""
    if found.true_before is not None and found.true_after is not None:
        truth = f"By the true labels: {percent(found.true_before)} before, {percent(found.true_after)} at the end."
    if after is None:
        return _tile(title, "<span class='word'>not known</span>", truth or "No clean row can test these labels.")
    if found.changed == 0 and before is not None:  # the same labels: one number
        return _tile(title, _number(before), in_words(before), "The same as given: nothing was changed.", truth)
    was = "" if before is None else f"Before: {_number(before)}."
    model = after.get("if_noise_model_holds") if is_bounded(after) else None
    assumed = f"{percent(model['value'])} if the noise is as the noisy rows suggest." if is_share(model) else ""
    bars = _bar("given", before) + _bar("corrected", after)
    return _tile(title, _number(after), in_words(after), assumed, was, bars, _rows(after), truth)


def _rows(found: Mapping[str, Any]) -> str:
    return f"From {found['rows']:,} held-out clean rows." if found.get("rows") else ""


def _guard(run: Survey) -> Mapping[str, Any]:
    found = run.record.get("guard")
    return found if isinstance(found, Mapping) else {}


def _changed(found: Facts, guard: Mapping[str, Any]) -> str:
    if found.changed is None:
        return _tile("Changed", "<span class='word'>none yet</span>", "Labels are corrected at the end of a run.")
    filled = f"{found.filled:,} rows that came without a label have one now." if found.filled else ""
    if not found.changed:
        why = f"{guard['clean_rows']} clean rows do not show that changes help." if guard.get("clean_rows") else ""
        held = f"{guard['held_back']:,} changes wait for more evidence." if guard.get("held_back") else ""
        return _tile("Changed", "0", why, held, filled)
    value = f"<button type='button' class='link' data-drill='{{}}'>{found.changed:,}</button>"
    share = f"{percent(found.changed / found.noisy)} of the {found.noisy:,} noisy rows." if found.noisy else ""
    lines = [
        f"Of the {kind} labels, {percent(part['value'])} are {now} <span class='whole'>({within(part)}).</span>"
        for kind, part, now in (("wrong", found.fixed, "fixed"), ("good", found.broken, "broken"))
        if part is not None
    ]
    held = f"{guard['held_back']:,} more changes were held back for lack of evidence." if guard.get("held_back") else ""
    return _tile("Changed", value, share, *lines, held, filled)


def sentence(text: str) -> str:
    """A note as a sentence of its own."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _bar(name: str, found: Mapping[str, Any] | None) -> str:
    """A bar with its interval, as SVG; without the bar, where only bounds are known."""
    if found is None:
        return ""
    value, low, high = (100 * float(found[key]) for key in ("value", "low", "high"))
    return (
        f"<span class='bar {name}'><svg viewBox='0 0 100 8' preserveAspectRatio='none' aria-hidden='true'>"
        f"<rect class='back' width='100' height='8'/>"
        f"<rect class='fill' width='{0 if _is_vague(found) else value:.2f}' height='8'/>"
        f"<rect class='range' x='{low:.2f}' y='3' width='{max(high - low, 0.4):.2f}' height='2'/></svg>"
        f"<span>{name}</span></span>"
    )


def next_steps(run: Survey, found: Facts) -> list[str]:
    """What to do next, as HTML, the most useful first."""
    folder = escape(shlex.quote(str(run.path or "RUN")))
    state = run.record.get("state")
    if run.record and state not in (None, "finished"):
        return [
            f"Continue it: <code>labelloop fit DATA --resume --output-dir {folder}</code>, with its original options.",
            f"Then write this page again: <code>labelloop report {folder}</code>.",
        ]
    review = f"<code>labelloop review {folder}</code>"
    improve = use = ""
    if found.doubtful and run.record.get("method") in ("labelloop", "closed-loop", "correct"):
        improve = (
            f"Review the most doubtful rows in {review}: the first {found.doubtful:,} hold about"
            f" {percent(found.doubtful_share, 0)} of the labels that may still be wrong. As a file:"
            f" <code>labelloop plan {folder}</code>."
        )
    if found.changed:
        use = (
            f"Use the labels: <code>labelloop export {folder} --to {export_name(run.record.get('source'))}</code>;"
            " add <code>--min-confidence 0.9</code> for confident changes only."
        )
    why = _why_random(found)
    random = f"Answer about {ASKED} random rows in {review} (key <kbd>e</kbd>), then refit: {why}." if why else ""
    after = found.after
    if after is None or is_bounded(after) or after.get("rows", 0) < FEW:
        steps = [random, improve, use]
    else:
        steps = [improve, use, random] if after["value"] < GOOD else [use, improve, random]
    return [step for step in steps if step] or ["Nothing: the run has no labels to use yet."]


def _why_random(found: Facts) -> str:
    """What random rows would show; nothing if it is known well enough."""
    after = found.after
    if after is None or found.before is None:
        return "" if found.changed is None else "nothing else shows how many labels are right"
    if is_bounded(after):
        return "only rows whose given label has been checked show how many labels are right"
    width, rows = after["high"] - after["low"], after.get("rows", 0)
    left = (rows / (rows + ASKED)) ** 0.5
    if width <= WIDE or not 0 < left <= WORTH:
        return ""
    return f"the interval of “right now” would shrink from {100 * width:.0f} to about {100 * width * left:.0f} points"


def careful(run: Survey, found: Facts, rows: RowFacts | None) -> list[str]:
    """What to be careful about: unlike clean rows, classes at risk, unproved changes, few clean rows, leaks."""
    risks = at_risk(run)
    lines = [sentence(note) for note in found.notes if note.startswith(DIFFER)]
    lines += [f"{name}: {text}" for name, text in list(risks.items())[:MOST_NAMED]]
    if len(risks) > MOST_NAMED:
        lines.append(f"{len(risks) - MOST_NAMED} more classes are at risk: they are marked in the table of classes.")
    lines += [text] if (text := unproved(_guard(run))) else []
    judged = found.after["rows"] if found.after is not None else None
    if isinstance(judged, int) and judged < FEW:
        lines.append(f"Only {judged} clean rows test these labels, so every number above is rough.")
    few = [name for name, rows in _clean_of_class(run).items() if rows < FEW_OF_CLASS and name not in risks]
    if few:
        names = ", ".join(few[:MOST_NAMED]) + (f" and {len(few) - MOST_NAMED} more" if len(few) > MOST_NAMED else "")
        lines.append(f"Fewer than {FEW_OF_CLASS} clean rows: {names}. That is too few to assess a class.")
    lines += [
        f"The column {name} reproduces the given label in {percent(share, 0)} of the rows, errors included. If it was"
        " derived from the label, leave it out of the features."
        for name, share in _leaks(run, rows)
    ]
    return lines


def at_risk(run: Survey) -> dict[str, str]:
    """The classes that the estimate of the run finds at risk, each with why and how many rows to verify."""
    listed = (run.record.get("estimate") or {}).get("at_risk")
    found = {}
    for each in listed if isinstance(listed, list) else []:
        place = each.get("class") if isinstance(each, Mapping) else None
        if isinstance(place, int) and 0 <= place < len(run.classes):
            verify = f" Verify about {each['verify']} of its rows." if isinstance(each.get("verify"), int) else ""
            found[run.classes[place]] = f"{each.get('why', 'at risk')}.{verify}".replace("..", ".")
    return found


def _of_class(run: Survey) -> list[Mapping[str, Any]]:
    listed = (run.record.get("estimate") or {}).get("by_class")
    if not isinstance(listed, list) or len(listed) != len(run.classes):
        return [{} for _ in run.classes]
    return [each if isinstance(each, Mapping) else {} for each in listed]


def _clean_of_class(run: Survey) -> dict[str, int]:
    """Clean rows of every class, where the run says so; those with a given label, in older runs."""
    found = {}
    for name, each in zip(run.classes, _of_class(run), strict=True):
        count = each.get("clean_rows", each.get("good", 0) + each.get("wrong", 0) if "good" in each else None)
        if isinstance(count, int):
            found[name] = count
    return found


def _leaks(run: Survey, rows: RowFacts | None) -> list[tuple[str, float]]:
    """Columns that reproduce the given label nearly always: no honest column can know which labels are wrong."""
    if rows is None or run.preview is None or run.preview.kind != "values":
        return []
    found = []
    known = [(row, look) for row, look in zip(run.preview.rows, run.preview.shown, strict=True) if look is not None]
    known = [(row, look) for row, look in known if 0 <= row < len(rows.given) and rows.given[row] != MISSING]
    known = known[:: len(known) // SAMPLE + 1]
    for k, name in enumerate(run.preview.columns):
        labels: dict[str, Counter[int]] = defaultdict(Counter)
        for row, look in known:
            labels[look[k] if k < len(look) else ""][int(rows.given[row])] += 1
        if len(labels) > 1 and REPEATED * len(labels) <= len(known):
            share = sum(max(each.values()) for each in labels.values()) / len(known)
            if share >= LEAK:
                found.append((name, share))
    return found


def class_table(run: Survey, rows: RowFacts | None) -> str:
    """What became of every class: given, returned, changed, how good, how well known."""
    if rows is None or not run.classes:
        return ""
    noisy = (rows.given != MISSING) & (rows.corrected != MISSING) & ~rows.clean
    size = len(run.classes)
    given, returned = (np.bincount(labels[noisy], minlength=size) for labels in (rows.given, rows.corrected))
    left, joined = (np.bincount(labels[rows.changed], minlength=size) for labels in (rows.given, rows.corrected))
    clean, risks = _clean_of_class(run), at_risk(run)
    lines = []
    for k, (name, each) in enumerate(zip(run.classes, _of_class(run), strict=True)):
        risk = " <span class='risk'>at risk</span>" if name in risks else ""
        changes = (_drill(left[k], "given", k), _drill(joined[k], "corrected", k))
        shares = (_share(each.get("precision")), _share(each.get("recall")))
        judges = f"{clean[name]:,}" if name in clean else "–"
        lines.append([escape(name) + risk, f"{given[k]:,}", *changes, f"{returned[k]:,}", *shares, judges])
    known = any(is_share(each.get("precision")) for each in _of_class(run))
    says = (
        f"Given and returned count the {int(noisy.sum()):,} rows with a given label and no clean one. Precision: the"
        " share of the rows returned as a class that belong to it. Recall: the share of the rows of a class that are"
        " returned as it." + ("" if known else " Neither is known here.")
    )
    head = ("class", "given", "changed away", "changed to it", "returned", "precision", "recall", "clean rows")
    drawn = table("Class by class", head, lines, "class-table")
    return f"<section id='classes'><h2>Class by class</h2><p class='says'>{says}</p>{drawn}</section>"


def _drill(count: int, key: str, code: int) -> str:
    if not count:
        return "0"
    return f"<button type='button' class='link' data-drill='{{&quot;{key}&quot;:{code}}}'>{count:,}</button>"


def _share(found: Any) -> str:
    if not is_share(found):
        return "–"
    return (
        f"{percent(found['value'], 0)} <span class='extra'>({100 * found['low']:.0f}–{100 * found['high']:.0f})</span>"
    )


def method_lines(run: Survey, found: Facts) -> Sequence[str]:
    """How the labels were made and what the classifier does, in words."""
    record, lines = run.record, []
    if chosen := record.get("labels_from") or record.get("method"):
        by = "relabelling without training a network" if chosen == "correct" else f"the method {chosen}"
        lines.append(f"The labels come from {by}.")
    estimate = record.get("estimate") or {}
    guard = _guard(run)
    if found.changed and isinstance(guard.get("sure"), float) and not unproved(guard):
        if_so = ", whatever the noise, if the clean rows are a random sample" if guard.get("how") == "bounded" else ""
        sure = percent(min(guard["sure"], 0.999))
        more = " more than" if guard["sure"] > 0.999 else ""
        lines.append(f"The changes fix more labels than they break, with{more} {sure} certainty{if_so}.")
    classifier = estimate.get("classifier_accuracy")
    if found.test_accuracy is not None:
        tested = ((record.get("data") or {}).get("test") or {}).get("rows")
        where = f"{tested:,} rows" if tested else "rows"
        lines.append(f"The classifier is right on {percent(found.test_accuracy)} of {where} not used for training.")
    elif is_share(classifier):
        lines.append(f"The classifier is right on {percent(classifier['value'])} of the clean rows.")
    return lines

"""Which rows to verify next, and what they would gain."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from labelloop.data.columns import NEVER_FEATURES, plain
from labelloop.data.readers.arrow_file import own_columns
from labelloop.errors import DataError, UsageError, check_output
from labelloop.progress import bar, clock
from labelloop.relabel.bounds import interval
from labelloop.relabel.estimate import MIN_CLEAN
from labelloop.relabel.sample import MIN_PAIRS
from labelloop.report.facts import is_bounded, unproved, with_interval
from labelloop.runs.files import sha256_of, write_atomically
from labelloop.runs.folder import RUN
from labelloop.seeds import stream
from labelloop.splits import deal
from labelloop.types import MISSING, Labels
from labelloop.workflows.certify import certify
from labelloop.workflows.refit import LAST_EPOCH, StoredRun, has_row_numbers, read_stored_run
from labelloop.workflows.summary import at_risk

COUNT = 200
CHANGED_SOONER = 0.1  # of confidence: changed labels were wrong more often than it says (benchmarks/review_orders.py)
OURS = ("given_label", "proposed_label", "confidence", "why", "clean_label")
LONGEST = 2000  # characters of a cell: texts are shown, not kept

# Of the learning curve:
SHARES = (0.25, 0.5, 1.0)  # of the clean rows outside a fold
FOLDS = 3  # nine corrections in all, so that a plan takes less time than the run
COMPANY = 2000  # noisy rows that are included, because relabelling learns from them
DRAWS = 500  # bootstrap samples of the clean rows, for the uncertainty of the extrapolation
FLATTEST, STEEPEST = 0.0, 1.0  # bounds of the power law's exponent


def plan_run(folder: Path, output: Path | None = None, count: int = COUNT) -> tuple[str, dict[str, Any]]:
    """Writes the rows to verify next, and returns a summary as text and the learning curve.

    Args:
        folder: A finished run of `fit` or `correct`.
        output: A .csv file that does not exist yet; without it, verify.csv in the folder.
        count: How many rows.
    """
    output = _new_file(folder, output, count)
    with clock("reading the run"):
        stored = read_stored_run(folder)
    rows, judged = rows_to_verify(stored, count), stored.run.record.estimate or {}
    if not all(0 <= one["class"] < len(stored.run.classes) for one in judged.get("at_risk") or []):
        raise DataError(f"{folder / RUN}: estimate.at_risk names a class that does not exist")
    if not len(rows):
        raise DataError(f"{folder}: every row is clean; there is nothing left to plan")
    with clock("reading your file"):
        chosen = _shown(stored, rows)
    confidence = np.asarray(chosen["confidence"])
    lines = [
        *at_risk(stored.run.classes, judged),
        *([text] if (text := unproved(stored.run.record.about.get("guard"))) else []),
        f"{len(rows)} rows to verify are in {output}, most likely wrong first; fill in clean_label, then",
        f"  labelloop refit {folder} --clean-file {output} --output-dir NEW",
        f"expected: {float((1 - confidence).sum()):.0f} of these corrected labels are wrong",
    ]
    if (stored.clean != MISSING).sum() < 2 * MIN_CLEAN:
        curve: dict[str, Any] = {}
        lines.append(f"a learning curve needs {2 * MIN_CLEAN} clean rows; verify these first")
    else:
        curve = learning_curve(stored, len(rows))
        lines += curve_lines(curve)
        if not stored.relabels:
            lines.append(f"  {LAST_EPOCH}")
        text = json.dumps(curve, indent=1) + "\n"
        write_atomically(output.with_suffix(".curve.json"), lambda place: place.write_text(text, encoding="utf-8"))
        lines += _drawn(curve, output.with_suffix(".curve"))
    write_atomically(output, lambda place: pa.csv.write_csv(chosen, place))  # last: a plan that exists is not repeated
    return "\n".join(lines), curve


def _drawn(curve: dict[str, Any], path: Path) -> list[str]:
    """Draws the learning curve, if there is something to draw with; a line that says where."""
    if find_spec("matplotlib") is None:
        return []
    from labelloop.report.figure import draw_learning_curve

    with clock("drawing the learning curve"):
        return [f"drawn: {' '.join(map(str, draw_learning_curve(curve, path)))}"]


def _new_file(folder: Path, output: Path | None, count: int) -> Path:
    """Where the rows to verify go."""
    output = folder / "verify.csv" if output is None else output
    if count < 1:
        raise UsageError(f"count must be at least 1, not {count}")
    check_output(output, ".csv", overwrite=True)
    if output.exists():  # never to be replaced
        raise DataError(f"{output} exists, and may hold your work; give another name with --output")
    return output


def plan_sample(
    folder: Path, max_error: float, certainty: float, *, output: Path | None = None, count: int | None = None
) -> str:
    """Writes random rows to verify, so that more labels can be certified; returns a summary as text.

    Args:
        folder: A finished run of `fit` or `correct`.
        max_error: The largest share of wrong labels among the certified ones.
        certainty: The probability that it is not larger.
        output: A .csv file that does not exist yet; without it, verify.csv in the folder.
        count: How many rows; without it, as many as the first useful step of the forecast takes.
    """
    output = _new_file(folder, output, 1 if count is None else count)
    with clock("reading the run"):
        stored, found = read_stored_run(folder), certify(folder, max_error, certainty)
    steps = found.certificates[0]["forecast"]
    count = (steps[0]["more"] if steps else COUNT) if count is None else count
    open_rows = np.flatnonzero((stored.clean == MISSING) & (stored.given != MISSING))
    open_rows = np.intersect1d(open_rows, stored.known)
    if not len(open_rows):
        raise DataError(f"{folder}: every row is clean; there is nothing left to plan")
    rng = stream(stored.seed, f"sample-{int((stored.clean != MISSING).sum())}")
    rows = np.sort(rng.permutation(open_rows)[:count])
    chosen = _shown(stored, rows)
    write_atomically(output, lambda place: pa.csv.write_csv(chosen, place))
    return "\n".join(
        [
            *found.lines(),
            f"{len(rows)} random rows to verify are in {output}; verify all of them, fill in clean_label, then",
            f"  labelloop refit {folder} --clean-file {output} --random-sample --output-dir NEW",
            f"  labelloop export NEW --max-error {100 * max_error:g}% --look 1 --to ...",
            "for later exports, use --look 2, 3, ...: the certainty then holds for all of them together",
        ]
    )


def rest_file(folder: Path, output: Path | None) -> Path:
    """Where `write_rest` writes: next to the export, else in the current folder; the file must not exist."""
    name = f"{folder.resolve().name}.review.csv" if output is None else f"{output.name}.review.csv"
    return _new_file(folder, Path(name) if output is None else output.with_name(name), 1)


def write_rest(folder: Path, certified: NDArray[np.bool_], place: Path) -> str:
    """Writes the rows whose labels are not certified to a file to fill in, most likely wrong first.

    Args:
        folder: A finished run of `fit` or `correct`.
        certified: Which rows are certified [n].
        place: A .csv file that does not exist yet.
    """
    stored = read_stored_run(folder)
    rows = rows_to_verify(stored, len(stored.given))
    rows = rows[~certified[rows]]
    chosen = _shown(stored, rows)
    write_atomically(place, lambda path: pa.csv.write_csv(chosen, path))
    return f"{len(rows)} rows that are not certified are in {place}; fill in clean_label, then `labelloop refit`"


def _shown(stored: StoredRun, rows: Labels) -> pa.Table:
    """The rows to verify: their columns, given and proposed label, the reason, and a blank for the clean label."""
    labels = stored.run.labels.take(pa.array(rows))
    given, proposed = (labels[name].to_pylist() for name in ("given_label", "corrected_label"))
    confidence = np.asarray(labels["corrected_confidence"])
    # A name that says so: `refit` compares the given labels too.
    columns: dict[str, Any] = {"row" if has_row_numbers(stored) else "id": labels["id"]}
    columns |= _own(stored, rows, taken={"id", "row", *OURS})
    why = list(map(_why, given, proposed, confidence))
    ours = ([_text(g) for g in given], [_text(p) for p in proposed], confidence, why, [""] * len(rows))
    return pa.table({**columns, **dict(zip(OURS, ours, strict=True))})


def _own(stored: StoredRun, rows: Labels, taken: set[str]) -> dict[str, Any]:
    """The columns of the input, as written there; none if it no longer exists or has changed."""
    source = stored.run.record.source or {}
    path = Path(str(source.get("path", "")))
    if source.get("sha256") is None or not path.is_file() or sha256_of(path) != source["sha256"]:
        return {}
    try:
        table = own_columns(path)
    except DataError:
        return {}
    if len(table) != len(stored.run.labels):
        return {}
    taken |= {source.get(name) or "" for name in ("label_column", "clean_column", "id_column")}
    names = [name for name in table.column_names if name not in taken and plain(name) not in NEVER_FEATURES]
    found = {name: [_text(value) for value in table[name].take(pa.array(rows)).to_pylist()] for name in names}
    return {name: [text[:LONGEST] for text in texts] for name, texts in found.items()}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _why(before: Any, after: Any, sure: float) -> str:
    what = "no given label" if before is None else "given label kept" if before == after else "given label changed"
    return f"{what}, {100 * (1 - sure):.0f}% likely to be wrong"


def rows_to_verify(stored: StoredRun, count: int) -> Labels:
    """The unverified rows whose corrected label is most likely wrong, most likely first.

    Verifying a row gains 1 − confidence right labels on average, and such rows are mostly more informative than random
    ones. A changed label comes slightly earlier than its confidence suggests: see CHANGED_SOONER.
    """
    open_rows = np.flatnonzero((stored.clean == MISSING) & ~np.isnan(stored.targets).any(axis=1))
    targets, given = stored.targets[open_rows], stored.given[open_rows]
    changed = (given != MISSING) & (targets.argmax(axis=1) != given)
    return open_rows[np.argsort(targets.max(axis=1) - CHANGED_SOONER * changed, kind="stable")[:count]]


def learning_curve(stored: StoredRun, more: int, progress: bool | None = None) -> dict[str, Any]:
    """Accuracy of the corrected labels for several numbers of clean rows, each counted on held-out rows.

    Args:
        stored: The run.
        more: How many rows might be verified next.
        progress: Whether to draw a progress bar; None draws one only in a terminal.

    Returns:
        "of": whose labels. "measured": the share of right ones for every number of clean rows. "beyond": the same for
        today's clean rows and for `more` on top. "gain": what `more` would add. Today's share is the run's estimate, if
        it is of these labels; errors then fall as by a power law fitted to the measured ones, which is an assumption.
        Without such an estimate, today's share is on the power law too, with bootstrapped intervals as for the gain.
    """
    rows, hits, sizes = _hits(stored, progress)
    now = int((stored.clean != MISSING).sum())
    measured = [_point(size, hit) for size, hit in zip(sizes, hits, strict=True)]
    rng = stream(stored.seed, "curve-draws")
    picks = rng.integers(len(rows), size=(DRAWS, len(rows)))
    errors = np.vstack([1 - hits.mean(axis=1), *(1 - hits[:, pick].mean(axis=1) for pick in picks)])  # [1 + draws, S]
    ends = np.array([_power_law(np.array(sizes), e, [now, now + more], len(rows)) for e in errors])  # [1 + draws, 2]
    today, then = _spread(1 - ends[:, 0]), _spread(1 - ends[:, 1])
    gain, paired = ends[:, 0] - ends[:, 1], bool((stored.given[rows] != MISSING).all())
    found = (stored.run.record.estimate or {}).get("corrected_label_accuracy") if paired else None
    if found and not is_bounded(found):
        today = {key: found[key] for key in today}
        then = {key: 1 - (1 - today[key]) * float(ends[0, 1] / ends[0, 0]) for key in today}
        gain *= (1 - today["value"]) / ends[0, 0]
    return {
        "of": "corrected labels" if paired else "labels of rows without a given one",
        "measured": measured,
        "beyond": [{"clean_rows": now, **today}, {"clean_rows": now + more, **then}],
        "gain": {"more": more, **_spread(gain)},
    }


def _hits(stored: StoredRun, progress: bool | None) -> tuple[Labels, NDArray[np.bool_], list[int]]:
    """The validation rows, whether each is right by the number of clean rows learnt from [S, J], and those numbers."""
    seed = stored.seed
    clean = np.flatnonzero(stored.clean != MISSING)
    noisy = np.flatnonzero((stored.clean == MISSING) & (stored.given != MISSING))
    looked_at = COMPANY if stored.relabels else 0
    rows = np.concatenate([clean, stream(seed, "curve-company").permutation(noisy)[:looked_at]])
    labels, given = stored.clean[rows], stored.given[rows]
    validation = stored.validation[rows] & (labels != MISSING)
    if (paired := validation & (given != MISSING)).sum() >= MIN_PAIRS:
        validation = paired
    correct = stored.on(rows)
    clean_rows = np.flatnonzero(labels != MISSING)
    fold = deal(2 * labels[clean_rows] + (given[clean_rows] != MISSING), stream(seed, "curve-folds"), FOLDS)
    order = stream(seed, "curve-order").permutation(len(clean_rows))
    smallest = int(np.bincount(fold, minlength=fold.max() + 1).max())
    most = len(clean_rows) - smallest
    sizes = sorted({max(MIN_CLEAN, round(share * most)) for share in SHARES})
    right = np.zeros((len(sizes), len(rows)), bool)
    trials = [(s, size, k) for s, size in enumerate(sizes) for k in range(fold.max() + 1)]
    for s, size, k in bar(trials, "learning curve", "correction", progress):
        seen = [t for t in order if fold[t] != k][:size]
        shown = np.full(len(rows), MISSING)
        shown[clean_rows[seen]] = labels[clean_rows[seen]]
        held = clean_rows[fold == k]
        right[s, held] = correct(shown)[held].argmax(axis=1) == labels[held]
    return rows[validation], right[:, validation], sizes


def _point(size: int, hits: NDArray[np.bool_]) -> dict[str, Any]:
    low, high = interval(int(hits.sum()), len(hits))
    return {"clean_rows": size, "value": float(hits.mean()), "low": low, "high": high}


def _power_law(sizes: NDArray, errors: NDArray, at: list[int], validation: int) -> NDArray:
    """Errors at other sizes from errors = a · size^-b, with b kept within its bounds."""
    x, y = np.log(sizes), np.log(np.maximum(errors, 0.5 / validation))
    slope = np.polyfit(x, y, 1)[0] if len(sizes) > 1 else 0.0
    slope = float(np.clip(slope, -STEEPEST, -FLATTEST))
    return np.exp(np.mean(y - slope * x) + slope * np.log(at))


def _spread(values: NDArray) -> dict[str, float]:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def curve_lines(curve: dict[str, Any]) -> list[str]:
    """The learning curve as a small table."""
    lines = [f"{curve['of']} that are right, by the number of clean rows (95% intervals):"]
    lines += [f"  {point['clean_rows']:>7}  {with_interval(point)}" for point in curve["measured"]]
    now, then = curve["beyond"]
    lines.append(f"  {now['clean_rows']:>7}  {with_interval(now)}  today")
    lines.append(f"  {then['clean_rows']:>7}  {with_interval(then)}  with as many random rows added, by a power law")
    gain = curve["gain"]
    worth = "worth it" if gain["low"] > 0.005 else "perhaps worth it" if gain["high"] > 0.005 else "hardly worth it"
    return [*lines, f"  {gain['more']} more would add {with_interval(gain)}: {worth}"]

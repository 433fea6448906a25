"""The learning curve of corrected labels: measured with fewer clean rows than there are, and extrapolated to more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.progress import bar
from labelloop.relabel.bounds import interval
from labelloop.relabel.estimate import MIN_CLEAN
from labelloop.relabel.relabel import MIN_PAIRS
from labelloop.seeds import stream
from labelloop.splits import deal
from labelloop.types import MISSING, Labels
from labelloop.workflows.refit import StoredRun

SHARES = (0.25, 0.5, 1.0)  # of the clean rows outside a fold
FOLDS = 3  # nine corrections in all, so that a plan takes less time than the run
COMPANY = 2000  # noisy rows that are included, because relabelling learns from them
DRAWS = 500  # bootstrap samples of the clean rows, for the uncertainty of the extrapolation
FLATTEST, STEEPEST = 0.0, 1.0  # bounds of the power law's exponent


def learning_curve(stored: StoredRun, more: int, progress: bool | None = None) -> dict[str, Any]:
    """Accuracy of the corrected labels for several numbers of clean rows, each counted on held-out rows.

    Args:
        stored: The run.
        more: How many rows might be verified next.
        progress: Whether to draw a progress bar; None draws one only in a terminal.

    Returns:
        "measured": the share of right labels for every number of clean rows, with its interval. "beyond": the same for
        today's clean rows and for `more` on top, from a power law fitted to the errors. "gain": what `more` would add.
        The intervals of "beyond" and "gain" are bootstrapped; that the power law holds is an assumption.
    """
    rows, hits, sizes = _hits(stored, progress)
    now = int((stored.clean != MISSING).sum())
    measured = [_point(size, hit) for size, hit in zip(sizes, hits, strict=True)]
    rng = stream(stored.seed, "curve-draws")
    picks = rng.integers(len(rows), size=(DRAWS, len(rows)))
    errors = np.vstack([1 - hits.mean(axis=1), *(1 - hits[:, pick].mean(axis=1) for pick in picks)])  # [1 + draws, S]
    ends = np.array([_power_law(np.array(sizes), e, [now, now + more], len(rows)) for e in errors])  # [1 + draws, 2]
    right = 1 - ends
    gain = right[:, 1] - right[:, 0]
    return {
        "measured": measured,
        "beyond": [
            _spread(right[:, 0], clean_rows=now),
            _spread(right[:, 1], clean_rows=now + more),
        ],
        "gain": _spread(gain, more=more),
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


def _spread(values: NDArray, **about: int) -> dict[str, Any]:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return {**about, "value": float(values[0]), "low": float(low), "high": float(high)}

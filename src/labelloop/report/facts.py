"""The main numbers of a run: how many labels were wrong, were changed and are right, with 95% intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from labelloop.runs.survey import Survey
from labelloop.types import MISSING, Labels

LEVEL = 0.95

Share = dict[str, Any]  # value, low, high, rows

PLANNED = 200  # rows offered for review, as in `labelloop plan`
UNPROVED = (
    "The changes rest on the noise as estimated from the noisy rows: no clean row has shown that they fix more labels"
    " than they break. Ten random clean rows that keep their given label would give a rough answer; with 20 it is"
    " measured."
)


def share(hits: float, rows: int) -> Share | None:
    """The share of hits with its interval; None without rows."""
    if rows <= 0:
        return None
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(hits, rows - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, rows - hits, 1 - tail)) if hits < rows else 1.0
    return {"value": hits / rows, "low": low, "high": high, "rows": int(rows)}


def is_share(found: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether an entry of run.json is a share with its interval."""
    return isinstance(found, Mapping) and all(
        isinstance(found.get(key), int | float) and found[key] == found[key] for key in ("value", "low", "high")
    )


def percent(value: float | None, digits: int = 1) -> str:
    """A share as text."""
    return "unknown" if value is None or value != value else f"{100 * value:.{digits}f}%"


def is_bounded(found: Mapping[str, Any]) -> bool:
    """Whether only bounds are known, and no value between them is better than another."""
    return found.get("how") == "bounded"


def unproved(guard: Any) -> str:
    """The warning for changes that rest on the estimated noise; empty otherwise.

    Args:
        guard: The entry "guard" of run.json, if there is one.
    """
    assumed = isinstance(guard, Mapping) and guard.get("changed") and guard.get("how") == "assumed"
    return UNPROVED if assumed else ""


def within(found: Mapping[str, Any]) -> str:
    """The interval as text."""
    return f"{100 * found['low']:.1f} to {100 * found['high']:.1f}%"


def with_interval(found: Mapping[str, Any]) -> str:
    """A share with its interval as text; bounds alone, where these are all that is known."""
    return within(found) if is_bounded(found) else f"{percent(found['value'])} ({within(found)})"


@dataclass(frozen=True)
class RowFacts:
    """labels.parquet as arrays.

    Attributes:
        given: Given labels [n], -1 where missing.
        corrected: Corrected labels [n], -1 where missing.
        confidence: Of the corrected label [n], NaN where missing.
        clean: Which rows have a clean label [n].
        changed: Which rows without a clean label have a corrected label other than the given one [n].
    """

    given: Labels
    corrected: Labels
    confidence: NDArray[np.float64]
    clean: NDArray[np.bool_]
    changed: NDArray[np.bool_]

    def pairs(self, which: NDArray[np.bool_], classes: int) -> list[tuple[int, int, int]]:
        """Of some rows [n]: given class, corrected class and how many, the most first."""
        found, counts = np.unique(self.given[which] * classes + self.corrected[which], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [(*divmod(int(found[k]), classes), int(counts[k])) for k in order]


@dataclass(frozen=True)
class Facts:
    """The main numbers; None where unknown.

    Attributes:
        rows: Input rows.
        noisy: Rows with a given label and no clean one.
        clean: Clean rows.
        changed: Noisy rows whose label was changed.
        filled: Rows that came without a label and have one now.
        wrong: Share of given labels that are wrong, with its interval.
        before: Share of given labels that are right, with its interval.
        after: Share of corrected labels that are right, with its interval.
        fixed: Share of wrong given labels that were fixed.
        broken: Share of good given labels that were broken.
        true_before: Share of given labels that are right, if the run knew the truth.
        true_after: The same for corrected labels.
        test_accuracy: Test accuracy of the classifier after the last epoch.
        doubtful: Number of rows to review next.
        doubtful_share: The share of all wrong labels that they hold, judging by their confidence.
        notes: How to read the estimates.
    """

    rows: int | None
    noisy: int | None
    clean: int | None
    changed: int | None
    filled: int
    wrong: Share | None
    before: Share | None
    after: Share | None
    fixed: Share | None
    broken: Share | None
    true_before: float | None
    true_after: float | None
    test_accuracy: float | None
    doubtful: int
    doubtful_share: float
    notes: tuple[str, ...]


def row_facts(run: Survey) -> RowFacts | None:
    """labels.parquet as arrays, or None without it."""
    if run.labels is None:
        return None
    given, corrected = run.codes("given_label"), run.codes("corrected_label")
    clean = run.flags("verified")
    changed = (given != MISSING) & (corrected != MISSING) & (given != corrected) & ~clean
    return RowFacts(given, corrected, run.numbers("corrected_confidence"), clean, changed)


def facts(run: Survey, rows: RowFacts | None) -> Facts:
    """The main numbers of a run, as far as it has them."""
    data: Mapping[str, Any] = run.record.get("data") or {}
    found: Mapping[str, Any] = run.record.get("estimate") or {}
    last = run.metrics[-1] if run.metrics else {}
    before = _before(found, rows)
    wrong = None if before is None else complement(before)
    noisy = data.get("noisy")
    clean = None if "clean_paired" not in data else data["clean_paired"] + data.get("clean_unpaired", 0)
    doubt = np.array([])
    if rows is not None:
        noisy = int(((rows.given != MISSING) & (rows.corrected != MISSING) & ~rows.clean).sum())
        clean = int(rows.clean.sum())
        open_rows = ~rows.clean & ~np.isnan(rows.confidence)
        doubt = np.sort(1 - rows.confidence[open_rows])[::-1]
    return Facts(
        rows=len(run.labels) if run.labels is not None else data.get("rows"),
        noisy=noisy,
        clean=clean,
        changed=None if rows is None else int(rows.changed.sum()),
        filled=0 if rows is None else int(((rows.given == MISSING) & (rows.corrected != MISSING) & ~rows.clean).sum()),
        wrong=wrong,
        before=before,
        after=_share(found, "corrected_label_accuracy"),
        fixed=_share(found, "wrong_labels_fixed"),
        broken=_share(found, "good_labels_broken"),
        true_before=last.get("given_label_accuracy"),
        true_after=last.get("corrected_label_accuracy"),
        test_accuracy=last.get("test_accuracy"),
        doubtful=min(len(doubt), PLANNED),
        doubtful_share=float(doubt[:PLANNED].sum() / max(doubt.sum(), 1e-9)),
        notes=tuple(str(note) for note in found.get("notes") or ()),
    )


def _share(found: Mapping[str, Any], key: str) -> Share | None:
    return dict(found[key]) if is_share(found.get(key)) else None


def _before(found: Mapping[str, Any], rows: RowFacts | None) -> Share | None:
    """How many given labels are right: from the estimate, else counted on the clean rows behind it."""
    if found_share := _share(found, "given_label_accuracy"):
        return found_share
    good, bad = ((found.get(key) or {}).get("rows", 0) for key in ("good_labels_broken", "wrong_labels_fixed"))
    if good + bad:
        return share(good, good + bad)
    if rows is None or found:  # an estimate without pairs: the clean rows do not show how reliable given labels are
        return None
    pairs = rows.clean & (rows.given != MISSING) & (rows.corrected != MISSING)
    return share(int((rows.given == rows.corrected)[pairs].sum()), int(pairs.sum()))


def complement(found: Mapping[str, Any]) -> Share:
    """The share of the others."""
    return {**found, "value": 1 - found["value"], "low": 1 - found["high"], "high": 1 - found["low"]}

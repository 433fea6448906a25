"""What changing labels does to clean rows: it sets the guard, and it says how good the labels returned are.

A clean row without a given label is given one as labels go wrong, again and again, so that it can judge too. It then
judges by what was estimated of the noise, which pairs would not have to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelloop.correction.instant.components import Combined
from labelloop.correction.instant.guard import Guard, margins, set_guard
from labelloop.correction.instant.noise import Noise
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.types import MISSING, Floats, Labels

DRAWS = 20  # simulated labels of a clean row under each noise model
SIMULATED = 0.5  # what a clean row counts for whose given label is simulated: the noise may be estimated wrong


@dataclass(frozen=True)
class Changes:
    """The guard, and what the judges say of labels that it lets through.

    Attributes:
        guard: Set by all judges.
        erased: The share of good labels of every class that changes are believed to break [C].
        cross_fitted: What the judges would be returned without their own help, but for the guard [M, C].
        expected_right: How likely a judge without a given label is to be right, under each noise model [M, K]; NaN
            where it has one, or where pairs are enough.
        rows: How many judges count.
        given_right: The share of their given labels that are right.
        corrected_right: The share of those returned that are right.
    """

    guard: Guard
    erased: Array
    cross_fitted: Floats
    expected_right: Floats
    rows: int
    given_right: float
    corrected_right: float

    def record(self, said: Floats, targets: Floats, given: Labels, clean: Labels) -> dict[str, Any]:
        """What was chosen, against what, by how much and how sure that is, for run.json.

        Args:
            said: Soft labels before the guard [n, C].
            targets: Those returned [n, C].
            given: Given labels [n], -1 where missing.
            clean: Clean labels [n], -1 where missing.
        """
        noisy = (given != MISSING) & (clean == MISSING)
        changed = int((targets.argmax(axis=1) != given)[noisy].sum())
        held = int((said.argmax(axis=1) != given)[noisy].sum()) - changed
        simulated = bool(np.isfinite(self.expected_right).any())
        found = {
            "rows": int(noisy.sum()),
            "changed": changed,
            "held_back": held,
            "clean_rows": self.rows,
            "given_right": self.given_right,
            "corrected_right": self.corrected_right,
            "fixed": round(self.guard.fixed, 2),
            "broken": round(self.guard.broken, 2),
            "sure": self.guard.sure if changed else None,
            "labels_simulated": simulated,
        }
        return {"line": guard_line(found), **found}


def guard_line(found: dict[str, Any]) -> str:
    """The choice in a line."""
    how = "clean rows, their given labels simulated" if found["labels_simulated"] else "clean rows with a given label"
    held = f"; {found['held_back']} held back, where clean rows cannot tell" if found["held_back"] else ""
    if not found["changed"]:
        return (
            f"all {found['rows']} given labels kept: on {found['clean_rows']} {how}, no change is sure to do good{held}"
        )
    if not found["clean_rows"]:
        return f"{found['changed']} of {found['rows']} given labels changed{held}; no clean row shows what that does"
    return (
        f"{found['changed']} of {found['rows']} given labels changed{held}; on {found['clean_rows']} {how},"
        f" {100 * found['corrected_right']:.1f}% are right against {100 * found['given_right']:.1f}% as given; that"
        f" changes fix more than they break is {100 * found['sure']:.1f}% sure"
    )


@dataclass(frozen=True)
class _Trial:
    """The judges with one given label each, real or drawn [M, C], [M]."""

    said: Floats
    given: Labels
    alone: Floats  # by the noise model alone
    model: int  # under which noise model it was drawn


def _set(trials: Sequence[_Trial], labels: Labels, given: Labels, counts: Labels) -> Guard:
    """The guard that the trials ask for."""
    worth = np.where(given == MISSING, SIMULATED, 1.0) / len(trials)  # [M]
    lead, fixed, broken = [], [], []
    for trial in trials:
        moved = Guard(counts).moves(trial.said, trial.given) & (trial.given != MISSING)
        right, wrong = trial.said.argmax(axis=1) == labels, trial.given == labels
        told = moved & (right | wrong)
        lead.append(margins(trial.said, trial.given)[told])
        fixed.append((worth * right)[told])
        broken.append((worth * wrong)[told])
    return set_guard(np.concatenate(lead), np.concatenate(fixed), np.concatenate(broken), counts)


def _erased(trials: Sequence[_Trial], guard: Guard, labels: Labels, given: Labels) -> Array:
    """The share of good labels of every class that changes are believed to break [C]."""
    worth = np.where(given == MISSING, SIMULATED, 1.0) / len(trials)  # [M]
    good, broken = np.zeros(len(guard.counts)), np.zeros(len(guard.counts))
    for trial in trials:
        was_right = trial.given == labels
        good += np.bincount(labels, worth * was_right, len(good))
        broken += np.bincount(labels, worth * (was_right & guard.changes(trial.said, trial.given)), len(good))
    return (broken + 0.5) / (good + 1)


def look_at_changes(
    noise: Noise, answer: Combined, alone: Combined, q_unseen: Floats, *, simulate: bool, rng: np.random.Generator
) -> Changes:
    """Counts what changes would do to the judges.

    Args:
        noise: How labels go wrong.
        answer: What would be returned without a guard.
        alone: What the noise model alone says.
        q_unseen: What the inputs alone say of the judges [M, C].
        simulate: Whether judges without a given label get simulated ones; else only paired ones count.
        rng: Draws them.
    """
    judges = noise.judges
    labels, given = judges.labels, judges.given
    trials = [_Trial(answer.unseen, given, alone.unseen, 0)]
    if simulate:
        trials = []
        for _ in range(DRAWS if (given == MISSING).any() else 1):
            drawn = noise.draw(rng)
            for k, g in enumerate(drawn):
                believed = noise.believed(q_unseen, g)
                trials.append(_Trial(believed, g, believed, k))
    counts = np.bincount(labels, minlength=judges.evidence.num_classes)
    guard = _set(trials, labels, given, counts)
    erased = _erased(trials, guard, labels, given)
    guard = guard.minding(answer.final.sum(axis=0, dtype=np.float64), erased)
    cross_fitted = guard.apply(answer.unseen, given, alone.unseen)
    models = 1 + max(trial.model for trial in trials)
    open_rows = (given == MISSING) & simulate
    expected = np.where(open_rows[:, None], np.zeros(models), np.nan).astype(np.float32)
    own = np.flatnonzero(open_rows)
    for trial in trials if len(own) else ():
        handed = guard.apply(trial.said[own], trial.given[own], trial.alone[own]).argmax(axis=1)
        expected[own, trial.model] += (handed == labels[own]) * models / len(trials)
    right = np.mean([trial.given == labels for trial in trials], axis=0)
    counted = (given != MISSING) | simulate
    hits = np.where(open_rows, np.nan_to_num(expected).mean(axis=1), cross_fitted.argmax(axis=1) == labels)
    shares = (float(values[counted].mean()) if counted.any() else 0.0 for values in (right, hits))
    return Changes(guard, erased, cross_fitted, expected, int(counted.sum()), *shares)

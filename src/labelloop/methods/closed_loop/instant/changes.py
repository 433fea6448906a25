"""What changing labels would do to clean rows. This sets the guard, and estimates how good the returned labels are.

So that a clean row without a given label can judge too, labels are drawn for it many times from the estimated noise.
Its verdict is then only as good as that estimate; paired rows do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelloop.methods.closed_loop.instant.components import Combined
from labelloop.methods.closed_loop.instant.guard import Guard, margins, set_guard
from labelloop.methods.closed_loop.instant.noise import Noise
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.types import MISSING, Floats, Labels

DRAWS = 20  # simulated labels of a clean row under each noise model
SIMULATED = 0.5  # weight of a clean row whose given label is simulated, since the estimated noise may be wrong


@dataclass(frozen=True)
class Changes:
    """The guard, and how the labels that it returns do on the judges.

    Attributes:
        guard: Set by all judges.
        erased: The estimated share of good labels of every class that changes break [C].
        cross_fitted: Soft labels returned for the judges, learnt without them; only the guard has seen them [M, C].
        expected_right: For judges without a given label, the probability that the returned label is right, under each
            noise model [M, K]; NaN for the others, or if there are enough pairs.
        rows: How many judges count.
        given_right: The share of their given labels that are right.
        corrected_right: The share of their returned labels that are right.
    """

    guard: Guard
    erased: Array
    cross_fitted: Floats
    expected_right: Floats
    rows: int
    given_right: float
    corrected_right: float

    def record(self, said: Floats, targets: Floats, given: Labels, clean: Labels) -> dict[str, Any]:
        """The entry "guard" of run.json: how many labels were changed and kept, and the evidence for it.

        Args:
            said: Soft labels before the guard [n, C].
            targets: The soft labels returned [n, C].
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
    """The guard's decision in one line."""
    how = "clean rows with simulated given labels" if found["labels_simulated"] else "clean rows with a given label"
    changes = "change" if found["held_back"] == 1 else "changes"
    held = f"; {found['held_back']} {changes} held back for lack of evidence" if found["held_back"] else ""
    if not found["changed"]:
        return f"all {found['rows']} given labels kept: {found['clean_rows']} {how} do not show that changes help{held}"
    if not found["clean_rows"]:
        return f"{found['changed']} of {found['rows']} given labels changed{held}; no clean row shows the effect"
    return (
        f"{found['changed']} of {found['rows']} given labels changed{held}; on {found['clean_rows']} {how},"
        f" {100 * found['corrected_right']:.1f}% are right after correction and {100 * found['given_right']:.1f}% as"
        f" given; the probability that changes fix more than they break is {100 * found['sure']:.1f}%"
    )


@dataclass(frozen=True)
class _Trial:
    """The judges with one given label each, real or drawn: soft labels [M, C] and given labels [M]."""

    said: Floats
    given: Labels
    alone: Floats  # from the noise model alone
    model: int  # the noise model that it was drawn from


def _set(trials: Sequence[_Trial], labels: Labels, given: Labels, counts: Labels) -> Guard:
    """The guard that follows from the trials."""
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
    """The estimated share of good labels of every class that changes break [C]."""
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
        noise: The estimated noise.
        answer: What would be returned without a guard.
        alone: The answer of the noise model alone.
        q_unseen: P(y | x) of the judges from the inputs alone [M, C].
        simulate: Whether judges without a given label get simulated ones; if not, only paired judges count.
        rng: Draws the simulated labels.
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

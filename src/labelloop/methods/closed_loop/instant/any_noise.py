"""Whether changes do more good than harm whatever the noise is, for when few clean rows would change.

The first rule of guard.py counts clean rows that change. Where there are three or four of them, it shows nothing. But
every clean row tells what a change could do to it at worst, with or without a given label of its own:

- b, the share that would lose its label if the label it was given were the true one: no noise breaks more labels;
- e, the share that some given label would turn into a wrong class: no noise leaves more changes without a right label.

If a share c of the noisy rows changes, at least c - e become right and at most b wrong, so at least c - e - b are
gained. c is nearly exact, because there are many noisy rows. Of M clean rows E and B are counted, each with a prior of
half a row, and the changes up to a margin are made if M c > (E + ½) + (B + ½). Two things make this bound cautious: a
clean row counts for the worst of all given labels, and the soft labels are those of the flattest predictions that the
clean rows allow (noise.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from labelloop.methods.closed_loop.instant.guard import Guard, margins, next_margin, smallest_margin
from labelloop.methods.closed_loop.instant.noise import Noise
from labelloop.methods.closed_loop.learners.logistic import Array
from labelloop.types import Floats, Labels

BEFORE = 0.5  # prior rows of E, and of B
MOST_NUMBERS = 200_000_000  # clean rows times classes squared; more take seconds, so fewer clean rows are asked


def guard_against_any_noise(noise: Noise, said: Floats, q_unseen: Floats, guard: Guard) -> Guard:
    """The guard with the smallest margin for which changes gain labels whatever the noise; as it is without one.

    Args:
        noise: The estimated noise, which decides what a given label changes.
        said: Soft labels of all rows [n, C].
        q_unseen: P(y | x) of the judges from the inputs alone [M, C].
        guard: The guard that keeps all labels, with the counts of the clean rows.
    """
    evidence = noise.judges.evidence
    moved, lead = _moves(guard, said[evidence.sample], evidence.given[evidence.sample])
    rows, classes = q_unseen.shape
    asked = np.linspace(0, rows - 1, min(rows, max(MOST_NUMBERS // classes**2, 1))).astype(int)
    wrong, broken = worst_of_each(noise, q_unseen, asked, guard)
    changed = np.sort(lead[moved])[::-1]  # [K], the largest first
    beyond = np.append(changed[1:], 0.0)[: len(changed)]  # the margin that lets pass so many of them
    gained = len(asked) / max(len(evidence.sample), 1) * np.arange(1, len(changed) + 1)  # M c
    lost = _more(wrong, beyond) + _more(broken, beyond) + 2 * BEFORE  # E + B + 1
    at = smallest_margin(changed, gained - lost)
    if at is None:
        return guard
    sure = float(ndtr((gained[at] - lost[at]) / np.sqrt(lost[at])))  # E + B has about the variance of a count
    return Guard(guard.counts, next_margin(changed, at), at_worst=sure)


def worst_of_each(noise: Noise, q_unseen: Floats, asked: Labels, guard: Guard) -> tuple[Array, Array]:
    """The largest margin by which a judge turns into a wrong class, and that by which its true label is lost.

    Both are 0 where that happens under no given label, [m] each.
    """
    labels = noise.judges.labels[asked]
    worst, own = np.zeros(len(asked)), np.zeros(len(asked))
    for g in range(q_unseen.shape[1]):
        given = np.full(len(asked), g)
        believed = noise.believed(q_unseen[asked], given, asked)
        moved, lead = _moves(guard, believed, given)
        lead = np.where(moved & (believed.argmax(axis=1) != labels), lead, 0.0)
        worst = np.maximum(worst, lead)
        own = np.where(labels == g, lead, own)
    return worst, own


def _moves(guard: Guard, said: Floats, given: Labels) -> tuple[NDArray[np.bool_], Array]:
    return guard.moves(said, given), margins(said, given)


def _more(values: Array, margin: Array) -> Array:
    """How many values are larger than each of the margins [K]."""
    return (len(values) - np.searchsorted(np.sort(values), margin, side="right")).astype(float)

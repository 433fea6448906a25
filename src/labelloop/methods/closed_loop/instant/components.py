"""Components of the convex combination: cross-fitted on the clean rows, and weighted by their held-out predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import by_chunks
from labelloop.methods.closed_loop.combination import clean_loss, combine, fit_simplex_weights
from labelloop.methods.closed_loop.instant.evidence import Evidence, Said
from labelloop.splits import deal
from labelloop.types import MISSING, Floats, Labels

EVERYBODY = -1  # no fold is left out
DUST = 1e-6  # a weight that the solver leaves in place of zero

Candidate = Callable[[Evidence, Labels], Said]  # learns from the clean rows it is given


@dataclass(frozen=True)
class Judges:
    """The clean rows that judge and those that are learnt from: no row judges a fit that it was part of.

    Attributes:
        evidence: What is known about all rows.
        rows: Positions of the judges [M].
        fold: Their folds [M].
        teachers: Positions of all clean rows.
        teacher_fold: Their folds.
        learnt: A cache of fits by candidate and left-out fold, so that each is made once.
    """

    evidence: Evidence
    rows: Labels
    fold: Labels
    teachers: Labels
    teacher_fold: Labels
    learnt: dict[tuple[Candidate, int], Said] = field(default_factory=dict)

    @classmethod
    def all_clean(cls, evidence: Evidence, rng: np.random.Generator) -> Judges:
        """All clean rows judge."""
        rows = np.flatnonzero(evidence.clean != MISSING)
        fold = deal(evidence.clean[rows] + evidence.num_classes * (evidence.given[rows] != MISSING), rng)
        return cls(evidence, rows, fold, rows, fold)

    def among(self, mask: NDArray[np.bool_]) -> Judges:
        """Only some of them judge; candidates still learn from all."""
        return Judges(self.evidence, self.rows[mask], self.fold[mask], self.teachers, self.teacher_fold, self.learnt)

    def ask(self, candidate: Candidate, without: int) -> Said:
        """The candidate fitted to the clean rows of all folds but one."""
        key = (candidate, without)
        if key not in self.learnt:
            self.learnt[key] = candidate(self.evidence, self.teachers[self.teacher_fold != without])
        return self.learnt[key]

    @property
    def labels(self) -> Labels:
        """Their clean labels [M]."""
        return self.evidence.clean[self.rows]

    @property
    def given(self) -> Labels:
        """Their given labels [M], -1 where missing."""
        return self.evidence.given[self.rows]

    @property
    def folds(self) -> range:
        """The numbers of the folds."""
        return range(int(self.teacher_fold.max()) + 1)


@dataclass(frozen=True)
class Component:
    """One component of the combination.

    Attributes:
        name: For display.
        unseen: Its cross-fitted predictions for the judges [M, C].
        final: Computes its predictions for all rows, from a fit to all clean rows [n, C].
    """

    name: str
    unseen: Floats
    final: Callable[[], Floats]

    def among(self, mask: NDArray[np.bool_]) -> Component:
        """The same component with only some of the judges."""
        return Component(self.name, self.unseen[mask], self.final)


@dataclass(frozen=True)
class Combined:
    """The combination for all rows [n, C], for the judges with weights fitted without them [M, C], and its weights."""

    final: Floats
    unseen: Floats
    weights: dict[str, float]


def best_of_each(judges: Judges, families: Mapping[str, Sequence[Candidate]], *, use_given: bool) -> list[Component]:
    """The candidate of each family with the lowest loss on the judges."""
    found = []
    for name, candidates in families.items():
        said = [_unseen(judges, candidate, use_given) for candidate in candidates]
        best = int(np.argmin([clean_loss([p], judges.labels, np.ones(1)) for p in said]))
        found.append(Component(name, said[best], partial(_final, judges, candidates[best], use_given)))
    return found


def combination(judges: Judges, components: Sequence[Component]) -> Combined:
    """Eq. 5 on the components' held-out predictions; components without weight are not computed for all rows."""
    unseen, labels = [component.unseen for component in components], judges.labels
    weights = fit_simplex_weights(unseen, labels)
    weights = np.where(weights < DUST, 0, weights) / weights[weights >= DUST].sum()
    used = [j for j, weight in enumerate(weights) if weight > 0]
    final = combine([components[j].final() for j in used], weights[used])
    out = np.empty_like(unseen[0])
    for k in np.unique(judges.fold):  # the weights, too, are fitted without the row
        others = judges.fold != k
        without = fit_simplex_weights([p[others] for p in unseen], labels[others]) if others.any() else weights
        out[~others] = combine([p[~others] for p in unseen], without)
    return Combined(final, out, dict(zip((c.name for c in components), weights.tolist(), strict=True)))


def _unseen(judges: Judges, candidate: Candidate, use_given: bool) -> Floats:
    said = np.empty((len(judges.rows), judges.evidence.num_classes), np.float32)
    for k in judges.folds:
        mine = judges.fold == k
        if mine.any():
            said[mine] = judges.ask(candidate, k).about(judges.evidence, judges.rows[mine], use_given=use_given)
    return said


def _final(judges: Judges, candidate: Candidate, use_given: bool) -> Floats:
    evidence, said = judges.evidence, judges.ask(candidate, EVERYBODY)
    everyone = np.arange(len(evidence.given))
    shape = (len(everyone), evidence.num_classes)
    width = evidence.scores.shape[1] + (0 if evidence.inputs is None else evidence.inputs.shape[1])
    return by_chunks(lambda rows: said.about(evidence, everyone[rows], use_given=use_given), shape, width=width)

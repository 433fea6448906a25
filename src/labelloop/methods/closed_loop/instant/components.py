"""Components of the convex combination: cross-fitted on the clean rows, and weighted by their held-out predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import by_chunks, soft_dtype
from labelloop.methods.closed_loop.combination import Weights, clean_loss, combine, fit_simplex_weights
from labelloop.methods.closed_loop.instant.evidence import Evidence, Said
from labelloop.splits import deal
from labelloop.types import MISSING, Floats, Labels

EVERYBODY = -1  # no fold is left out
DUST = 1e-6  # a weight that the solver leaves in place of zero

Candidate = Callable[[Evidence, Labels], Said]  # learns from the clean rows it is given
About = Callable[[Labels, int], Floats]  # predictions for rows, learnt without the clean rows of a fold, or EVERYBODY


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
        about: Its predictions for some rows, from a fit to the clean rows of all folds but one [m, C].
    """

    name: str
    unseen: Floats
    about: About

    def among(self, mask: NDArray[np.bool_]) -> Component:
        """The same component with only some of the judges."""
        return Component(self.name, self.unseen[mask], self.about)


@dataclass(frozen=True)
class Combined:
    """A combination of components.

    Attributes:
        final: Its predictions for all rows [n, C].
        unseen: Those for the judges, with components and weights fitted without them [M, C].
        weights: The weight of every component.
        without: Its predictions for some rows, with components and weights fitted without one fold [m, C].
    """

    final: Floats
    unseen: Floats
    weights: dict[str, float]
    without: About

    def about(self, rows: Labels, fold: int) -> Floats:
        """Its predictions for some rows; `fold` is left out [m, C]."""
        return self.final[rows] if fold == EVERYBODY else self.without(rows, fold)

    def changed(self, judges: Judges, change: Callable[[Floats, Labels], Floats]) -> Combined:
        """The same with all predictions changed in one way, by a function of predictions and positions of rows."""
        everyone = np.arange(len(self.final))
        return replace(
            self,
            final=by_chunks(lambda rows: change(self.final[rows], everyone[rows]), self.final.shape, self.final.dtype),
            unseen=change(self.unseen, judges.rows),
            without=lambda rows, fold: change(self.without(rows, fold), rows),
        )


def best_of_each(judges: Judges, families: Mapping[str, Sequence[Candidate]], *, use_given: bool) -> list[Component]:
    """The candidate of each family with the lowest loss on the judges."""
    found = []
    for name, candidates in families.items():
        said = [_unseen(judges, candidate, use_given) for candidate in candidates]
        best = int(np.argmin([clean_loss([p], judges.labels, np.ones(1)) for p in said]))
        found.append(Component(name, said[best], partial(_about, judges, candidates[best], use_given)))
    return found


def combination(judges: Judges, components: Sequence[Component]) -> Combined:
    """Eq. 5 on the components' held-out predictions; components without weight are not computed."""
    unseen, labels = [component.unseen for component in components], judges.labels
    weights = _without_dust(fit_simplex_weights(unseen, labels))
    of_fold, out = {EVERYBODY: weights}, np.empty_like(unseen[0])
    for k in np.unique(judges.fold):  # the weights, too, are fitted without the row
        others = judges.fold != k
        without = fit_simplex_weights([p[others] for p in unseen], labels[others]) if others.any() else weights
        out[~others] = combine([p[~others] for p in unseen], without)
        of_fold[int(k)] = _without_dust(without)

    def about(rows: Labels, fold: int) -> Floats:
        mine = of_fold.get(fold, weights)
        used = np.flatnonzero(mine).tolist()
        return combine([components[j].about(rows, fold) for j in used], mine[used])

    evidence = judges.evidence
    everyone = np.arange(len(evidence.given))
    width = evidence.scores.shape[1] + (0 if evidence.inputs is None else evidence.inputs.shape[1])
    final = by_chunks(
        lambda rows: about(everyone[rows], EVERYBODY), (len(everyone), evidence.num_classes), soft_dtype(), width=width
    )
    return Combined(final, out, dict(zip((c.name for c in components), weights.tolist(), strict=True)), about)


def _without_dust(weights: Weights) -> Weights:
    return np.where(weights < DUST, 0, weights) / weights[weights >= DUST].sum()


def _unseen(judges: Judges, candidate: Candidate, use_given: bool) -> Floats:
    said = np.empty((len(judges.rows), judges.evidence.num_classes), np.float32)
    for k in judges.folds:
        mine = judges.fold == k
        if mine.any():
            said[mine] = judges.ask(candidate, k).about(judges.evidence, judges.rows[mine], use_given=use_given)
    return said


def _about(judges: Judges, candidate: Candidate, use_given: bool, rows: Labels, fold: int) -> Floats:
    return judges.ask(candidate, fold).about(judges.evidence, rows, use_given=use_given)

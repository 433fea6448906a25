"""The robust convex combination (stacking): ŷ = Σ_k ω_k ȳ_k with ω on the simplex (Eq. 2), fitted by Eq. 5.

The weights that are returned are never worse on the clean rows than any single component, nor than the previous weights
with a zero appended: both inequalities of Proposition 1 hold by construction. Components of relabelling are
cross-fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from labelloop.errors import UsageError
from labelloop.large_arrays import by_chunks, row_chunks, soft_dtype
from labelloop.relabel.calibration import Calibrator, Candidate, Observations
from labelloop.relabel.sample import copies, first_alike
from labelloop.splits import deal
from labelloop.types import MISSING, Floats, Labels

TINY = 1e-12  # keeps log finite where every component gives the true class probability 0

Weights = NDArray[np.float64]

EVERYBODY = -1  # no fold is left out
DUST = 1e-6  # a weight that the solver leaves in place of zero

Predict = Callable[[Labels, int], Floats]  # predictions for rows, learnt without the clean rows of a fold, or EVERYBODY


def mixture_loss(weights: Weights, true_class: NDArray[np.float64]) -> float:
    """Cross-entropy of the mixture; true_class[k, i] is component k's probability of the true class of row i."""
    return float(-np.log(np.maximum(weights @ true_class, TINY)).mean())


def mixture_gradient(weights: Weights, true_class: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gradient of `mixture_loss` with respect to the weights."""
    mixed = np.maximum(weights @ true_class, TINY)  # [M]
    return -(true_class / mixed).mean(axis=1)  # [K]


def clean_loss(components: Sequence[Floats], labels: Labels, weights: Weights) -> float:
    """Cross-entropy on clean rows of the components [M, C] mixed by the weights: what Eq. 5 minimises."""
    return mixture_loss(weights, _true_class(components, labels))


def _true_class(components: Sequence[Floats], labels: Labels) -> NDArray[np.float64]:
    return np.stack([c[np.arange(len(labels)), labels] for c in components]).astype(np.float64)  # [K, M]


def check_components(components: Sequence[Floats]) -> list[Floats]:
    """The components as arrays. Refuses components that cannot be mixed."""
    arrays = [np.asarray(component) for component in components]
    if not arrays:
        raise UsageError("there are no components; give at least one array of rows that sum to 1")
    for number, array in enumerate(arrays):
        if array.ndim != 2 or array.shape != arrays[0].shape:
            raise UsageError(
                f"component {number} has the shape {array.shape} and component 0 {arrays[0].shape}; "
                "all must be [rows, classes] alike"
            )
        for rows in row_chunks(*array.shape):
            if not np.isfinite(array[rows]).all():
                row = rows.start + int(np.flatnonzero(~np.isfinite(array[rows]).all(axis=1))[0])
                raise UsageError(f"component {number}, row {row} holds a value that is not a number; leave it out")
    return arrays


def check_labels(labels: Labels, rows: int, num_classes: int) -> None:
    """Refuses clean labels that are missing or out of range, or another number of them than rows."""
    if labels.shape != (rows,):
        raise UsageError(f"{rows} rows, but labels of the shape {labels.shape}; give one clean label for every row")
    if not rows:
        raise UsageError("there are no clean rows; give at least one")
    if labels.dtype.kind not in "iu":
        raise UsageError(f"labels must be whole numbers from 0 to {num_classes - 1}, not {labels.dtype}")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        value = int(labels[wrong[0]])
        what = "is missing" if value == MISSING else f"is {value}"
        raise UsageError(f"the label of row {wrong[0]} {what}; clean labels run from 0 to {num_classes - 1}")


def fit_simplex_weights(components: Sequence[Floats], labels: Labels, previous: Weights | None = None) -> Weights:
    """Finds the weights of Eq. 5.

    Args:
        components: Each component's soft labels of the clean_val rows [M, C]; rows sum to 1.
        labels: Their clean labels [M].
        previous: The weights of the previous round, for all components but the newest.

    Returns:
        Weights [K], non-negative, summing to 1.

    Raises:
        UsageError: No components, no rows, components of different shapes, a label that is missing or out of range, or
            a value that is not a number.
    """
    components, labels = check_components(components), np.asarray(labels)
    check_labels(labels, *components[0].shape)
    true_class = _true_class(components, labels)
    count = len(components)
    # Started at a vertex, SLSQP can stop at once, far from the minimum; so it starts in the middle. PAPER.md, guess 15.
    found = minimize(
        mixture_loss,
        np.full(count, 1 / count),
        args=(true_class,),
        jac=mixture_gradient,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones_like(w)},
        options={"ftol": 1e-9, "maxiter": 200},
    )
    found_weights = np.where(np.isfinite(found.x), found.x.clip(0), 0)
    candidates = [found_weights / found_weights.sum()] if found_weights.sum() > 0 else []
    candidates += list(np.eye(count))
    if previous is not None:
        candidates.append(np.append(previous, np.zeros(count - len(previous))))
    return min(candidates, key=lambda w: mixture_loss(w, true_class))


def newest_alone(components: Sequence[Floats], labels: Labels, previous: Weights | None = None) -> Weights:
    """The ablation of Eq. 5: all weight on the newest component."""
    return np.eye(len(components))[-1]


def with_prior(weights: Weights, rows: int, prior: Weights) -> Weights:
    """(M ω + prior) / (M + Σ prior): the weights from M rows, as if `prior[k]` further rows had chosen component k.

    A handful of rows says little about weights: Eq. 5 on a single row may put all weight on any component. The prior
    raises the loss on the M rows by at most log(1 + Σ prior / M), which vanishes as M grows.
    """
    return (rows * weights + prior) / (rows + prior.sum()) if prior.any() else weights


def combine(components: Sequence[Floats], weights: Weights) -> Floats:
    """The convex combination of Eq. 2, [N, C]. A component with weight zero is not read.

    Raises:
        UsageError: No components, a wrong number of weights, weights that are not on the simplex, components of
            different shapes, or a value that is not a number.
    """
    weights = np.asarray(weights, np.float64)
    if not len(components) or len(components) != len(weights):
        raise UsageError(f"{len(components)} components and {len(weights)} weights; give one weight for each component")
    if not np.isfinite(weights).all() or weights.min() < 0 or abs(weights.sum() - 1) > 1e-6:
        raise UsageError(f"weights must not be negative and must sum to 1, but are {weights.tolist()}")
    check_components([component for weight, component in zip(weights, components, strict=True) if weight > 0])
    used = [(weight, component) for weight, component in zip(weights, components, strict=True) if weight > 0]
    if len(used) == 1:
        return used[0][1]  # exactly that component: no rounding

    def mixed(rows: slice) -> NDArray[np.float64]:
        total = np.zeros(components[0][rows].shape, np.float64)
        for weight, component in used:
            total += weight * component[rows].astype(np.float64)
        return total / total.sum(axis=1, keepdims=True)

    return by_chunks(mixed, components[0].shape, soft_dtype())


@dataclass(frozen=True)
class ValidationRows:
    """The clean rows that validate and those that are learnt from: no row validates a fit that it was part of.

    Attributes:
        observed: What is known about all rows.
        rows: Positions of the validation rows [M].
        fold: Their folds [M].
        clean_rows: Positions of all clean rows.
        clean_fold: Their folds.
        learnt: A cache of fits by candidate and left-out fold, so that each is made once.
    """

    observed: Observations
    rows: Labels
    fold: Labels
    clean_rows: Labels
    clean_fold: Labels
    learnt: dict[tuple[Candidate, int], Calibrator] = field(default_factory=dict)

    @classmethod
    def all_clean(cls, observed: Observations, rng: np.random.Generator) -> ValidationRows:
        """All clean rows are validation rows."""
        rows = np.flatnonzero(observed.clean != MISSING)
        fold = deal(observed.clean[rows] + observed.num_classes * (observed.given[rows] != MISSING), rng)
        first = first_alike(observed, rows) if copies(observed, rows).any() else np.arange(len(rows))
        return cls(observed, rows, fold[first], rows, fold[first])  # a row must not be learnt from its copy

    def among(self, mask: NDArray[np.bool_]) -> ValidationRows:
        """Only some of them validate; candidates still learn from all."""
        return ValidationRows(
            self.observed, self.rows[mask], self.fold[mask], self.clean_rows, self.clean_fold, self.learnt
        )

    def fitted(self, candidate: Candidate, without: int) -> Calibrator:
        """The candidate fitted to the clean rows of all folds but one."""
        key = (candidate, without)
        if key not in self.learnt:
            self.learnt[key] = candidate(self.observed, self.clean_rows[self.clean_fold != without])
        return self.learnt[key]

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Those that count: all but copies [M]."""
        return ~copies(self.observed, self.rows)

    @property
    def labels(self) -> Labels:
        """Their clean labels [M]."""
        return self.observed.clean[self.rows]

    @property
    def given(self) -> Labels:
        """Their given labels [M], -1 where missing."""
        return self.observed.given[self.rows]

    @property
    def folds(self) -> range:
        """The numbers of the folds."""
        return range(int(self.clean_fold.max()) + 1)


@dataclass(frozen=True)
class Component:
    """One component of the combination.

    Attributes:
        name: For display.
        oof: Its cross-fitted predictions for the validation rows [M, C].
        predict: Its predictions for some rows, from a fit to the clean rows of all folds but one [m, C].
    """

    name: str
    oof: Floats
    predict: Predict

    def among(self, mask: NDArray[np.bool_]) -> Component:
        """The same component with only some of the validation rows."""
        return Component(self.name, self.oof[mask], self.predict)


@dataclass(frozen=True)
class Combined:
    """A combination of components.

    Attributes:
        final: Its predictions for all rows [n, C].
        oof: Those for the validation rows, with components and weights fitted without them [M, C].
        weights: The weight of every component.
        without: Its predictions for some rows, with components and weights fitted without one fold [m, C].
    """

    final: Floats
    oof: Floats
    weights: dict[str, float]
    without: Predict

    @classmethod
    def of(
        cls, predict: Predict, oof: Floats, weights: dict[str, float], shape: tuple[int, ...], width: int = 0
    ) -> Combined:
        """The combination that predicts in this way; all rows are predicted here, `width` numbers a row at a time."""
        everyone = np.arange(shape[0])
        final = by_chunks(lambda rows: predict(everyone[rows], EVERYBODY), shape, soft_dtype(), width=width)
        return cls(final, oof, weights, predict)

    def predict(self, rows: Labels, fold: int) -> Floats:
        """Its predictions for some rows; `fold` is left out [m, C]."""
        return self.final[rows] if fold == EVERYBODY else self.without(rows, fold)

    def changed(self, validation: ValidationRows, change: Callable[[Floats, Labels, int], Floats]) -> Combined:
        """The same with all predictions changed, by a function of them, positions of rows and the left-out fold."""
        oof = self.oof.copy()
        for k in np.unique(validation.fold).tolist():
            mine = validation.fold == k
            oof[mine] = change(self.oof[mine], validation.rows[mine], k)
        return Combined.of(
            lambda rows, fold: change(self.predict(rows, fold), rows, fold), oof, self.weights, self.final.shape
        )


def best_of_each(
    validation: ValidationRows, families: Mapping[str, Sequence[Candidate]], *, use_given: bool
) -> list[Component]:
    """The candidate of each family with the lowest loss on the validation rows."""
    found = []
    for name, candidates in families.items():
        posterior = [_oof(validation, candidate, use_given) for candidate in candidates]
        best = int(np.argmin([clean_loss([p], validation.labels, np.ones(1)) for p in posterior]))
        found.append(Component(name, posterior[best], partial(_predict, validation, candidates[best], use_given)))
    return found


def combination(validation: ValidationRows, components: Sequence[Component]) -> Combined:
    """Eq. 5 on the components' held-out predictions; components without weight are not computed."""
    oof, labels = [component.oof for component in components], validation.labels
    weights = _without_dust(fit_simplex_weights(oof, labels))
    of_fold, out = {EVERYBODY: weights}, np.empty_like(oof[0])
    for k in np.unique(validation.fold):  # the weights, too, are fitted without the row
        others = validation.fold != k
        without = fit_simplex_weights([p[others] for p in oof], labels[others]) if others.any() else weights
        out[~others] = combine([p[~others] for p in oof], without)
        of_fold[int(k)] = _without_dust(without)

    def predict(rows: Labels, fold: int) -> Floats:
        mine = of_fold.get(fold, weights)
        used = np.flatnonzero(mine).tolist()
        return combine([components[j].predict(rows, fold) for j in used], mine[used])

    observed = validation.observed
    width = observed.scores.shape[1] + (0 if observed.inputs is None else observed.inputs.shape[1])
    named = dict(zip((component.name for component in components), weights.tolist(), strict=True))
    return Combined.of(predict, out, named, (len(observed.given), observed.num_classes), width)


def _without_dust(weights: Weights) -> Weights:
    return np.where(weights < DUST, 0, weights) / weights[weights >= DUST].sum()


def _oof(validation: ValidationRows, candidate: Candidate, use_given: bool) -> Floats:
    posterior = np.empty((len(validation.rows), validation.observed.num_classes), np.float32)
    for k in validation.folds:
        mine = validation.fold == k
        if mine.any():
            posterior[mine] = validation.fitted(candidate, k).predict(
                validation.observed, validation.rows[mine], use_given=use_given
            )
    return posterior


def _predict(validation: ValidationRows, candidate: Candidate, use_given: bool, rows: Labels, fold: int) -> Floats:
    return validation.fitted(candidate, fold).predict(validation.observed, rows, use_given=use_given)

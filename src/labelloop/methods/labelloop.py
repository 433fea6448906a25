"""LabelLoop, the default: the paper's loop over networks that have not seen the rows they predict.

Features then cannot repeat a memorised label, every clean row may both teach and validate, and the given label may
count without pairs. Two half-networks predict each other's half of the rows; relabelling corrects the labels from what
they predict; given labels and all corrections so far are combined by Eq. 5, and the combination teaches the next round.
The labels that the loop ends with, after the guard, are returned. Numbers in brackets: lines of Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from labelloop.config.base import TrainingConfig
from labelloop.errors import UsageError
from labelloop.large_arrays import joined, taken
from labelloop.models import TwoHeadClassifier
from labelloop.relabel.estimate import estimate
from labelloop.relabel.learners import kind_of_inputs
from labelloop.relabel.relabel import Relabelled, given_or, guarded
from labelloop.relabel.rounds import AllRows
from labelloop.relabel.stacking import Weights, clean_loss, combine, fit_simplex_weights, with_prior
from labelloop.splits import one_hot, take, together
from labelloop.training.averaging import WeightAverage, from_arrays, to_arrays
from labelloop.training.checkpoint import Checkpoint
from labelloop.training.cross_fit import Halves, Teaching, cross_fit
from labelloop.training.epoch import train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer
from labelloop.types import Correction, Fitted, Floats, Labels, Problem, ReturnedLabels, Rows

PRIOR_ROWS = 10.0  # prior rows of the combination weights, all for the newest correction
FIRST_REPEATS = 3  # how often an epoch of the first round shows a clean row; later it follows from the targets
MOST_REPEATS = 4  # with more, clean rows are memorised
VIEWS = 3  # times as often where rows are augmented: every repeat is another view of the row
LEAST_GAIN = 1.0  # of the log-likelihood of all clean rows that makes another round worth its cost
LEAST_RISE = 0.005  # of the expected accuracy that does
LEARNERS = ("all", "networks")
HALF = ("half 1", "half 2")  # of the names under which a checkpoint stores the half-networks
NAME = "labelloop"
SECOND_HAND = (
    "in later rounds a clean row teaches one half-network, whose labels teach the one that predicts that row, so the"
    " accuracy may be a few points too high"
)


@dataclass(frozen=True)
class Config(TrainingConfig):
    """Settings of the default. docs/recipe.md says what each part is worth.

    Attributes:
        rounds: How often, at most, networks are taught again by corrected labels; 0 corrects once.
        round_share: The epochs of the half-networks in a round, as a share of `epochs`.
        learners: "all", or "networks" to leave out the learners of columns of numbers.
    """

    epochs: int = 50
    learning_rate: float = 0.05
    mixup: float = 0.3
    average_weights: float = 0.998
    rounds: int = 3
    round_share: float = 0.15
    learners: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 0:
            raise UsageError(f"rounds must not be negative, but is {self.rounds}")
        if not 0 < self.round_share <= 1:
            raise UsageError(f"round_share must lie above 0 and not above 1, but is {self.round_share}")
        if self.learners not in LEARNERS:
            raise UsageError(f"learners must be one of {', '.join(LEARNERS)}, not {self.learners!r}")

    def of_half_networks(self) -> Config:
        """The whole schedule within a round. They predict rows that they have not seen, so they need no crops."""
        augment = "none" if self.augment == "crop-flip" else self.augment
        return replace(self, epochs=max(1, round(self.round_share * self.epochs)), augment=augment)

    def of_classifier(self) -> Config:
        """The final training: mixup only where no augmentation keeps the network from memorising."""
        return self if self.augment == "none" else replace(self, mixup=0.0)


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Corrects labels round by round, then trains a classifier on them.

    Args:
        problem: Training rows with given labels, and the clean rows.
        config: Settings, without any "auto" of network, augmentation or scaling.
        runtime: Device, seed, recording, checkpoints.
    """
    final = config.of_classifier()
    model = runtime.prepare(new_classifier(final, problem, runtime.seed))
    optimizer = new_optimizer(model, final)
    average = WeightAverage(model, optimizer, config.average_weights)  # without averaging, its model is `model` itself
    stored = StoredRounds.restored(runtime.restore(model, optimizer, average), runtime)
    with runtime.phase("rounds"):
        ended = loop(
            problem, config, runtime, stored,
            save=lambda: runtime.save(0, model, optimizer, average=average, past=stored.past),
        )  # fmt: skip
    repeats = ended.repeats * (1 if config.augment == "none" else VIEWS)
    rows, targets = with_clean_rows(problem, ended.targets, repeats)
    before = dict(runtime.phases)
    for epoch in runtime.epochs(final.epochs):
        runtime.phases |= before if epoch == 1 else {}  # the seconds of the rounds belong to the first epoch
        with runtime.phase("train"):
            loss = train_epoch(model, rows, targets, targets, 0.0, optimizer, final, runtime, epoch)
        runtime.record(epoch, average.model, problem, ended.targets, {"loss": loss})
        runtime.save(epoch, model, optimizer, average=average, past=stored.past)
    return Fitted(average.model, ended.targets, ended.rounds, "epoch limit", ended.returned)


def loop(problem: Problem, config: Config, runtime: Runtime, stored: StoredRounds, save: Callable[[], None]) -> Ended:
    """The loop: predictions of rows that were not seen, relabelling, combination, until it no longer helps.

    Args:
        problem: Training rows with given labels, and the clean rows.
        config: Settings.
        runtime: Device, seed, other processes.
        stored: Predictions of rounds that an interrupted run had finished; those of new rounds are added.
        save: Writes them to the checkpoint.
    """
    halves, short = Halves.dealt(problem, runtime.seed), config.of_half_networks()
    targets, repeats = one_hot(problem.train.labels, problem.num_classes), FIRST_REPEATS  # ŷ_0 = ỹ [N, C] (1)
    networks = stored.networks(problem, short, runtime)
    rounds: list[dict[str, Any]] = []
    with runtime.clock("correcting labels"):
        corrector = Corrector.of(problem, config, runtime.seed) if runtime.is_first else None
    for number in range(config.rounds + 1):  # (3)
        if number == stored.count:
            teaching = Teaching(targets, repeats)
            networks, log_p = cross_fit(problem, halves, teaching, short, runtime, networks)  # θ_t, f(x) (4, 5)
            stored.keep(networks, log_p)
            save()
        if corrector is not None:  # with several processes, the first one corrects and the others take its labels
            with runtime.clock("correcting labels"):
                targets, repeats, record = corrector.next_round(stored.log_p(number))  # ȳ_t, ω_t, ŷ_{t+1} (6 to 9)
                rounds.append(record)
        ours: tuple[Any, ...] = (targets, repeats, rounds)
        targets, repeats, rounds = runtime.from_first(partial(tuple, ours))
        if settled(rounds, len(problem.clean)):
            break
    with runtime.clock("correcting labels"):
        returned = ReturnedLabels(targets, NAME, {}) if corrector is None else corrector.returned(problem, config)
    return Ended(targets, repeats, tuple(rounds), returned)


@dataclass
class Corrector:
    """Corrects the labels of all rows from predictions, round by round, and remembers every round.

    Attributes:
        rows: Training rows and clean rows.
        answers: What relabelling found in each round.
        past: The same as components of Eq. 2: past[k] is (ȳ_{k+1}, ȳᵐ_{k+1}).
        shown: A given label for every clean row, real or drawn in the first round, and kept [D, M].
        weights: ω_t of Eq. 5, before the prior [1 + K].
        mixing: The same with the prior.
    """

    rows: AllRows
    answers: list[Relabelled] = field(default_factory=list)
    past: list[Correction] = field(default_factory=list)
    shown: Labels | None = None
    weights: Weights | None = None
    mixing: Weights | None = None

    @classmethod
    def of(cls, problem: Problem, config: Config, seed: int) -> Corrector:
        """Before the first round."""
        return cls(AllRows.of(problem, config.normalise, seed, learners=config.learners == "all"))

    def next_round(self, log_p: Correction) -> tuple[Floats, int, dict[str, Any]]:
        """Corrects the labels: ŷ_{t+1} [N, C], how often a clean row is to be shown beside them, and a record."""
        rows, classes = self.rows, self.rows.num_classes
        found = rows.relabel(rows.scores(log_p))  # (6, 7)
        self.shown = rows.shown_labels(found) if self.shown is None else self.shown
        true = np.tile(found.noise.validation.labels, len(self.shown))  # [D M]
        self.answers.append(found)
        self.past.append(rows.component(found, self.shown))  # ȳ_t, ȳᵐ_t (8)
        given = Correction(
            given_or(rows.given[rows.of_train], self.past[-1].train), one_hot(self.shown.ravel(), classes)
        )  # ȳ_0, ȳᵐ_0
        components = [given, *self.past]
        of_clean = [component.clean for component in components]
        self.weights = fit_simplex_weights(of_clean, true, self.weights)  # ω_t, Eq. 5 (8)
        newest = PRIOR_ROWS * np.eye(len(components))[-1]
        self.mixing = with_prior(self.weights, len(rows.of_clean), newest)
        targets = combine([component.train for component in components], self.mixing)  # ŷ_{t+1}, Eq. 2 (9)
        right = (combine(of_clean, self.mixing).argmax(axis=1) == true).sum() / len(self.shown)
        record = {
            "round": len(self.past),
            "epoch": 0,
            "components": ["given label", *(f"round {k}" for k in range(1, len(self.past) + 1))],
            "weights": self.mixing.tolist(),
            "clean_loss": clean_loss(of_clean, true, self.mixing),
            "expected_accuracy": float(targets.max(axis=1).mean(dtype=np.float64)),
        }
        return targets, rows_worth_a_clean_one(right, len(rows.of_clean), classes), record

    def returned(self, problem: Problem, config: Config) -> ReturnedLabels:
        """The labels that the loop ended with, after the guard."""
        assert self.mixing is not None
        rows, clean = self.rows, problem.clean
        found = guarded(self.answers, self.mixing)
        posterior, expected = found.cross_fitted[rows.of_clean], found.expected_right[rows.of_clean]
        notes = [SECOND_HAND] if len(self.past) > 1 else []
        return ReturnedLabels(
            train=taken(found.targets, rows.of_train),
            labels_from=NAME,
            estimate=estimate(posterior, clean.labels, clean.clean_labels, notes, expected),
            guard=found.guard,
            scores=Correction(taken(found.scores, rows.of_train), taken(found.scores, rows.of_clean)),
            inputs_as=None if rows.inputs is None else kind_of_inputs(problem.train.inputs, config.normalise),
        )


def rows_worth_a_clean_one(right: float, rows: int, num_classes: int) -> int:
    """How many rows with labels of this accuracy tell as much as one clean row, to the nearest whole number.

    If a label is right with probability a and otherwise uniform over the other classes, then
    P(label | x) = α q(y | x) + (1 - α) / C with α = (a C - 1) / (C - 1). The signal in a row is α times as strong and
    its variance about the same, so it takes 1 / α² rows. Laplace's rule estimates a.

    Args:
        right: Rows whose label was right.
        rows: All rows that were compared.
        num_classes: C.
    """
    chance = (right + 1) / (rows + 2)
    signal = max((chance * num_classes - 1) / (num_classes - 1), 1 / MOST_REPEATS)
    return min(round(1 / signal**2), MOST_REPEATS)


def settled(rounds: Sequence[dict[str, Any]], clean_rows: int) -> bool:
    """Whether the last round improved neither the likelihood of the clean rows nor the expected accuracy."""
    if len(rounds) < 2:
        return False
    before, now = rounds[-2:]
    gain = clean_rows * (before["clean_loss"] - now["clean_loss"])
    return gain < LEAST_GAIN and now["expected_accuracy"] - before["expected_accuracy"] < LEAST_RISE


def with_clean_rows(problem: Problem, targets: Floats, repeats: int) -> tuple[Rows, Floats]:
    """The rows of the final training with their targets: the training rows, and every clean row some times."""
    clean = take(problem.clean, np.tile(np.arange(len(problem.clean)), repeats))
    return together(problem.train, clean), joined(targets, one_hot(clean.clean_labels, problem.num_classes))


@dataclass(frozen=True)
class Ended:
    """What the loop ended with.

    Attributes:
        targets: ŷ, the combination of Eq. 2, which teaches the classifier [N, C].
        repeats: How often each clean row teaches it, by how many rows with such targets are worth a clean one.
        rounds: A record of every round.
        returned: The labels to hand back.
    """

    targets: Floats
    repeats: int
    rounds: tuple[dict[str, Any], ...]
    returned: ReturnedLabels


@dataclass
class StoredRounds:
    """The rounds of a checkpoint: predictions and half-networks. Labels are corrected from these again, in seconds.

    Attributes:
        past: The arrays of every round, as a checkpoint takes them; only the first process has them after a restart.
        count: How many rounds there are.
    """

    past: list[dict[str, np.ndarray]] = field(default_factory=list)
    count: int = 0

    @classmethod
    def restored(cls, saved: Checkpoint | None, runtime: Runtime) -> StoredRounds:
        """The rounds of a checkpoint, or none."""
        past = [] if saved is None else saved.past
        return cls(past, runtime.from_first(lambda: len(past)))

    def keep(self, networks: Sequence[TwoHeadClassifier], log_p: Correction) -> None:
        """Adds a round."""
        arrays = {name: array.copy() for k in range(2) for name, array in to_arrays(HALF[k], networks[k]).items()}
        self.past.append({"train": log_p.train, "clean": log_p.clean, **arrays})
        self.count += 1

    def log_p(self, number: int) -> Correction:
        """The predictions of a round."""
        return Correction(self.past[number]["train"], self.past[number]["clean"])

    def networks(self, problem: Problem, config: Config, runtime: Runtime) -> list[TwoHeadClassifier]:
        """The half-networks of the last round, in every process; none before the first."""
        if not self.count:
            return []
        arrays = runtime.from_first(lambda: {k: v for k, v in self.past[-1].items() if k.startswith(HALF)})
        found = [runtime.prepare(new_classifier(config, problem, runtime.seed)) for _ in HALF]
        for name, network in zip(HALF, found, strict=True):
            from_arrays(name, network, arrays)
        return found

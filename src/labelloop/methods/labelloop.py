"""LabelLoop, the default: the paper's loop with cross-fitted networks, which have not seen the rows they predict.

Their features cannot repeat a memorised label, so every clean row can both train and validate, and the given label can
be used without pairs. For each fold of the rows, a network is trained on the other folds and predicts this one.
Relabelling corrects the labels from these predictions. Eq. 5 combines the given labels and all corrections so far, and
the next round trains on the combination. The run returns the final labels, after the guard. Numbers in brackets: lines
of Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from labelloop.config.base import TrainingConfig, added
from labelloop.errors import UsageError
from labelloop.large_arrays import joined, taken
from labelloop.models import TwoHeadClassifier
from labelloop.relabel.estimate import estimate, inputs_alone
from labelloop.relabel.learners import TABLE, kind_of_inputs
from labelloop.relabel.relabel import given_or, guarded
from labelloop.relabel.rounds import FEWEST, AllRows, Component
from labelloop.relabel.stacking import Weights, clean_loss, combine, fit_simplex_weights, with_prior
from labelloop.splits import one_hot, take, together
from labelloop.training.averaging import WeightAverage, from_arrays, to_arrays
from labelloop.training.checkpoint import Checkpoint
from labelloop.training.cross_fit import Folds, Teaching, cross_fit
from labelloop.training.epoch import train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer
from labelloop.types import MISSING, Correction, Fitted, Floats, Labels, Problem, ReturnedLabels, Rows

PRIOR_ROWS = 10.0  # prior rows of the combination weights, all for the newest correction
FIRST_REPEATS = 3  # how often an epoch of the first round shows a clean row; later it follows from the targets
MOST_REPEATS = 4  # with more, clean rows are memorised
VIEWS = 3  # times as often where rows are augmented: every repeat is another view of the row
LEAST_GAIN = 1.0  # of the log-likelihood of all clean rows that makes another round worth its cost
LEAST_WEIGHT = 0.02  # of a round in Eq. 2, to be made once more with all clean rows
LEAST_RISE = 0.005  # of the expected accuracy that does
LEARNERS = ("all", "networks")
FOLDS, FEW = 4, 5000  # folds of a table with at most this many rows
HALF = "half "  # begins the names under which a checkpoint stores the networks of a round
NAME = "labelloop"
SECOND_HAND = (
    "in later rounds a clean row influences the labels that train the network which predicts that row, so the"
    " accuracy may be a few points too high"
)


@dataclass(frozen=True)
class Config(TrainingConfig):
    """Settings of the default. docs/recipe.md measures what each part brings.

    Attributes:
        rounds: The most rounds of training on corrected labels; 0 corrects once.
        round_share: The epochs of the cross-fitted networks in a round, as a share of `epochs`.
        learners: "all", or "networks" to leave out the learners of columns of numbers.
        folds: The number of folds of the rows, each with a network that predicts it; 0 for four on a small table, and
            two otherwise.
    """

    epochs: int = 50
    learning_rate: float = 0.05
    mixup: float = 0.3
    rounds: int = 3
    round_share: float = 0.15
    learners: str = "all"
    folds: int = added(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 0:
            raise UsageError(f"rounds must not be negative, but is {self.rounds}")
        if self.folds < 0 or self.folds == 1:
            raise UsageError(f"folds must be 0 or at least 2, but is {self.folds}")
        if not 0 < self.round_share <= 1:
            raise UsageError(f"round_share must lie above 0 and not above 1, but is {self.round_share}")
        if self.learners not in LEARNERS:
            raise UsageError(f"learners must be one of {', '.join(LEARNERS)}, not {self.learners!r}")

    def in_a_round(self) -> Config:
        """The whole schedule within a round. They predict rows that they have not seen, so they need no crops."""
        augment = "none" if self.augment == "crop-flip" else self.augment
        return replace(self, epochs=max(1, round(self.round_share * self.epochs)), augment=augment)

    def folds_of(self, problem: Problem) -> int:
        """How many folds the rows are dealt into."""
        few = len(problem.train) <= FEW and kind_of_inputs(problem.train.inputs, self.normalise) == TABLE
        return self.folds or (FOLDS if few else 2)

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
    folds, short = Folds.dealt(problem, runtime.seed, config.folds_of(problem)), config.in_a_round()
    noisy, repeats = one_hot(problem.train.labels, problem.num_classes), FIRST_REPEATS  # ŷ_0 = ỹ [N, C] (1)
    targets = [taken(noisy, folds.taught(k)) for k in range(folds.count)]
    networks = stored.networks(problem, folds.count, short, runtime)
    rounds: list[dict[str, Any]] = []
    with runtime.clock("correcting labels"):
        corrector = Corrector.of(problem, folds, config, runtime.seed) if runtime.is_first else None
    for number in range(config.rounds + 1):  # (3)
        if number == stored.count:
            teaching = Teaching(targets, repeats)
            networks, log_p = cross_fit(problem, folds, teaching, short, runtime, networks)  # θ_t, f(x) (4, 5)
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
        if corrector is not None:
            final, returned = corrector.ended(problem, config)
    final = runtime.from_first(lambda: final)
    return Ended(final, repeats, tuple(rounds), ReturnedLabels(final, NAME, {}) if corrector is None else returned)


@dataclass
class Corrector:
    """Corrects the labels of all rows from predictions, round by round, and remembers every round.

    Attributes:
        rows: Training rows and clean rows.
        scores: What the networks and learners of each round predict [n, E].
        past: Every round as a component of Eq. 2: past[k] is (ȳ_{k+1}, ȳᵐ_{k+1}).
        shown: A given label for every clean row, real or drawn in the first round, and kept [D, M].
        weights: ω_t of Eq. 5, before the prior [1 + K].
        mixing: The same with the prior.
    """

    rows: AllRows
    scores: list[Floats] = field(default_factory=list)
    past: list[Component] = field(default_factory=list)
    shown: Labels | None = None
    weights: Weights | None = None
    mixing: Weights | None = None

    @classmethod
    def of(cls, problem: Problem, folds: Folds, config: Config, seed: int) -> Corrector:
        """Before the first round."""
        fold, learners = (folds.train, folds.clean), config.learners == "all"
        return cls(AllRows.of(problem, fold, config.normalise, seed, learners=learners))

    def next_round(self, log_p: Correction) -> tuple[list[Floats], int, dict[str, Any]]:
        """Corrects the labels: ŷ_{t+1} for every network, how often to show a clean row beside them, and a record."""
        rows, classes = self.rows, self.rows.num_classes
        self.scores.append(rows.scores(log_p))
        left_out = range(rows.folds) if len(rows.of_clean) >= FEWEST else [MISSING]
        without = [rows.relabel(self.scores[-1], self.scores[0], k) for k in left_out]  # (6, 7)
        without *= rows.folds // len(without)
        self.shown = rows.shown_labels(without) if self.shown is None else self.shown
        true = np.tile(rows.clean[rows.of_clean], len(self.shown))  # [D M]
        self.past.append(rows.component(without, self.shown))  # ȳ_t, ȳᵐ_t (8)
        components = [rows.given_component(self.past[-1], self.shown), *self.past]  # ȳ_0, ȳᵐ_0 and all rounds
        of_clean = [component.of_clean for component in components]
        self.weights = fit_simplex_weights(of_clean, true, self.weights)  # ω_t, Eq. 5 (8)
        newest = PRIOR_ROWS * np.eye(len(components))[-1]
        self.mixing = with_prior(self.weights, len(rows.of_clean), newest)
        of_networks = zip(*(component.of_networks for component in components), strict=True)
        targets = [combine(parts, self.mixing) for parts in of_networks]  # ŷ_{t+1}, Eq. 2 (9)
        right = (combine(of_clean, self.mixing).argmax(axis=1) == true).sum() / len(self.shown)
        record = {
            "round": len(self.past),
            "epoch": 0,
            "components": ["given label", *(f"round {k}" for k in range(1, len(self.past) + 1))],
            "weights": self.mixing.tolist(),
            "clean_loss": clean_loss(of_clean, true, self.mixing),
            "expected_accuracy": rows.expected_accuracy(targets),
        }
        return targets, rows_worth_a_clean_one(right, len(rows.of_clean), classes), record

    def ended(self, problem: Problem, config: Config) -> tuple[Floats, ReturnedLabels]:
        """The last combination with rounds that all clean rows taught [N, C]; the same after the guard, to return."""
        assert self.mixing is not None
        rows = self.rows
        used = [k for k in range(len(self.past)) if self.mixing[1 + k] >= LEAST_WEIGHT]
        weights = self.mixing[[0, *(1 + k for k in used)]]
        weights = weights / weights.sum()
        answers = [rows.relabel(self.scores[k], self.scores[0]) for k in used]
        parts = [rows.of_training_rows(answer) for answer in answers]
        targets = combine([given_or(rows.given[rows.of_train], parts[-1]), *parts], weights)
        found = guarded(answers, weights)
        judges = found.counted(rows.of_clean)
        alone = inputs_alone(found, rows.given, rows.clean, judges)
        notes = [*([SECOND_HAND] if len(self.past) > 1 else []), *found.notes]
        of_judges, expected = found.cross_fitted[judges], found.expected_right[judges]
        return targets, ReturnedLabels(
            train=taken(found.targets, rows.of_train),
            labels_from=NAME,
            estimate=estimate(of_judges, rows.given[judges], rows.clean[judges], notes, expected, alone),
            guard=found.guard,
            scores=Correction(taken(found.scores, rows.of_train), taken(found.scores, rows.of_clean)),
            judged=Correction(taken(found.judged, rows.of_train), taken(found.judged, rows.of_clean)),
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
        return clean_rows < FEWEST
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
    """The rounds of a checkpoint: predictions and networks. Labels are corrected from these again, in seconds.

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
        parts = (to_arrays(f"{HALF}{k + 1}", network) for k, network in enumerate(networks))
        arrays = {name: array.copy() for part in parts for name, array in part.items()}
        self.past.append({"train": log_p.train, "clean": log_p.clean, **arrays})
        self.count += 1

    def log_p(self, number: int) -> Correction:
        """The predictions of a round."""
        return Correction(self.past[number]["train"], self.past[number]["clean"])

    def networks(self, problem: Problem, folds: int, config: Config, runtime: Runtime) -> list[TwoHeadClassifier]:
        """The networks of the last round, in every process; none before the first."""
        if not self.count:
            return []
        arrays = runtime.from_first(lambda: {k: v for k, v in self.past[-1].items() if k.startswith(HALF)})
        found = [runtime.prepare(new_classifier(config, problem, runtime.seed)) for _ in range(folds)]
        for k, network in enumerate(found):
            from_arrays(f"{HALF}{k + 1}", network, arrays)
        return found

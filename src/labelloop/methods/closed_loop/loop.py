"""Algorithm 1 of the paper, top to bottom. The numbers in brackets are its lines."""

from __future__ import annotations

from labelloop.methods.closed_loop.combination import combination_weights, combine
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import fit_corrector
from labelloop.methods.closed_loop.halves import hold_out
from labelloop.methods.closed_loop.state import LoopState
from labelloop.methods.closed_loop.views import columns, look, noisy_view, redraw_of, rows_to_train_on
from labelloop.seeds import integer, stream
from labelloop.splits import one_hot, stratified_split
from labelloop.training.averaging import WeightAverage
from labelloop.training.epoch import train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer
from labelloop.types import Correction, Fitted, Problem


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains a classifier on labels that are corrected repeatedly while it learns.

    Args:
        problem: Training rows with given labels, and the clean rows.
        config: Settings, without any "auto" of network, augmentation or scaling.
        runtime: Device, seed, recording, checkpoints.
    """
    train, clean, seed, loop = problem.train, problem.clean, runtime.seed, config.of_the_loop()
    noisy = one_hot(train.labels, problem.num_classes)  # ỹ [N, C]; zeros where there is no label
    clean_fit, clean_val = stratified_split(clean.clean_labels, config.clean_fit_fraction, stream(seed, "clean-val"))
    val_labels = clean.clean_labels[clean_val]  # (2)
    model = runtime.prepare(new_classifier(config, problem, seed))
    optimizer = new_optimizer(model, config)
    average = WeightAverage(model, optimizer, config.average_weights)  # without averaging, its model is `model` itself
    state = LoopState.restored(runtime.restore(model, optimizer, average), targets=noisy)  # ŷ_0 [N, C] (1)

    for epoch in runtime.epochs(loop.epochs):  # (3)
        if config.simulation != "posterior" and state.held_out is None:
            with runtime.phase("halves"):
                state.begin(hold_out(problem, config, runtime))  # ŷ_0 is ȳ_0 of the half-networks (1)
            runtime.save(epoch - 1, model, optimizer, average=average, **state.to_save())
        with runtime.phase("train"):
            rows = rows_to_train_on(problem, state.targets, noisy, loop, epoch, state.repeats(clean, config))
            loss = train_epoch(model, *rows, optimizer, loop, runtime, epoch)  # θ_t, Eq. 1 (4)

        if loop.corrects_after(epoch):
            with runtime.phase("extract"):  # (5) z [N, D], zᵐ [M, D], simulated noisy labels of the clean rows
                on_train, on_clean, clean_labels = look(average.model, problem, state.held_out, runtime)
                state.first = state.first or on_clean
                train_columns = columns(on_train, train.extra, config)
                clean_columns = columns(on_clean, clean.extra, config)
            if runtime.is_first:  # with several processes, the first one corrects and the others take its labels
                # ȳ_0, ȳᵐ_0 (6)
                base = Correction(noisy_view(train.labels, on_train), noisy_view(clean_labels, on_clean))

                with runtime.phase("corrector"), runtime.one_thread():  # φ*_t (7)
                    corrector = fit_corrector(
                        base.clean, clean_columns, clean.clean_labels, clean_fit, clean_val, config.corrector,
                        integer(seed, "corrector", state.next_round), redraw_of(clean, state.held_out),
                    )  # fmt: skip
                with runtime.phase("update"):  # ȳ_t, ȳᵐ_t (8)
                    state.past.append(
                        Correction(corrector(base.train, train_columns), corrector(base.clean, clean_columns))
                    )
                components, prior = state.components(base), state.prior(config)
                with runtime.phase("combination"):  # ω_t, Eq. 5 (8)
                    val = [component.clean[clean_val] for component in components]
                    weights = combination_weights(config.combination, val, val_labels, state.weights, prior)
                with runtime.phase("update"):  # ŷ_{t+1}, Eq. 2 (9)
                    targets = combine([component.train for component in components], weights)
                    state.close_round(epoch, targets, weights, val, val_labels, corrector)
            state.targets = runtime.from_first(lambda: state.targets)

        values = {"loss": loss, "weights": state.rounds[-1]["weights"] if state.rounds else None}
        runtime.record(epoch, average.model, problem, state.targets, values, held_out=clean_val)
        runtime.save(epoch, model, optimizer, average=average, **state.to_save())
    returned = state.held_out.returned if state.held_out else None
    return Fitted(average.model, state.targets, tuple(state.rounds), "epoch limit", state.first, returned)

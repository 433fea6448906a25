"""Algorithm 1 of the paper, top to bottom. The numbers in brackets are its lines."""

from __future__ import annotations

from labelloop.errors import UsageError
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import fit_corrector
from labelloop.methods.closed_loop.one_correction import columns, estimate_loop, noisy_view
from labelloop.methods.closed_loop.state import LoopState
from labelloop.relabel.stacking import combine, fit_simplex_weights, newest_alone
from labelloop.seeds import integer, stream
from labelloop.splits import one_hot, stratified_split
from labelloop.training.epoch import extract, train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_model
from labelloop.types import Correction, Fitted, Problem, ReturnedLabels


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains a classifier on labels that are corrected repeatedly while it learns.

    Args:
        problem: Training rows with given labels, and the clean rows.
        config: Settings, without any "auto" of network, augmentation or scaling.
        runtime: Device, seed, recording, checkpoints.
    """
    train, clean, seed = problem.train, problem.clean, runtime.seed
    noisy = one_hot(train.labels, problem.num_classes)  # ỹ [N, C]; zeros where there is no label
    clean_fit, clean_val = stratified_split(clean.clean_labels, config.clean_fit_fraction, stream(seed, "clean-val"))
    val_labels = clean.clean_labels[clean_val]  # (2)
    fit_weights = fit_simplex_weights if config.combination == "convex" else newest_alone
    model, optimizer, average = new_model(config, problem, runtime)
    state = LoopState.restored(runtime.restore(model, optimizer, average), targets=noisy)  # ŷ_0 [N, C] (1)

    for epoch in runtime.epochs(config.epochs):  # (3)
        with runtime.phase("train"):  # θ_t, Eq. 1 (4)
            labels = (state.targets, noisy, config.noisy_loss_weight)
            loss = train_epoch(model, train, *labels, optimizer, config, runtime, epoch)

        if config.corrects_after(epoch):
            with runtime.phase("extract"):  # (5) z [N, D], zᵐ [M, D], simulated noisy posterior of the clean rows
                on_train, on_clean = (extract(average.model, rows, runtime) for rows in (train, clean))
                runtime.check_outputs(epoch, on_train.logits, on_clean.logits)
                state.look(on_train, on_clean, config)
                train_columns = columns(on_train, train.extra, config, state.history_of("train"))
                clean_columns = columns(on_clean, clean.extra, config, state.history_of("clean"))
            if runtime.is_first:  # with several processes, the first one corrects and the others take its labels
                # ȳ_0, ȳᵐ_0 (6)
                base = Correction(noisy_view(train.labels, on_train), noisy_view(clean.labels, on_clean))

                with runtime.phase("corrector"), runtime.one_thread():  # φ*_t (7)
                    corrector = fit_corrector(
                        base.clean, clean_columns, clean.clean_labels, clean_fit, clean_val, config.corrector,
                        integer(seed, "corrector", state.next_round),
                    )  # fmt: skip
                with runtime.phase("update"):  # ȳ_t, ȳᵐ_t (8)
                    state.past.append(
                        Correction(corrector(base.train, train_columns), corrector(base.clean, clean_columns))
                    )
                components = [base, *state.past]
                with runtime.phase("combination"):  # ω_t, Eq. 5 (8)
                    val = [component.clean[clean_val] for component in components]
                    weights = fit_weights(val, val_labels, state.weights)
                with runtime.phase("update"):  # ŷ_{t+1}, Eq. 2 (9)
                    targets = combine([component.train for component in components], weights)
                    state.close_round(epoch, targets, weights, val, val_labels, corrector)
            state.targets = runtime.from_first(lambda: state.targets)

        values = {"loss": loss, "weights": state.rounds[-1]["weights"] if state.rounds else None}
        runtime.record(epoch, average.model, problem, state.targets, values, held_out=clean_val)
        runtime.save(epoch, model, optimizer, average=average, **state.to_save())
    with runtime.clock("estimating the accuracy of the labels"):
        estimate = estimate_loop(problem, config, state.first, seed) if runtime.is_first else {}
    returned = ReturnedLabels(state.targets, "closed-loop", estimate)
    return Fitted(average.model, state.targets, tuple(state.rounds), "epoch limit", returned)


def check(problem: Problem, config: Config) -> None:
    """Refuses a correction network that wants columns which the rows do not have."""
    if config.wants("extra") and problem.train.extra is None:
        raise UsageError("corrector.inputs asks for 'extra', but there are no extra columns; give them or drop it")

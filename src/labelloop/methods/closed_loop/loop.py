"""Algorithm 1 of the paper, top to bottom. The numbers in brackets are its lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelloop.methods.closed_loop.combination import clean_loss, combine, fit_simplex_weights
from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import fit_corrector
from labelloop.methods.closed_loop.views import columns, noisy_view, present, rows_to_train_on
from labelloop.seeds import integer, stream
from labelloop.splits import stratified_split
from labelloop.training.epoch import train_epoch
from labelloop.training.extract import extract
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer
from labelloop.training.targets import one_hot
from labelloop.types import Correction, Extracted, Fitted, Floats, Problem


def fit(problem: Problem, config: Config, runtime: Runtime) -> Fitted:
    """Trains a classifier on labels that are corrected again and again while it learns.

    Args:
        problem: Training rows with noisy labels, and the clean rows.
        config: Settings, without any "auto".
        runtime: Device, seed, recording, checkpoints.
    """
    train, clean, seed = problem.train, problem.clean, runtime.seed
    noisy = one_hot(train.labels, problem.num_classes)  # ỹ [N, C]; zeros where there is no label
    targets = noisy  # ŷ_0 [N, C] (1)
    clean_fit, clean_val = stratified_split(clean.clean_labels, config.clean_fit_fraction, stream(seed, "clean-val"))
    val_labels = clean.clean_labels[clean_val]  # (2)
    model = runtime.prepare(new_classifier(config, problem, seed))
    optimizer = new_optimizer(model, config)
    past: list[Correction] = []  # past[k - 1] = (ȳ_k, ȳᵐ_k) for k >= 1
    past_features: list[Correction] = []  # (z_k, zᵐ_k), kept only for a correction network that asks for them
    weights, base_clean, rounds, stop_reason = None, None, list[dict[str, Any]](), "epoch limit"
    first: Extracted | None = None  # of the clean rows, by a network that no clean label had yet a way into

    if saved := runtime.restore(model, optimizer):
        targets, base_clean, rounds = saved.arrays["targets"], saved.arrays.get("base_clean"), saved.values["rounds"]
        past = [Correction(p["train"], p["clean"]) for p in saved.past]
        past_features = [
            Correction(p["train_features"], p["clean_features"]) for p in saved.past if "train_features" in p
        ]
        first = first_of(saved.past)
        weights = np.array(rounds[-1]["weights"]) if rounds else None

    for epoch in runtime.epochs(config.epochs):  # (3)
        if len(rounds) > 1 and rounds[-1]["labels_moved"] < config.settled_below:
            stop_reason = "labels settled"
            break
        with runtime.phase("train"):
            loss = train_epoch(
                model, *rows_to_train_on(problem, targets, noisy, config, epoch), optimizer, config, runtime, epoch
            )  # θ_t, Eq. 1 (4)

        if config.corrects_after(epoch):
            number = len(past) + 1
            with runtime.phase("extract"):  # (5)
                on_train = extract(model, train, runtime)  # z [N, D]
                on_clean = extract(model, clean, runtime)  # zᵐ [M, D], simulated noisy posterior [M, C]
                first = on_clean if first is None else first
                if config.wants("past_features"):
                    past_features.append(Correction(on_train.features, on_clean.features))
                train_columns = columns(on_train, train.extra, [p.train for p in past_features])
                clean_columns = columns(on_clean, clean.extra, [p.clean for p in past_features])

            soft = noisy_view(clean.labels, on_clean)  # f_n(xᵐ), or the real label where a row is paired [M, C]
            clean_view = present(soft, config, stream(seed, "clean-view", number))
            train_view = present(noisy_view(train.labels, on_train), config, stream(seed, "train-view", number))
            base_clean = base_clean if config.freeze_base and base_clean is not None else clean_view
            base = Correction(train_view, base_clean)  # ȳ_0, ȳᵐ_0 (6)

            with runtime.phase("corrector"), runtime.one_thread():  # φ*_t (7)
                corrector = fit_corrector(
                    soft, clean_columns, clean.clean_labels, clean_fit, clean_val, config.corrector,
                    integer(seed, "corrector", number),
                )  # fmt: skip
            with runtime.phase("update"):  # ȳ_t, ȳᵐ_t (8)
                past.append(Correction(corrector(train_view, train_columns), corrector(clean_view, clean_columns)))
            with runtime.phase("combination"):  # ω_t, Eq. 5 (8)
                val = [component.clean[clean_val] for component in (base, *past)]
                if config.combination == "latest":
                    weights = np.eye(len(val))[-1]
                else:
                    weights = fit_simplex_weights(val, val_labels, weights)
            with runtime.phase("update"):  # ŷ_{t+1}, Eq. 2 (9)
                before, labelled = targets.argmax(axis=1), targets.any(axis=1)
                targets = combine([component.train for component in (base, *past)], weights)
                moved = float((labelled & (targets.argmax(axis=1) != before)).mean())
            rounds.append({
                "round": number,
                "epoch": epoch,
                "weights": weights.tolist(),
                "clean_val_loss": clean_loss(val, val_labels, weights),
                "component_losses": [clean_loss([v], val_labels, np.ones(1)) for v in val],
                "corrector": corrector.summary(),
                "labels_moved": moved,
            })  # fmt: skip

        values = {"loss": loss, "weights": rounds[-1]["weights"] if rounds else None}
        runtime.record(epoch, model, problem, targets, values, held_out=clean_val)
        arrays = {"targets": targets} | ({} if base_clean is None else {"base_clean": base_clean})
        runtime.save(epoch, model, optimizer, arrays, to_store(past, past_features, first), {"rounds": rounds})
    return Fitted(model, targets, tuple(rounds), stop_reason, first)


def to_store(
    past: list[Correction], past_features: list[Correction], first: Extracted | None
) -> list[dict[str, Floats]]:
    """Everything a later round needs of the earlier ones, for the checkpoint."""
    stored = [{"train": p.train, "clean": p.clean} for p in past]
    for entry, features in zip(stored, past_features, strict=False):
        entry |= {"train_features": features.train, "clean_features": features.clean}
    if stored and first is not None:
        stored[0] |= {f"first_{name}": value.copy() for name, value in vars(first).items()}  # a file of its own bytes
    return stored


def first_of(stored: list[dict[str, Floats]]) -> Extracted | None:
    """What the network of the first round said of the clean rows; None if it was not stored."""
    prefix = "first_"
    found = {k.removeprefix(prefix): v for k, v in stored[0].items() if k.startswith(prefix)} if stored else {}
    return Extracted(**found) if found else None

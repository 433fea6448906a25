"""The correction network r(noisy label, columns; φ): a two-layer network that predicts the true label of a row.

It is trained on clean_fit and selected on clean_val. The noisy label of a clean row is the real one where the row is
paired, else the simulated posterior f_n(x).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from labelloop.config.base import check_settings
from labelloop.errors import UsageError, nearest
from labelloop.large_arrays import release, soft_dtype, zeros
from labelloop.relabel.stacking import check_components, check_labels
from labelloop.seeds import integer, stream
from labelloop.training.setup import seed_torch
from labelloop.types import Floats, Labels

INPUTS = ("features", "logits", "probabilities", "noisy_logits", "all_features", "past_labels", "extra")
OPTIMIZERS = ("sgd", "adamw")
CHUNK = 8192  # rows corrected at a time: a million rows of features are not copied as a whole


@dataclass(frozen=True)
class CorrectorConfig:
    """Settings of the correction network. The defaults are the paper's; PAPER.md has the references.

    Attributes:
        inputs: Its inputs besides the noisy label, several joined by "+": "features" z_t, "logits" or "probabilities"
            of the classifier, "noisy_logits" of the noisy head, "all_features" {z_k} of all rounds, "past_labels" ȳ_k
            of earlier rounds, "extra" columns of the user. With more than one entry, each is a candidate, and the
            best on clean_val is kept.
        hidden: Hidden units.
        optimizer: "sgd", or "adamw", which small clean sets need.
        learning_rate: The learning rate until the loss on clean_val first rises.
        low_learning_rate: The learning rate from then on.
        momentum: The momentum of SGD.
        weight_decay: The weight decay of either optimiser.
        batch_size: Rows per step.
        max_epochs: Passes over clean_fit, at most.
        patience: Training ends after this many passes without improvement on clean_val, once the rate has dropped.
        standardise: Whether the columns are scaled to mean 0 and deviation 1 on clean_fit.
    """

    inputs: tuple[str, ...] = ("features",)
    hidden: int = 256
    optimizer: str = "sgd"
    learning_rate: float = 1e-3
    low_learning_rate: float = 1e-4
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch_size: int = 32
    max_epochs: int = 100
    patience: int = 10
    standardise: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str):  # one candidate
            object.__setattr__(self, "inputs", (self.inputs,))
        for candidate in self.inputs:
            for name in candidate.split("+"):
                if name not in INPUTS:
                    raise UsageError(f"corrector.inputs: unknown input {name!r}; {nearest(name, INPUTS)}")
        if not self.inputs:
            raise UsageError("corrector.inputs is empty; give at least one, such as 'features'")
        check_settings(
            self,
            counts=("hidden", "batch_size", "max_epochs", "patience"),
            positive=("learning_rate", "low_learning_rate"),
            not_negative=("weight_decay",),
            below_one=("momentum",),
            choices={"optimizer": OPTIMIZERS},
            prefix="corrector.",
        )


class CorrectionNetwork(nn.Module):
    """Two layers from the noisy label and the columns to the logits of the corrected label."""

    def __init__(self, width: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.second = nn.Linear(hidden, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


@dataclass(frozen=True)
class Corrector:
    """A trained correction network. Call it with noisy labels [N, C] and the columns it was trained on, by name."""

    network: CorrectionNetwork
    inputs: str
    mean: Floats  # [E]
    scale: Floats  # [E]
    clean_val_loss: float
    clean_val_accuracy: float
    epochs: int

    def summary(self) -> dict[str, str | float | int]:
        """What a run records about it."""
        return {
            "inputs": self.inputs,
            "clean_val_loss": self.clean_val_loss,
            "clean_val_accuracy": self.clean_val_accuracy,
            "epochs": self.epochs,
        }

    def __call__(self, noisy: Floats, columns: Mapping[str, Floats]) -> Floats:
        corrected = zeros(noisy.shape, soft_dtype())  # [N, C]
        for start in range(0, len(noisy), CHUNK):
            rows = slice(start, start + CHUNK)
            picked = _pick({name: values[rows] for name, values in columns.items()}, self.inputs)
            with torch.no_grad():
                logits = self.network(_assemble(noisy[rows], (picked - self.mean) / self.scale))
            corrected[rows] = torch.softmax(logits, dim=1).numpy()
        release()
        return corrected


def fit_corrector(
    noisy: Floats,
    columns: Mapping[str, Floats],
    labels: Labels,
    clean_fit: Labels,
    clean_val: Labels,
    config: CorrectorConfig | None = None,
    seed: int = 0,
) -> Corrector:
    """Trains a correction network for every candidate of `config.inputs` and keeps the best on clean_val.

    Args:
        noisy: Noisy labels of all clean rows [M, C]: one-hot where known, else the simulated posterior.
        columns: Further inputs for the clean rows, by name, each [M, any].
        labels: Clean labels [M].
        clean_fit: Positions of the rows to train on.
        clean_val: Positions of the rows to select on.
        config: Settings.
        seed: For the initial weights and the order of the rows.

    Raises:
        UsageError: No rows, a label that is missing or out of range, an unknown input, or a value that is not a number.
    """
    config = config or CorrectorConfig()
    if not len(clean_fit) or not len(clean_val):
        raise UsageError(f"{len(clean_fit)} rows to train on and {len(clean_val)} to select on; both need at least one")
    noisy, labels = check_components([noisy])[0], np.asarray(labels)
    used = np.concatenate([clean_fit, clean_val])
    if used.min() < 0 or used.max() >= len(noisy):
        raise UsageError(f"clean_fit and clean_val name rows from {used.min()} to {used.max()} of {len(noisy)}")
    check_labels(labels, *noisy.shape)
    _check_columns(columns, config, len(noisy))
    labels = labels.astype(np.int64)
    fitted = [_fit_one(noisy, columns, labels, clean_fit, clean_val, c, config, seed) for c in config.inputs]
    return min(fitted, key=lambda c: c.clean_val_loss)


def _fit_one(
    noisy: Floats,
    columns: Mapping[str, Floats],
    labels: Labels,
    clean_fit: Labels,
    clean_val: Labels,
    inputs: str,
    config: CorrectorConfig,
    seed: int,
) -> Corrector:
    picked = _pick(columns, inputs)  # [M, E]
    mean, scale = np.zeros(picked.shape[1], np.float32), np.ones(picked.shape[1], np.float32)
    if config.standardise:
        mean, deviation = picked[clean_fit].mean(axis=0), picked[clean_fit].std(axis=0)
        # Rounding gives a constant column a tiny deviation, and dividing by that would blow it up.
        scale = np.where(deviation > 1e-6 * np.abs(mean), deviation, 1).astype(np.float32)
    picked = (picked - mean) / scale
    x_val, y_val = _assemble(noisy[clean_val], picked[clean_val]), torch.from_numpy(labels[clean_val])
    x_fit = _assemble(noisy[clean_fit], picked[clean_fit])  # [m, C + E]
    y_fit = torch.eye(noisy.shape[1])[torch.from_numpy(labels[clean_fit])]  # [m, C]

    network = _new_network(x_fit.shape[1], config.hidden, noisy.shape[1], integer(seed, "corrector-init"))
    optimizer = _new_optimizer(network, config)
    best_loss, best_state, best_epoch = np.inf, _copy(network), 0
    previous_loss, dropped_at, epoch = np.inf, None, 0
    for epoch in range(1, config.max_epochs + 1):
        order = torch.from_numpy(stream(seed, "corrector-batches", epoch).permutation(len(x_fit)))
        for x, y in zip(x_fit[order].split(config.batch_size), y_fit[order].split(config.batch_size), strict=True):
            set_gradients(network, x, y)
            optimizer.step()
        val_loss, _ = _evaluate(network, x_val, y_val)
        if np.isfinite(val_loss) and val_loss < best_loss:
            best_loss, best_state, best_epoch = val_loss, _copy(network), epoch
        if dropped_at is None and val_loss > previous_loss:
            dropped_at = epoch
            for group in optimizer.param_groups:
                group["lr"] = config.low_learning_rate
        previous_loss = val_loss
        if dropped_at is not None and epoch - max(best_epoch, dropped_at) >= config.patience:
            break
    if best_epoch == 0:
        warnings.warn(
            f"the correction network on {inputs!r} diverged: its columns reach {np.abs(picked).max():.3g}; "
            "set corrector.standardise = true, or leave those columns out. It holds all classes equally likely.",
            stacklevel=3,
        )
        best_state = {name: torch.zeros_like(value) for name, value in best_state.items()}
    network.load_state_dict(best_state)
    network.requires_grad_(False)
    val_loss, val_accuracy = _evaluate(network, x_val, y_val)
    return Corrector(network, inputs, mean, scale, val_loss, val_accuracy, epoch)


@torch.no_grad()
def set_gradients(network: CorrectionNetwork, x: torch.Tensor, y: torch.Tensor) -> None:
    """Stores the gradient of the mean cross-entropy in the network's parameters.

    Written by hand, because autograd takes longer than the arithmetic of so small a network.

    Args:
        network: Its gradients are replaced.
        x: Inputs [B, C + E].
        y: Labels, one-hot [B, C].
    """
    first, second = network.first, network.second
    hidden = torch.addmm(first.bias, x, first.weight.T).relu_()  # [B, H]
    error = torch.softmax(torch.addmm(second.bias, hidden, second.weight.T), dim=1).sub_(y).div_(len(x))  # [B, C]
    error_hidden = (error @ second.weight).mul_(hidden > 0)  # [B, H]
    first.weight.grad, first.bias.grad = error_hidden.T @ x, error_hidden.sum(dim=0)
    second.weight.grad, second.bias.grad = error.T @ hidden, error.sum(dim=0)


def _check_columns(columns: Mapping[str, Floats], config: CorrectorConfig, rows: int) -> None:
    """Refuses columns in use that have another length or hold values that are not numbers."""
    for name in dict.fromkeys(name for candidate in config.inputs for name in candidate.split("+")):
        if name not in columns:
            continue  # `_pick` says so
        values = np.asarray(columns[name])
        if values.ndim != 2 or len(values) != rows:
            raise UsageError(
                f"columns[{name!r}] has the shape {values.shape}; give [{rows}, any], a row for each label"
            )
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise UsageError(f"columns[{name!r}], row {row} holds a value that is not a number")


def _pick(columns: Mapping[str, Floats], inputs: str) -> Floats:
    """The columns of one candidate side by side, [N, E]."""
    missing = [name for name in inputs.split("+") if name not in columns]
    if missing:
        raise UsageError(f"corrector.inputs asks for {missing[0]!r}, which this data does not have; give it or drop it")
    return np.concatenate([columns[name] for name in inputs.split("+")], axis=1)


def _assemble(noisy: Floats, columns: Floats) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([noisy, columns], axis=1, dtype=np.float32))


def _new_network(width: int, hidden: int, num_classes: int, seed: int) -> CorrectionNetwork:
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed)
        return CorrectionNetwork(width, hidden, num_classes)


def _new_optimizer(network: nn.Module, config: CorrectorConfig) -> torch.optim.Optimizer:
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "adamw":
        return torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=decay, fused=True)
    return torch.optim.SGD(network.parameters(), lr=rate, momentum=config.momentum, weight_decay=decay, fused=True)


def _copy(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def _evaluate(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    with torch.no_grad():
        logits = network(x)
        return float(F.cross_entropy(logits, y)), float((logits.argmax(dim=1) == y).double().mean())

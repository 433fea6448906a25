"""Small networks, batches and problems for the tests of the methods that look one step ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from toys import quiet

from labelloop.methods import METHODS
from labelloop.methods.bilevel import Batch
from labelloop.models import Outputs, TwoHeadClassifier, build_encoder
from labelloop.training.setup import resolve
from labelloop.types import Fitted, Problem

CLASSES = 4


class TwoByOne(nn.Module):
    """Two logits from one input: W = 0, no bias. Every example by hand uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 2, bias=False).double()
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Outputs:
        return Outputs(x, self.head(x), self.head(x))


def by_hand() -> Batch:
    """Two rows x = 1 with labels 0 and 1; one clean row x = 1 of class 0."""
    ones = torch.ones(2, 1, dtype=torch.float64)
    return Batch(np.arange(2), ones, torch.tensor([0, 1]), ones[:1], torch.tensor([0]), 0)


def conv_model(seed: int = 0, dtype: torch.dtype = torch.float64) -> TwoHeadClassifier:
    """A convolutional network with batch norm, in training mode, its running statistics away from their start."""
    torch.manual_seed(seed)
    model = TwoHeadClassifier(build_encoder("small-cnn", (3, 8, 8), {"widths": [4, 6, 8]}), CLASSES).to(dtype)
    model(torch.randn(32, 3, 8, 8, dtype=dtype))
    return model.train()


def conv_batch(rows: int = 12, clean: int = 9, seed: int = 1, dtype: torch.dtype = torch.float64) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    x, clean_x = (torch.randn(n, 3, 8, 8, dtype=dtype, generator=rng) for n in (rows, clean))
    labels, clean_labels = (torch.randint(CLASSES, (n,), generator=rng) for n in (rows, clean))
    return Batch(np.arange(rows), x, labels, clean_x, clean_labels, 5)


def permuted_clean(batch: Batch, seed: int = 3) -> Batch:
    order = torch.randperm(len(batch.clean_x), generator=torch.Generator().manual_seed(seed))
    return batch._replace(clean_x=batch.clean_x[order], clean_labels=batch.clean_labels[order])


def sgd(model: nn.Module, lr: float = 0.1, momentum: float = 0.9, weight_decay: float = 5e-4) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)


def with_velocity(model: nn.Module, seed: int = 2, **settings: float) -> torch.optim.SGD:
    """An optimiser in the middle of training."""
    optimizer = sgd(model, **settings)
    torch.manual_seed(seed)
    for value in model.parameters():
        optimizer.state[value]["momentum_buffer"] = torch.randn_like(value) * 0.1
    return optimizer


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


def assert_close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=tolerance, msg=name)


def count_passes(model: nn.Module) -> list[int]:
    """Fills up with the number of rows of every pass through the network."""
    passes: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0])))
    return passes


# --- whole runs ------------------------------------------------------------------------------------------------------


def configure(name: str, problem: Problem, **changes: Any) -> Any:
    images = problem.train.inputs.ndim == 4
    options = {"widths": [4, 6, 8]} if images else {"hidden": [16]}
    settings: dict[str, Any] = {"network_options": options, "epochs": 4, "batch_size": 16, "learning_rate": 0.05}
    return resolve(METHODS[name].config(**(settings | changes)), problem)


def train(name: str, problem: Problem, seed: int = 0, **changes: Any) -> Fitted:
    return METHODS[name].fit(problem, configure(name, problem, **changes), quiet(seed))


def relabelled_clean(problem: Problem) -> Problem:
    labels = (problem.clean.clean_labels + 1) % 3
    return replace(problem, clean=replace(problem.clean, clean_labels=labels))

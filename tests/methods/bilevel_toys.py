"""Small networks, batches and problems for the tests of the methods that look one step ahead."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from labelloop.data.datasets.digits import digits
from labelloop.methods import METHODS
from labelloop.methods.bilevel import Batch
from labelloop.models import Outputs, TwoHeadClassifier, build_encoder
from labelloop.runs.folder import RunFolder
from labelloop.runs.run_json import RunRecord
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import MISSING, Fitted, Problem, Rows, Truth

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


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    assert a.keys() == b.keys()
    assert a
    return all(torch.equal(a[name], b[name]) for name in a)


def assert_close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=tolerance, msg=lambda text, name=name: name + text)


def count_passes(model: nn.Module) -> list[int]:
    """Fills up with the number of rows of every pass through the network."""
    passes: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0])))
    return passes


# --- whole runs ------------------------------------------------------------------------------------------------------


def quiet(seed: int = 0, **arguments: Any) -> Runtime:
    return Runtime(seed, device="cpu", progress=False, **arguments)


def clouds(n: int = 90, m: int = 30, images: bool = False, unlabelled: int = 0) -> Problem:
    """Three classes of points, or of coloured 8x8 images; 30% of the given labels are wrong, the last are missing."""
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=n + m)
    given = np.where(rng.random(n + m) < 0.3, (true + 1) % 3, true)
    given[n - unlabelled : n] = MISSING
    if images:
        inputs = rng.integers(0, 120, (n + m, 8, 8, 3), dtype=np.uint8)
        inputs[np.arange(n + m), :, :, true] += 60
    else:
        inputs = (rng.normal(size=(3, 6))[true] * 2 + rng.normal(size=(n + m, 6))).astype(np.float32)
    none = np.full(n + m, MISSING)
    train = Rows(inputs, np.arange(n), given[:n], none[:n])
    return Problem(train, Rows(inputs, np.arange(n, n + m), none[n:], true[n:]), ("ant", "bee", "cat"))


def configure(name: str, problem: Problem, **changes: Any) -> Any:
    images = problem.train.inputs.ndim == 4
    options = {"widths": [4, 6, 8]} if images else {"hidden": [16]}
    settings = {"network_options": options, "epochs": 4, "batch_size": 16, "learning_rate": 0.05}
    return resolve(METHODS[name].config(**(settings | changes)), problem)


def train(name: str, problem: Problem, seed: int = 0, **changes: Any) -> Fitted:
    return METHODS[name].fit(problem, configure(name, problem, **changes), quiet(seed))


def relabelled_clean(problem: Problem) -> Problem:
    labels = (problem.clean.clean_labels + 1) % 3
    return replace(problem, clean=replace(problem.clean, clean_labels=labels))


def assert_resumes(name: str, problem: Problem, folder: Path, stop: int, **changes: Any) -> None:
    """A run that is interrupted after `stop` epochs and resumed ends as one that was not, bit for bit."""
    config = configure(name, problem, **changes)
    whole_runtime = quiet()
    whole = METHODS[name].fit(problem, config, whole_runtime)

    class Interrupted(Runtime):
        def save(self, epoch: int, *arguments: Any, **named: Any) -> None:
            super().save(epoch, *arguments, **named)
            if epoch == stop:
                raise KeyboardInterrupt

    new = RunFolder(folder)
    new.write_record(RunRecord())
    with pytest.raises(KeyboardInterrupt):
        METHODS[name].fit(problem, config, Interrupted(0, device="cpu", progress=False, folder=new))
    runtime = quiet(folder=RunFolder(folder, resume=True))
    resumed = METHODS[name].fit(problem, config, runtime)
    assert same(resumed.model.state_dict(), whole.model.state_dict())
    np.testing.assert_array_equal(resumed.targets, whole.targets)
    timeless = [
        [{k: v for k, v in row.items() if k not in ("seconds", "peak_memory_mib")} for row in r.history]
        for r in (runtime, whole_runtime)
    ]
    assert timeless[0] == timeless[1]
    assert [row["epoch"] for row in runtime.history] == list(range(1, config.epochs + 1))


@cache
def digits_accuracy(name: str, noise: float, **changes: Any) -> float:
    """Test accuracy after some epochs on 1,000 digits, with 200 clean ones."""
    x, y, x_test, y_test = digits()
    rng = np.random.default_rng(0)
    given = np.where(rng.random(len(y)) < noise, (y + rng.integers(1, 10, len(y))) % 10, y)
    none = np.full(len(y), MISSING)
    problem = Problem(
        Rows(x, np.arange(1000), given[:1000], none[:1000]),
        Rows(x, np.arange(1000, 1200), none[1000:], y[1000:]),
        tuple("0123456789"),
    )
    test = Rows(x_test, np.arange(len(x_test)), np.full(len(x_test), MISSING), y_test)
    runtime = quiet(truth=Truth(test=test))
    settings = {"network_options": {"hidden": [64]}, "epochs": 15, "batch_size": 50}
    METHODS[name].fit(problem, resolve(METHODS[name].config(**(settings | changes)), problem), runtime)
    return runtime.history[-1]["test_accuracy"]

"""Small rows, problems and networks for the tests of what the methods share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from labelloop.models import TwoHeadClassifier, build_encoder
from labelloop.types import MISSING, Rows


def make_rows(inputs: Any, n: int | None = None, num_classes: int = 3, seed: int = 0) -> Rows:
    n = len(inputs) if n is None else n
    labels = np.random.default_rng(seed).integers(num_classes, size=n)
    return Rows(inputs, np.arange(n), labels, np.full(n, MISSING))


def float_rows(n: int = 50, width: int = 6, seed: int = 0) -> Rows:
    return make_rows(np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32), seed=seed)


def image_rows(n: int = 40, channels: int = 3, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return make_rows(rng.integers(0, 256, (n, 8, 8, channels), dtype=np.uint8), seed=seed)


def make_model(kind: str = "mlp", seed: int = 0, **options: Any) -> TwoHeadClassifier:
    shape = (6,) if kind == "mlp" else (3, 8, 8)
    options = options or ({"hidden": [16]} if kind == "mlp" else {"widths": [4, 6, 8, 8]})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TwoHeadClassifier(build_encoder(kind, shape, options), 3)


class Items:
    """A map-style dataset: its items are inputs, or tuples or lists that begin with one."""

    def __init__(self, inputs: np.ndarray, form: str = "input") -> None:
        self.inputs, self.form = inputs, form

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, i: int) -> Any:
        x = torch.tensor(self.inputs[i])
        return {"input": x, "tuple": (x, i), "list": [x, i, "note"], "numpy": (self.inputs[i], i)}[self.form]

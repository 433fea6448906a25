"""Small rows, problems and networks for the tests of what the methods share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from labelloop.models import TwoHeadClassifier, build_encoder
from labelloop.runs.folder import RunFolder
from labelloop.runs.run_json import RunRecord
from labelloop.training.runtime import Runtime
from labelloop.types import MISSING, Problem, Rows


def make_rows(inputs: Any, n: int | None = None, num_classes: int = 3, seed: int = 0) -> Rows:
    n = len(inputs) if n is None else n
    labels = np.random.default_rng(seed).integers(num_classes, size=n)
    return Rows(inputs, np.arange(n), labels, np.full(n, MISSING))


def float_rows(n: int = 50, width: int = 6, seed: int = 0) -> Rows:
    return make_rows(np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32), seed=seed)


def image_rows(n: int = 40, channels: int = 3, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return make_rows(rng.integers(0, 256, (n, 8, 8, channels), dtype=np.uint8), seed=seed)


def float_problem(n: int = 90, m: int = 30, seed: int = 0) -> Problem:
    """Three clouds of points; 30% of the given labels are wrong."""
    rng = np.random.default_rng(seed)
    true = rng.integers(3, size=n + m)
    true[n : n + 3] = [0, 1, 2]
    inputs = (rng.normal(size=(3, 6))[true] * 2 + rng.normal(size=(n + m, 6))).astype(np.float32)
    given = np.where(rng.random(n + m) < 0.3, (true + 1) % 3, true)
    train = Rows(inputs, np.arange(n), given[:n], np.full(n, MISSING))
    clean = Rows(inputs, np.arange(n, n + m), np.full(m, MISSING), true[n:])
    return Problem(train, clean, ("ant", "bee", "cat"))


def make_model(kind: str = "mlp", seed: int = 0, **options: Any) -> TwoHeadClassifier:
    shape = (6,) if kind == "mlp" else (3, 8, 8)
    options = options or ({"hidden": [16]} if kind == "mlp" else {"widths": [4, 6, 8, 8]})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TwoHeadClassifier(build_encoder(kind, shape, options), 3)


def quiet(seed: int = 0, **arguments: Any) -> Runtime:
    return Runtime(seed, device="cpu", progress=False, **arguments)


def new_folder(path: Any) -> RunFolder:
    folder = RunFolder(path)
    folder.write_record(RunRecord())
    return folder


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_state(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    assert a.keys() == b.keys()
    assert a
    return all(torch.equal(a[name], b[name]) for name in a)


def random_states() -> tuple[Any, ...]:
    """The global random states of torch and numpy."""
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    return (torch.get_rng_state().numpy().tobytes(), name, keys.tobytes(), position, has_gauss, cached)


class Items:
    """A map-style dataset: its items are inputs, or tuples or lists that begin with one."""

    def __init__(self, inputs: np.ndarray, form: str = "input") -> None:
        self.inputs, self.form = inputs, form

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, i: int) -> Any:
        x = torch.tensor(self.inputs[i])
        return {"input": x, "tuple": (x, i), "list": [x, i, "note"], "numpy": (self.inputs[i], i)}[self.form]

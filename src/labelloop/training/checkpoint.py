"""Checkpoints without pickle: tensors in safetensors, the rest in JSON, replaced in one step.

checkpoint/state.json names the tensor files with their sizes and checksums and is written last, so a reader sees the
old state or the new one, never a mixture. The arrays of each round are written once, to a file of their own. Large
arrays have files of their own too. Within a long epoch, checkpoint/within.json names its finished steps and a file of
tensors beside the checkpoint of the previous epoch; if that is damaged, the epoch starts again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from labelloop.errors import DataError
from labelloop.large_arrays import by_chunks, is_on_disk, row_chunks
from labelloop.runs.files import read_json, write_atomically, write_json
from labelloop.training.averaging import WeightAverage, tensors_of
from labelloop.trust import file_in, inside, load_array

ADVICE = "restore it from a copy, or start again in another folder (nothing was changed)"
EVERY = 300.0  # seconds between two checkpoints
PLACE = "within.json"


class Kept(dict[str, Any]):
    """What a method stored, by name; what is not there is damage."""

    def __missing__(self, name: str) -> Any:
        raise DataError(f"checkpoint/state.json is damaged: it has no {name!r:.40}; {ADVICE}")


@contextmanager
def fitting(path: object) -> Iterator[None]:
    """Says in one line that a stored state is not of this network or optimiser."""
    try:
        yield
    except (RuntimeError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        why = " ".join(str(error).split())[:100]
        raise DataError(f"{path} is damaged: it does not fit the network of the run ({why}); {ADVICE}") from None


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    epoch: int
    model: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    arrays: dict[str, np.ndarray]
    past: list[dict[str, np.ndarray]]
    values: dict[str, Any]


def write_checkpoint(
    folder: Path,
    epoch: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    arrays: dict[str, np.ndarray],
    past: Sequence[dict[str, np.ndarray]],
    values: dict[str, Any],
) -> None:
    """Replaces the checkpoint in `folder`.

    Args:
        folder: Created if it does not exist.
        epoch: Finished epochs.
        model: Its parameters and buffers are stored.
        optimizer: Its state is stored.
        arrays: Further arrays.
        past: Arrays of every round so far; those of earlier rounds are already on disk and are not written again.
        values: Whatever else JSON can hold.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = read_json(folder / "state.json") if (folder / "state.json").exists() else {"files": {}}
    small = {name: value for name, value in arrays.items() if not is_on_disk(value)}
    tensors, settings = packed(model, optimizer, small)
    name = f"epoch-{epoch:04d}.safetensors"
    files = {name: write_tensors(folder / name, tensors)}
    for key, value in arrays.items():
        if key not in small:
            files |= large_file(folder, key, value, state["files"])
    for number, entry_arrays in enumerate(past):
        start = f"round-{number + 1:03d}"
        large = {key for key, value in entry_arrays.items() if is_on_disk(value)}
        past_name = f"{start}.safetensors"
        files[past_name] = state["files"].get(past_name) or write_tensors(
            folder / past_name, {key: torch.from_numpy(v) for key, v in entry_arrays.items() if key not in large}
        )
        for key in sorted(large):
            written = {name: entry for name, entry in state["files"].items() if name.startswith(f"{start}-{key}-")}
            files |= written or large_file(folder, f"{start}-{key}", entry_arrays[key], {})
    content = {"epoch": epoch, "files": files, "optimizer": settings, "values": values}
    content["sha256"] = _sum(content)
    write_atomically(folder / "state.json", lambda p: p.write_text(json.dumps(content), encoding="utf-8"))
    for old in folder.iterdir():  # of the epoch before, or left by a process that was killed
        if old.name not in files and old.name != "state.json":
            old.unlink(missing_ok=True)


def drop_stale(folder: Path) -> None:
    """Deletes tensors that no checkpoint names any more, which a process left that was killed before it did so."""
    listed = read_json(folder / "state.json")["files"] if (folder / "state.json").exists() else {}
    for pattern in ("epoch-*.safetensors", "round-*.safetensors"):
        for path in folder.glob(pattern):
            if path.name not in listed:
                path.unlink(missing_ok=True)


def packed(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, arrays: dict[str, np.ndarray]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """All of these as tensors by name, and the part of the optimiser's state that goes into JSON."""
    tensors = tensors_of("model", model)
    tensors |= {f"array/{name}": torch.from_numpy(value) for name, value in arrays.items()}
    tensors |= tensors_of("optimizer", optimizer)
    groups = optimizer.state_dict()
    scalars: dict[str, dict[str, Any]] = {}
    for index, entry in groups["state"].items():
        if others := {name: value for name, value in entry.items() if not isinstance(value, torch.Tensor)}:
            scalars[str(index)] = others
    return tensors, {"param_groups": groups["param_groups"], "scalars": scalars}


def unpacked(
    tensors: dict[str, torch.Tensor], settings: dict[str, Any]
) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of `packed`: the states of network and optimiser, and the arrays."""
    model: dict[str, torch.Tensor] = {}
    arrays: dict[str, np.ndarray] = {}
    optimizer: dict[str, Any] = {
        "state": {int(index): dict(entry) for index, entry in settings["scalars"].items()},
        "param_groups": settings["param_groups"],
    }
    for key, value in tensors.items():
        kind, _, rest = key.partition("/")
        if kind == "model":
            model[rest] = value
        elif kind == "array":
            arrays[rest] = value.numpy()
        else:
            index, _, field = rest.partition("/")
            optimizer["state"].setdefault(int(index), {})[field] = value
    return model, optimizer, arrays


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in `folder`, or None if there is none yet."""
    if not (folder / "state.json").exists():
        return None
    state = read_json(folder / "state.json")
    stored = state.pop("sha256", None)  # older versions wrote none
    if stored is not None and stored != _sum(state):
        raise DataError(f"{folder / 'state.json'} is damaged: its checksum differs from the one written; {ADVICE}")
    try:
        return _from_state(folder, state)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, SafetensorError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{folder / 'state.json'} is damaged: {error!r}; {ADVICE}") from None


def _sum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _from_state(folder: Path, state: dict[str, Any]) -> Checkpoint:
    if type(state["epoch"]) is not int or state["epoch"] < 0 or not isinstance(state["values"], dict):
        raise ValueError(f"epoch {state['epoch']!r:.40}")
    for name in state["files"]:
        inside(folder, name, folder / "state.json")
    arrays: dict[str, np.ndarray] = {}
    past: list[dict[str, np.ndarray]] = []
    tensors: dict[str, torch.Tensor] = {}
    for name, expected in state["files"].items():
        if "array" in expected:
            start, _, key = expected["array"].rpartition("-")
            (past[-1] if start else arrays)[key] = read_large(folder / name, expected)
        elif name.startswith("round-"):
            past.append({key: value.numpy() for key, value in read_tensors(folder / name, expected).items()})
        else:
            tensors |= read_tensors(folder / name, expected)
    model, optimizer, small = unpacked(tensors, state["optimizer"])
    past = [Kept(entry) for entry in past]
    return Checkpoint(state["epoch"], model, optimizer, Kept(small | arrays), past, Kept(state["values"]))


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Writes a file of tensors, and returns its size and checksum."""
    content = save_tensors({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    write_atomically(path, lambda p: p.write_bytes(content))
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_tensors(path: Path, expected: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Reads a file of tensors, and refuses it if its size or checksum differs."""
    content = _found(path).read_bytes()
    _check_sum(path, len(content), hashlib.sha256(content).hexdigest(), expected)
    return load_tensors(content)


def _found(path: Path) -> Path:
    try:
        return file_in(path.parent, path.name)
    except FileNotFoundError:
        raise DataError(f"{path} is missing from the checkpoint; {ADVICE}") from None


def _check_sum(path: Path, size: int, digest: str, expected: Mapping[str, Any]) -> None:
    if size != expected["bytes"]:
        raise DataError(f"{path} is truncated: {size} of {expected['bytes']} bytes; {ADVICE}")
    if digest != expected["sha256"]:
        raise DataError(f"{path} is damaged: its checksum differs from the one written; {ADVICE}")


def large_file(folder: Path, key: str, array: NDArray, written: Mapping[str, Any]) -> dict[str, Any]:
    """Writes an array [n, width], unless a file with the same content exists; returns its entry in state.json.

    Args:
        folder: Of the checkpoint.
        key: The name of the array.
        array: What to write.
        written: The entries of the existing checkpoint.
    """
    digest = _digest(array)
    name = f"{key}-{digest[:16]}.npy"
    if name not in written:
        write_atomically(folder / name, lambda place: _write(place, array))
    return {name: {"array": key, "bytes": array.nbytes, "sha256": digest}}


def read_large(path: Path, expected: Mapping[str, Any]) -> NDArray:
    """Reads an array back, and refuses it if its size or checksum differs."""
    place = _found(path)
    try:
        stored = load_array(place, mapped=True)
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); {ADVICE}") from None
    _check_sum(path, stored.nbytes, _digest(stored), expected)
    return by_chunks(lambda rows: stored[rows], stored.shape, stored.dtype)


def _write(place: Path, array: NDArray) -> None:
    with place.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
        )
        for rows in row_chunks(*array.shape):
            file.write(np.ascontiguousarray(array[rows]).data)


def _digest(array: NDArray) -> str:
    digest = hashlib.sha256()
    for rows in row_chunks(*array.shape):
        digest.update(np.ascontiguousarray(array[rows]).data)
    return digest.hexdigest()


@dataclass
class WithinEpoch:
    """The network to checkpoint, and where.

    Attributes:
        folder: Of the checkpoint.
        model: The network; epochs of other networks are ignored.
        optimizer: Its optimiser.
        average: Its averaged weights, if any.
        every: Seconds between two checkpoints.
    """

    folder: Path
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None = None
    every: float = EVERY
    _last: float = field(default_factory=time.monotonic)

    def resume(self, epoch: int, model: torch.nn.Module) -> tuple[int, float]:
        """Restores the state after the finished steps of this epoch; returns their number and the sum of their losses.

        Args:
            epoch: The epoch that begins.
            model: The network that it trains.
        """
        self._last = time.monotonic()
        if model is not self.model or not (self.folder / PLACE).exists():
            return 0, 0.0
        try:
            place = read_json(self.folder / PLACE)
            if place.pop("sum", None) != _sum(place) or place["epoch"] != epoch:
                return 0, 0.0
            tensors = read_tensors(inside(self.folder, place["file"], PLACE), place)
            state, optimizer, arrays = unpacked(tensors, place["optimizer"])
        except (DataError, KeyError, TypeError, ValueError, AttributeError, SafetensorError):
            return 0, 0.0
        with fitting(self.folder / PLACE):
            self.model.load_state_dict(state)
            self.optimizer.load_state_dict(optimizer)
            if self.average is not None:
                self.average.from_arrays(arrays)
            torch.set_rng_state(torch.from_numpy(arrays["random"]))
            if "random_cuda" in arrays:
                torch.cuda.set_rng_state(torch.from_numpy(arrays["random_cuda"]))
            return int(place["step"]), float(arrays["loss"][0])

    def after_step(self, epoch: int, step: int, loss: torch.Tensor, model: torch.nn.Module) -> None:
        """Writes a checkpoint, if it is time.

        Args:
            epoch: Counted from 1.
            step: Its finished steps.
            loss: The sum of their losses.
            model: The network that is trained.
        """
        if model is not self.model or time.monotonic() - self._last < self.every:
            return
        arrays = {} if self.average is None else self.average.to_arrays()
        arrays |= {"random": torch.get_rng_state().numpy(), "loss": np.array([loss.item()])}
        if loss.is_cuda:
            arrays["random_cuda"] = torch.cuda.get_rng_state().numpy()
        tensors, settings = packed(self.model, self.optimizer, arrays)
        name = f"within-{epoch:04d}-{step:08d}.safetensors"
        self.folder.mkdir(parents=True, exist_ok=True)
        entry: dict[str, Any] = write_tensors(self.folder / name, tensors)
        place = {"epoch": epoch, "step": step, "file": name, "optimizer": settings, **entry}
        write_json(self.folder / PLACE, {**place, "sum": _sum(place)})
        for old in self.folder.glob("within-*.safetensors"):
            if old.name != name:
                old.unlink()
        self._last = time.monotonic()

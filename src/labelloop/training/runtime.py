"""Where a method runs: device, processes, clocks, progress, recording, checkpoints. Methods use them only from here."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from labelloop.errors import DataError
from labelloop.large_arrays import is_on_disk
from labelloop.models import TwoHeadClassifier, is_convolutional
from labelloop.progress import bar, clock
from labelloop.runs.folder import RunFolder
from labelloop.runs.labels import accuracy, label_metrics
from labelloop.training.averaging import WeightAverage
from labelloop.training.batch_norm import over_whole_batches
from labelloop.training.checkpoint import (
    Checkpoint,
    WithinEpoch,
    drop_stale,
    fitting,
    read_checkpoint,
    write_checkpoint,
)
from labelloop.training.epoch import extract
from labelloop.training.ranks import ALONE, Ranks
from labelloop.types import Floats, Labels, Problem, Truth

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

T = TypeVar("T")
ADVICE = "lower learning_rate, or check the scale of the inputs"


class Runtime:
    """The environment of one run.

    Args:
        seed: Names every random stream of the run.
        device: "auto" (a GPU if there is one), "cpu", "cuda", ...
        folder: Where metrics and checkpoints are stored; None keeps everything in memory.
        truth: Test rows and true labels, used only for recording.
        progress: Whether to draw a progress bar; None draws one only in a terminal.
        name: The title of the progress bar.
        workers: Processes that load the items of a dataset; arrays need none.
        ranks: The processes that share the run. Only the first one has a folder.
    """

    def __init__(
        self,
        seed: int = 0,
        device: str = "auto",
        folder: RunFolder | None = None,
        truth: Truth | None = None,
        progress: bool | None = None,
        workers: int = 0,
        name: str = "training",
        ranks: Ranks = ALONE,
    ) -> None:
        self.seed = seed
        self.ranks = ranks
        self.device = ranks.device(device)
        self.folder = folder
        self._truth = truth or Truth()
        self.workers = workers
        self.history: list[dict[str, Any]] = []
        self.phases: dict[str, float] = {}
        self.name = name
        self._progress = progress if ranks.is_first else False
        self._start = 0
        self._within: WithinEpoch | None = None
        self._channels_last = False

    # --- device ------------------------------------------------------------------------------------------------------

    def prepare(self, model: TwoHeadClassifier) -> TwoHeadClassifier:
        """Moves a network to the device, in the memory format that is fastest for it."""
        self._channels_last = is_convolutional(model.encoder)
        if self._channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.ranks.count > 1:
            model = over_whole_batches(model, self.ranks.total, self.device)
        return model.to(self.device)

    # --- other processes ---------------------------------------------------------------------------------------------

    @property
    def is_first(self) -> bool:
        """Whether this process corrects labels and writes files; a single process does."""
        return self.ranks.is_first

    def from_first(self, make: Callable[[], T]) -> T:
        """Calls `make` in the first process and returns its result in all."""
        return self.ranks.from_first(make)

    def sharing(
        self, model: torch.nn.Module, unused: Iterable[torch.Tensor] = ()
    ) -> AbstractContextManager[Callable[..., Any]]:
        """The network to call in training: with `backward` below, every process gets the gradients of the whole loss.

        Args:
            model: The network.
            unused: Its parameters that the loss does not depend on.
        """
        return self.ranks.sharing(model, unused)

    def backward(self, loss: torch.Tensor) -> None:
        """`backward` of this process's part of the loss."""
        self.ranks.backward(loss)

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        """Moves a batch of inputs to the device, while it still works on the previous batch."""
        if self.device.type == "cuda":
            x = x.pin_memory()
        if self._channels_last and x.ndim == 4:
            return x.to(self.device, memory_format=torch.channels_last, non_blocking=True)
        return x.to(self.device, non_blocking=True)

    def tensor(self, array: Floats) -> torch.Tensor:
        """An array to pick rows from, on the device; one that is mapped from a file stays on disk."""
        return torch.from_numpy(array) if is_on_disk(array) else torch.from_numpy(array).to(self.device)

    def picked(self, rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Some rows of a result of `tensor`, on the device and in float32."""
        return rows[index].to(self.device, torch.float32, non_blocking=True)

    # --- clocks and progress ------------------------------------------------------------------------------------------

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the seconds spent inside to the phase `name` of this epoch."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Uses a single thread, for work too small to share among threads."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def epochs(self, total: int) -> Iterator[int]:
        """Iterates over the remaining epochs, counted from 1, with a progress bar."""
        hide = None if self._progress is None else not self._progress
        with (
            torch.random.fork_rng(devices=[]),  # a run leaves the caller's random state alone
            tqdm(total=total, initial=self._start, desc=self.name, unit="epoch", disable=hide, leave=False) as bar,
        ):
            for epoch in range(self._start + 1, total + 1):
                self.phases = {}
                yield epoch
                last = self.history[-1] if self.history else {}
                shown = {k: f"{last[k]:.3f}" for k in ("loss", "test_accuracy") if last.get(k) is not None}
                bar.set_postfix(shown, refresh=False)
                bar.update()

    def counted(self, total: int, name: str) -> Iterable[int]:
        """Iterates over the epochs of a further network, counted from 1, with a progress bar of its own."""
        return bar(range(1, total + 1), name, "epoch", self._progress)

    def clock(self, name: str) -> AbstractContextManager[None]:
        """Shows the time taken by something without countable steps."""
        return clock(name, self._progress)

    # --- recording ----------------------------------------------------------------------------------------------------

    def check_loss(self, loss: float, epoch: int) -> None:
        """Raises an error if the loss is not finite."""
        if not math.isfinite(loss):
            raise DataError(f"training broke down: the loss of epoch {epoch} is {loss}; {ADVICE}")

    def check_outputs(self, epoch: int, *outputs: Floats) -> None:
        """The same for the outputs of a network after an epoch, before anything is learnt from them."""
        if not all(np.isfinite(each).all() for each in outputs):
            raise DataError(f"training broke down: after epoch {epoch} the network's outputs are not finite; {ADVICE}")

    def record(
        self,
        epoch: int,
        model: TwoHeadClassifier,
        problem: Problem,
        targets: Floats,
        values: dict[str, Any],
        held_out: Labels | None = None,
    ) -> None:
        """Stores the metrics of this epoch. This is the only place that uses the truth.

        Args:
            epoch: Counted from 1.
            model: The network to evaluate.
            problem: Its training rows and clean rows.
            targets: Current soft labels of the training rows [N, C].
            values: Further metrics.
            held_out: Positions of clean_val among the clean rows, for figures like the paper's on Clothing1M.
        """
        self.check_loss(values.get("loss", 0.0), epoch)
        row: dict[str, Any] = {"epoch": epoch, **values}
        with self.phase("evaluate"):
            if self._truth.test is not None:
                logits = extract(model, self._truth.test, self).logits
                row["test_accuracy"] = accuracy(logits.argmax(axis=1), self._truth.test.clean_labels)
                clean = extract(model, problem.clean, self).logits if len(problem.clean) else np.empty((0, 1))
                predicted, labels = clean.argmax(axis=1), problem.clean.clean_labels
                row["clean_accuracy"] = accuracy(predicted, labels)  # not a fair test for methods that train on these
                if held_out is not None:
                    row["clean_val_accuracy"] = accuracy(predicted[held_out], labels[held_out])
            if self._truth.train_labels is not None:
                row |= label_metrics(targets, problem.train.labels, self._truth.train_labels)
        row["seconds"] = {name: round(seconds, 4) for name, seconds in self.phases.items()}
        row["peak_memory_mib"] = self._peak_memory()
        if self.ranks.count > 1:
            row["processes"] = self.ranks.count
        row = {key: None if value != value else value for key, value in row.items()}  # JSON knows no NaN
        self.history.append(row)
        if self.folder is not None:
            self.folder.append_metrics(row)

    def _peak_memory(self) -> int | None:
        """The peak memory of this process so far, in MiB: that of the GPU if one is used; None on Windows."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) // 2**20
        if resource is None:
            return None
        try:  # on Linux ru_maxrss begins at what the parent held, such as a notebook that starts a command
            with open("/proc/self/status", encoding="ascii") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) // 1024
        except (OSError, StopIteration):  # no Linux
            pass
        unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int, model: torch.nn.Module) -> tuple[int, float]:
        """The steps of this epoch that were done before an interruption, and the sum of their losses."""
        return (0, 0.0) if self._within is None else self._within.resume(epoch, model)

    def after_step(self, epoch: int, step: int, loss: torch.Tensor, model: torch.nn.Module) -> None:
        """Writes a checkpoint within a long epoch. Several processes write them only after whole epochs."""
        if self._within is not None:
            self._within.after_step(epoch, step, loss, model)

    def save(
        self,
        epoch: int,
        model: TwoHeadClassifier,
        optimizer: torch.optim.Optimizer,
        arrays: dict[str, np.ndarray] | None = None,
        past: Sequence[dict[str, np.ndarray]] = (),
        values: dict[str, Any] | None = None,
        average: WeightAverage | None = None,
    ) -> None:
        """Writes a checkpoint after an epoch, so that an interruption costs less than an epoch."""
        self.ranks.agree_on(model)
        if self.folder is not None:
            arrays = (arrays or {}) | (average.to_arrays() if average else {})
            write_checkpoint(self.folder.checkpoint, epoch, model, optimizer, arrays, past, values or {})

    def restore(
        self, model: TwoHeadClassifier, optimizer: torch.optim.Optimizer, average: WeightAverage | None = None
    ) -> Checkpoint | None:
        """Restores network, optimiser and averaged weights from the last checkpoint and returns the checkpoint.

        The first process reads it for all. It alone keeps the arrays of past rounds, because it alone corrects labels.
        """
        checkpoint = None
        if self.folder is not None:
            checkpoint = read_checkpoint(self.folder.checkpoint)
            drop_stale(self.folder.checkpoint)
            self.history = self.folder.keep_metrics(checkpoint.epoch if checkpoint else 0)
        if self.ranks.count > 1:
            checkpointed = None if checkpoint is None else vars(replace(checkpoint, past=[]))
            checkpointed, self.history = self.ranks.from_first(lambda: (checkpointed, self.history))
            if not self.is_first and checkpointed is not None:
                checkpoint = Checkpoint(**checkpointed)
        self._start = checkpoint.epoch if checkpoint else 0
        if self.folder is not None and self.ranks.count == 1:
            self._within = WithinEpoch(self.folder.checkpoint, model, optimizer, average)
        if checkpoint:
            with fitting("the checkpoint" if self.folder is None else self.folder.checkpoint / "state.json"):
                model.load_state_dict(checkpoint.model)
                optimizer.load_state_dict(checkpoint.optimizer)
                if average:
                    average.from_arrays(checkpoint.arrays)
        return checkpoint

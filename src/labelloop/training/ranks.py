"""Which of several processes this is, and what they exchange: the only file that knows about ranks and launchers.

Every process reads the same rows and draws the same random numbers. They share the work of each batch and of
extraction; the first one corrects labels and writes files.
"""

from __future__ import annotations

import atexit
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labelloop.errors import DataError, ElsewhereError, UsageError
from labelloop.training.averaging import empty_arrays, pack, shapes, unpack

T = TypeVar("T")
Model = TypeVar("Model", bound=torch.nn.Module)

PATIENCE = "LABELLOOP_PROCESS_TIMEOUT"  # seconds that a process waits for the others
DEFAULT_PATIENCE = 1800  # longer than anything that the first process does alone
PIECE = 2**26  # bytes sent at a time
PORT = "29500"  # torch's default, if the launcher sets none
HOW = "start it with `torchrun --nproc-per-node={} -m labelloop ...`, or see docs/distributed.md"
# Buffers are the same in all processes, so torch need not send them. Newer versions of torch renamed that option.
_newer = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
BUFFERS_STAY: Any = {"forward_sync_buffers" if _newer else "broadcast_buffers": False}
# Each launcher's variables for the rank, the number of processes, and both on this machine.
ON_A_NODE = ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")
LAUNCHERS = (
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", *ON_A_NODE),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS", *ON_A_NODE),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
)  # fmt: skip


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together. Without arguments it is alone, and nothing is exchanged.

    Attributes:
        rank: Its number, from 0.
        count: The number of processes.
        local: Its number on this machine, which selects the GPU.
        here: The number of processes on this machine, which share its memory.
        restarts: How often the launcher has restarted all of them.
    """

    rank: int = 0
    count: int = 1
    local: int = 0
    here: int = 1
    restarts: int = 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def names(self) -> tuple[int, ...]:
        """A name for random streams that must differ between processes; empty if there is only one."""
        return () if self.count == 1 else (self.rank,)

    def mine(self, total: int) -> slice:
        """This process's part of `total` items in order. Each item belongs to exactly one process, without padding."""
        return self.part(self.rank, total)

    def part(self, rank: int, total: int) -> slice:
        return slice(rank * total // self.count, (rank + 1) * total // self.count)

    def device(self, device: str) -> torch.device:
        """The device of this process: with CUDA and several processes, each has its own GPU."""
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda" and self.count > 1:
            torch.cuda.set_device(self.local)
            return torch.device("cuda", self.local)
        return torch.device(device)

    # --- sums --------------------------------------------------------------------------------------------------------

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, the same bits in each."""
        if self.count > 1:
            with _lost(self):
                dist.all_reduce(values)
        return values

    def whole(self, values: torch.Tensor, mine: slice, count: int) -> torch.Tensor:
        """The values of all `count` rows [count], in all processes; this process contributes those of `mine`."""
        if self.count == 1:
            return values
        everywhere = values.new_zeros(count)
        everywhere[mine] = values
        return self.total(everywhere)

    def agree_on(self, model: torch.nn.Module) -> None:
        """Refuses to continue if the processes' networks differ, even in the last bit."""
        if self.count > 1:
            sums = [str(value.detach().double().sum().item()) for value in model.state_dict().values()]
            self.agree("weights", " ".join(sums))

    # --- gradients ---------------------------------------------------------------------------------------------------

    @contextmanager
    def sharing(self, model: Model, unused: Iterable[torch.Tensor] = ()) -> Iterator[Callable[..., Any]]:
        """The network in torch's DistributedDataParallel: `backward` sums its gradients over the processes.

        Gradients are exchanged while `backward` still works on other layers. Names and buffers of the network stay.

        Args:
            model: Its gradients are summed; in a single process it is returned unchanged.
            unused: Its parameters that the loss does not depend on. They get no gradient, as in a single process.
        """
        if self.count == 1:
            yield model
            return
        left_out = [parameter for parameter in unused if parameter.requires_grad]
        try:
            for parameter in left_out:
                parameter.requires_grad_(False)
            with _lost(self):
                shared = DistributedDataParallel(model, init_sync=False, **BUFFERS_STAY)
            yield lambda x: self._watched(lambda: shared(x))
        finally:
            for parameter in left_out:
                parameter.requires_grad_(True)

    def backward(self, loss: torch.Tensor) -> None:
        """Computes the gradients of the whole loss, of which each process has a part, for a network in `sharing`."""
        whole = loss if self.count == 1 else loss * self.count  # torch takes the mean over the processes
        self._watched(whole.backward)

    def _watched(self, do: Callable[[], T]) -> T:
        """Calls `do`, and reports a lost connection to the other processes as such; other errors pass."""
        try:
            return do()
        except RuntimeError as error:
            if self.count == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            with _lost(self):
                raise

    # --- rows --------------------------------------------------------------------------------------------------------

    def gather_rows(self, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> None:
        """Fills arrays [N, ...] whose rows were computed in batches, those of `mine(len(sizes))` by this process.

        Every row is sent to its own position, so processes may have different numbers of rows or batches.
        """
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        for source in range(self.count):
            batches = self.part(source, len(sizes))
            rows = slice(ends[batches.start], ends[batches.stop])
            for array in arrays:
                if len(array[rows]):
                    self._send(array[rows], source)

    def _send(self, array: np.ndarray, source: int) -> None:
        """Sends an array of `source`, which must be contiguous, to all processes."""
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, len(flat), PIECE):
            piece = flat[start : start + PIECE]
            with _lost(self):
                dist.broadcast(torch.from_numpy(piece if piece.flags.writeable else piece.copy()), source)

    # --- values from the first process -------------------------------------------------------------------------------

    def from_first(self, make: Callable[[], T]) -> T:
        """Calls `make` in the first process and returns its result in all. If it fails there, it fails in all.

        It may return dicts, lists, tuples, arrays, tensors and JSON values.
        """
        if self.count == 1:
            return make()
        made: Any = None
        with self.together():
            if self.is_first:
                made = make()
        text, arrays = pack(made)
        text, described = self._say(text), self._say(shapes(arrays))
        arrays = [np.ascontiguousarray(array) for array in arrays] if self.is_first else empty_arrays(described)
        for array in arrays:
            if array.size:
                self._send(array, 0)
        return made if self.is_first else unpack(text, arrays)

    def in_first(self, make: Callable[[], T]) -> T | None:
        """Calls `make` in the first process; returns None in the others. If it fails, it fails in all."""
        made = None
        with self.together():
            if self.is_first:
                made = make()
        return made

    @contextmanager
    def together(self) -> Iterator[None]:
        """An error inside in one process is raised in all, and reported once.

        Raises:
            ElsewhereError: Another process reports the error.
        """
        if self.count == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except (UsageError, DataError, OSError) as refused:
            error = refused
        message = self._all_say("" if error is None else str(error) or repr(error))
        if not any(message):
            return
        if self.is_first:
            who = next(rank for rank, text in enumerate(message) if text)
            raise error or DataError(f"process {who} of {self.count}: {message[who]}")
        raise ElsewhereError(next(filter(None, message)))

    def agree(self, what: str, value: str) -> None:
        """Refuses processes that do not have the same `value`.

        Args:
            what: What it is, in the plural, such as "rows".
            value: Any string that identifies it.
        """
        with self.together():
            message = self._all_say(value) if self.count > 1 else [value]
            other = next((rank for rank, text in enumerate(message) if text != message[0]), None)
            if other is not None:
                raise DataError(
                    f"process {other} of {self.count} has other {what} than process 0; start all of them with the same"
                    " command, the same versions and the same files, on the same kind of machine"
                )

    def _say(self, text: str) -> str:
        """The string of the first process, in all."""
        content = np.frombuffer(text.encode(), np.uint8).copy()
        size = np.array([len(content)])
        self._send(size, 0)
        content = content if self.is_first else np.empty(size[0], np.uint8)
        if len(content):
            self._send(content, 0)
        return content.tobytes().decode()

    def _all_say(self, text: str) -> list[str]:
        """The strings of all processes, in each."""
        sizes = torch.zeros(self.count, dtype=torch.int64)
        content = torch.from_numpy(np.frombuffer(text.encode(), np.uint8).copy())
        sizes[self.rank] = len(content)
        whole = torch.zeros((self.count, int(self.total(sizes).max())), dtype=torch.uint8)
        whole[self.rank, : len(content)] = content
        rows = self.total(whole).numpy()
        return [row[:size].tobytes().decode() for row, size in zip(rows, sizes.tolist(), strict=True)]


ALONE = Ranks()


@contextmanager
def _lost(ranks: Ranks) -> Iterator[None]:
    """Turns a broken connection into a DataError that says what to do."""
    try:
        yield
    except RuntimeError as error:
        _end_in_peace()
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise DataError(
            f"process {ranks.rank} of {ranks.count} has lost the others: one of them has ended or cannot be reached"
            f" ({reason}). {RESUME}"
        ) from None


RESUME = (
    "The run's folder keeps the last finished epoch: look for what the other process said, then start the same command"
    " with --resume, on as many processes as you like"
)


# --- launchers -------------------------------------------------------------------------------------------------------


def join(asked: int | None = None, environ: Mapping[str, str] | None = None) -> Ranks:
    """Finds the other processes of a launcher through its environment variables.

    Args:
        asked: How many processes there must be; None accepts any number.
        environ: The environment.

    Raises:
        UsageError: There is another number of processes, or the environment contradicts itself.
        DataError: They do not find each other in time.
    """
    environ = os.environ if environ is None else environ
    if _is_connected():  # by the caller's own code, or before
        if "gloo" not in str(dist.get_backend_config()):
            raise UsageError(
                f"the existing process group has the backend {dist.get_backend()!r}, which cannot send data between"
                ' CPUs; create it with backend "cpu:gloo,cuda:nccl"'
            )
        found = Ranks(dist.get_rank(), dist.get_world_size(), *_here(environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    else:
        found = place_in(environ)
    if asked is not None and found.count != asked:
        if not found.is_first:
            raise ElsewhereError("another number of processes was asked for")
        raise UsageError(
            f"processes asked for: {asked}, taking part: {found.count}"
            f"{_traces(environ) if found.count == 1 else ''}; {HOW.format(asked)}"
        )
    if found.count > 1 and not _is_connected():
        _connect(found, environ)
    return found


def place_in(environ: Mapping[str, str]) -> Ranks:
    """The rank of this process in the environment of torchrun, Accelerate, srun or mpirun."""
    rank, count = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    if (count or 1) > 1 or rank is not None:
        if rank is None or count is None or not 0 <= rank < count:
            raise UsageError(
                f"RANK is {environ.get('RANK', 'not set')} and WORLD_SIZE {environ.get('WORLD_SIZE', 'not set')}: a"
                f" launcher sets both, with RANK from 0 to WORLD_SIZE - 1; unset them, or {HOW.format(count or 2)}"
            )
        if count > 1 and not environ.get("MASTER_ADDR"):
            raise UsageError(
                f"WORLD_SIZE is {count}, but MASTER_ADDR is not set: the processes cannot find each other; set it to"
                " the name of the first machine"
            )
        restarts = _number(environ, "TORCHELASTIC_RESTART_COUNT") or 0  # torchrun --max-restarts
        return Ranks(rank, count, *_here(environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE"), restarts)
    for launcher, rank_name, count_name, *on_a_node in LAUNCHERS:
        rank, count = _number(environ, rank_name), _number(environ, count_name)
        if rank is None or count is None or count < 2:
            continue
        if environ.get("MASTER_ADDR"):
            return Ranks(rank, count, *_here(environ, *on_a_node))
        if count_name != "SLURM_NTASKS":  # it counts the job, not this step, so there may be no other processes
            raise UsageError(
                f"{launcher} started {count} processes, but MASTER_ADDR is not set, so they cannot find each other; set"
                " it to the name of the first machine, or start one process (docs/distributed.md has the lines)"
            )
    if environ.get("MASTER_ADDR") and _by_accelerate(environ):  # Accelerate sets it when asked for several
        raise UsageError(
            f"Accelerate was asked for several processes, but started this one alone, as it does without GPUs;"
            f" {HOW.format(2)}"
        )
    return Ranks()


def alone_among_others(environ: Mapping[str, str] | None = None) -> str:
    """A message for a single process that seems to run under a launcher; otherwise empty."""
    environ = os.environ if environ is None else environ
    traces = _traces(environ)
    return f"1 process takes part{traces}; --processes N stops a run that is not shared by N" if traces else ""


def _by_accelerate(environ: Mapping[str, str]) -> bool:
    return any(name.startswith("ACCELERATE_") for name in environ)


def _traces(environ: Mapping[str, str]) -> str:
    if _by_accelerate(environ):
        return " (Accelerate's launcher started no other one: without GPUs it starts one whatever it is asked for)"
    if (_number(environ, "SLURM_NTASKS") or 1) > 1:
        return f" (SLURM has {environ['SLURM_NTASKS']} tasks here: `srun` before the command starts them)"
    return ""


def _here(environ: Mapping[str, str], rank: str, count: str) -> tuple[int, int]:
    return _number(environ, rank) or 0, _number(environ, count) or 1


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal():
        raise UsageError(
            f"the environment variable {name}={text} is not a number; unset it, or use a launcher that sets it"
        )
    return int(text)


def _connect(ranks: Ranks, environ: Mapping[str, str]) -> None:
    """Connects to the others, and makes sure that this process reports it when a launcher ends it."""
    if not dist.is_available():
        raise UsageError("this build of torch has no torch.distributed; start one process, or install another build")
    seconds = _number(environ, PATIENCE) or DEFAULT_PATIENCE
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    os.environ.setdefault("MASTER_PORT", PORT)
    try:
        dist.init_process_group(
            backend, rank=ranks.rank, world_size=ranks.count, timeout=timedelta(seconds=seconds)
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"process {ranks.rank} of {ranks.count} did not find the others at {environ['MASTER_ADDR']} within"
            f" {seconds} s ({str(error).strip().splitlines()[0]}); start all {ranks.count}, and see that they can reach"
            " each other"
        ) from None
    atexit.register(_leave)
    now = signal.getsignal(signal.SIGTERM)
    free = now == signal.SIG_DFL or getattr(now, "gives_way", False)
    if threading.current_thread() is threading.main_thread() and free:
        signal.signal(signal.SIGTERM, _ended_by_launcher)


def _is_connected() -> bool:
    return dist.is_available() and dist.is_initialized()


def _leave() -> None:
    _end_in_peace()
    if _is_connected():
        dist.destroy_process_group()


def _end_in_peace() -> None:
    """Ignores a launcher's signal from now on: this process ends by itself, and must not be interrupted in writing."""
    if signal.getsignal(signal.SIGTERM) is _ended_by_launcher and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _ended_by_launcher(*_: Any) -> None:
    _end_in_peace()
    raise DataError(f"the launcher ended this process, as it does when another one has ended or time is up. {RESUME}")

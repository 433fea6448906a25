"""What `make bench` measures: a function for each group of lines, from `Sizes` to `Measured` lines."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clocks import Measured, Target, Usage, in_turns, labelloop, one_thread, ratios
from made_rows import arrays, write_parts
from processes import compared
from small_tables import ROWS, TABLES, small_tables
from torch.nn import functional as F

from labelloop.data.datasets import load_dataset
from labelloop.errors import DataError
from labelloop.large_arrays import cache_folder
from labelloop.methods import METHODS, recipe_config
from labelloop.seeds import stream
from labelloop.splits import one_hot
from labelloop.training.augmentation import crop_and_flip
from labelloop.training.epoch import train_epoch
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer, resolve
from labelloop.types import MISSING, Problem, Rows

LAMBDA = 0.5
ROUNDS, EPOCHS = 12, 100  # the paper's schedule


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        rows: Embeddings of the loop and of a correction.
        images: Images of the same.
        repeats: Turns that count.
        small: Rows of the smaller fit, one in a hundred clean; the larger one has ten times as many of both.
        classes: Classes of fits that are alike in all else.
        clean: Clean rows of such fits.
        streamed: Rows of probabilities that `correct` streams.
        limit: For both, as `--max-memory` takes it.
        wide: Rows and features of a folder of parts that is larger than a limit of 1 GiB.
        tables: Small tables for whole commands.
    """

    rows: int = 20_000
    images: int = 1_536
    repeats: int = 5
    small: int = 10_000
    classes: tuple[int, int, int] = (10, 30, 100)
    clean: tuple[int, int, int] = (100, 1_000, 5_000)
    streamed: int = 500_000
    limit: str = "1G"
    wide: tuple[int, int] = (120_000, 2304)
    tables: int = len(TABLES)


QUICK = Sizes()
FULL = Sizes(
    rows=45_000, images=4_608, repeats=7, small=100_000, classes=(10, 100, 1000), clean=(100, 5_000, 50_000),
    streamed=10_000_000, limit="3G",
)  # fmt: skip
TINY = Sizes(
    rows=400, images=64, repeats=1, small=300, classes=(3, 6, 12), clean=(40, 80, 160), streamed=2_000, wide=(300, 16),
    tables=1,
)  # fmt: skip


class Clocked(Runtime):
    """Keeps the processor seconds of every phase."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(0, device="cpu", progress=False, **arguments)
        self.spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.process_time()
        with super().phase(name):
            yield
        self.spent[name] += time.process_time() - start


def embeddings(rows: int, clean: int, classes: int = 10, width: int = 256) -> Problem:
    made = arrays(rows, width, classes, clean)
    x, names = made["embedding"], tuple(map(str, range(classes)))
    verified = np.arange(clean)
    noisy = np.arange(clean, rows)
    none = np.full(rows, MISSING)
    train = Rows(x, noisy, made["label"][noisy], none[noisy])
    return Problem(train, Rows(x, verified, none[verified], made["true"][verified]), names)


def images(rows: int, clean: int) -> Problem:
    rng = stream(0, "images")
    pixels = rng.integers(0, 256, (rows + clean, 32, 32, 3), dtype=np.uint8)
    labels, none = np.arange(rows + clean) % 10, np.full(rows + clean, MISSING)
    train = Rows(pixels, np.arange(rows), labels[:rows], none[:rows])
    verified = Rows(pixels, np.arange(rows, rows + clean), none[rows:], labels[rows:])
    return Problem(train, verified, tuple(map(str, range(10))))


# --- our loop beside a bare one -------------------------------------------------------------------------------------


def bare_epoch(problem: Problem, model: torch.nn.Module, optimizer: Any, batch: int, augmented: bool) -> None:
    """A pass written out by hand: nothing but network, loss and optimiser."""
    train, classes = problem.train, problem.num_classes
    targets = torch.from_numpy(one_hot(train.labels, classes))
    pixels = train.inputs.ndim == 4
    x = train.inputs if pixels else torch.from_numpy(train.inputs)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(train))
    model.train()
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        index = train.index[rows]
        if pixels:
            some = crop_and_flip(x[index], rng) if augmented else x[index]
            inputs = torch.from_numpy(some).permute(0, 3, 1, 2)
        else:
            inputs = x[torch.from_numpy(index)]
        out, wanted = model(inputs), targets[torch.from_numpy(rows)]
        loss = F.cross_entropy(out.logits, wanted) + LAMBDA * F.cross_entropy(out.noisy_logits, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def throughput(sizes: Sizes) -> list[Measured]:
    """Rows a second of our pass by those of the bare one: same network, batch, loss and augmentation.

    Many short turns: a busy machine changes from second to second.
    """
    found, rows, pictures = [], max(sizes.rows // 3, 400), max(sizes.images // 3, 64)
    for name, problem in (("embeddings", embeddings(rows, 100)), ("images", images(pictures, 64))):
        network = "mlp" if name == "embeddings" else "small-cnn"
        config = resolve(METHODS["closed-loop"].config(network=network), problem)
        runtime = Runtime(0, device="cpu", progress=False)
        targets = one_hot(problem.train.labels, problem.num_classes)
        made = [runtime.prepare(new_classifier(config, problem, 0)) for _ in range(2)]
        (ours, our_steps), (bare, bare_steps) = ((model, new_optimizer(model, config)) for model in made)
        crop = config.augment == "crop-flip"

        our_pass = partial(train_epoch, ours, problem.train, targets, targets, LAMBDA, our_steps, config, runtime, 1)
        bare_pass = partial(bare_epoch, problem, bare, bare_steps, config.batch_size, crop)
        with one_thread():
            seconds = in_turns({"bare": bare_pass, "ours": our_pass}, 3 * sizes.repeats)
        about = {"rows": len(problem.train), "seconds": seconds}
        what = f"throughput of the loop by a bare one, {name}"
        found.append(Measured(what, ratios(seconds, "bare", "ours"), Target(0.95, most=False), about=about))
    return found


# --- what a correction costs ----------------------------------------------------------------------------------------

PHASES = ("extract", "corrector", "combination", "update")


def correction_cost(problem: Problem, network: str, repeats: int) -> tuple[list[float], dict[str, Any]]:
    """The processor seconds of a correction of the paper's loop by those of an epoch; and by phase."""
    changes = {"network": network, "epochs": 4, "warm_up": 1, "correct_every": 1}
    config = resolve(recipe_config("closed-loop", "paper", changes), problem)
    found, by_phase = [], []
    with one_thread():
        for _ in range(repeats):
            runtime = Clocked()
            METHODS["closed-loop"].fit(problem, config, runtime)
            spent = {name: runtime.spent[name] for name in PHASES}
            corrections = 3
            found.append(sum(spent.values()) / corrections / (runtime.spent["train"] / config.epochs))
            by_phase.append({"train": runtime.spent["train"], **spent})
    return found, {"seconds": by_phase, "rows": len(problem.train), "clean": len(problem.clean)}


def rounds_cost(problem: Problem, network: str, repeats: int) -> tuple[list[float], dict[str, Any]]:
    """The processor seconds of two rounds of the default by those of an epoch of its classifier; and by phase."""
    config = resolve(recipe_config("labelloop", "default", {"network": network, "epochs": 4, "rounds": 1}), problem)
    found, by_phase = [], []
    with one_thread():
        for _ in range(repeats):
            runtime = Clocked()
            METHODS["labelloop"].fit(problem, config, runtime)
            spent = {name: runtime.spent[name] for name in ("train", "rounds")}
            found.append(spent["rounds"] / (spent["train"] / config.epochs))
            by_phase.append(spent)
    return found, {"seconds": by_phase, "rows": len(problem.train), "clean": len(problem.clean)}


def corrections(sizes: Sizes) -> list[Measured]:
    """A correction in epochs, and the share of 12 corrections in 100 epochs of images; and rounds of the default."""
    repeats = max(1, sizes.repeats // 2)
    problem = embeddings(sizes.rows, max(sizes.rows // 45, 40))
    cost, about = correction_cost(problem, "mlp", repeats)
    found = [Measured("a correction of embeddings, the paper's correction network", cost, None, "epochs", about)]
    pictures = images(sizes.images, max(sizes.images // 9, 40))
    cost, about = correction_cost(pictures, "small-cnn", repeats)
    shares = [100 * ROUNDS * each / (EPOCHS + ROUNDS * each) for each in cost]
    name = "corrections of images, 12 in 100 epochs, the paper's correction network"
    found.append(Measured(name, shares, Target(5.0), "% of the total", about | {"epochs_each": cost}))
    for what, rows, network in (("embeddings", problem, "mlp"), ("images", pictures, "small-cnn")):
        cost, about = rounds_cost(rows, network, repeats)
        found.append(Measured(f"two rounds of the default, one epoch each, {what}", cost, None, "epochs", about))
    return found


# --- how cost grows -------------------------------------------------------------------------------------------------


def growth(sizes: Sizes) -> list[Measured]:
    """What one more class or clean row costs a whole fit, where there are many of them by where there are few."""
    rows = min(sizes.rows, 5_000)
    found = []
    for name, counts in (("class", sizes.classes), ("clean row", sizes.clean)):
        seconds = []
        for count in counts:
            clean, classes = (3 * sizes.classes[-1], count) if name == "class" else (count, 10)
            problem = embeddings(rows + clean, clean, classes)
            changes = {"network": "mlp", "epochs": 2, "rounds": 0}
            start = time.process_time()
            with one_thread():
                _fit(problem, resolve(recipe_config("labelloop", "default", changes), problem))
            seconds.append(time.process_time() - start)
        few, some, many = counts
        early, late = (seconds[1] - seconds[0]) / (some - few), (seconds[2] - seconds[1]) / (many - some)
        words = f"one more {name}, {some:,} to {many:,} by {few:,} to {some:,}: processor time of a fit"
        about = {"counts": counts, "seconds": seconds, "rows": rows}
        found.append(Measured(words, [late / early], Target(1.2), about=about))
    return found


def _fit(problem: Problem, config: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few epochs are meant
        METHODS["labelloop"].fit(problem, config, Runtime(0, device="cpu", progress=False))


SETTINGS = ("--set", "epochs=2", "--no-report", "--quiet")
ONE_ROUND = ("--set", "rounds=0")
PLAIN_LOOP = ("--method", "closed-loop", "--set", "warm_up=1", "--set", "correct_every=1")


def fitted(place: Path, rows: int, width: int, classes: int, clean: int, limit: str, *more: str) -> Usage:
    """What `labelloop fit` takes for two epochs and a correction, from Parquet parts, under a limit of memory."""
    parts = write_parts(place / f"parts-{rows}-{width}", rows, width, classes, clean)
    run = place / f"run-{rows}-{width}"
    return labelloop("fit", parts, "--output-dir", run, "--max-memory", limit, *SETTINGS, *more)


def of_memory(usage: Usage, limit: str) -> dict[str, Any]:
    return {"limit": limit, "anonymous_mib": usage.anonymous_mib, "where": usage.where}


def fit_rows(sizes: Sizes) -> list[Measured]:
    """`labelloop fit` on a folder of Parquet parts, and on one of ten times as many rows, under a limit of memory."""
    few, many = sizes.small, 10 * sizes.small
    classes = 100 if few >= 10_000 else 5
    with tempfile.TemporaryDirectory() as place:
        clean = {rows: max(rows // 100, 60) for rows in (few, many)}
        used = [fitted(Path(place), rows, 256, classes, clean[rows], sizes.limit, *ONE_ROUND) for rows in clean]
    return of_fits(few, many, *used, sizes.limit)


def of_fits(few: int, many: int, small: Usage, large: Usage, limit: str) -> list[Measured]:
    """The lines on two fits: how time grows with rows, and the memory of the larger one."""
    ratio = (large.seconds / many) / (small.seconds / few)
    about = {"rows": [few, many], "seconds": [small.seconds, large.seconds], "limit": limit}
    memory = {"rows": many, "smaller_mib": small.peak_mib, **of_memory(large, limit)}
    return [
        Measured(f"fit: processor time a row, {few:,} to {many:,} rows", [ratio], Target(1.2), about=about),
        Measured(
            f"fit: peak memory of {many:,} x 256 rows from Parquet parts", [large.peak_mib],
            Target(4096.0 if many >= 1_000_000 else 2048.0), "MiB", memory,
        ),
        Measured("the same: processor time, 2 epochs and a correction", [large.seconds], None, "s"),
    ]  # fmt: skip


def larger_than_the_limit(sizes: Sizes) -> list[Measured]:
    """`labelloop fit` on a folder of Parquet parts that is larger than the memory it may take: Algorithm 1 alone."""
    rows, width = sizes.wide
    with tempfile.TemporaryDirectory() as place:
        used = fitted(Path(place), rows, width, 10, max(rows // 100, 60), "1G", *PLAIN_LOOP)
        size = sum(part.stat().st_size for part in Path(place).glob("parts-*/*")) / 2**20
    name = f"fit: peak memory of {rows:,} x {width} rows, {size:,.0f} MiB of Parquet parts"
    return [Measured(name, [used.peak_mib], Target(1024.0), "MiB", of_memory(used, "1G"))]


def correct_rows(sizes: Sizes) -> list[Measured]:
    """`labelloop correct` on many rows of probabilities, from Parquet parts, under a limit of memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    used = []
    with tempfile.TemporaryDirectory() as place:
        for rows in (max(sizes.streamed // 10, 1000), sizes.streamed):
            folder = Path(place) / f"rows-{rows}"
            folder.mkdir()
            for start in range(0, rows, 500_000):
                count, rng = min(500_000, rows - start), np.random.default_rng([1, start])
                true = rng.integers(0, 10, count)
                p = rng.random((count, 10), dtype=np.float32)
                p[np.arange(count), true] += 3
                p /= p.sum(axis=1, keepdims=True)
                given = np.where(rng.random(count) < 0.2, rng.integers(0, 10, count), true)
                clean = np.where(rng.random(count) < min(2000 / rows, 0.2), true, -1)
                table = {"pred_probs": pa.FixedSizeListArray.from_arrays(p.ravel(), 10), "label": given}
                table["clean_label"] = pa.array(clean, mask=clean < 0)
                pq.write_table(pa.table(table), folder / f"{start:09d}.parquet")
            usage = labelloop("correct", folder, "--output", folder.with_suffix(".out.parquet"), "--max-memory",
                              sizes.limit, "--quiet")  # fmt: skip
            used.append((rows, usage))
    (few, small), (many, large) = used
    about = {"rows": [few, many], "seconds": [small.seconds, large.seconds], "limit": sizes.limit}
    each = 1e6 * (large.seconds - small.seconds) / (many - few)
    return [
        Measured(f"correct: processor time a row, {many:,} rows of 10 probabilities", [each], None, "µs", about),
        Measured(
            f"correct: peak memory of {many:,} rows", [large.peak_mib], Target(4096.0 if many > 5e6 else 2048.0), "MiB",
            of_memory(large, sizes.limit),
        ),
    ]  # fmt: skip


def small(sizes: Sizes) -> list[Measured]:
    """Whole commands on tables of 400 rows, beside cleanlab."""
    names = list(TABLES)[: sizes.tables]
    return small_tables(names, min(ROWS, sizes.rows), max(1, sizes.repeats // 5))


def processes(sizes: Sizes) -> list[Measured]:
    """An epoch of images shared by two processes: what each of them and both together work, by what one alone does."""
    rows = max(sizes.images // 256, 1) * 128
    found = compared(rows, max(1, sizes.repeats // 2))
    words = "an epoch of images in two processes by one: processor time of"
    return [
        Measured(f"{words} the busier one", found["busiest"], Target(0.6), about={"rows": rows, "wall": found["wall"]}),
        Measured(f"{words} both together", found["processor"], Target(1.2)),
        Measured("the same by two processes that share nothing", found["over_apart"], Target(1.2)),
    ]


# --- the rest -------------------------------------------------------------------------------------------------------


def decoding(sizes: Sizes) -> list[Measured]:
    """Loading CIFAR-10 again by loading it first: images are decoded once."""
    seconds = []
    with tempfile.TemporaryDirectory() as place:
        before = os.environ.get("LABELLOOP_CACHE")
        os.environ["LABELLOOP_CACHE"] = place
        try:
            for _ in range(2):
                start = time.process_time()
                load_dataset("cifar10", limit=5 * sizes.images)
                seconds.append(time.process_time() - start)
        except DataError:
            return []  # not at hand
        finally:
            os.environ.pop("LABELLOOP_CACHE")
            if before is not None:
                os.environ["LABELLOOP_CACHE"] = before
    assert cache_folder() != Path(place)
    return [
        Measured("CIFAR-10 again by first time", [seconds[1] / seconds[0]], Target(0.3), about={"seconds": seconds})
    ]


def settings(sizes: Sizes) -> list[Measured]:
    """Settings that may be faster elsewhere, on this processor: an epoch of images with them by one without."""
    problem = images(sizes.images // 3, 64)
    ways: dict[str, Callable[[], object]] = {}
    for name, changes in (("plain", {}), ("bfloat16", {"precision": "bfloat16"}), ("compiled", {"compile": True})):
        config = resolve(METHODS["closed-loop"].config(network="small-cnn", **changes), problem)
        runtime = Runtime(0, device="cpu", progress=False)
        model = runtime.prepare(new_classifier(config, problem, 0))
        ways[name] = _epoch(problem, model, new_optimizer(model, config), config, runtime)
    with one_thread():
        seconds = in_turns(ways, max(1, sizes.repeats // 2))
    words = {"bfloat16": "precision = bfloat16", "compiled": "compile = true"}
    return [
        Measured(f"an epoch of images with {words[name]}", ratios(seconds, name, "plain"), None, about={"off": True})
        for name in ("bfloat16", "compiled")
    ]


def _epoch(problem: Problem, model: Any, optimizer: Any, config: Any, runtime: Runtime) -> Callable[[], object]:
    targets = one_hot(problem.train.labels, problem.num_classes)
    return lambda: train_epoch(model, problem.train, targets, targets, LAMBDA, optimizer, config, runtime, 1)


PARTS: dict[str, Callable[[Sizes], list[Measured]]] = {
    "throughput": throughput,
    "corrections": corrections,
    "growth": growth,
    "fit": fit_rows,
    "larger": larger_than_the_limit,
    "correct": correct_rows,
    "decoding": decoding,
    "processes": processes,
    "settings": settings,
    "small": small,
}

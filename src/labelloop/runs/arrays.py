"""features.npz: the correction's inputs for every row, so that it can be fitted again without training."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.large_arrays import by_chunks, release, row_chunks
from labelloop.runs.files import write_atomically
from labelloop.types import MISSING, Floats, Labels

FEATURES = "features.npz"
LARGEST = 2**32  # bytes; a run folder keeps no more features than this


@dataclass(frozen=True)
class RowArrays:
    """What is known about every row of a run.

    Attributes:
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing; not those of test rows.
        judges: The clean rows that may judge: those that were not picked because they were uncertain [n].
        said: The correction's inputs by name: features, logits, noisy_posterior and extra; or scores and, if there
            are any, inputs (table_inputs if they are columns of a table).
    """

    given: Labels
    clean: Labels
    judges: NDArray[np.bool_]
    said: Mapping[str, NDArray]


def row_arrays(given: Labels, clean: Labels, **said: Floats | None) -> RowArrays | None:
    """What a run keeps, in half precision where that is enough. None if it would be too large."""
    kept: dict[str, NDArray] = {}
    for name, values in said.items():
        if values is not None:
            wide = name not in ("features", "extra") or _most(values) > float(np.finfo(np.float16).max)
            narrow = None if wide else by_chunks(partial(_rows_of, values), values.shape, np.float16)
            kept[name] = values.astype(np.float32, copy=False) if narrow is None else narrow
    arrays = RowArrays(given, clean, clean != MISSING, kept)
    return arrays if sum(values.nbytes for values in _by_name(arrays).values()) <= LARGEST else None


def _most(values: Floats) -> float:
    """The largest of their magnitudes, chunk by chunk."""
    chunks = (values[rows] for rows in row_chunks(*values.shape))
    return max((float(max(chunk.max(initial=0), -chunk.min(initial=0))) for chunk in chunks), default=0.0)


def _rows_of(values: Floats, rows: slice) -> Floats:
    return values[rows]


def write_row_arrays(folder: Path, arrays: RowArrays) -> None:
    """Writes features.npz."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", allowZip64=True) as archive:  # like np.savez, except for `release`
            for name, values in _by_name(arrays).items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)
                release()

    write_atomically(folder / FEATURES, write)


def read_row_arrays(folder: Path) -> RowArrays:
    """Reads features.npz.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is damaged.
    """
    with np.load(folder / FEATURES, allow_pickle=False) as file:
        arrays = dict(file)
    try:
        given, clean, judges = (arrays.pop(name) for name in ("given", "clean", "judges"))
    except KeyError as error:
        raise ValueError(f"{FEATURES} has no array {error}") from None
    return RowArrays(given, clean, judges, arrays)


def _by_name(arrays: RowArrays) -> dict[str, NDArray]:
    return {"given": arrays.given, "clean": arrays.clean, "judges": arrays.judges, **arrays.said}

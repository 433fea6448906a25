"""What a run stores besides its labels: features.npz, model.safetensors with model.json, preview.parquet."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from labelloop.errors import DataError, some
from labelloop.large_arrays import by_chunks, release, row_chunks
from labelloop.runs.files import read_json, read_parquet, write_atomically, write_json
from labelloop.runs.manifest import check_tree, checked, read_manifest
from labelloop.runs.schema import MODEL, check
from labelloop.trust import inside, load_arrays, no_links_out
from labelloop.types import MISSING, Floats, Labels

FEATURES = "features.npz"
LARGEST = 2**32  # bytes; a run folder keeps no more features than this

WEIGHTS, ABOUT = "model.safetensors", "model.json"
MODEL_FILES = (WEIGHTS, ABOUT)
ENCODER = "trained_encoder"  # a folder: a fine-tuned pretrained encoder, in the format of its library

PREVIEW = "preview.parquet"
KINDS = {"image": pa.binary(), "text": pa.string(), "values": pa.list_(pa.string())}


@dataclass(frozen=True)
class RowArrays:
    """What is known about every row of a run.

    Attributes:
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing; not those of test rows.
        validation: The clean rows that may judge: those that were not picked because they were uncertain [n].
        inputs: The correction's inputs by name: features, logits, noisy_posterior and extra; or scores and, if there
            are any, inputs (table_inputs if they are columns of a table).
    """

    given: Labels
    clean: Labels
    validation: NDArray[np.bool_]
    inputs: Mapping[str, NDArray]


def row_arrays(given: Labels, clean: Labels, **inputs: Floats | None) -> RowArrays | None:
    """What a run keeps, in half precision where that is enough. None if it would be too large."""
    kept: dict[str, NDArray] = {}
    for name, values in inputs.items():
        if values is not None:
            wide = name not in ("features", "extra") or _most(values) > float(np.finfo(np.float16).max)
            narrow = None if wide else by_chunks(values.__getitem__, values.shape, np.float16)
            kept[name] = values.astype(np.float32, copy=False) if narrow is None else narrow
    arrays = RowArrays(given, clean, clean != MISSING, kept)
    return arrays if sum(values.nbytes for values in _by_name(arrays).values()) <= LARGEST else None


def _most(values: Floats) -> float:
    """The largest of their magnitudes, chunk by chunk."""
    chunks = (values[rows] for rows in row_chunks(*values.shape))
    return max((float(max(chunk.max(initial=0), -chunk.min(initial=0))) for chunk in chunks), default=0.0)


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
    arrays = load_arrays(checked(folder, FEATURES))
    try:
        given, clean, validation = (arrays.pop(name) for name in ("given", "clean", "judges"))
    except KeyError as error:
        raise ValueError(f"{FEATURES} has no array {error}") from None
    return RowArrays(given, clean, validation, arrays)


def _by_name(arrays: RowArrays) -> dict[str, NDArray]:
    return {"given": arrays.given, "clean": arrays.clean, "judges": arrays.validation, **arrays.inputs}


def write_model(folder: Path, weights: Mapping[str, NDArray], about: Mapping[str, Any]) -> None:
    """Writes both files."""
    write_atomically(folder / WEIGHTS, lambda path: save_file(dict(weights), path))
    write_json(folder / ABOUT, about)


def read_model(folder: Path, needed: set[str]) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Reads both files: the weights, and what model.json says.

    Args:
        folder: Where they are.
        needed: The keys that model.json must have.

    Raises:
        DataError: They are missing, damaged or not those of a model.
    """
    known = read_manifest(folder) or {}
    if (folder / "labels.parquet").exists() and not (folder / ABOUT).exists() and ABOUT not in known:
        raise DataError(f"{folder} is a run without a model: `labelloop correct` trains none, `labelloop fit` does")
    if (folder / ABOUT).exists() or ABOUT in known:
        checked(folder, ABOUT)
    about = read_json(folder / ABOUT)
    lacking = needed - set(about)
    if lacking:
        raise DataError(f"{folder / ABOUT} does not describe a LabelLoop model: no {some(sorted(lacking))}")
    check(about, MODEL, folder / ABOUT)
    try:
        weights = load_file(checked(folder, WEIGHTS))
        check_tree(folder, ENCODER)
        return weights, about
    except FileNotFoundError:
        raise DataError(f"{folder / WEIGHTS} is missing; is {folder} the folder of a finished run?") from None
    except (SafetensorError, TypeError, AttributeError) as error:  # numbers of a kind that numpy has not
        raise DataError(f"{folder / WEIGHTS} is damaged or not of the network in {ABOUT}: {error}") from None


def copy_model(source: Path, folder: Path) -> None:
    """Copies the model of a run, if it has one."""
    for name in MODEL_FILES:
        _copy(source, folder, name)
    copy_encoder(source, folder)


def _copy(source: Path, folder: Path, name: str) -> None:
    if (source / name).exists():
        content = checked(source, name).read_bytes()
        write_atomically(folder / name, lambda place: place.write_bytes(content))


def copy_encoder(source: Path, folder: Path) -> None:
    """Copies the encoder that was trained with a model, if there is one."""
    if (source / ENCODER).is_dir():
        inside(source, ENCODER, source)
        no_links_out(source / ENCODER)
        check_tree(source, ENCODER)
        shutil.copytree(source / ENCODER, folder / ENCODER, dirs_exist_ok=True)


@dataclass(frozen=True)
class Preview:
    """What some rows look like.

    Attributes:
        kind: "image" (JPEG or PNG bytes), "text" or "values" (one text per column).
        rows: Row numbers in labels.parquet.
        shown: What each row looks like; None where there is nothing to show.
        columns: The names of the values.
        sample: A description of the sample.
    """

    kind: str
    rows: Sequence[int]
    shown: Sequence[Any]
    columns: tuple[str, ...] = ()
    sample: str = ""

    def by_row(self) -> dict[int, Any]:
        """What each row looks like, by row number."""
        return dict(zip(self.rows, self.shown, strict=True))


def write_preview(folder: Path, preview: Preview) -> None:
    """Writes preview.parquet into a run folder."""
    about = {"kind": preview.kind, "columns": list(preview.columns), "sample": preview.sample}
    table = pa.table(
        {"row": pa.array(preview.rows, pa.int64()), "shown": pa.array(preview.shown, KINDS[preview.kind])}
    ).replace_schema_metadata({"labelloop": json.dumps(about)})
    write_atomically(folder / PREVIEW, lambda place: pq.write_table(table, place))


def copy_preview(folder: Path, target: Path) -> None:
    """Copies preview.parquet, if there is one, to another run of the same rows."""
    _copy(folder, target, PREVIEW)


def read_preview(folder: Path) -> Preview:
    """Reads preview.parquet.

    Raises:
        OSError: There is none.
        ValueError: It is damaged.
    """
    table = read_parquet(checked(folder, PREVIEW))
    try:
        about = json.loads((table.schema.metadata or {})[b"labelloop"])
        kind, shown_as = about["kind"], KINDS[about["kind"]]
        rows, shown = table["row"].to_pylist(), table["shown"].to_pylist()
        columns, types = about.get("columns", []), (table.schema.field("row").type, table.schema.field("shown").type)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it has no {error}") from None
    if not isinstance(columns, list) or types != (pa.int64(), shown_as) or None in rows:
        raise ValueError("its columns are of other types")
    return Preview(kind, rows, shown, tuple(map(str, columns)), str(about.get("sample", "")))

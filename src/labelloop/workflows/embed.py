"""`embed`: features of texts or images in a file, for use elsewhere."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.data.readers import ReadOptions, kind_of
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError, some
from labelloop.large_arrays import memory_limit
from labelloop.runs.files import write_atomically
from labelloop.workflows.encode import read_inputs


def embed_file(path: Path, options: ReadOptions, output: Path, *, overwrite: bool = False, device: str = "auto") -> str:
    """Encodes the texts or images of a file, and writes X, ids and existing labels to an .npz file.

    Args:
        path: A table, a folder of images, or a Hugging Face data set.
        options: How to read it, with the encoder.
        output: An .npz file, with one row per input row in the same order; NaN where an image cannot be read.
        overwrite: Whether to replace it.
        device: The device to encode on.
    """
    if output.suffix != ".npz":
        raise UsageError(f"{output}: cannot write {output.suffix or 'a name without an ending'!r}; give an .npz file")
    if output.exists() and not overwrite:
        raise DataError(f"{output} exists; give another name, or --overwrite")
    if options.encoder is None and options.text_column is None:
        raise UsageError("nothing to encode with; give --encoder, and --text for the texts of a table")
    with memory_limit(None, output):
        table = _read(path, options, device)
    form = table.encoder_form
    assert form is not None
    features = table.inputs
    if table.unreadable:
        examples = some(f"{bad.path} ({bad.reason})" for bad in table.unreadable)
        warnings.warn(
            f"{path}: {len(table.unreadable)} images cannot be read and have NaN for features: {examples}", stacklevel=2
        )
        features[~table.usable] = np.nan
    about = json.dumps({**asdict(form), "source": str(path)})
    arrays = {"X": features, "ids": table.ids, "encoder": np.array(about), **_labels(table)}

    def write(place: Path) -> None:
        with place.open("wb") as file:
            np.savez(file, **arrays)

    write_atomically(output, write)
    counts = (table.origin or {})["encoder"]
    return (
        f"{features.shape[0]} rows of {features.shape[1]} features written to {output}"
        f" ({counts['from_cache']} from the cache, {counts['encoded']} new, {counts['seconds']:.1f} s)"
    )


def _read(path: Path, options: ReadOptions, device: str) -> Table:
    options = replace(options, labels_required=False)
    if kind_of(path) == "image-folder":
        try:
            return read_inputs(path, replace(options, labels_required=True), device=device)
        except DataError:  # a folder that has no classes, or cannot be read at all, which is said below
            pass
    return read_inputs(path, options, device=device)


def _labels(table: Table) -> dict[str, NDArray]:
    found = {"y": table.labels, "y_clean": table.clean_labels, "split": table.split}
    if table.class_names is not None:
        found["class_names"] = np.array(table.class_names)
    return {
        name: values.astype(str) if values.dtype.kind == "O" else values
        for name, values in found.items()
        if values is not None
    }

"""Encodes texts and images, whatever the source of the table; `embed` writes the features to a file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.config.base import TrainingConfig
from labelloop.data.columns import names_of_array
from labelloop.data.image_files import Unreadable
from labelloop.data.readers import ReadOptions, kind_of, read_table
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError, check_output, some
from labelloop.large_arrays import memory_limit
from labelloop.progress import clock
from labelloop.runs.files import write_atomically
from labelloop.trust import PRETRAINED, WORDS
from labelloop.types import EncoderForm, RawInputs

TRAINED_FACTOR = 0.1  # of the learning rate, for a pretrained encoder
TRAINABLE = ("labelloop", "closed-loop", "cross-entropy")  # methods with a separate learning rate for the encoder


def read_inputs(
    path: Any,
    options: ReadOptions,
    form: EncoderForm | None = None,
    *,
    shape: Sequence[int] | None = None,
    place: str | None = None,
    device: str = "auto",
) -> Table:
    """Reads a file, and turns its texts or images into inputs if an encoder is set.

    Args:
        path: The file or folder, or a data frame.
        options: How to read it.
        form: How a model or an earlier table made its inputs; without it, `options.encoder`.
        shape: The shape of one input of the model or the earlier table.
        place: Where the encoder of a model is now.
        device: The device to encode on.
    """
    if form is not None:
        options = replace(options, encoder=form.name, train_encoder=form.trained)
        if form.kind == "text" and not options.text_columns and form.column is not None:
            options = replace(options, text_columns=(form.column,))
    if options.train_encoder and options.encoder is None:
        raise UsageError("train_encoder trains an encoder further; name one with encoder")
    is_file = isinstance(path, Path) and path.is_file()
    with clock(f"reading {path.name}", options.progress) if is_file else nullcontext():
        table = read_table(path, options)
    if not isinstance(table.inputs, RawInputs):
        return table
    assert options.encoder is not None
    if form is None:
        form = EncoderForm(options.encoder, table.inputs.kind, "", options.train_encoder, options.text_column)
    return encode_table(table, form, shape=shape, place=place, device=device, progress=options.progress)


def encode_table(
    table: Table,
    form: EncoderForm | None,
    *,
    shape: Sequence[int] | None = None,
    place: str | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> Table:
    """A table of texts or images with their features as its inputs; see `encoded_inputs`."""
    from labelloop.encoders.inputs import encoded_inputs  # needed for texts and images only

    assert isinstance(table.inputs, RawInputs)
    assert form is not None
    found = encoded_inputs(table.inputs, form, table.source, place=place, shape=shape, device=device, progress=progress)
    bad = tuple(Unreadable(row, name, reason) for row, name, reason in found.unreadable)
    names: Sequence[str] = ()
    values = found.values
    if not found.form.trained:
        names = [*names_of_array(form.column or form.kind, values.shape[1]), *table.column_names]
        values = values if table.beside is None else np.concatenate([values, table.beside], axis=1)
    return replace(
        table,
        inputs=values,
        beside=None,
        column_names=tuple(names),
        encoder_form=found.form,
        raw=table.inputs,
        unreadable=bad,
        origin=None if table.origin is None else {**table.origin, "encoder": found.summary},
    )


def raw_or_not(rows: Any, encoder: str | None, trained: bool) -> Any:
    """The caller's rows as texts or images for an encoder; unchanged if there is none."""
    if encoder is None and trained:
        raise UsageError("train_encoder trains an encoder further; name one with encoder")
    if encoder is None or rows is None:
        return rows
    from labelloop.encoders.encoder import raw_inputs

    return raw_inputs(rows, encoder)


def shape_of(table: Table) -> Sequence[int] | None:
    """The shape of one input, if inputs are an array: new texts get as many tokens."""
    return table.inputs.shape[1:] if isinstance(table.inputs, np.ndarray) else None


def trained_config(config: TrainingConfig, table: Table, method: str) -> TrainingConfig:
    """The settings, with the encoder of a table as the network if it is to be trained."""
    form = table.encoder_form
    if config.encoder_learning_rate_factor != 1 and method not in TRAINABLE:
        raise UsageError(
            f"method {method!r} has one learning rate for all weights; leave encoder_learning_rate_factor out, or take"
            f" {' or '.join(TRAINABLE)}"
        )
    if form is None or not form.trained:
        return config
    if method not in TRAINABLE:
        raise UsageError(f"train_encoder works with the methods {' and '.join(TRAINABLE)}, not with {method!r}")
    if config.network != "auto":
        raise UsageError(f"train_encoder makes the encoder the network; leave network = {config.network!r} out")
    if form.kind == "text":
        config = replace(config, mixup=0.0)  # tokens of texts cannot be blended
    factor = TRAINED_FACTOR if config.encoder_learning_rate_factor == 1 else config.encoder_learning_rate_factor
    return replace(
        config,
        network=PRETRAINED,
        network_options={"encoder": form.name, "kind": form.kind},
        normalise="none",
        encoder_learning_rate_factor=factor,
    )


def hint(table: Table) -> list[str]:
    """A line about pretrained encoders for runs without one; none if it does not apply."""
    form = table.encoder_form
    texts = [column.name for column in table.encoding if column.kind == "text"]
    if (form is None and texts) or (form is not None and form.name == WORDS):
        name = texts[0] if texts else form.column if form is not None and form.column else "NAME"
        return [
            "hint: of texts, only the words count; an encoder that knows their meaning usually corrects more: --text"
            f" {name} --encoder sentence-transformers:all-MiniLM-L6-v2 (docs/text-embeddings.md)"
        ]
    if form is None and table.image_form is not None:
        return [
            "hint: the network was trained on these images alone; a pretrained encoder usually corrects more: --encoder"
            " transformers:facebook/dinov2-small (docs/image-folder.md)"
        ]
    return []


def embed_file(path: Path, options: ReadOptions, output: Path, *, overwrite: bool = False, device: str = "auto") -> str:
    """Encodes the texts or images of a file, and writes X, ids and existing labels to an .npz file.

    Args:
        path: A table, a folder of images, or a Hugging Face data set.
        options: How to read it, with the encoder.
        output: An .npz file, with one row per input row in the same order; NaN where an image cannot be read.
        overwrite: Whether to replace it.
        device: The device to encode on.
    """
    check_output(output, ".npz", overwrite=overwrite, inputs=[path])
    if options.encoder is None and options.text_columns:
        options = replace(options, encoder=WORDS)
    if options.encoder is None:
        raise UsageError("nothing to encode with; give --encoder, and --text for the texts of a table")
    options = replace(options, feature_columns=(), encoding=())  # of the texts alone
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

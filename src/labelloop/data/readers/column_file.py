"""A table with named columns, from a file or a Hugging Face data set: labels, ids, and features, images or texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelloop.data import column_kinds, columns
from labelloop.data.features import Features, Source, features_of
from labelloop.data.frames import arrow_of
from labelloop.data.image_files import ENDINGS, load_images
from labelloop.data.options import ReadOptions, origin_of
from labelloop.data.pillow import ImageWarnings
from labelloop.data.questions import ask_about_markers, name_spellings
from labelloop.data.readers.arrow_file import open_columns
from labelloop.data.readers.hub import HubData, read_hub_dataset
from labelloop.data.suspicion import CODE_NAME, Labelled
from labelloop.data.table import Table, from_arrays, split_names
from labelloop.errors import DataError, UsageError, some
from labelloop.trust import all_inside
from labelloop.types import RawInputs

FRAME = "the data frame"
SAID = (  # in run.json, in this order
    *("feature_columns", "embedding_column", "split_column", "extra_columns", "text_columns", "category_columns"),
    *("leave_out", "trust_columns", "encoder", "image_size", "missing", "delimiter", "na"),
)


@dataclass(frozen=True)
class _Source:
    """The columns of a file or data set, and their roles."""

    path: Path
    kind: str
    arrow: pa.Table
    roles: columns.Roles
    untyped: bool = False
    hub: HubData | None = None
    remarks: tuple[str, ...] = ()
    delimiter: str | None = None


def read_column_file(path: Path, options: ReadOptions) -> Table:
    """A table from a .csv, .tsv, .parquet or .jsonl file."""
    opened = open_columns(path)
    roles = _roles(opened.names, path, options)
    text = [name for name in (roles.label, roles.clean, roles.id, roles.split) if name is not None]
    text += [column.name for column in options.encoding or () if column.kind in ("category", "text")]
    text += [*options.text_columns, *options.category_columns]  # a code 01 must not become 1
    codes = [name for name in opened.names if CODE_NAME.search(columns.plain(name))]
    text += [name for name in codes if name not in options.trust_columns]
    arrow = opened.read([name for name in text if name in opened.names], options.na)
    source = _Source(path, opened.kind, arrow, roles, opened.untyped, None, opened.remarks, opened.delimiter)
    return _with_padded(_table(source, options), opened.padded)


def _with_padded(table: Table, padded: Mapping[str, str]) -> Table:
    """Names the features that are read as numbers although leading zeros or thousands make them look like others."""
    schema = table.schema_summary
    if schema is None or not padded:
        return table
    names = [feature.column for feature in schema.features if feature.how == "number" and feature.column in padded]
    remarks = (f"{name!r} is read as numbers, {padded[name]}" for name in names)
    return replace(table, schema_summary=replace(schema, remarks=(*schema.remarks, *remarks)))


def read_hub(path: Path, options: ReadOptions) -> Table:
    """A table from a Hugging Face data set."""
    hub = read_hub_dataset(path, options.hub_split)
    roles = _roles(hub.arrow.column_names, path, options)
    return _table(_Source(path, "hf-dataset", hub.arrow, roles, hub=hub), options)


def read_frame(frame: Any, options: ReadOptions) -> Table:
    """A table from a data frame of pandas, polars or Arrow, with labels among its columns as in a file."""
    path = Path(FRAME)
    arrow = arrow_of(frame, FRAME)
    table = _table(_Source(path, "frame", arrow, _roles(arrow.column_names, path, options)), options)
    return replace(table, origin=None)


def _roles(names: Sequence[str], path: Path, options: ReadOptions) -> columns.Roles:
    features = [*(options.feature_columns or ()), *options.text_columns, *options.category_columns]
    if options.encoding is not None:
        features = [*options.text_columns, *(column.name for column in options.encoding)]
    named = (options.label_column, options.clean_column, options.id_column, options.split_column)
    asked = columns.Roles(*named, tuple(options.extra_columns))
    return columns.roles_of(names, str(path), asked, features, options.labels_required)


def _table(source: _Source, options: ReadOptions) -> Table:
    arrow, roles, path, hub = source.arrow, source.roles, source.path, source.hub
    if not arrow.num_rows:
        raise DataError(f"{path}: column names but no rows; add the rows")
    column_kinds.refuse_lists(arrow, roles, path)
    roles = column_kinds.without_flags(arrow, roles, path)
    if options.clean_file is None and options.labels_required:
        roles = column_kinds.without_repeated_ids(arrow, roles)
    source = replace(source, roles=roles, arrow=_without(arrow, roles, options.na, path))
    arrow = source.arrow
    markers = _question_labels(source, options)
    labels, clean_labels = column_kinds.labels_of(arrow, roles, path, source.untyped, options.markers)
    split = None
    if roles.split is not None:
        split = split_names(arrow[roles.split].cast(pa.string()).fill_null("").to_numpy(), str(path))
    image_column = _image_column(source, options)
    if image_column is not None:
        inputs = _images(source, image_column, options)
        id_column = options.id_column  # file names are the ids unless others are named
        ids = _image_ids(source, image_column, id_column)
    else:
        train = np.ones(arrow.num_rows, dtype=bool) if split is None else split != "test"
        labelled = Labelled.of(labels, clean_labels, options.markers, str(path)) if options.labels_required else None
        inputs = (_texts if options.text_column else features_of)(Source(arrow, roles, path, options, train, labelled))
        id_column = roles.id
        ids = None if id_column is None else column_kinds.ids_of(arrow, id_column, path)
    table = from_arrays(
        inputs.values,
        labels,
        clean_labels,
        ids=ids,
        split=split,
        extra=column_kinds.numbers(arrow, roles.extra, path) if roles.extra else None,
        column_names=inputs.names,
        source=str(path),
        origin=origin_of(
            "image-table" if image_column is not None and hub is None else source.kind,
            path,
            _said(source, options),
            label_column=roles.label,
            clean_column=None if clean_labels is None else roles.clean,
            id_column=id_column,
            file_name_column=image_column,
        ),
        class_names=None if hub is None else hub.class_names.get(roles.label or roles.clean or ""),
    )
    return replace(
        table,
        encoding=inputs.encoding,
        beside=inputs.beside,
        column_names=table.column_names if inputs.beside is None else tuple(inputs.names or ()),
        image_form=inputs.image_form,
        unreadable=inputs.unreadable,
        schema_summary=replace(_schema_summary(source, inputs, image_column, id_column), markers=markers),
    )


def _question_labels(source: _Source, options: ReadOptions) -> tuple[str, ...]:
    """Asks about ambiguous labels, names spellings, and returns the markers of missing labels that occur."""
    arrow, roles, path = source.arrow, source.roles, str(source.path)
    given, clean = column_kinds.written(arrow, roles.label), column_kinds.written(arrow, roles.clean)
    if options.missing is None and options.labels_required:
        ask_about_markers(given, clean, path)
    as_given, as_clean = (column_kinds.written(arrow, name, stripped=False) for name in (roles.label, roles.clean))
    name_spellings(as_given, as_clean, path, numbers=source.untyped)
    return tuple(marker for marker in options.markers if marker and (marker in given or marker in clean))


def _without(arrow: pa.Table, roles: columns.Roles, na: Sequence[str], path: Path) -> pa.Table:
    """The columns with markers of missing values removed, except in labels and ids."""
    missing = pa.array([float(text) for text in na if columns.is_number(text)], pa.float64())
    for place, name in enumerate(arrow.column_names if na else ()):
        column, kind = arrow[name], arrow[name].type
        if name in roles.used or pa.types.is_boolean(kind):
            continue
        if column_kinds.is_numeric(kind):
            marked = pc.is_in(column.cast(pa.float64(), safe=False), missing)
        elif column_kinds.is_text(kind) or column_kinds.is_date(kind):
            marked = pa.array(np.isin(column_kinds.texts_of(arrow, name, path).astype(str), na))
        else:
            continue
        kept = pc.if_else(marked, pa.scalar(None, kind), column)
        arrow = arrow.set_column(place, arrow.schema.field(name), kept)
    return arrow


def _schema_summary(
    source: _Source, inputs: Features, image_column: str | None, id_column: str | None
) -> columns.SchemaSummary:
    roles = source.roles
    uses = [
        columns.Use(what, name, guessed)
        for what, name, guessed in (
            ("given label", roles.label, roles.label_guessed),
            ("clean label", roles.clean, roles.clean_guessed),
            ("id", id_column, roles.id_guessed),
            ("split", roles.split, roles.split_guessed),
            *(("for the correction network", name, False) for name in roles.extra),
        )
        if name is not None
    ]
    used, left_out = list(inputs.used), list(inputs.left_out)
    if image_column is not None:
        form = inputs.image_form
        how = "images" if form is None else f"images of {form.height} x {form.width} pixels"
        used.append(columns.Feature(image_column, how))
    if roles.repeated_id is not None:
        why = "an id that repeats or has gaps; rows are identified by their number, and id_column would refuse it"
        left_out = [out for out in left_out if out.column != roles.repeated_id]
        left_out.append(columns.LeftOut(roles.repeated_id, why))
    if roles.flag is not None:
        left_out.append(columns.LeftOut(roles.flag, "says that a row was verified, not its label"))
    done = {*(use.column for use in uses), *(use.column for use in used), *(out.column for out in left_out)}
    why = "the images are the inputs" if image_column is not None else "an encoder that is trained reads texts alone"
    left_out += [columns.LeftOut(name, why) for name in source.arrow.column_names if name not in done]
    return columns.SchemaSummary(tuple(uses), tuple(used), tuple(left_out), (*source.remarks, *inputs.remarks))


def _said(source: _Source, options: ReadOptions) -> dict[str, Any]:
    """The options that run.json records."""
    said = {name: getattr(options, name, None) or None for name in SAID}
    own = {"split_column": source.roles.split, "missing": options.missing, "delimiter": source.delimiter}
    return said | own | {"split": None if source.hub is None else source.hub.split}


def _texts(source: Source) -> Features:
    """A column of texts as they are, empty where missing, and the other columns unless the encoder is trained."""
    path, options, arrow = source.path, source.options, source.arrow
    name = options.text_column
    assert name is not None
    columns.require(name, arrow.column_names, str(path))
    if name in source.roles.used:
        raise DataError(f"{path}: column {name!r} is the text and has another use too; name it once")
    column = arrow[name]
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"{path}: column {name!r} is of type {column.type}, not text; write it as text")
    used = (columns.Feature(name, f"text through the encoder {options.encoder}"),)
    raw = RawInputs("text", [text or "" for text in column.to_pylist()])
    if options.train_encoder or (options.encoding is not None and not options.encoding):
        return Features(raw, used=used)
    options = replace(options, text_columns=())
    found = features_of(replace(source, arrow=arrow.drop_columns([name]), options=options, beside=True))
    beside = found.values if found.names else None
    return replace(found, values=raw, used=(*used, *found.used), beside=beside)


def _image_column(source: _Source, options: ReadOptions) -> str | None:
    """The column of images or of image file names, if images are the inputs."""
    name, path = options.file_name_column, source.path
    schema = (options.feature_columns, options.embedding_column, options.encoding, name, options.text_columns)
    if not any(schema):
        name = _guessed_files(source) if source.hub is None else _guessed_images(source.hub, path)
    elif options.image_form is not None and source.hub is not None and name is None:
        name = _guessed_images(source.hub, path)
    if options.encoder is not None and name is None and not options.text_columns:
        raise UsageError(
            f"{path}: an encoder is for texts or images, but there are none; name text_columns or file_name_column"
        )
    if options.image_size is not None and name is None:
        raise UsageError(f"{path}: image_size is for images, but there are none; leave it out")
    if options.image_form is not None and name is None:
        raise DataError(f"{path}: the model takes images, but no column holds file names; name file_name_column")
    if name is not None and (options.feature_columns or options.embedding_column):
        raise UsageError(f"{path}: file_name_column makes images the inputs; leave other features out")
    if name is not None:
        columns.require(name, source.arrow.column_names, str(path))
    return name


def _images(source: _Source, column: str, options: ReadOptions) -> Features:
    if source.hub is None:
        names = _file_names(source, column)
        if blank := [row for row, name in enumerate(names) if not name.strip()]:
            raise DataError(f"{source.path}: no file name in row {some(blank)} (the first row is 0); fill it in")
        files: Sequence[Path | bytes] = all_inside(source.path.parent, names, str(source.path))
    elif column in source.hub.image_columns:
        files = source.hub.images(column)
    else:
        raise DataError(f"{source.path}: column {column!r} holds no images")
    if options.encoder is not None:
        return Features(RawInputs("image", files))
    seen = ImageWarnings()
    values, form, unreadable = load_images(files, options.image_size, options.image_form, options.progress, seen)
    return Features(values, image_form=form, unreadable=tuple(unreadable), remarks=seen.remarks)


def _image_ids(source: _Source, column: str, id_column: str | None) -> NDArray | None:
    if id_column is not None:
        return column_kinds.ids_of(source.arrow, id_column, source.path)
    return np.array(_file_names(source, column)) if source.hub is None else None


def _file_names(source: _Source, column: str) -> list[str]:
    return [text or "" for text in source.arrow[column].cast(pa.string()).to_pylist()]


def _guessed_files(source: _Source) -> str | None:
    """A column that, judging by its name and first value, holds image file names."""
    for name in source.arrow.column_names:
        column, named = source.arrow[name], columns.plain(name) in columns.FILE_NAMES
        if named and name not in source.roles.used and pa.types.is_string(column.type):
            first = next((text for text in column.to_pylist() if text), "")
            if Path(first).suffix.lower() in ENDINGS:
                return name
    return None


def _guessed_images(hub: HubData, path: Path) -> str | None:
    return columns.the_one(hub.image_columns, "file_name_column", path)

"""Files a user has, as tables: CSV, TSV, Parquet, JSON lines, .npz, .npy, and images in folders."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.data.checks import check_columns
from labelloop.data.classes import numbers_where_all_are
from labelloop.data.columns import FILE_NAMES, Roles, names_of_array, plain, require, roles_of
from labelloop.data.encoding import Column
from labelloop.data.features import features_of, numbers
from labelloop.data.images.store import ENDINGS, ImageForm, load_images
from labelloop.data.readers.array_file import read_npy, read_npz
from labelloop.data.readers.clean_folder import read_clean_folder
from labelloop.data.readers.csv_file import csv_header, read_csv
from labelloop.data.readers.hub import HubData, is_hub_dataset, read_hub_dataset
from labelloop.data.readers.image_folder import inside, read_image_folder
from labelloop.data.readers.jsonl_file import read_jsonl
from labelloop.data.readers.origin import origin_of
from labelloop.data.readers.text import TextForm, embed_texts
from labelloop.data.table import Table, from_arrays, split_names
from labelloop.errors import DataError, UsageError, some
from labelloop.types import MISSING

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
FORMATS = (".csv", ".tsv", ".parquet", ".jsonl", ".npz", ".npy")


def read_table(
    path: str | Path,
    *,
    label_column: str | None = None,
    clean_column: str | None = None,
    id_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    embedding_column: str | None = None,
    split_column: str | None = None,
    extra_columns: Sequence[str] = (),
    labels_path: str | Path | None = None,
    clean_labels_path: str | Path | None = None,
    labels_required: bool = True,
    encoding: Sequence[Column] | None = None,
    as_they_are: bool = False,
    file_name_column: str | None = None,
    image_size: int | None = None,
    image_form: ImageForm | None = None,
    clean_folder: Path | None = None,
    text_column: str | None = None,
    embedder: str | None = None,
    progress: bool | None = None,
    hub_split: str = "train",
) -> Table:
    """Reads a file. Columns that are not named are guessed by name; in an .npz file they are the names of arrays.

    Args:
        path: A .csv, .tsv, .parquet, .jsonl, .npz or .npy file; or a folder with a folder of images for each class,
            or with images and a metadata.csv or metadata.jsonl that names them; or a Hugging Face data set, a folder
            of `save_to_disk` or hf:name.
        label_column: The given label.
        clean_column: The verified label, blank where a row was not verified.
        id_column: A name for every row.
        feature_columns: The features in order; without it, every column of numbers or categories that has no other
            use. The `column_names` of an earlier table of numbers give the same features again, or an error.
        embedding_column: A column of lists of numbers, or the array of inputs. It replaces the default features, and
            comes before `feature_columns` when both are given.
        split_column: "train" or "test" for every row.
        extra_columns: Numbers for the correction network only.
        labels_path: The given labels of an .npy file, as another .npy file.
        clean_labels_path: The verified labels of an .npy file, as another .npy file.
        labels_required: Whether to refuse a file without labels.
        encoding: That of an earlier table, for the same features again; without it, it is fitted on the rows here
            that are not test rows. It replaces `feature_columns`.
        as_they_are: Take `feature_columns` for numbers without a gap, such as probabilities.
        file_name_column: Names of image files, below the folder of the table; they replace all features.
        image_size: The side that images are resized to.
        image_form: That of a trained model; replaces `image_size`.
        clean_folder: Verified images in class folders, for an image folder: see `read_clean_folder`.
        text_column: A column of texts; what `embedder` makes of them replaces all features.
        embedder: `module:factory`, where `factory()` returns a function from a list of texts to an array [N, D].
        progress: Whether to draw a progress bar while texts are embedded; None draws one only in a terminal.
        hub_split: The split of a Hugging Face data set that has several.

    Raises:
        DataError: The file cannot be used; the message names the file and the column, line or row.
    """
    path = Path(path)
    text_form = _text_form(path, text_column, embedder, feature_columns or embedding_column or file_name_column)
    hub = read_hub_dataset(path, hub_split) if is_hub_dataset(path) else None
    if path.is_dir() and hub is None:
        described = [path / name for name in METADATA if (path / name).is_file()]
        if not described:
            return _image_folder(path, labels_required, image_size, image_form, clean_folder)
        path, file_name_column = described[0], file_name_column or "file_name"
    if clean_folder is not None:
        raise UsageError(f"{path}: clean_folder goes with a folder of images for each class; take a clean file here")
    suffix = path.suffix.lower() if hub is None else ".hf-dataset"
    if hub is None:
        _check_file(path, FORMATS)
    if (labels_path or clean_labels_path) and suffix != ".npy":
        raise UsageError(f"{path}: labels_path and clean_labels_path go with .npy files; here labels are columns")
    if suffix in (".npz", ".npy"):
        if suffix == ".npz":
            table = read_npz(
                path,
                input_key=embedding_column,
                label_key=label_column,
                clean_key=clean_column,
                id_key=id_column,
                split_key=split_column,
                extra_keys=extra_columns,
                labels_required=labels_required,
            )
        else:
            table = read_npy(
                path,
                None if labels_path is None else Path(labels_path),
                None if clean_labels_path is None else Path(clean_labels_path),
                labels_required,
            )
        if encoding:
            feature_columns = [name for column in encoding for name in column.encoded_names]
        if feature_columns is not None:
            check_columns(feature_columns, table.column_names, str(path))
        if not len(table):
            raise DataError(f"{path}: the inputs have no rows")
        return table

    arrow, roles = _read_columns(
        path,
        suffix,
        hub,
        label_column=label_column,
        clean_column=clean_column,
        id_column=id_column,
        split_column=split_column,
        extra_columns=extra_columns,
        feature_columns=feature_columns if text_column is None else [text_column],
        labels_required=labels_required,
        encoding=encoding,
        text_column=text_column,
    )
    if not arrow.num_rows:
        raise DataError(f"{path}: column names and no rows; add the rows")
    labels, clean_labels = _labels(arrow, roles, path, from_text=suffix in (".csv", ".tsv"))
    split = None
    if roles.split is not None:
        split = split_names(arrow[roles.split].cast(pa.string()).fill_null("").to_numpy(), str(path))
    said = (feature_columns, embedding_column, encoding or None, file_name_column, text_form)
    if all(word is None for word in said):
        file_name_column = _guessed_files(arrow, roles) if hub is None else _guessed_images(hub, path)
    elif image_form is not None and hub is not None and file_name_column is None:
        file_name_column = _guessed_images(hub, path)
    class_names = None if hub is None else hub.class_names.get(roles.label or roles.clean or "")
    if image_form is not None and file_name_column is None:
        raise DataError(f"{path}: the model is one of images, and no column names their files; name file_name_column")
    if file_name_column is not None:
        if feature_columns or embedding_column:
            raise UsageError(f"{path}: file_name_column makes images the inputs; leave other features out")
        require(file_name_column, arrow.column_names, str(path))
        ids = None if id_column is None else _ids(arrow, id_column, path)
        if hub is not None:
            if file_name_column not in hub.image_columns:
                raise DataError(f"{path}: column {file_name_column!r} holds no images")
            inputs, form, bad = load_images(hub.images(file_name_column), image_size, image_form)
        else:
            names = [text or "" for text in arrow[file_name_column].cast(pa.string()).to_pylist()]
            inputs, form, bad = load_images(inside(path.parent, names, str(path)), image_size, image_form)
            ids = np.array(names) if ids is None else ids
        table = from_arrays(
            inputs,
            labels,
            clean_labels,
            ids=ids,
            split=split,
            extra=numbers(arrow, roles.extra, path) if roles.extra else None,
            source=str(path),
            origin=origin_of(
                "image-table" if hub is None else "hf-dataset",
                path,
                label_column=roles.label,
                clean_column=None if clean_labels is None else roles.clean,
                id_column=id_column,
                file_name_column=file_name_column,
                options={
                    "split_column": roles.split,
                    "image_size": image_size,
                    "split": None if hub is None else hub.split,
                },
            ),
            class_names=class_names,
        )
        return replace(table, image_form=form, unreadable=tuple(bad))
    train = np.ones(arrow.num_rows, dtype=bool) if split is None else split != "test"
    if text_form is not None:
        inputs = embed_texts(_texts(arrow, roles, text_form.column, path), text_form, str(path), progress)
        names, encoding = names_of_array(text_form.column, inputs.shape[1]), ()
    else:
        names, inputs, encoding = features_of(
            arrow, roles, path, feature_columns, embedding_column, train, encoding, as_they_are
        )
    table = from_arrays(
        inputs,
        labels,
        clean_labels,
        ids=None if roles.id is None else _ids(arrow, roles.id, path),
        split=split,
        extra=numbers(arrow, roles.extra, path) if roles.extra else None,
        column_names=names,
        source=str(path),
        origin=origin_of(
            suffix.removeprefix("."),
            path,
            label_column=roles.label,
            clean_column=None if clean_labels is None else roles.clean,
            id_column=roles.id,
            options={
                "feature_columns": feature_columns,
                "embedding_column": embedding_column,
                "split_column": roles.split,
                "extra_columns": extra_columns or None,
                "text_column": text_column,
                "embedder": embedder,
                "split": None if hub is None else hub.split,
            },
        ),
        class_names=class_names,
    )
    return replace(table, encoding=encoding, text_form=text_form)


def _text_form(path: Path, column: str | None, embedder: str | None, others: object) -> TextForm | None:
    """The text to embed, if any was asked for."""
    if column is None and embedder is None:
        return None
    if column is None or embedder is None:
        raise UsageError("text_column names the texts and embedder the function that embeds them; give both")
    if others:
        raise UsageError(f"{path}: text_column makes the embedded texts the inputs; leave other features out")
    if not is_hub_dataset(path) and (path.suffix.lower() in (".npz", ".npy") or path.is_dir()):
        raise UsageError(f"{path}: text_column is a column of a table: .csv, .tsv, .parquet or .jsonl")
    return TextForm(column, embedder)


def _texts(arrow: pa.Table, roles: Roles, name: str, path: Path) -> list[str]:
    """A column of texts, empty where missing."""
    require(name, arrow.column_names, str(path))
    if name in roles.used:
        raise DataError(f"{path}: column {name!r} is the text and has another use too; name it once")
    column = arrow[name]
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"{path}: column {name!r} is of type {column.type}, not text; write it as text")
    return [text or "" for text in column.to_pylist()]


def _read_columns(
    path: Path,
    suffix: str,
    hub: HubData | None,
    encoding: Sequence[Column] | None,
    text_column: str | None,
    **said: object,
) -> tuple[pa.Table, Roles]:
    if encoding is not None:
        said["feature_columns"] = [column.name for column in encoding]
    if hub is not None:
        return hub.arrow, roles_of(hub.arrow.column_names, str(path), **said)  # type: ignore[arg-type]
    if suffix == ".jsonl":
        arrow = read_jsonl(path)
        return arrow, roles_of(arrow.column_names, str(path), **said)  # type: ignore[arg-type]
    if suffix == ".parquet":
        arrow = _read_parquet(path)
        return arrow, roles_of(arrow.column_names, str(path), **said)  # type: ignore[arg-type]
    delimiter = "\t" if suffix == ".tsv" else ","
    names = csv_header(path, delimiter)
    roles = roles_of(names, str(path), **said)  # type: ignore[arg-type]
    as_text = [name for name in (roles.label, roles.clean, roles.id, roles.split) if name is not None]
    as_text += [column.name for column in encoding or () if column.kind == "category"]  # 1 is a name here, and no 1.0
    as_text += [] if text_column is None else [text_column]
    return read_csv(path, delimiter, len(names), as_text), roles


def _image_folder(
    root: Path, labels_required: bool, image_size: int | None, form: ImageForm | None, clean_folder: Path | None
) -> Table:
    names, labels, classes = read_image_folder(root, labels_required)
    paths = [root / name for name in names]
    options = {"image_size": image_size, "clean_folder": clean_folder}
    clean_labels = None
    if clean_folder is not None:
        found = read_clean_folder(clean_folder, root, names, classes)
        clean_labels = [found.verified.get(row, "") for row in range(len(names))] + [c for _, _, c in found.added]
        names = names + [name for name, _, _ in found.added]
        paths += [path for _, path, _ in found.added]
        labels = np.concatenate([labels, np.full(len(found.added), "", labels.dtype)])
        options["added_rows"] = len(found.added)
    inputs, form, bad = load_images(paths, image_size, form)
    table = from_arrays(
        inputs,
        labels if labels_required else None,
        clean_labels,
        ids=names,
        class_names=classes if labels_required else None,
        source=str(root),
        origin=origin_of("image-folder", root, options=options),
    )
    return replace(table, image_form=form, unreadable=tuple(bad))


def _guessed_files(arrow: pa.Table, roles: Roles) -> str | None:
    """A column that by its name and its first value holds the names of image files."""
    for name in arrow.column_names:
        if plain(name) in FILE_NAMES and name not in roles.used and pa.types.is_string(arrow[name].type):
            first = next((text for text in arrow[name].to_pylist() if text), "")
            if Path(first).suffix.lower() in ENDINGS:
                return name
    return None


def _guessed_images(hub: HubData, path: Path) -> str | None:
    if len(hub.image_columns) > 1:
        raise DataError(
            f"{path}: {' and '.join(map(repr, hub.image_columns))} could both be meant; say which with file_name_column"
        )
    return hub.image_columns[0] if hub.image_columns else None


def _check_file(path: Path, formats: Sequence[str]) -> None:
    suffix = path.suffix.lower()
    if suffix not in formats:
        raise DataError(f"{path}: cannot read {suffix or 'a name without an ending'!r}; known: {', '.join(formats)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")


def read_text_columns(path: Path) -> tuple[list[str], Callable[[str], NDArray]]:
    """The names of the columns of a table, and a function that gives one as text, empty where missing."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".tsv", ".parquet", ".jsonl"):
        raise DataError(f"{path}: cannot read {suffix or 'a name without an ending'!r} here; use .csv or .parquet")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    if suffix in (".csv", ".tsv"):
        delimiter = "\t" if suffix == ".tsv" else ","
        names = csv_header(path, delimiter)
        arrow = read_csv(path, delimiter, len(names), names)
    else:
        arrow = read_jsonl(path) if suffix == ".jsonl" else _read_parquet(path)

    def column(name: str) -> NDArray:
        return np.char.strip(np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str))

    return arrow.column_names, column


def _read_parquet(path: Path) -> pa.Table:
    try:
        arrow = pq.read_table(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}); write the file again") from error
    return pa.table([_decoded(column) for column in arrow.columns], names=arrow.column_names)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A categorical column as its plain values."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _labels(arrow: pa.Table, roles: Roles, path: Path, from_text: bool) -> tuple[NDArray | None, NDArray | None]:
    clean_name = roles.clean
    if clean_name == "verified" and roles.clean_guessed and _is_flag(arrow[clean_name]):
        # Yes or no for "was it verified" is not a label; taking it for one would make two classes of it.
        warnings.warn(
            f"{path}: column 'verified' holds true and false, so it is not taken for the clean labels;"
            " name the column that holds them with clean_column",
            stacklevel=4,
        )
        clean_name = None
    columns = [None if name is None else _label(arrow[name], name, path) for name in (roles.label, clean_name)]
    labels, clean_labels = numbers_where_all_are(columns) if from_text else columns
    return labels, clean_labels


def _is_flag(column: pa.ChunkedArray) -> bool:
    if pa.types.is_string(column.type):
        return {str(value).strip().lower() for value in column.unique().to_pylist()} <= {"true", "false", "none", ""}
    return pa.types.is_boolean(column.type)


def _label(column: pa.ChunkedArray, name: str, path: Path) -> NDArray:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.fill_null("").to_pylist(), dtype=str)
    if pa.types.is_uint64(kind) and column.null_count:
        return np.array(column.to_pylist(), dtype=object)  # some may be too large for a signed number
    if pa.types.is_integer(kind):
        return column.to_numpy() if not column.null_count else column.cast(pa.int64()).fill_null(MISSING).to_numpy()
    if pa.types.is_floating(kind):
        return column.cast(pa.float64()).to_numpy()
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        values = column.to_pylist()
        return np.array(values, dtype=object if column.null_count else bool)
    raise DataError(f"{path}: column {name!r} is of type {kind}, which cannot hold labels; use text or whole numbers")


def _ids(arrow: pa.Table, name: str, path: Path) -> NDArray:
    ids = np.array(arrow[name].cast(pa.string()).fill_null("").to_pylist(), dtype=str)
    blank = np.flatnonzero(ids == "")
    if len(blank):
        raise DataError(f"{path}: column {name!r} has no id in row {some(blank)} (the first row is 0); fill it in")
    return ids

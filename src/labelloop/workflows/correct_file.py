"""`correct` on a file: find the columns, correct, write the table, and say in a few lines what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labelloop.correction.estimate import estimate_lines
from labelloop.data.classes import text_of
from labelloop.data.columns import EMBEDDING_NAMES
from labelloop.data.readers.clean_file import join_clean_file
from labelloop.data.readers.csv_file import csv_header
from labelloop.data.readers.hub import is_hub_dataset, read_hub_dataset
from labelloop.data.readers.jsonl_file import read_jsonl
from labelloop.data.readers.read import read_table
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError
from labelloop.runs.folder import RunFolder, write_atomically
from labelloop.runs.versions import versions
from labelloop.workflows.correct import CorrectionResult, correct_table

FORMATS = (".csv", ".tsv", ".parquet", ".jsonl", ".npz")
PREFIX = "p_"  # as `labelloop predict` names the columns of its probabilities


def correct_file(
    path: Path,
    *,
    output: Path | None = None,
    output_dir: Path | None = None,
    label_column: str | None = None,
    clean_column: str | None = None,
    id_column: str | None = None,
    pred_probs_columns: Sequence[str] | None = None,
    embedding_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    text_column: str | None = None,
    embedder: str | None = None,
    class_names: Sequence[str] | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool | None = None,
    clean_file: Path | None = None,
) -> str:
    """Corrects the labels of a file without training, and returns a summary for people.

    Args:
        path: A .csv, .tsv, .parquet, .jsonl or .npz file, or a Hugging Face data set.
        output: A .csv or .parquet file, with the columns of labels.parquet.
        output_dir: A run folder, which `labelloop export` starts from. This, `output` or both.
        label_column: The given label.
        clean_column: The verified label.
        id_column: A name for every row.
        pred_probs_columns: One column of lists, or one array, or a column for every class in order. Guessed:
            pred_probs, else all columns whose names begin with p_.
        embedding_column: A column of lists, or one array. Guessed: embedding, embeddings, features.
        feature_columns: Columns of numbers to use as embedding.
        text_column: A column of texts, to use what `embedder` makes of them as embedding; see `read_table`.
        embedder: See there.
        class_names: The classes in the order of the probabilities.
        seed: The same seed gives the same result.
        overwrite: Whether to replace `output`, and the run in `output_dir`.
        progress: Whether to draw a progress bar while texts are embedded; None draws one only in a terminal.
        clean_file: Verified labels in a file of their own, joined by id.
    """
    if output is None and output_dir is None:
        raise UsageError("nowhere to write to; give --output FILE, --output-dir RUN or both")
    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{output}: cannot write {output.suffix or 'a name without an ending'!r}; .csv or .parquet")
    if output is not None and output.exists() and not overwrite:
        raise DataError(f"{output} exists; give another name, or --overwrite")
    names = _column_names(path)
    label_column = label_column or next((n for n in ("given_label", "noisy_label") if n in names), None)
    if pred_probs_columns is None:
        pred_probs_columns = ["pred_probs"] if "pred_probs" in names else [n for n in names if n.startswith(PREFIX)]
    text = {"text_column": text_column, "embedder": embedder}
    embedded = any(text.values())
    if embedding_column is None and feature_columns is None and not embedded:
        embedding_column = next((n for n in EMBEDDING_NAMES if n in names), None)
    labels = {"label_column": label_column, "clean_column": clean_column, "id_column": id_column}
    tables: list[Table] = []
    if pred_probs_columns:
        one = len(pred_probs_columns) == 1
        columns = {"embedding_column": pred_probs_columns[0]} if one else {"feature_columns": pred_probs_columns}
        tables.append(read_table(path, **labels, **columns, as_they_are=True))  # type: ignore[arg-type]
        if class_names is None and all(name.startswith(PREFIX) for name in pred_probs_columns) and not one:
            class_names = [name.removeprefix(PREFIX) for name in pred_probs_columns]
    if has_embedding := bool(embedding_column or feature_columns or embedded):
        features = {"embedding_column": embedding_column, "feature_columns": feature_columns, **text}
        tables.append(read_table(path, **labels, **features, progress=progress))  # type: ignore[arg-type]
    if not tables:
        raise UsageError(
            f"{path}: nothing to correct with; name --pred-probs-column, --embedding-column, --feature-columns"
            " or --text"
        )
    table = tables[0] if class_names is None else replace(tables[0], class_names=tuple(class_names))
    if clean_file is not None:
        table = join_clean_file(table, clean_file)
    result = correct_table(
        table,
        tables[0].inputs if pred_probs_columns else None,
        tables[-1].inputs if has_embedding else None,
        seed,
    )
    if output_dir is not None:
        _write_run(RunFolder(output_dir, overwrite=overwrite), table, result, seed)
    if output is not None:
        write = pq.write_table if output.suffix == ".parquet" else pa.csv.write_csv
        write_atomically(output, lambda place: write(result.labels, place))
    return _summary(result) + f"\nthe corrected labels are in {output or output_dir}"


def _write_run(folder: RunFolder, table: Table, result: CorrectionResult, seed: int) -> None:
    """A run folder as `fit` leaves it, without a model."""
    given = np.array([label is not None for label in result.labels["given_label"].to_pylist()])
    verified = result.labels["verified"].to_numpy()
    folder.write_targets(result.corrected_proba)
    folder.write_labels(result.labels)
    if result.features is not None:
        folder.write_features(result.features)
    classes = list(text_of(result.classes))
    folder.write_run(
        {
            "method": "correct",
            "config": {},
            "seed": seed,
            "data": {
                "source": table.source,
                "rows": len(table),
                "noisy": int((given & ~verified).sum()),
                "unlabelled": int((~given & ~verified).sum()),
                "clean_paired": result.clean_rows["paired"],
                "clean_unpaired": result.clean_rows["unpaired"],
                "classes": classes,
            },
            "versions": versions(),
            **({} if table.origin is None else {"source": {**table.origin, "class_names": classes}}),
            "weights": result.weights,
            "weights_without_label": result.weights_without_label,
            "estimate": result.estimate,
            "state": "finished",
            "stop_reason": "nothing to train",
        }
    )


def _column_names(path: Path) -> list[str]:
    """The names of the columns or arrays of a file, without reading it. What is wrong is said by `read_table`."""
    if is_hub_dataset(path):
        return read_hub_dataset(path).arrow.column_names
    if path.is_dir():
        raise DataError(f"{path} is a folder; {', '.join(FORMATS)} files are read here, and images by `labelloop fit`")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{path}: cannot read {suffix or 'a name without an ending'!r}; known: {', '.join(FORMATS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        if suffix == ".parquet":
            return pq.read_schema(path).names
        if suffix == ".jsonl":
            return read_jsonl(path).column_names if path.stat().st_size else []
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return list(archive.files)
    except (OSError, ValueError, AttributeError, pa.ArrowInvalid):
        return []
    return csv_header(path, "\t" if suffix == ".tsv" else ",")


def _summary(result: CorrectionResult) -> str:
    """What came out, in a few lines."""
    changed, verified = (np.asarray(result.labels[name]) for name in ("changed", "verified"))
    rows = len(changed)
    used = ", ".join(f"{name} {weight:.2f}" for name, weight in result.weights.items() if weight >= 0.005)
    paired, unpaired = result.clean_rows["paired"], result.clean_rows["unpaired"]
    return "\n".join(
        [
            f"{rows} rows, {len(result.classes)} classes; clean rows: {paired} with a given label, {unpaired} without",
            f"{int((changed & ~verified).sum())} given labels differ from the corrected ones",
            f"combined: {used}",
            *estimate_lines(result.estimate),
        ]
    )

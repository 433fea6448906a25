"""`correct` on a file: find the columns, correct, write the table, and summarise the result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labelloop.data.columns import EMBEDDING_NAMES, ONLY_NAMED, Feature, SchemaSummary, Use, are_array_names, together
from labelloop.data.frames import arrow_of, is_frame
from labelloop.data.readers import FRAME, ReadOptions, is_hub_dataset
from labelloop.data.readers.arrow_file import open_columns, parts_of
from labelloop.data.readers.csv_file import ending_of
from labelloop.data.readers.hub import read_hub_dataset
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError, check_output
from labelloop.large_arrays import memory_limit
from labelloop.progress import clock
from labelloop.relabel.estimate import estimate_lines
from labelloop.runs.files import write_atomically
from labelloop.runs.folder import RunFolder
from labelloop.trust import NO_ARCHIVE
from labelloop.types import Floats
from labelloop.workflows.correct import CorrectionResult, correct_table, record_of
from labelloop.workflows.encode import hint, read_inputs
from labelloop.workflows.ending import leave_preview, leave_report
from labelloop.workflows.summary import next_steps, result_text, schema_text

FORMATS = (".csv", ".tsv", ".parquet", ".jsonl", ".json", ".xlsx", ".npz")
PREFIX = "p_"  # as `labelloop predict` names the columns of its probabilities


@dataclass(frozen=True)
class Outputs:
    """Where the corrected labels go.

    Attributes:
        file: A .csv or .parquet file, with the columns of labels.parquet.
        folder: A run folder, for `labelloop export`. This, `file` or both.
        overwrite: Whether to replace `file`, and the run in `folder`.
        report: Whether to write report.html into `folder`.
    """

    file: Path | None = None
    folder: Path | None = None
    overwrite: bool = False
    report: bool = True


def correct_file(
    path: Path,
    options: ReadOptions,
    to: Outputs,
    *,
    pred_probs_columns: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    seed: int = 0,
    dry_run: bool = False,
    max_memory: str | int | None = None,
) -> str:
    """Corrects the labels of a file without training, and returns a summary as text.

    Args:
        path: A .csv, .tsv, .parquet, .jsonl or .npz file, or a Hugging Face data set; with an encoder, also images.
        options: How to read it. The embedding column is guessed: embedding, embeddings, features.
        to: Where the corrected labels go.
        pred_probs_columns: One column of lists, or one array, or a column for every class in order. Guessed:
            pred_probs, else all columns whose names begin with p_.
        class_names: The classes in the order of the probabilities.
        seed: The same seed gives the same result.
        dry_run: Only read the file, and return how it was understood.
        max_memory: As in `fit`.
    """
    if not dry_run and to.file is None and to.folder is None:
        raise UsageError("nowhere to write to; give --output FILE, --output-dir RUN or both")
    if to.file is not None:
        check_output(to.file, ".csv", ".parquet", overwrite=to.overwrite or dry_run, inputs=(path, options.clean_file))
    with memory_limit(max_memory, to.folder or to.file):
        found = read_sources(path, options, pred_probs_columns, class_names)
        table = found.table
        if dry_run:
            return f"{schema_text(table)}\nnothing was corrected or written (--dry-run)"
        with clock("correcting labels", options.progress):
            result = correct_table(table, found.probabilities, found.features, seed, named=found.named)
        if to.folder is not None:
            _write_run(RunFolder(to.folder, overwrite=to.overwrite, replaces="correct"), table, result, seed)
            leave_report(to.folder, to.report, options.progress)
        if to.file is not None:
            write = pq.write_table if to.file.suffix == ".parquet" else pa.csv.write_csv
            write_atomically(to.file, lambda place: write(result.labels, place))
        return f"{schema_text(table)}\n{_summary(result)}\n{_ending(to, found.inputs)}"


@dataclass(frozen=True)
class Sources:
    """What labels are corrected from.

    Attributes:
        table: The rows with their labels.
        probabilities: Out-of-sample probabilities [n, C], or None.
        features: Features [n, D], or None.
        named: Whether the features are columns with names.
        inputs: The table that was read last, with the features if there are any.
    """

    table: Table
    probabilities: Floats | None
    features: Floats | None
    named: bool
    inputs: Table


def read_sources(
    path: Any, options: ReadOptions, pred_probs_columns: Sequence[str] | None, class_names: Sequence[Any] | None
) -> Sources:
    """Finds the probabilities and features of a file or a data frame; arguments as in `correct_file`."""
    names = _column_names(path, options)
    label_column = options.label_column or next((n for n in ("given_label", "noisy_label") if n in names), None)
    asked, named_probabilities = options, pred_probs_columns or ()
    if pred_probs_columns is None:
        prefixed = [n for n in names if n.startswith(PREFIX) and n not in options.leave_out]  # one alone is a feature
        pred_probs_columns = ["pred_probs"] if "pred_probs" in names else prefixed if len(prefixed) > 1 else []
    options = replace(options, label_column=label_column)
    embedding_column, embedded = options.embedding_column, bool(options.text_columns or options.encoder)
    unsaid = embedding_column is None and options.feature_columns is None and not embedded
    is_npz = isinstance(path, Path) and ending_of(path) == ".npz"
    if unsaid and (pred_probs_columns or is_npz):  # else the columns beside it count too
        embedding_column = next((n for n in EMBEDDING_NAMES if n in names), None)
    no_inputs = replace(
        options, embedding_column=None, feature_columns=None, text_columns=(), category_columns=(), encoder=None
    )
    tables: list[Table] = []
    if pred_probs_columns:
        one = len(pred_probs_columns) == 1
        columns = {"embedding_column": pred_probs_columns[0]} if one else {"feature_columns": pred_probs_columns}
        tables.append(read_inputs(path, replace(no_inputs, **columns, as_they_are=True)))
        if class_names is None and all(name.startswith(PREFIX) for name in pred_probs_columns) and not one:
            class_names = [name.removeprefix(PREFIX) for name in pred_probs_columns]
    # Without probabilities and embeddings the columns of the table are used, as `fit` uses them.
    if has_embedding := bool(embedding_column or options.feature_columns or embedded or not tables):
        tables.append(_readable(read_inputs(path, replace(options, embedding_column=embedding_column))))
    table = tables[0] if class_names is None else replace(tables[0], class_names=tuple(class_names))
    named_columns = {asked.label_column, asked.embedding_column, *named_probabilities}
    named_columns |= set(asked.feature_columns or ())
    table = replace(table, schema_summary=_schema_summary(tables, pred_probs_columns, named_columns))
    inputs = tables[-1]
    return Sources(
        table=table,
        probabilities=tables[0].inputs if pred_probs_columns else None,
        features=inputs.inputs if has_embedding else None,
        named=has_embedding and bool(inputs.column_names) and not are_array_names(inputs.column_names),
        inputs=inputs,
    )


def _schema_summary(
    tables: Sequence[Table], probabilities: Sequence[str], named_columns: Collection[str | None]
) -> SchemaSummary | None:
    """How the file was understood that was read once for its probabilities and once for its features.

    Args:
        tables: As they were read.
        probabilities: The columns that hold them.
        named_columns: The columns that the user named for labels, probabilities, the embedding and the features.
    """
    found = together([table.schema_summary for table in tables])
    if found is None or not probabilities:
        return found if found is None else replace(found, uses=_with_guesses(found.uses, named_columns))
    how = f"probabilities of {tables[0].inputs.shape[1]} classes" if len(probabilities) == 1 else "probability"
    features = (Feature(f.column, how) if f.column in probabilities else f for f in found.features)
    uses = (replace(use, what="probabilities") if use.column in probabilities else use for use in found.uses)
    left_out = found.left_out
    named = {feature.column for feature in found.features} & set(named_columns)
    if not set(probabilities) <= set(named_columns) and not named - set(probabilities):
        why = "with probabilities or an embedding, other columns are not used"
        left_out = tuple(replace(out, why=why) if out.why == ONLY_NAMED else out for out in left_out)
    return replace(found, uses=_with_guesses(uses, named_columns), features=tuple(features), left_out=left_out)


def _with_guesses(uses: Iterable[Use], named_columns: Collection[str | None]) -> tuple[Use, ...]:
    """The uses, with given labels, probabilities and inputs that the user did not name marked as guessed."""
    ours = ("given label", "probabilities", "inputs")
    return tuple(replace(use, guessed=use.column not in named_columns) if use.what in ours else use for use in uses)


def _readable(table: Table) -> Table:
    """The table, if all of its images can be read."""
    if bad := table.unreadable:
        raise DataError(
            f"{table.source}: {len(bad)} images cannot be read, such as {bad[0].path} ({bad[0].reason}); replace them"
            " or take them out, or use `labelloop fit`, which leaves them out"
        )
    return table


def _write_run(folder: RunFolder, table: Table, result: CorrectionResult, seed: int) -> None:
    """Writes a run folder like that of `fit`, without a model."""
    record = record_of(result, seed, table.origin)
    with folder.recording(record):
        folder.write_targets(result.corrected_proba)
        folder.write_labels(result.labels)
        if result.rows is not None:
            folder.write_row_arrays(result.rows)
        leave_preview(folder.path, table, result.labels)
        folder.write_record(record)


def _column_names(path: Any, options: ReadOptions) -> list[str]:
    """The names of the columns or arrays of a file, without reading it. `read_table` reports what is wrong with it."""
    if is_frame(path):
        return arrow_of(path, FRAME).column_names
    if path.is_dir() and options.encoder is not None:
        return []
    if is_hub_dataset(path):
        return read_hub_dataset(path).arrow.column_names
    if path.is_dir() and parts_of(path):
        return open_columns(path).names
    if path.is_dir():
        raise DataError(
            f"{path} is a folder; {', '.join(FORMATS)} files are read here, and images where --encoder makes"
            " features of them"
        )
    suffix = ending_of(path)
    if suffix not in FORMATS:
        raise DataError(f"{path}: cannot read {suffix or 'a name without an ending'!r}; known: {', '.join(FORMATS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if suffix != ".npz":
        return open_columns(path).names
    try:
        with np.load(path, allow_pickle=False) as archive:
            return list(archive.files)
    except (OSError, ValueError, AttributeError, *NO_ARCHIVE):
        return []


def _ending(to: Outputs, table: Table) -> str:
    lines = [f"the corrected labels are in {to.file or to.folder}"]
    if to.folder is not None:
        lines.append(next_steps(to.folder, table.origin))
    else:
        lines.append("next: with --output-dir RUN you can look at the changes and decide (`labelloop review RUN`)")
    return "\n".join(lines + hint(table))


def _summary(result: CorrectionResult) -> str:
    """The result in a few lines."""
    rows = len(result.labels)
    used = ", ".join(f"{name} {weight:.2f}" for name, weight in result.weights.items() if weight >= 0.005)
    paired, unpaired = result.clean_rows["paired"], result.clean_rows["unpaired"]
    return "\n".join(
        [
            f"{rows} rows, {len(result.classes)} classes; clean rows: {paired} with a given label, {unpaired} without",
            result.guard["line"],
            result_text(result.labels, result.classes.tolist(), result.estimate),
            f"combined: {used}",
            *estimate_lines(result.estimate),
        ]
    )

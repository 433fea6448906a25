"""`labelloop.correct`: corrected labels without training a network, from probabilities, embeddings or a table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labelloop.data.checks import check_not_sparse
from labelloop.data.classes import decode, text_of
from labelloop.data.frames import are_texts, check_parts, is_frame, is_path
from labelloop.data.problem import check, classes_of, make_problem
from labelloop.data.questions import compare_labels
from labelloop.data.readers import ReadOptions
from labelloop.data.table import Table, from_arrays
from labelloop.errors import DataError, UsageError, nearest, some
from labelloop.large_arrays import by_chunks, put, row_chunks
from labelloop.relabel import correct_labels, suit_trees
from labelloop.relabel.estimate import estimate, inputs_alone
from labelloop.relabel.sample import MIN_PAIRS
from labelloop.runs.labels import label_table
from labelloop.runs.result_files import RowArrays, row_arrays
from labelloop.runs.run_json import RunRecord, data_record, versions
from labelloop.runs.survey import Survey
from labelloop.seeds import whole_seed
from labelloop.splits import one_hot
from labelloop.types import MISSING, Floats, Labels
from labelloop.workflows.summary import CorrectedRows

NOT_ASKED = ("encoding", "image_form", "as_they_are", "labels_required", "progress")  # of ReadOptions
LISTS = (
    *("feature_columns", "text_columns", "category_columns", "leave_out", "trust_columns", "extra_columns"),
    *("missing", "na"),
)
SUM_TOLERANCE = 0.01  # probabilities stored in half precision are off by up to 0.003


@dataclass(frozen=True, repr=False, kw_only=True)
class CorrectionResult(CorrectedRows):
    """What `correct` returns. Rows keep the order of the input.

    Attributes:
        frame: Your data frame, of the same type and with the same index, with the columns of `labels` added:
            `corrected_label`, `corrected_confidence`, `changed`, ...
        corrected_labels: A label for every row, in the type of the input labels; the clean label if there is one.
        corrected_proba: The same as probabilities [n, C].
        label_score: The corrected probability of the given label; low values are suspicious, NaN without a label.
        predicted_proba: Predictions from the probabilities or embeddings alone, calibrated on the clean rows [n, C].
        cross_fitted_proba: For clean rows, `corrected_proba` as it would be without the row's clean label; NaN for
            other rows. Compare it with the clean labels to see how good the correction is [n, C].
        classes: The classes in the type of the input labels [C].
        weights: The components used for rows with a given label, and their weights, which sum to 1.
        weights_without_label: The same for rows without a given label.
        clean_rows: How many clean rows were "paired" with a given label, and how many "unpaired".
        data: The description of the rows in run.json: their source, how many there are of each kind, and the classes.
        estimate: How good the corrected labels are, estimated on held-out clean rows, with 95% intervals:
            `corrected_label_accuracy`, `good_labels_broken`, `wrong_labels_fixed`, and `notes` as text.
        guard: How many given labels were changed and kept, and the evidence for it; `line` is a summary.
        labels: The table of labels.parquet, one row per input row.
        rows: The arrays that `labelloop refit` needs; None if they would be too large.
        own: Your data frame or other input with an index; None for arrays and files.
    """

    cross_fitted_proba: Floats
    weights: dict[str, float]
    weights_without_label: dict[str, float]
    clean_rows: dict[str, int]
    data: dict[str, Any]
    guard: dict[str, Any]
    rows: RowArrays | None

    def _repr_html_(self) -> str:
        """The summary and the report, for notebooks."""
        from labelloop.report.html import in_notebook

        return in_notebook(Survey(None, record_of(self).to_json(), [], self.labels, self.corrected_proba))


def record_of(result: CorrectionResult, seed: int = 0, origin: Mapping[str, Any] | None = None) -> RunRecord:
    """The content of run.json."""
    return RunRecord(
        kind="correct",
        method="correct",
        seed=seed,
        data=result.data,
        versions=versions(),
        source=None if origin is None else {**origin, "class_names": result.data["classes"]},
        state="finished",
        stop_reason="nothing to train",
        labels_from="correct",
        estimate=result.estimate,
        about={"weights": result.weights, "weights_without_label": result.weights_without_label, "guard": result.guard},
    )


def correct(
    y: Any,
    y_clean: ArrayLike | None = None,
    *,
    label: str | None = None,
    clean: str | None = None,
    pred_probs: ArrayLike | None = None,
    embeddings: Any = None,
    ids: ArrayLike | None = None,
    class_names: Sequence[Any] | None = None,
    columns: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> CorrectionResult:
    """Corrects noisy labels with a few clean ones, in seconds and without training a network.

    Pass all rows at once, as a data frame or the path of a file: `correct(df, label="y", clean="y_clean")` reads them
    as the command `labelloop correct` does. Or pass arrays: `correct(y, y_clean, embeddings=X)`.

    Keep the given label of clean rows where you can: only such pairs measure how reliable given labels are. A given
    label is changed only where they show that changes fix more labels than they break; with fewer than 20 pairs, where
    the noise as estimated from the noisy rows does.

    Args:
        y: A pandas, polars or Arrow data frame with the labels among its columns, or the path of a file, such as .csv
            or .parquet. Or the given labels [n]; blank, NaN, None or -1 where there is none.
        y_clean: The clean labels [n], with missing ones marked in the same way; only with an array of given labels.
        label: The column of the given labels in a data frame or a file; without it, guessed by its name.
        clean: The column of the clean labels.
        pred_probs: Out-of-sample probabilities of the classes [n, C], from any model that was cross-validated on the
            given labels. Columns are in the order of the sorted classes, or of `class_names`.
        embeddings: Features [n, D] from any network, or the columns of a table as an array or a data frame, which may
            hold categories, dates, texts and gaps. With fewer than 128 columns, trees are cross-validated on them too.
        ids: The id of every row; without it, the row number.
        class_names: The classes in the order of the columns; without it, the labels that occur, sorted.
        columns: How to read a data frame or a file, by the names of the flags: {"id_column": "id", "leave_out": ["x"],
            "text_columns": ["note"], "missing": ["-1"]}.
        seed: The same seed gives the same result.

    Returns:
        A `CorrectionResult`: `frame` has your rows with the corrected labels, `corrected_labels` is an array, and
        `estimate` says how good the labels are.

    Raises:
        UsageError: There is nothing to correct with, or arguments contradict each other.
        DataError: Some rows cannot be used; the message says which and why.

    Warns:
        UserWarning: There are few clean rows, a class has none, none is paired, or the model of the probabilities seems
            to have been trained on the rows that it predicts.

    Example:
        >>> import numpy as np, pyarrow as pa, labelloop
        >>> rng = np.random.default_rng(0)
        >>> true = np.arange(200) % 2
        >>> given = np.where(rng.random(200) < 0.2, 1 - true, true)
        >>> verified = [int(k) if row < 60 else None for row, k in enumerate(true)]
        >>> df = pa.table({"size": true + 0.3 * rng.normal(size=200), "y": given, "y_clean": verified})
        >>> result = labelloop.correct(df, label="y", clean="y_clean")
        >>> bool(np.mean(result.corrected_labels == true) > 0.9)
        True
    """
    if is_frame(y) or is_path(y):
        if y_clean is not None or embeddings is not None or ids is not None:
            raise UsageError(
                "all rows are in the data frame or file: name columns with label, clean and columns, and leave y_clean,"
                " embeddings and ids out"
            )
        return _correct_rows(y, read_options(columns, label, clean), pred_probs, class_names, seed)
    if label is not None or clean is not None or columns is not None:
        raise UsageError("label, clean and columns are about a data frame or a file; give one, or y and y_clean alone")
    if y_clean is None:
        raise UsageError("no clean labels: give y_clean, missing where a row has none")
    check_parts(y=y, y_clean=y_clean, embeddings=embeddings, pred_probs=pred_probs)
    probabilities = None if pred_probs is None else _matrix(pred_probs, "pred_probs", "[n, C]")
    if probabilities is None and embeddings is None:
        raise UsageError("nothing to correct with: give pred_probs, embeddings or both")
    features, named = None, False
    if embeddings is not None and (is_frame(embeddings) or are_texts(embeddings)):
        features, named = from_arrays(embeddings, y, y_clean, source="embeddings").inputs, True
    elif embeddings is not None:
        features = _matrix(embeddings, "embeddings", "[n, D]")
    first = probabilities if probabilities is not None else features
    table = from_arrays(first, y, y_clean, ids=ids, class_names=class_names)
    own: Any = next((part for part in (y, y_clean, embeddings) if hasattr(part, "iloc")), None)
    own = own if own is None else own.index.to_frame().iloc[:, :0]
    compare_labels(table.labels, table.clean_labels, table.source, table.markers, table.class_names or ())
    table = _with_named_classes(table, pred_probs)
    return replace(correct_table(table, probabilities, features, seed, named=named), own=own)


def _correct_rows(
    rows: Any, options: ReadOptions, pred_probs: ArrayLike | None, class_names: Sequence[Any] | None, seed: int
) -> CorrectionResult:
    """The same for a data frame or a file, read as `labelloop correct` reads it."""
    from labelloop.workflows.correct_file import read_sources  # it imports this module

    check_parts(rows=rows, pred_probs=pred_probs)
    found = read_sources(Path(rows) if is_path(rows) else rows, options, None, class_names)
    probabilities = found.probabilities if pred_probs is None else _matrix(pred_probs, "pred_probs", "[n, C]")
    table = _with_named_classes(found.table, pred_probs)
    result = correct_table(table, probabilities, found.features, seed, named=found.named)
    return replace(result, own=rows if is_frame(rows) else None)


def _with_named_classes(table: Table, pred_probs: Any) -> Table:
    """The table with classes in the order of a data frame of probabilities, if its columns are named after them."""
    if not is_frame(pred_probs) or table.class_names is not None:
        return table
    columns = getattr(pred_probs, "column_names", None) or list(pred_probs.columns)
    names = tuple(str(name).removeprefix("p_") for name in columns)
    return replace(table, class_names=names) if sorted(names) == sorted(text_of(classes_of(table))) else table


def read_options(columns: Mapping[str, Any] | None, label: str | None, clean: str | None) -> ReadOptions:
    """How to read a data frame or a file, from the arguments of `correct` and `fit`.

    Raises:
        UsageError: A name is not one of the options.
    """
    known = [field.name for field in fields(ReadOptions) if field.name not in NOT_ASKED]
    for name in columns or {}:
        if name not in known:
            raise UsageError(f"columns: no option {name!r}; {nearest(name, known)}")
    named = {key: value for key, value in (("label_column", label), ("clean_column", clean)) if value is not None}
    if twice := set(named) & set(columns or {}):
        raise UsageError(f"{sorted(twice)[0]} is named twice; name it once")
    asked = {**named, **(columns or {})}
    for name in LISTS:
        if isinstance(asked.get(name), str):
            asked[name] = (asked[name],)
    return ReadOptions(**asked, progress=False)


def correct_table(
    table: Table, pred_probs: Floats | None, embeddings: Floats | None, seed: int = 0, *, named: bool = False
) -> CorrectionResult:
    """The same for a table read from a file. Test rows are left out: their corrected label is missing.

    Args:
        table: The rows.
        pred_probs: Out-of-sample probabilities [n, C], or None.
        embeddings: Features [n, D], or None.
        seed: The same seed gives the same result.
        named: Whether the features are columns with names, like those of a table.
    """
    seed = whole_seed(seed)
    _check_lengths(len(table), pred_probs=pred_probs, embeddings=embeddings)
    if pred_probs is not None:
        pred_probs = _checked(pred_probs)
        table = replace(table, class_names=_column_classes(table, pred_probs.shape[1]))
    inputs = pred_probs if embeddings is None else embeddings
    made = make_problem(replace(table, inputs=inputs, column_names=(), split=None))
    check(made)
    classes, given, clean = made.classes, made.given, made.clean_labels
    if table.split is not None:
        clean = np.where(table.split == "test", MISSING, clean)  # test rows must not be learnt from
    data = data_record(table.source, text_of(classes), given, clean)
    clean_rows = {"paired": data["clean_paired"], "unpaired": data["clean_unpaired"]}
    if sum(clean_rows.values()) < 2:
        raise DataError("only one clean row; verify more, because some test the correction")
    _warn_if_few(clean_rows, len(classes))
    if pred_probs is not None:
        _warn_if_memorised(pred_probs, given, clean)
    trees = embeddings is not None and suit_trees(embeddings.shape[1], named)
    found = correct_labels(
        given, clean, len(classes), pred_probs=pred_probs, embeddings=embeddings, table=trees, seed=seed
    )
    rows = np.flatnonzero(clean != MISSING)
    judges, targets = found.counted(rows), found.targets  # [n, C]
    judged = estimate(
        found.cross_fitted[judges], given[judges], clean[judges], found.notes, found.expected_right[judges],
        inputs_alone(found, given, clean, judges),
    )  # fmt: skip
    put(targets, rows, one_hot(clean[rows], len(classes)))
    labels = label_table(table.ids, classes.tolist(), given, clean, targets, found.predicted.argmax(axis=1))
    inputs_by_name = {"table_inputs" if trees else "inputs": embeddings}
    assert table.labels is not None  # else `check` has refused the table
    return CorrectionResult(
        corrected_labels=decode(targets.argmax(axis=1), classes, table.labels.dtype),
        corrected_proba=targets,
        label_score=labels["label_score"].to_numpy(),
        predicted_proba=found.predicted,
        cross_fitted_proba=found.cross_fitted,
        classes=classes,
        weights=found.weights,
        weights_without_label=found.weights_without_label,
        clean_rows=clean_rows,
        data=data,
        estimate=judged,
        guard=found.guard,
        labels=labels,
        rows=row_arrays(given, clean, scores=found.scores, judged=found.judged, **inputs_by_name),
    )


def _check_lengths(rows: int, **arrays: Floats | None) -> None:
    for name, values in arrays.items():
        if values is not None and len(values) != rows:
            raise DataError(f"{rows} rows, but {len(values)} of {name}; give one for every row")


def _matrix(values: ArrayLike, what: str, shape: str) -> Floats:
    check_not_sparse(values, what)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or array.ndim != 2:
        raise DataError(f"{what}: expected numbers {shape}, got {array.dtype} of shape {array.shape}")
    return array.astype(np.float32, copy=False)


def _checked(pred_probs: Floats) -> Floats:
    """Probabilities that sum to 1 exactly, or an error that names the rows."""
    advice = "(the first row is 0); give probabilities, not logits or scores"
    chunks = list(row_chunks(*pred_probs.shape))
    finite = np.concatenate([np.isfinite(pred_probs[rows]).all(axis=1) for rows in chunks] or [np.zeros(0, bool)])
    bad = np.flatnonzero(~finite)
    if len(bad):
        raise DataError(f"pred_probs: not a number in row {some(bad)} (the first row is 0); leave these rows out")
    bad = np.flatnonzero(pred_probs.min(axis=1) < -1e-6)
    if len(bad):
        raise DataError(f"pred_probs: negative in row {some(bad)} {advice}")
    sums = pred_probs.sum(axis=1, keepdims=True)  # [n, 1]
    bad = np.flatnonzero(np.abs(sums[:, 0] - 1) > SUM_TOLERANCE)
    if len(bad):
        raise DataError(
            f"pred_probs: row {bad[0]} sums to {sums[bad[0], 0]:.4g} and not to 1; {len(bad)} such rows: {some(bad)}"
            f" {advice}"
        )
    return by_chunks(lambda rows: np.maximum(pred_probs[rows], 0) / sums[rows], pred_probs.shape)


def _column_classes(table: Table, columns: int) -> tuple[str, ...] | None:
    """The classes of the columns of pred_probs. Whole numbers from 0 may skip a class that no row has."""
    classes = classes_of(table)
    if len(classes) == columns:
        return table.class_names
    whole = table.class_names is None and classes.dtype.kind == "i" and classes[0] == 0 and classes[-1] < columns
    if whole:
        return tuple(str(k) for k in range(columns))
    raise DataError(
        f"{table.source}: pred_probs has {columns} columns, but there are {len(classes)} classes"
        f" ({some(classes.tolist(), 12)}); give class_names, one for every column in their order"
    )


def _warn_if_few(clean_rows: dict[str, int], num_classes: int) -> None:
    paired = clean_rows["paired"]
    if paired < MIN_PAIRS:
        warnings.warn(
            f"{paired} of {sum(clean_rows.values())}"
            " clean rows have a given label too, so the reliability of given labels"
            f" is estimated from the noisy rows; to measure it, verify {max(MIN_PAIRS, 2 * num_classes)} or more rows"
            " that have a given label, and keep it",
            stacklevel=4,
        )
    elif paired < 2 * num_classes:
        warnings.warn(
            f"only {paired} clean rows with a given label for {num_classes} classes, so corrections are uncertain;"
            f" verify {2 * num_classes} or more, some of every class",
            stacklevel=4,
        )


def _warn_if_memorised(pred_probs: Floats, given: Labels, clean: Labels) -> None:
    """Warns about probabilities that repeat the given labels, including wrong ones, as an overfitted model does."""
    best = pred_probs.argmax(axis=1)
    noisy, paired = (given != MISSING) & (clean == MISSING), (given != MISSING) & (clean != MISSING)
    agreement = (best == given)[noisy].mean()
    wrong = int((given != clean)[paired].sum())
    if wrong >= 5:  # out of sample, wrong labels can hardly be predicted
        suspicious = agreement > 1 - 0.5 * wrong / paired.sum()
    else:
        suspicious = agreement > 0.98 and agreement > (best == clean)[clean != MISSING].mean() + 0.05
    if suspicious:
        warnings.warn(
            f"pred_probs repeat the given label in {100 * agreement:.1f}% of the rows, which is more than labels with"
            " errors allow; if the model was trained on these rows, use cross-validation, so that every row is"
            " predicted by a model that has not seen it",
            stacklevel=4,
        )

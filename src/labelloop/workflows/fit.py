"""`labelloop.fit`: from a user's rows to a trained model and corrected labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from scipy.special import softmax

from labelloop.config.base import DEFAULT_METHOD, DEFAULT_RECIPE, TrainingConfig, method_of
from labelloop.data.classes import decode, encode
from labelloop.data.columns import are_array_names
from labelloop.data.frames import check_parts, is_frame, is_path
from labelloop.data.problem import TableProblem, check, encoded, held_out_rows, make_problem
from labelloop.data.questions import compare_labels
from labelloop.data.readers import ReadOptions
from labelloop.data.table import Table, check_lengths, from_arrays
from labelloop.errors import DataError, UsageError
from labelloop.large_arrays import by_chunks, joined, put, row_chunks, zeros
from labelloop.methods import METHODS, recipe_config
from labelloop.relabel.estimate import estimate_baseline, no_estimate
from labelloop.report.html import in_notebook
from labelloop.runs.folder import RunFolder, write_unreadable
from labelloop.runs.labels import label_table, likeliest
from labelloop.runs.result_files import row_arrays
from labelloop.runs.run_json import RunRecord, data_record
from labelloop.runs.survey import Survey
from labelloop.splits import one_hot, take
from labelloop.trained_model import TrainedModel
from labelloop.training.batches import input_shape
from labelloop.training.epoch import extract
from labelloop.training.ranks import ALONE, join
from labelloop.types import MISSING, EncoderForm, Extracted, Floats, Labels, ReturnedLabels, Rows, Truth
from labelloop.workflows import compose
from labelloop.workflows.compose import RunOptions, Task, Trained
from labelloop.workflows.correct import read_options
from labelloop.workflows.encode import encode_table, raw_or_not, read_inputs, shape_of, trained_config
from labelloop.workflows.ending import leave_preview, leave_report
from labelloop.workflows.summary import CorrectedRows


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(CorrectedRows):
    """What `fit` returns. Rows keep the order of the input.

    Attributes:
        frame: Your data frame, of the same type and with the same index, with the columns of `labels` added:
            `corrected_label`, `corrected_confidence`, `changed`, ...
        model: The trained classifier: `predict`, `predict_proba`, `transform`, `save`.
        corrected_labels: A label for every row, in the type of the input labels; the clean label if there is one.
            Missing for test rows, and for unlabelled rows if the method does not correct labels.
        corrected_proba: The same as probabilities [n, C]; NaN where missing.
        label_score: The corrected probability of the given label; low values are suspicious, NaN without a label.
        predicted_proba: The classifier's probabilities for every row [n, C].
        classes: The classes in the type of the input labels [C].
        history: A record for every epoch.
        rounds: A record for every correction, with the combination weights.
        labels_from: The name of the method that made the labels.
        estimate: How good the corrected labels are, estimated on held-out clean rows, with 95% intervals:
            `corrected_label_accuracy`, `good_labels_broken`, `wrong_labels_fixed`, and `notes` as text.
        stop_reason: Why the training ended: "epoch limit".
        config: The settings, with every "auto" replaced.
        output_dir: The run folder, or None.
        labels: The table of labels.parquet, one row per input row.
        record: The content of run.json, also if it was not written.
        own: Your data frame or other input with an index; None for arrays and files.
    """

    model: TrainedModel
    history: tuple[dict[str, Any], ...]
    rounds: tuple[dict[str, Any], ...]
    labels_from: str
    stop_reason: str
    config: TrainingConfig
    output_dir: Path | None
    record: RunRecord

    def _repr_html_(self) -> str:
        """The summary and the report, for notebooks."""
        history = list(self.history)
        return in_notebook(Survey(self.output_dir, self.record.to_json(), history, self.labels, self.corrected_proba))


def fit(
    X: Any,
    y: ArrayLike | None = None,
    y_clean: ArrayLike | None = None,
    *,
    label: str | None = None,
    clean: str | None = None,
    columns: Mapping[str, Any] | None = None,
    X_test: Any = None,
    y_test: ArrayLike | None = None,
    y_true: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    extra: ArrayLike | None = None,
    class_names: Sequence[Any] | None = None,
    allow_overlap: bool = False,
    config: TrainingConfig | Mapping[str, Any] | None = None,
    recipe: str = DEFAULT_RECIPE,
    method: str | None = None,
    seed: int = 0,
    output_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    workers: int = 0,
    progress: bool | None = None,
    report: bool = True,
    encoder: str | None = None,
    train_encoder: bool = False,
    processes: int | None = None,
    max_memory: str | int | None = None,
) -> Result:
    """Trains a classifier on noisy labels with a few clean ones, and corrects the noisy labels.

    Pass all rows at once, as a data frame or the path of a file: `fit(df, label="y", clean="y_clean")` reads them as
    the command `labelloop fit` does. Or pass inputs and labels separately: `fit(X, y, y_clean)`.

    Args:
        X: A pandas, polars or Arrow data frame with numbers, categories, dates, texts and gaps, with or without the
            labels; the path of a file or folder; features [n, D]; images [n, H, W, C]; texts; or a map-style dataset
            of inputs.
        y: The given labels [n]; blank, NaN, None or -1 where there is none. Leave it out if they are a column.
        y_clean: The clean labels [n], with missing ones marked in the same way.
        label: The column of the given labels in a data frame or a file; without it, guessed by its name.
        clean: The column of the clean labels.
        columns: How to read a data frame or a file, by the names of the flags: {"id_column": "id", "leave_out": ["x"],
            "text_columns": ["note"], "missing": ["-1"]}.
        X_test: Inputs on which to report the test accuracy after every epoch.
        y_test: Their true labels.
        y_true: True labels of all rows, if known. They are only recorded, never used.
        ids: The id of every row; without it, the row number.
        extra: Further columns [n, E] for the correction network of closed-loop, used if `corrector.inputs` names
            "extra".
        class_names: The classes in the wanted order; without it, the labels that occur, sorted.
        allow_overlap: Only warn about test rows with the same input as a clean row; coarse inputs may coincide.
        config: A configuration of the method, or a dict of settings that override the recipe.
        recipe: The name of the settings to start from, if `config` is not a whole configuration.
        method: A name in METHODS; "labelloop" by default, and the paper's "closed-loop" for a recipe of the paper.
        seed: The same seed on the same machine gives the same result, bit for bit.
        output_dir: The run folder, with records and checkpoints; None keeps everything in memory.
        resume: Continue the interrupted run in `output_dir`.
        overwrite: Replace the run in `output_dir`.
        device: "auto", "cpu", "cuda", ...
        workers: Processes that load the items of a dataset.
        progress: Whether to draw a progress bar; None draws one only in a terminal.
        report: Whether to write report.html into `output_dir`, if there is one.
        encoder: Turns X (texts, or images as paths, bytes, Pillow images or uint8 arrays) into features:
            "sentence-transformers:NAME", "transformers:NAME", "timm:NAME" (a name or a folder), or "module:factory".
        train_encoder: Train the encoder too, at a lower learning rate, instead of encoding every row once.
        processes: How many processes share the training. A launcher such as torchrun must have started that many, and
            each calls `fit` with the same arguments. All get the same result, and the first one writes files. None
            trains in this process alone, however it was started.
        max_memory: About how much memory to use, such as "4G"; larger arrays are kept in files next to `output_dir`.
            None uses half of the machine's memory.

    Returns:
        A `Result`: `frame` has your rows with the corrected labels, `model` predicts new rows, and `estimate` says how
        good the labels are.

    Raises:
        UsageError: Arguments contradict each other, or a setting cannot be used.
        DataError: Some rows cannot be used; the message says which and why.

    Example:
        >>> import numpy as np, labelloop
        >>> rng = np.random.default_rng(0)
        >>> true = np.arange(200) % 2
        >>> given = np.where(rng.random(200) < 0.2, 1 - true, true)
        >>> clean = np.where(np.arange(200) < 60, true, -1)
        >>> X = (true[:, None] + 0.3 * rng.normal(size=(200, 2))).astype("float32")
        >>> result = labelloop.fit(X, given, clean, config={"epochs": 5, "rounds": 1}, progress=False)
        >>> result.model.predict(X).shape
        (200,)
    """
    method, ranks = method_of(method, recipe), ALONE if processes is None else join(processes)
    if (X_test is None) != (y_test is None):
        raise UsageError("give both X_test and y_test, or neither")
    named = label is not None or clean is not None or columns is not None
    if named and (y is not None or not (is_frame(X) or is_path(X))):
        raise UsageError("label, clean and columns are about a data frame or a file that holds the labels too")
    how = read_options(columns, label, clean)
    table, own = table_of(X, y, y_clean, how, encoder, train_encoder, device, progress)
    table = _with(table, ids, extra, class_names)
    if y is not None:
        compare_labels(table.labels, table.clean_labels, table.source, table.markers, table.class_names or ())
    test = None
    if X_test is not None:  # its categories become the same columns
        rows = raw_or_not(X_test, encoder, train_encoder)
        test = from_arrays(rows, None, y_test, source="the test arrays", encoding=table.encoding)
        if encoder is not None:
            test = encode_table(test, table.encoder_form, shape=shape_of(table), device=device, progress=progress)
    if not isinstance(config, TrainingConfig):
        config = recipe_config(method, recipe, config or {})
    elif not isinstance(config, kind := type(recipe_config(method))):
        raise UsageError(f"method {method!r} is configured by a {kind.__module__}.{kind.__name__}, not {type(config)}")
    folder = None if output_dir is None else Path(output_dir)
    kept = (folder, resume, overwrite, report)
    options = RunOptions(seed, device, workers, progress, *kept, ranks=ranks, max_memory=max_memory)
    config = trained_config(config, table, method)
    result = fit_table(table, config, options, method=method, test=test, y_true=y_true, allow_overlap=allow_overlap)
    return replace(result, own=own)


def table_of(
    X: Any,
    y: Any,
    y_clean: Any,
    options: ReadOptions,
    encoder: str | None,
    train_encoder: bool,
    device: str,
    progress: bool | None,
) -> tuple[Table, Any]:
    """The rows with their labels, whatever form they have; and what has the user's index, or None."""
    if is_path(X) or (is_frame(X) and y is None):
        if y is not None or y_clean is not None:
            raise UsageError(
                "the labels are in the file or data frame: name their columns with label and clean, and leave y and"
                " y_clean out"
            )
        options = replace(options, encoder=encoder or options.encoder, train_encoder=train_encoder)
        table = read_inputs(Path(X) if is_path(X) else X, options, device=device)
        return table, X if is_frame(X) else None
    if y is None or y_clean is None:
        raise UsageError("no labels: give y and y_clean, or all rows in a data frame with label and clean")
    check_parts(X=X, y=y, y_clean=y_clean)
    rows = raw_or_not(X, encoder, train_encoder)
    table = from_arrays(rows, y, y_clean)
    if encoder is not None:
        form = EncoderForm(encoder, rows.kind, "", train_encoder)
        table = encode_table(table, form, device=device, progress=progress)
    own: Any = next((part for part in (X, y, y_clean) if is_frame(part) or hasattr(part, "iloc")), None)
    if own is not None and not is_frame(own):
        own = own.index.to_frame().iloc[:, :0]
    return table, own


def _with(table: Table, ids: ArrayLike | None, extra: ArrayLike | None, class_names: Sequence[Any] | None) -> Table:
    """The table with what was given beside it."""
    if ids is not None:
        table = replace(table, ids=np.asarray(ids).astype(str), ids_given=True)
    if extra is not None:
        table = replace(table, extra=from_arrays(np.zeros((len(table), 1)), extra=extra).extra)
    if class_names is not None:
        table = replace(table, class_names=tuple(str(name) for name in class_names))
    check_lengths(table)
    return table


def fit_table(
    table: Table,
    config: TrainingConfig,
    options: RunOptions,
    *,
    method: str = DEFAULT_METHOD,
    test: Table | None = None,
    y_true: ArrayLike | None = None,
    allow_overlap: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Result:
    """The same for tables, as they come from files. `about` goes into run.json as it is."""
    if METHODS[method].is_oracle:
        raise UsageError(f"method {method!r} is given the true labels, which only `labelloop bench` has; take another")
    with options.memory_limit():
        with options.ranks.together():
            made = make_problem(table)
            check(made, test, allow_overlap=allow_overlap)
            if len(made.clean) < 2:
                raise DataError(f"{table.source}: only one clean row; verify more, because some test the correction")
            task = _task(made, method, config, _truth(made, test, y_true))
            compose.check_task(task, table.source, options)
            shared = {} if options.ranks.count == 1 else {"processes": options.ranks.count}
            described, about = _describe(made, task.truth), {**(about or {}), **shared}
            record = compose.new_record("fit", task, options.seed, described, table.origin, about)
        folder = compose.open_run(options, record)
        if folder is not None and table.unreadable:
            list_unreadable(folder.path, table)
        if options.before is not None and options.ranks.is_first:
            options.before()
        trained = compose.train(task, options, record, folder)
        with nullcontext() if folder is None else folder.recording(record):
            with trained.runtime.clock("predicting all rows"):
                extracted = _extracted(trained, made)
            final = trained.fitted.returned or _as_handed_back(task, trained, extracted, made)
            result = _result(made, task, trained, final, extracted)
            result = replace(result, record=compose.ended(record, trained.fitted, final))
            if folder is not None:
                with trained.runtime.clock("writing the run"):
                    _store(folder, made, trained.fitted.returned, extracted, result)
                leave_preview(folder.path, table, result.labels, options.progress)
                folder.write_record(result.record)
        if folder is not None:
            leave_report(folder.path, options.report, options.progress)
        return result


def fit_plain(table: Table, config: TrainingConfig, options: RunOptions) -> Result:
    """Cross-entropy on the given labels, which are returned unchanged, without an estimate of their quality."""
    made = make_problem(table)
    if len(made.classes) < 2:
        raise DataError(
            f"only one class, {made.classes[0]!s}, occurs in y; a classifier needs two or more (blank, NaN, None and -1"
            " mean a missing label, so -1 cannot be a class)"
        )
    task = _task(made, "cross-entropy", config, Truth())
    trained = compose.train(task, options, RunRecord())
    fitted = trained.fitted
    none = ReturnedLabels(fitted.targets, task.method, no_estimate("there are no clean rows"))
    result = _result(made, task, trained, none, _extracted(trained, made))
    assert table.labels is not None
    unknown = np.full(len(table), np.nan, np.float32)
    return replace(result, corrected_labels=table.labels.copy(), label_score=unknown)


def list_unreadable(folder: Path, table: Table) -> Path:
    """Writes unreadable.csv: the images that could not be read, with their ids and the reasons."""
    rows = [(str(table.ids[bad.row]), bad.path, bad.reason) for bad in table.unreadable]
    found = pa.table(dict(zip(("id", "path", "reason"), map(list, zip(*rows, strict=True)), strict=True)))
    return write_unreadable(folder, found)


def _task(made: TableProblem, method: str, config: TrainingConfig, truth: Truth) -> Task:
    names = made.table.column_names
    named = bool(names) and not are_array_names(names)
    return compose.make_task(method, config, made.problem, truth, named_columns=named)


def _truth(made: TableProblem, test: Table | None, y_true: ArrayLike | None) -> Truth:
    train_labels = None
    if y_true is not None:
        truth = encode(y_true, made.classes, "y_true")
        if len(truth) != len(made.table):
            raise DataError(f"{len(made.table)} rows, but {len(truth)} labels in y_true; give one for every row")
        train_labels = truth[made.train]
    if test is None:
        rows = held_out_rows(made)
    else:
        labels, clean_labels = encoded(test, made.classes)
        rows = Rows(
            test.inputs, np.arange(len(test)), labels, clean_labels if test.clean_labels is not None else labels
        )
    if rows is not None:
        known = rows.clean_labels != MISSING
        if test is not None:
            known &= test.usable
        if not known.any():
            raise DataError("no test row has a label; give their true labels, or leave the test rows out")
        rows = take(rows, known)
    return Truth(train_labels, rows)


def _describe(made: TableProblem, truth: Truth) -> dict[str, Any]:
    """Describes the rows, so that a run is never resumed on other rows."""
    table, problem = made.table, made.problem
    parts = [part for rows in (problem.train, problem.clean) for part in (rows.index, rows.labels, rows.clean_labels)]
    test = None
    if truth.test is not None:
        shown = _sha256(truth.test.inputs, truth.test.index, truth.test.clean_labels)
        test = {"rows": len(truth.test), "sha256": shown}
    used = np.zeros(len(table), bool)
    used[made.train] = used[made.clean] = True
    checksum = _sha256(table.inputs, *parts, table.extra)
    return data_record(table.source, problem.class_names, made.given, made.clean_labels, used, checksum, test)


def _sha256(*parts: Any) -> str:
    """The checksum of the arrays among the parts; the items of a dataset are not read."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            for rows in row_chunks(len(part), part[:1].size):
                digest.update(np.ascontiguousarray(part[rows]).data)
    return digest.hexdigest()


def _extracted(trained: Trained, made: TableProblem) -> Extracted:
    """The network's outputs for every row that can be read; zeros in the others."""
    table = made.table
    usable = np.flatnonzero(table.usable)
    rows = Rows(table.inputs, usable, made.given[usable], made.clean_labels[usable])
    outputs = extract(trained.fitted.model, rows, trained.runtime)
    return Extracted(**{name: _in_all_rows(values, usable, len(table)) for name, values in vars(outputs).items()})


def _as_handed_back(task: Task, trained: Trained, extracted: Extracted, made: TableProblem) -> ReturnedLabels:
    """The labels of a baseline, and what can be estimated on its clean rows."""
    predicted = softmax(extracted.logits[made.clean], axis=1)
    found = estimate_baseline(task.method, METHODS[task.method].clean_rows, task.problem.clean.clean_labels, predicted)
    return ReturnedLabels(trained.fitted.targets, task.method, found)


def _result(made: TableProblem, task: Task, trained: Trained, final: ReturnedLabels, extracted: Extracted) -> Result:
    """What is returned."""
    table, classes, fitted = made.table, made.classes, trained.fitted
    usable = table.usable[:, None]
    shape, logits = (len(table), len(classes)), extracted.logits
    predicted = by_chunks(lambda rows: np.where(usable[rows], softmax(logits[rows], axis=1), np.nan), shape)
    best = np.where(table.usable, likeliest(predicted), MISSING)
    targets = by_chunks(lambda rows: np.full((rows.stop - rows.start, shape[1]), np.nan), shape)
    for rows in row_chunks(*final.train.shape):
        labelled = final.train[rows].sum(axis=1, keepdims=True) > 0.5  # a baseline leaves unlabelled rows without one
        targets[made.train[rows]] = np.where(labelled, final.train[rows], np.nan)
    targets[made.clean] = one_hot(task.problem.clean.clean_labels, len(classes))
    labels = label_table(table.ids, classes.tolist(), made.given, made.clean_labels, targets, best)
    like = table.labels if table.labels is not None else table.clean_labels
    assert like is not None
    corrected = np.where(np.isnan(targets[:, 0]), MISSING, likeliest(targets))  # NaN: only tested on
    architecture = {
        "network": task.config.network,
        "network_options": task.config.network_options,
        "input_shape": list(input_shape(task.problem.train)),
    }
    forms = (table.column_names, table.encoding, table.image_form, table.encoder_form)
    return Result(
        model=TrainedModel(fitted.model.eval(), classes, architecture, *forms),
        corrected_labels=decode(corrected, classes, like.dtype),
        corrected_proba=targets,
        label_score=labels["label_score"].to_numpy(zero_copy_only=False),
        predicted_proba=predicted,
        classes=classes,
        history=tuple(trained.runtime.history),
        rounds=fitted.rounds,
        labels_from=final.labels_from,
        estimate=final.estimate,
        stop_reason=fitted.stop_reason,
        config=task.config,
        output_dir=None if trained.folder is None else trained.folder.path,
        labels=labels,
        record=RunRecord(),
    )


def _store(
    folder: RunFolder, made: TableProblem, final: ReturnedLabels | None, extracted: Extracted, result: Result
) -> None:
    """Writes the results into the run folder."""
    table = made.table
    result.model.save(folder.path)
    folder.write_targets(result.corrected_proba)
    folder.write_labels(result.labels)
    if final is None:  # a baseline has no correction that could be fitted again
        return
    teaching = np.full(len(table), MISSING)  # not those of test rows
    teaching[made.clean] = made.clean_labels[made.clean]
    everyone, kept = np.concatenate([made.train, made.clean]), {}
    for name, part in (("scores", final.scores), ("judged", final.judged)):
        if part is not None:
            kept[name] = _in_all_rows(joined(part.train, part.clean), everyone, len(table))
    inputs = {} if final.inputs_as is None else {final.inputs_as: table.inputs.astype(np.float32, copy=False)}
    arrays = row_arrays(made.given, teaching, **vars(extracted), **kept, extra=table.extra, **inputs)
    if arrays is not None:
        folder.write_row_arrays(arrays)


def _in_all_rows(values: Floats, rows: Labels, count: int) -> Floats:
    """Values of some rows at their positions among all rows, zeros elsewhere; the same array if it has all rows."""
    if np.array_equal(rows, np.arange(count)):
        return values
    everywhere = zeros((count, *values.shape[1:]), values.dtype)
    put(everywhere, rows, values)
    return everywhere

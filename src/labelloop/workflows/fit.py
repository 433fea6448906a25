"""From a user's rows to a trained model and corrected labels: data -> method -> result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from labelloop.config.base import TrainingConfig
from labelloop.config.build import to_dict
from labelloop.config.recipes import DEFAULT_RECIPE
from labelloop.correction.final import FinalLabels, final_labels
from labelloop.correction.judge import judge_baseline
from labelloop.data.classes import decode, encode
from labelloop.data.columns import are_array_names
from labelloop.data.problem import check, encoded, held_out_rows, make_problem
from labelloop.data.table import Table, from_arrays
from labelloop.errors import DataError, UsageError
from labelloop.methods import METHODS
from labelloop.methods.closed_loop import Config as ClosedLoopConfig
from labelloop.methods.configure import recipe_config
from labelloop.runs.arrays import row_arrays
from labelloop.runs.folder import RunFolder, write_unreadable
from labelloop.runs.labels import label_table
from labelloop.runs.run_json import RunRecord, data_record
from labelloop.runs.versions import versions
from labelloop.seeds import whole_seed
from labelloop.trained_model import TrainedModel
from labelloop.training.batches import input_shape
from labelloop.training.checkpoint import read_checkpoint
from labelloop.training.extract import extract
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, new_optimizer, resolve
from labelloop.training.targets import one_hot
from labelloop.types import MISSING, Floats, Labels, Problem, Rows, Truth


@dataclass(frozen=True)
class Result:
    """What `fit` hands back. Rows are in the order they came in.

    Attributes:
        model: The trained classifier: `predict`, `predict_proba`, `transform`, `save`.
        corrected_labels: A label for every row, in the type of the labels that came in; the verified one where there
            is one. Missing for rows that were only tested on, and without a label where the method corrects none.
        corrected_proba: The same as probabilities [n, C]; NaN where missing.
        label_score: How much the corrected probabilities believe the given label; low is bad, NaN without a label.
        predicted_proba: What the classifier says of every row [n, C].
        classes: The classes in the user's type [C].
        history: A record for every epoch.
        rounds: A record for every correction, with the combination weights.
        labels_from: The method, or "held-out networks" where enough rows have both labels and judge these no worse:
            then instant correction made the labels, from networks that had not seen the row.
        estimate: How good the corrected labels are, judged by clean rows that did not teach what they judge, with 95%
            intervals: `corrected_label_accuracy`, `good_labels_broken`, `wrong_labels_fixed`, and `notes` in words.
        stop_reason: Why the training ended: "epoch limit".
        config: The settings, with every "auto" replaced.
        output_dir: The run folder, or None.
    """

    model: TrainedModel
    corrected_labels: NDArray
    corrected_proba: Floats
    label_score: Floats
    predicted_proba: Floats
    classes: NDArray
    history: tuple[dict[str, Any], ...]
    rounds: tuple[dict[str, Any], ...]
    labels_from: str
    estimate: dict[str, Any]
    stop_reason: str
    config: TrainingConfig
    output_dir: Path | None


def fit(
    X: Any,
    y: ArrayLike,
    y_clean: ArrayLike,
    *,
    X_test: Any = None,
    y_test: ArrayLike | None = None,
    y_true: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    extra: ArrayLike | None = None,
    class_names: Sequence[Any] | None = None,
    allow_overlap: bool = False,
    config: TrainingConfig | Mapping[str, Any] | None = None,
    recipe: str = DEFAULT_RECIPE,
    method: str = "closed-loop",
    seed: int = 0,
    output_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    workers: int = 0,
    progress: bool | None = None,
) -> Result:
    """Trains a classifier on noisy labels with the help of a few clean ones, and corrects the noisy ones.

    Args:
        X: Features [n, D], images [n, H, W, C], a data frame of numbers, or a map-style dataset of inputs.
        y: The given labels [n]; blank, NaN, None or -1 where there is none.
        y_clean: The verified labels [n], missing in the same way where a row was not verified.
        X_test: Inputs to report the test accuracy on, after every epoch.
        y_test: Their true labels.
        y_true: True labels of all rows, where known. They go into the record and nowhere else.
        ids: A name for every row; without it, the row number.
        extra: Further columns [n, E] for the correction network, used if `corrector.inputs` names "extra".
        class_names: The classes in the wanted order; without it, the labels that occur, sorted.
        allow_overlap: Only warn of test rows with the same input as a clean row: coarse rows may only look alike.
        config: Settings: a configuration of the method, or a dict of what differs from the recipe.
        recipe: A name in RECIPES to start from, when `config` is not a whole configuration.
        method: A name in METHODS.
        seed: The same seed on the same machine gives the same result, bit for bit.
        output_dir: Where to record the run and keep checkpoints; None keeps everything in memory.
        resume: Continue the interrupted run in `output_dir`.
        overwrite: Replace the run in `output_dir`.
        device: "auto", "cpu", "cuda", ...
        workers: Processes that load the items of a dataset.
        progress: Whether to draw a progress bar; None draws one only in a terminal.
    """
    table = from_arrays(X, y, y_clean, ids=ids, extra=extra, class_names=class_names)
    if (X_test is None) != (y_test is None):
        raise UsageError("give both X_test and y_test, or neither")
    test = None if X_test is None else from_arrays(X_test, None, y_test, source="the test arrays")
    if not isinstance(config, TrainingConfig):
        config = recipe_config(method, recipe, config or {})
    elif not isinstance(config, kind := type(recipe_config(method))):
        raise UsageError(f"method {method!r} is configured by a {kind.__module__}.{kind.__name__}, not {type(config)}")
    return fit_table(
        table,
        test,
        config,
        method=method,
        seed=seed,
        y_true=y_true,
        allow_overlap=allow_overlap,
        folder=output_dir,
        resume=resume,
        overwrite=overwrite,
        device=device,
        workers=workers,
        progress=progress,
    )


def fit_table(
    table: Table,
    test: Table | None,
    config: TrainingConfig,
    *,
    method: str = "closed-loop",
    seed: int = 0,
    y_true: ArrayLike | None = None,
    allow_overlap: bool = False,
    folder: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    workers: int = 0,
    progress: bool | None = None,
    about: Mapping[str, Any] | None = None,
) -> Result:
    """The same for tables, as they come from files. `about` goes into run.json as it is."""
    seed = whole_seed(seed)
    if workers < 0:
        raise UsageError(f"workers must not be negative, but is {workers}")
    if METHODS[method].is_oracle:
        raise UsageError(f"method {method!r} is given the true labels, which only `labelloop bench` has; take another")
    if resume and overwrite:
        raise UsageError("resume continues the run in a folder and overwrite deletes it; give one of them")
    if folder is None and (resume or overwrite):
        raise UsageError("resume and overwrite are about the run in a folder; give output_dir too")
    check(table, test, allow_overlap=allow_overlap)
    problem, classes, train_position, clean_position = make_problem(table)
    if len(problem.clean) < 2:
        raise DataError(f"{table.source}: only one clean row; verify more, so that some can judge what others teach")
    truth = _truth(table, test, classes, train_position, y_true)
    if config.normalise == "auto" and table.column_names and not are_array_names(table.column_names):
        config = replace(config, normalise="columns")  # columns with names have units of their own
    config = resolve(config, problem)
    config.check_schedule()
    if isinstance(config, ClosedLoopConfig) and config.wants("extra") and table.extra is None:
        raise UsageError("corrector.inputs asks for 'extra', but there are no extra columns; give them or drop it")
    try:
        METHODS[method].check(problem, config)
    except DataError as error:
        raise DataError(f"{table.source}: {error}") from None
    _try_out(config, problem, seed, device)

    run = RunRecord(
        kind="fit",
        method=method,
        config=to_dict(config),
        seed=seed,
        data=_describe(table, problem, truth),
        versions=versions(),
        source=None if table.origin is None else {**table.origin, "class_names": list(problem.class_names)},
        about=dict(about or {}),
    )
    run_folder = None if folder is None else RunFolder(folder, resume=resume, overwrite=overwrite)
    if run_folder is not None:
        if resume:
            _check_same_run(run_folder.read_record(), run, run_folder.path)
            read_checkpoint(run_folder.checkpoint)  # a damaged one is refused before run.json changes
        run_folder.write_record(run)
        if table.unreadable:
            list_unreadable(run_folder.path, table)

    runtime = Runtime(seed, device, run_folder, truth, progress, workers)
    try:
        fitted = METHODS[method].fit(problem, config, runtime)
        final = None
        if isinstance(config, ClosedLoopConfig):
            beside = Runtime(seed, device, progress=progress, workers=workers)
            final = final_labels(problem, config, fitted, beside)
    except KeyboardInterrupt:
        if run_folder is not None:
            run_folder.write_record(replace(run, state="interrupted"))
        raise
    except UsageError:
        if run_folder is not None and not runtime.history:  # refused before it began: nothing worth keeping
            run_folder.clear()
        raise
    except Exception as error:
        if run_folder is not None:
            run_folder.write_record(replace(run, state="failed", stop_reason=str(error)))
        raise

    given, verified = encoded(table, classes)
    usable = np.flatnonzero(table.usable)
    everything = Rows(table.inputs, usable, given[usable], verified[usable])
    predicted = np.full((len(table), len(classes)), np.nan, np.float32)
    extracted = extract(fitted.model, everything, runtime)
    predicted[usable] = softmax(extracted.logits, axis=1)  # [n, C]
    best = np.where(table.usable, np.nan_to_num(predicted).argmax(axis=1), MISSING)
    if final is None:
        found = judge_baseline(method, problem, predicted[clean_position])
        final = FinalLabels(fitted.targets, method, found)
    targets = np.full((len(table), len(classes)), np.nan, np.float32)
    labelled = final.train.sum(axis=1, keepdims=True) > 0.5  # a baseline leaves unlabelled rows without one
    targets[train_position] = np.where(labelled, final.train, np.nan)
    targets[clean_position] = one_hot(problem.clean.clean_labels, len(classes))
    labels = label_table(table.ids, classes.tolist(), given, verified, targets, best)
    architecture = {
        "network": config.network,
        "network_options": config.network_options,
        "input_shape": list(input_shape(problem.train)),
    }
    result = Result(
        model=TrainedModel(
            fitted.model.eval(),
            classes,
            architecture,
            table.column_names,
            table.encoding,
            table.image_form,
            table.text_form,
        ),
        corrected_labels=_in_their_type(targets, classes, table),
        corrected_proba=targets,
        label_score=labels["label_score"].to_numpy(zero_copy_only=False),
        predicted_proba=predicted,
        classes=classes,
        history=tuple(runtime.history),
        rounds=fitted.rounds,
        labels_from=final.labels_from,
        estimate=final.estimate,
        stop_reason=fitted.stop_reason,
        config=config,
        output_dir=None if run_folder is None else run_folder.path,
    )
    if run_folder is not None:
        result.model.save(run_folder.path)
        run_folder.write_targets(targets)
        run_folder.write_labels(labels)
        teaching = np.full(len(table), MISSING)  # not those of test rows
        teaching[clean_position] = problem.clean.clean_labels
        said = {name: _in_all_rows(values, usable, len(table)) for name, values in vars(extracted).items()}
        if final.train_scores is not None and final.clean_scores is not None:
            scores = np.concatenate([final.train_scores, final.clean_scores])
            said["scores"] = _in_all_rows(scores, np.concatenate([train_position, clean_position]), len(table))
        stored = row_arrays(given, teaching, **said, extra=table.extra)
        if isinstance(config, ClosedLoopConfig) and stored is not None:
            run_folder.write_row_arrays(stored)
        run_folder.write_record(
            replace(
                run,
                state="finished",
                stop_reason=fitted.stop_reason,
                rounds=fitted.rounds,
                labels_from=result.labels_from,
                estimate=result.estimate,
            )
        )
    return result


def list_unreadable(folder: Path, table: Table) -> Path:
    """Writes unreadable.csv: the images that could not be used, with their ids and why."""
    rows = [(str(table.ids[bad.row]), bad.path, bad.reason) for bad in table.unreadable]
    found = pa.table(dict(zip(("id", "path", "reason"), map(list, zip(*rows, strict=True)), strict=True)))
    return write_unreadable(folder, found)


def _truth(
    table: Table, test: Table | None, classes: NDArray, train_position: Labels, y_true: ArrayLike | None
) -> Truth:
    train_labels = None
    if y_true is not None:
        encoded_truth = encode(y_true, classes, "y_true")
        if len(encoded_truth) != len(table):
            raise DataError(f"{len(table)} rows, but {len(encoded_truth)} labels in y_true; give one for every row")
        train_labels = encoded_truth[train_position]
    if test is None:
        rows = held_out_rows(table, classes)
    else:
        labels, clean_labels = encoded(test, classes)
        rows = Rows(
            test.inputs, np.arange(len(test)), labels, clean_labels if test.clean_labels is not None else labels
        )
    if rows is not None:
        known = rows.clean_labels != MISSING
        if test is not None:
            known &= test.usable
        if not known.any():
            raise DataError("no test row has a label; give their true labels, or leave the test rows out")
        rows = Rows(rows.inputs, rows.index[known], rows.labels[known], rows.clean_labels[known])
    return Truth(train_labels, rows)


def _try_out(config: TrainingConfig, problem: Problem, seed: int, device: str) -> None:
    """Makes everything once before a folder is touched: a wrong setting must not leave a stub or cost an old run."""
    model = new_classifier(config, problem, seed)
    try:
        model = Runtime(seed, device).prepare(model)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {device!r} cannot be used here ({str(error).splitlines()[0]}); try 'cpu'") from None
    try:
        new_optimizer(model, config)
    except ValueError as error:
        raise UsageError(f"the optimiser refuses its settings: {error}") from None


def _describe(table: Table, problem: Problem, truth: Truth) -> dict[str, Any]:
    """What the rows were, so that a run is never resumed on others."""
    parts = [part for rows in (problem.train, problem.clean) for part in (rows.index, rows.labels, rows.clean_labels)]
    test = None
    if truth.test is not None:
        shown = _sha256(truth.test.inputs, truth.test.index, truth.test.clean_labels)
        test = {"rows": len(truth.test), "sha256": shown}
    position = np.concatenate([problem.train.index, problem.clean.index])
    used = np.isin(np.arange(len(table)), position)
    given, clean = np.full((2, len(table)), MISSING)
    given[position] = np.concatenate([problem.train.labels, problem.clean.labels])
    clean[position] = np.concatenate([problem.train.clean_labels, problem.clean.clean_labels])
    checksum = _sha256(table.inputs, *parts, table.extra)
    return data_record(table.source, problem.class_names, given, clean, used, checksum, test)


def _sha256(*parts: Any) -> str:
    """Of the arrays among the parts; a dataset is not read through."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _check_same_run(stored: RunRecord, run: RunRecord, folder: Path) -> None:
    """Refuses to resume with other settings or other rows, and says which."""
    advice = "resume with what the run was started with, or start a new one in another folder"
    for key in ("method", "seed"):
        before, now = getattr(stored, key), getattr(run, key)
        if before != now:
            raise DataError(f"{folder} was started with {key} {before!r}, not {now!r}; {advice}")
    settings, new = _flat(stored.config), _flat(run.config)
    for key in (*new, *(settings.keys() - new.keys())):
        if settings.get(key) != new.get(key):
            raise DataError(f"{folder} was started with {key} = {settings.get(key)!r}, not {new.get(key)!r}; {advice}")
    if stored.data["classes"] != run.data["classes"]:
        raise DataError(
            f"{folder} was started with the classes {', '.join(stored.data['classes'])}, not "
            f"{', '.join(run.data['classes'])}; {advice}"
        )
    if stored.data["sha256"] != run.data["sha256"]:
        raise DataError(
            f"{folder} was started with other rows ({stored.data['rows']} rows of {stored.data['source']}) than "
            f"these ({run.data['rows']} rows of {run.data['source']}); {advice}"
        )
    if stored.data["test"] != run.data["test"]:
        raise DataError(f"{folder} was started with other test rows, or without any; {advice}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as one: corrector.hidden."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _in_all_rows(values: Floats, rows: Labels, count: int) -> Floats:
    """Values of some rows at their place among all, zeros elsewhere; the same array where it has all rows."""
    if np.array_equal(rows, np.arange(count)):
        return values
    everywhere = np.zeros((count, *values.shape[1:]), values.dtype)
    everywhere[rows] = values
    return everywhere


def _in_their_type(targets: Floats, classes: NDArray, table: Table) -> NDArray:
    tested_only = np.isnan(targets).any(axis=1)
    labels = np.where(tested_only, MISSING, np.nan_to_num(targets).argmax(axis=1))
    like = table.labels if table.labels is not None else table.clean_labels
    assert like is not None
    return decode(labels, classes, like.dtype)

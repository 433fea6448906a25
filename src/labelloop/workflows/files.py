"""`fit` and `predict` on files: read, run, and say in a few lines what came out."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labelloop.config.build import parse_overrides, read_toml
from labelloop.config.recipes import DEFAULT_RECIPE
from labelloop.correction.estimate import estimate_lines
from labelloop.data.classes import typed
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.readers.hub import has_test_split, is_hub_dataset
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError, some
from labelloop.methods.configure import recipe_config
from labelloop.runs.files import write_atomically
from labelloop.runs.folder import UNREADABLE, holds_run
from labelloop.trained_model import TrainedModel, load_model
from labelloop.workflows.fit import Result, fit_table, list_unreadable
from labelloop.workflows.noise import with_noisy_labels

MAX_UNREADABLE = 0.01  # of the rows


def fit_file(
    path: Path,
    *,
    output_dir: Path,
    columns: ReadOptions,
    noisy_labels: Path | None = None,
    test: Path | None = None,
    config_file: Path | None = None,
    overrides: Sequence[str] = (),
    recipe: str = DEFAULT_RECIPE,
    method: str = "closed-loop",
    seed: int = 0,
    device: str = "auto",
    allow_overlap: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    max_unreadable: float = MAX_UNREADABLE,
    workers: int = 0,
) -> str:
    """Trains on a file, writes the run folder, and returns a summary for people."""
    if path.is_dir() and output_dir.resolve().is_relative_to(path.resolve()):
        raise UsageError(
            f"{output_dir} is inside the data {path}, of which it would become a part; give another folder"
        )
    layers = [read_toml(config_file)] if config_file else []
    config = recipe_config(method, recipe, *layers, parse_overrides(overrides))
    columns = replace(columns, progress=progress)
    table, true_labels = read_table(path, columns), None
    _check_unreadable(table, max_unreadable, output_dir)
    if noisy_labels is not None:
        table, true_labels = with_noisy_labels(table, noisy_labels)
    test_table = None
    own_test = test is None and is_hub_dataset(path) and has_test_split(path)
    if test is not None or own_test:
        test_columns = _like(table, columns)
        test_table = read_table(
            path if test is None else test, replace(test_columns, hub_split="test", labels_required=not own_test)
        )
        _check_unreadable(test_table, max_unreadable, output_dir)
        if own_test:
            test_table = _with_labels(test_table)
    result = fit_table(
        table,
        test_table,
        config,
        method=method,
        seed=seed,
        y_true=true_labels,
        allow_overlap=allow_overlap,
        folder=output_dir,
        resume=resume,
        overwrite=overwrite,
        device=device,
        progress=progress,
        workers=workers,
    )
    return summary(table, result)


def _like(table: Table, options: ReadOptions) -> ReadOptions:
    """How to read the test rows of a table: the same features, made in the same way."""
    options = replace(
        options, labels_path=None, clean_file=None, extra_columns=(), clean_folder=None, image_form=table.image_form
    )
    if table.encoding:
        return replace(options, feature_columns=None, encoding=table.encoding)
    if options.feature_columns is None and table.text_form is None:
        return replace(options, feature_columns=table.column_names or None)
    return options


def _with_labels(test: Table) -> Table | None:
    """The test split of a data set: its labels are true where nobody verified any; None where it has none at all."""
    known = [values is not None and not typed(values)[1].all() for values in (test.labels, test.clean_labels)]
    if not any(known):
        warnings.warn(f"{test.source}: no row of the split 'test' has a label, so it is not used", stacklevel=2)
        return None
    return test if known[1] else replace(test, clean_labels=None)


def _check_unreadable(table: Table, most: float, output_dir: Path) -> None:
    """Warns of images that cannot be read, and stops where they are more than a share of the rows."""
    count = len(table.unreadable)
    if not count:
        return
    where = output_dir / UNREADABLE
    message = f"{table.source}: {count} of {len(table)} images cannot be read ({100 * count / len(table):.1f}%)"
    if count <= most * len(table):
        warnings.warn(f"{message}; they are left out and listed in {where}", stacklevel=2)
        return
    examples = some(f"{bad.path} ({bad.reason})" for bad in table.unreadable)
    listed = f"such as {examples}"
    if not holds_run(output_dir) and not output_dir.is_file():  # what is there is not replaced
        output_dir.mkdir(parents=True, exist_ok=True)
        listed = f"all are listed in {list_unreadable(output_dir, table)}"
    raise DataError(
        f"{message}, more than the {100 * most:g}% allowed; {listed}; replace them, or raise max_unreadable"
    )


def summary(table: Table, result: Result) -> str:
    """What came out, in a few lines."""
    changed = int(np.nansum(result.label_score < np.nanmax(result.corrected_proba, axis=1, initial=0)))
    lines = [f"{len(table)} rows, {len(result.classes)} classes, {len(result.rounds)} corrections"]
    if result.rounds:
        lines.append(f"{changed} given labels differ from the corrected ones")
    last = result.history[-1]
    if "test_accuracy" in last:
        lines.append(f"test accuracy after the last epoch: {100 * last['test_accuracy']:.1f}%")
    lines += estimate_lines(result.estimate)
    lines.append(f"stopped by: {result.stop_reason}")
    lines.append(f"everything is in {result.output_dir} (the corrected labels: labels.parquet)")
    return "\n".join(lines)


def predict_file(
    run: Path, path: Path, *, output: Path | None, overwrite: bool = False, columns: ReadOptions, workers: int = 0
) -> str:
    """Classifies a file with the model of a run; returns CSV text, or where the result was written."""
    if output is not None:
        if output.suffix not in (".csv", ".parquet"):
            raise UsageError(
                f"{output}: cannot write {output.suffix or 'a name without an ending'!r}; .csv or .parquet"
            )
        if output.exists() and not overwrite:
            raise DataError(f"{output} exists; give another name, or --overwrite")
    model = load_model(run)
    if model.text_form is not None:
        columns = replace(
            columns,
            text_column=columns.text_column or model.text_form.column,
            embedder=columns.embedder or model.text_form.embedder,
        )
    elif columns.feature_columns is None and columns.embedding_column is None and model.column_names:
        columns = replace(columns, **_columns_of(model))
    table = read_table(path, replace(columns, image_form=model.image_form, labels_required=False))
    usable = table.usable
    if table.unreadable:
        examples = some(f"{bad.path} ({bad.reason})" for bad in table.unreadable)
        warnings.warn(f"{path}: {len(table.unreadable)} images get no prediction: {examples}", stacklevel=2)
    known = model.predict_proba(table, workers)
    probabilities = np.full((len(table), known.shape[1]), np.nan, known.dtype)
    probabilities[usable] = known
    best = np.nan_to_num(probabilities).argmax(axis=1)
    found = pa.table(
        {
            "id": pa.array(table.ids.tolist(), pa.string()),
            "predicted_label": pa.array(model.classes[best].tolist(), mask=~usable),
            "confidence": pa.array(probabilities.max(axis=1), mask=~usable),
            **{
                f"p_{name}": pa.array(probabilities[:, k], mask=~usable)
                for k, name in enumerate(model.classes.tolist())
            },
        }
    )
    if output is None:
        text = io.BytesIO()
        pa.csv.write_csv(found, text)
        return text.getvalue().decode()
    write = pq.write_table if output.suffix == ".parquet" else pa.csv.write_csv
    write_atomically(output, lambda place: write(found, place))
    return f"{len(found)} rows written to {output}\n"


def _columns_of(model: TrainedModel) -> dict[str, Any]:
    """The columns of a file that hold a model's features. An embedding beside others has the names e[0], e[1], ..."""
    if not model.encoding:
        return {"feature_columns": model.column_names}
    width = len(model.column_names) - sum(len(column.encoded_names) for column in model.encoding)
    embedding = model.column_names[0].removesuffix("[0]") if width else None
    return {"embedding_column": embedding, "encoding": model.encoding}

"""`fit` and `predict` on files: read, run, and say in a few lines what came out."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labelloop.data.read import read_table
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError
from labelloop.experiments.configuration import parse_overrides, read_toml
from labelloop.experiments.fit import Result, fit_table
from labelloop.experiments.noise_file import with_noisy_labels
from labelloop.experiments.recipes import DEFAULT_RECIPE, recipe_config
from labelloop.experiments.trained_model import TrainedModel, load_model
from labelloop.results.estimate import estimate_lines
from labelloop.results.run_folder import write_atomically


def fit_file(
    path: Path,
    *,
    output_dir: Path,
    columns: Mapping[str, Any],
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
) -> str:
    """Trains on a file, writes the run folder, and returns a summary for people."""
    layers = [read_toml(config_file)] if config_file else []
    config = recipe_config(method, recipe, *layers, parse_overrides(overrides))
    table, true_labels = read_table(path, **columns), None
    if noisy_labels is not None:
        table, true_labels = with_noisy_labels(table, noisy_labels)
    test_table = None
    if test is not None:
        unneeded = ("labels_path", "clean_labels_path", "extra_columns")
        test_columns = {k: v for k, v in columns.items() if k not in unneeded}
        if table.encoding:
            test_columns |= {"feature_columns": None, "encoding": table.encoding}
        elif columns.get("feature_columns") is None:
            test_columns["feature_columns"] = table.column_names or None
        test_table = read_table(test, **test_columns)
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
    )
    return summary(table, result)


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
    run: Path, path: Path, *, output: Path | None, overwrite: bool = False, columns: Mapping[str, Any]
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
    columns = dict(columns)
    if columns.get("feature_columns") is None and columns.get("embedding_column") is None and model.column_names:
        columns |= _columns_of(model)
    table = read_table(path, **columns, labels_required=False)
    probabilities = model.predict_proba(table)
    best = probabilities.argmax(axis=1)
    found = pa.table(
        {
            "id": pa.array(table.ids.tolist(), pa.string()),
            "predicted_label": pa.array(model.classes[best].tolist()),
            "confidence": probabilities.max(axis=1),
            **{f"p_{name}": probabilities[:, k] for k, name in enumerate(model.classes.tolist())},
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

"""`predict` on a file: classified with the model of a run."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labelloop.data.readers import ReadOptions
from labelloop.errors import check_output, some
from labelloop.progress import clock
from labelloop.runs.files import write_atomically
from labelloop.trained_model import TrainedModel, load_model
from labelloop.workflows.encode import read_inputs


def predict_file(
    run: Path,
    path: Path,
    *,
    output: Path | None,
    overwrite: bool = False,
    columns: ReadOptions,
    workers: int = 0,
    trust_code: bool = False,
) -> str:
    """Classifies a file with the model of a run; returns CSV text, or where the result was written."""
    if output is not None:
        check_output(output, ".csv", ".parquet", overwrite=overwrite, inputs=[path])
    model = load_model(run, trust_code=trust_code, encoder=columns.encoder)
    form = model.encoder_form
    if form is None and columns.feature_columns is None and columns.embedding_column is None and model.column_names:
        columns = replace(columns, **_columns_of(model))
    if form is not None:
        columns = replace(columns, encoding=model.encoding)
    columns = replace(columns, image_form=model.image_form, labels_required=False)
    table = read_inputs(path, columns, form, shape=model.architecture["input_shape"], place=model.encoder_place)
    usable = table.usable
    if table.schema_summary is not None and (ignored := [out.column for out in table.schema_summary.left_out]):
        warnings.warn(f"{path}: columns that the model does not use: {some(map(repr, ignored))}", stacklevel=2)
    if table.unreadable:
        examples = some(f"{bad.path} ({bad.reason})" for bad in table.unreadable)
        warnings.warn(f"{path}: {len(table.unreadable)} images get no prediction: {examples}", stacklevel=2)
    with clock("predicting"):
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
    """The columns of a file that hold a model's features. An embedding among other columns is named e[0], e[1], ..."""
    if not model.encoding:
        return {"feature_columns": model.column_names}
    width = len(model.column_names) - sum(len(column.encoded_names) for column in model.encoding)
    embedding = model.column_names[0].removesuffix("[0]") if width else None
    return {"embedding_column": embedding, "encoding": model.encoding}

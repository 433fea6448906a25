"""Two small tables of a run: its label issues under cleanlab's names, and its noise matrix in either orientation."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.runs.noise_matrix import label_counts
from labelloop.runs.noise_matrix import noise_matrix as shares_of
from labelloop.runs.read import Run

ORIENTATIONS = ("true-noisy", "cleanlab")
CORNER = {"true-noisy": "true \\ given", "cleanlab": "given \\ true"}  # says in the file what its rows and columns are


def write_issues(run: Run, path: Path, suffix: str) -> None:
    """One row per input row: index, is_label_issue, label_score (low is bad), given_label, predicted_label."""
    names = ("is_label_issue", "label_score", "given_label", "predicted_label")
    table = pa.table({"index": np.arange(len(run.labels)), **{name: run.labels[name] for name in names}})
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(quoting_style="needed"))


def noise_matrix(run: Run) -> NDArray[np.float64]:
    """The noise matrix: the share of each given label among the rows of each true class, T[true, given].

    Rows sum to 1. The true class comes from the corrected probabilities, so the matrix is only as good as they are.
    Rows without a given label and test rows do not count. A class without rows has a row of NaN.
    """
    place = {label: k for k, label in enumerate(run.classes)}
    given = np.array([place.get(label, -1) for label in run.labels["given_label"].to_pylist()])
    return shares_of(label_counts(given, run.targets, len(place)))


def write_noise_matrix(run: Run, orientation: str, output: Path) -> None:
    """Writes it as CSV. "true-noisy" has a row for each true class; "cleanlab" is its transpose, columns sum to 1."""
    matrix = noise_matrix(run) if orientation == "true-noisy" else noise_matrix(run).T
    names = [str(label) for label in run.classes]
    with output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([CORNER[orientation], *names])
        for name, row in zip(names, matrix, strict=True):
            writer.writerow([name, *("" if np.isnan(value) else repr(float(value)) for value in row)])

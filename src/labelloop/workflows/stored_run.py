"""A finished run whose labels can be corrected again, without training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.config.build import build_config
from labelloop.errors import DataError, UsageError
from labelloop.relabel import Corrected, correct_scores
from labelloop.relabel.calibration import Inputs
from labelloop.relabel.estimate import Correct
from labelloop.runs.read import Run, read_run
from labelloop.runs.result_files import RowArrays
from labelloop.types import Extracted, Floats, Labels


@dataclass(frozen=True)
class StoredRun:
    """A finished run of `fit` or `correct`, and what its correction saw.

    Attributes:
        run: The run.
        arrays: What is known about every row.
        on: `on(rows)` returns a function that corrects those rows from clean labels, in the form `cross_fitted` takes.
    """

    run: Run
    arrays: RowArrays
    on: Callable[[Labels], Correct]

    @property
    def given(self) -> Labels:
        """Given labels [n], -1 where missing."""
        return self.arrays.given

    @property
    def clean(self) -> Labels:
        """Clean labels [n], -1 where missing; test rows included."""
        return self.arrays.clean

    @property
    def validation(self) -> NDArray[np.bool_]:
        """Which clean rows may judge: those that were not picked because they were uncertain [n]."""
        return self.arrays.validation

    @property
    def targets(self) -> Floats:
        """Its corrected soft labels [n, C]; NaN where a row has none."""
        return self.run.targets

    @property
    def seed(self) -> int:
        """The seed of its random streams."""
        return self.run.record.seed

    @property
    def relabels(self) -> bool:
        """Whether relabelling made its labels: in `correct`, or in a `fit` that returned held-out labels."""
        return "scores" in self.arrays.inputs

    def corrected(self, rows: Labels, clean: Labels) -> Corrected:
        """Relabels some rows from the arrays that the run stored.

        The arrays hold "scores", and "inputs" (or "table_inputs" for columns of a table) where they were stored.

        Args:
            rows: Which rows.
            clean: Clean labels of these rows [m], -1 where missing.
        """
        known = self.arrays.inputs
        stored = known.get("table_inputs", known.get("inputs"))
        inputs = None if stored is None else Inputs(stored[rows], "table_inputs" in known)
        scores = known["scores"][rows].astype(np.float64)
        return correct_scores(scores, self.given[rows], clean, self.targets.shape[1], self.seed, inputs=inputs)

    def with_clean(self, clean: Labels) -> StoredRun:
        """The same run with other clean labels."""
        return replace(self, arrays=replace(self.arrays, clean=clean))


def read_stored_run(folder: Path) -> StoredRun:
    """Reads the folder of a finished run that corrected labels."""
    run = read_run(folder)
    arrays = run.row_arrays()
    if "scores" in arrays.inputs:
        stored = StoredRun(run, arrays, lambda rows: lambda clean: stored.corrected(rows, clean).targets)
        return stored
    if run.record.method != "closed-loop":
        raise UsageError(
            f"{folder} is a run of {run.record.method!r}, which has no correction to refit; use one of labelloop,"
            " closed-loop or `labelloop correct`"
        )
    return StoredRun(run, arrays, _of_the_paper(run, arrays))


def _of_the_paper(run: Run, arrays: RowArrays) -> Callable[[Labels], Correct]:
    """Corrects rows with a new correction network, as the paper's loop does. Only this needs torch."""
    from labelloop.methods.closed_loop import Config
    from labelloop.methods.closed_loop.one_correction import NetworkOutputs, single_round

    config, stored = build_config(Config, run.record.config), arrays.inputs
    lacking = [name for name in ("features", "logits", "noisy_posterior") if name not in stored]
    if lacking:
        raise DataError(f"{run.path} stores no {lacking[0]} of its rows; run it again in another folder")
    outputs = Extracted(*(stored[name].astype(np.float32) for name in ("features", "logits", "noisy_posterior")))
    extra = stored["extra"].astype(np.float32) if "extra" in stored else None
    every = NetworkOutputs(arrays.given, outputs, extra)
    return lambda rows: partial(single_round, every.rows(rows), config=config, seed=run.record.seed)

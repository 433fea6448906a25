"""The review of a run: its rows in the order of the plan, next to clean rows, and a refit with the decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, UsageError
from labelloop.report.review.looks import Learners, Neighbours
from labelloop.report.review.server import ReviewServer
from labelloop.report.review.session import Session
from labelloop.runs.folder import is_left_of
from labelloop.runs.lock import in_use
from labelloop.runs.survey import survey
from labelloop.types import MISSING
from labelloop.workflows.plan import rows_to_verify
from labelloop.workflows.refit import StoredRun, read_stored_run, refit_run

COLUMN_LEARNERS = ("discriminant", "forest", "boosted trees")  # in the order of their scores


def open_review(folder: Path, port: int = 0, reviewer: str = "") -> ReviewServer:
    """A server for the review of a run, on this machine only. `serve_forever` starts it.

    Args:
        folder: A finished run. A run without stored features can be reviewed, but not refitted.
        port: 0 takes a free one.
        reviewer: The initial name on the page.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"a port is a number from 0 to 65535, not {port}")
    run = survey(folder)
    if run.record.get("state") != "finished" or run.labels is None:
        raise DataError(f"{folder} has no finished labels to review: {'; '.join(run.missing)}")
    try:
        stored: StoredRun | None = read_stored_run(folder)
    except (DataError, UsageError):
        stored = None
    neighbours, learners = None, None
    if stored is not None:
        learners = learners_of(stored)
        order = rows_to_verify(stored, len(stored.clean))
        kept = stored.inputs
        seen = next((kept[name] for name in ("features", "inputs", "table_inputs", "scores") if name in kept), None)
        if seen is not None and (stored.clean != MISSING).any():
            neighbours = Neighbours(_comparable(seen) if "table_inputs" in kept else seen, stored.clean)
    else:
        confidence = run.numbers("corrected_confidence")
        open_rows = np.flatnonzero(~run.flags("verified") & ~np.isnan(confidence))
        order = open_rows[np.argsort(confidence[open_rows], kind="stable")]
    session = Session(run, order, neighbours, learners=learners)

    def refit() -> tuple[str, Path]:
        target = next_folder(folder)
        return refit_run(folder, None, target), target

    return ReviewServer(session, None if stored is None else refit, port, reviewer)


def learners_of(stored: StoredRun) -> Learners | None:
    """The learners whose scores the run keeps."""
    scores, classes = stored.inputs.get("scores"), stored.targets.shape[1]
    if scores is None or scores.ndim != 2 or not scores.shape[1] or scores.shape[1] % classes:
        return None
    count = scores.shape[1] // classes
    columns = list(COLUMN_LEARNERS) if "table_inputs" in stored.inputs else list(COLUMN_LEARNERS[:1])
    first = "your probabilities" if stored.run.record.method == "correct" else "network"
    names = [first, *columns] if count == len(columns) + 1 or stored.run.record.method != "correct" else columns
    return Learners(names[:count] if len(names) >= count else [f"learner {k + 1}" for k in range(count)], scores)


def _comparable(columns: NDArray) -> NDArray[np.float32]:
    """Columns of a table on one scale, so that a large number does not outweigh all others; blanks become the mean."""
    wide = np.asarray(columns, np.float32)
    mean, spread = np.nanmean(wide, axis=0), np.nanstd(wide, axis=0)
    return np.nan_to_num((wide - mean) / np.where(spread > 0, spread, 1))


def next_folder(folder: Path) -> Path:
    """A folder for a refit that does not exist yet, or that a killed refit left: RUN-refit, RUN-refit-2, ..."""
    folder = folder.resolve()
    places = (folder.with_name(f"{folder.name}-refit{f'-{k}' if k > 1 else ''}") for k in range(1, 10_000))
    return next(place for place in places if not place.exists() or (is_left_of(place, "refit") and not in_use(place)))

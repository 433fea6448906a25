"""The review of a run: its rows in the order of the plan, next to clean rows, and a refit with the decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labelloop.errors import DataError, UsageError
from labelloop.report.review.server import ReviewServer
from labelloop.report.review.session import Neighbours, Session
from labelloop.runs.folder import is_left_of
from labelloop.runs.lock import in_use
from labelloop.runs.survey import survey
from labelloop.types import MISSING
from labelloop.workflows.plan import rows_to_verify
from labelloop.workflows.refit import StoredRun, read_stored_run, refit_run


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
    if run.record.get("state") != "finished":
        raise DataError(f"the run in {folder} is not finished, so there is nothing to review: {'; '.join(run.missing)}")
    try:
        stored: StoredRun | None = read_stored_run(folder)
    except (DataError, UsageError):
        stored = None
    neighbours = None
    if stored is not None:
        order = rows_to_verify(stored, len(stored.clean))
        seen = stored.arrays.inputs.get("features", stored.arrays.inputs.get("scores"))
        if seen is not None and (stored.clean != MISSING).any():
            neighbours = Neighbours(seen, stored.clean)
    else:
        confidence = run.numbers("corrected_confidence")
        open_rows = np.flatnonzero(~run.flags("verified") & ~np.isnan(confidence))
        order = open_rows[np.argsort(confidence[open_rows], kind="stable")]
    session = Session(run, order.tolist(), neighbours)

    def refit() -> tuple[str, Path]:
        target = next_folder(folder)
        return refit_run(folder, None, target), target

    return ReviewServer(session, None if stored is None else refit, port, reviewer)


def next_folder(folder: Path) -> Path:
    """A folder for a refit that does not exist yet, or that a killed refit left: RUN-refit, RUN-refit-2, ..."""
    folder = folder.resolve()
    places = (folder.with_name(f"{folder.name}-refit{f'-{k}' if k > 1 else ''}") for k in range(1, 10_000))
    return next(place for place in places if not place.exists() or (is_left_of(place, "refit") and not in_use(place)))

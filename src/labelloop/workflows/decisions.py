"""The decisions of a run's reviewers, as clean labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.errors import DataError
from labelloop.runs.reviews import reviewed_labels
from labelloop.types import MISSING, Labels


def decided_labels(folder: Path, classes: Sequence[Any], rows: int) -> Labels:
    """The labels on which the reviewers of a run agreed, as numbers [n], -1 elsewhere.

    Args:
        folder: The run folder.
        classes: Its classes.
        rows: How many rows it has.

    Raises:
        DataError: There are no decisions.
    """
    decided = reviewed_labels(folder)
    if not decided:
        raise DataError(
            f"there are no review decisions in {folder}: run `labelloop review {folder}`, or give a clean file"
        )
    place = {str(name): k for k, name in enumerate(classes)}
    labels = np.full(rows, MISSING)
    for row, name in decided.items():
        labels[row] = place[name]
    return labels

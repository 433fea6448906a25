"""Estimates how good the labels are while decisions come in: decided rows are right, and recalibrate the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.report.shares import is_share

STRONG = 10.0  # expected errors assumed before the first decision
MOST = 4.0  # the doubts of the remaining rows are scaled by at most this, and at least its inverse


class LiveEstimate:
    """The share of labels that are right, over all rows that have one.

    Before the first decision it is the estimate of the run, from held-out clean rows. Every row has a doubt: 1 − its
    confidence, scaled so that all doubts add up to the errors of that estimate. A decided row has none. If decided rows
    were wrong more or less often than their doubts predicted, the doubts of the other rows are scaled accordingly.

    Args:
        confidence: The confidence of every row's label [n], NaN where it has none.
        settled: The rows that were clean before [n].
        estimate: The estimate of the run, or empty.
    """

    def __init__(
        self, confidence: NDArray[np.float64], settled: NDArray[np.bool_], estimate: Mapping[str, Any]
    ) -> None:
        self._open = ~np.isnan(confidence) & ~settled
        self._rows, self._open_rows = int((~np.isnan(confidence)).sum()), int(self._open.sum())
        doubt = np.where(self._open, 1 - np.nan_to_num(confidence), 0.0)
        found = estimate.get("corrected_label_accuracy")
        self._share = dict(found) if is_share(found) else None
        said = float(doubt.sum())
        errors = self._open_rows * (1 - self._share["value"]) if self._share else said
        self._doubt = np.minimum(doubt * (errors / said if said > 0 else 0.0), 1.0)
        self._all = float(self._doubt.sum())
        self._decided, self._foreseen, self._wrong = 0, 0.0, 0

    def decide(self, row: int, right: bool, sign: int = 1) -> None:
        """Records whether the proposed label of a decided row was right; −1 withdraws the decision."""
        if self._open[row]:
            self._decided += sign
            self._foreseen += sign * float(self._doubt[row])
            self._wrong += sign * (not right)

    def now(self) -> dict[str, Any] | None:
        """The estimate after the decisions so far.

        Returns:
            "value", "low", "high" and "decided"; low and high are None where the run has no estimate. None without
            rows.
        """
        if not self._rows:
            return None
        factor = float(np.clip((self._wrong + STRONG) / (self._foreseen + STRONG), 1 / MOST, MOST))
        left = max(self._all - self._foreseen, 0.0)
        low = high = None
        if self._share is not None:
            waiting = 1 - self._decided / max(self._open_rows, 1)
            part = factor * left / self._all if self._all > 0 else waiting
            part *= self._open_rows / self._rows
            low, high = (float(np.clip(1 - part * (1 - self._share[key]), 0, 1)) for key in ("low", "high"))
        value = float(np.clip(1 - factor * left / self._rows, 0, 1))
        return {"value": value, "low": low, "high": high, "decided": self._decided}

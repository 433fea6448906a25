"""Candidates that learn from the clean rows only: logistic regression on the inputs, and for tables a forest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labelloop.methods.closed_loop.instant.evidence import Evidence
from labelloop.methods.closed_loop.learners import clean_rows
from labelloop.types import Floats, Labels


@dataclass(frozen=True)
class CleanOnly:
    """A classifier of the inputs, fitted to clean rows only."""

    says: Callable[[Floats], Floats]

    def about(self, evidence: Evidence, rows: Labels, *, use_given: bool) -> Floats:
        """Probabilities [len(rows), C]."""
        assert evidence.inputs is not None
        return self.says(evidence.inputs[rows])


def clean_logistic(evidence: Evidence, rows: Labels, strength: float) -> CleanOnly:
    """Fits a logistic regression to the clean rows."""
    assert evidence.inputs is not None
    inputs, labels = evidence.inputs[rows], evidence.clean[rows]
    return CleanOnly(clean_rows.clean_logistic(inputs, labels, evidence.num_classes, strength, evidence.scale))


def clean_forest(evidence: Evidence, rows: Labels) -> CleanOnly:
    """Fits a forest to the clean rows."""
    assert evidence.inputs is not None
    inputs, labels = evidence.inputs[rows], evidence.clean[rows]
    return CleanOnly(clean_rows.clean_forest(inputs, labels, evidence.num_classes, evidence.seed))

"""Instant correction: the closed loop's correction and combination on their own, for existing scores."""

from __future__ import annotations

from labelloop.methods.closed_loop.instant.correction import Corrected, correct_scores
from labelloop.methods.closed_loop.instant.sources import correct_labels
from labelloop.methods.closed_loop.learners.columns import suit_trees

__all__ = ["Corrected", "correct_labels", "correct_scores", "suit_trees"]

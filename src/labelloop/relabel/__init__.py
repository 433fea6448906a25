"""Relabelling: predictions, given labels and clean rows become corrected labels with honest probabilities.

numpy and scikit-learn only: nothing here knows a network or a file.
"""

from __future__ import annotations

from labelloop.relabel.learners import suit_trees
from labelloop.relabel.relabel import Corrected, correct_labels, correct_scores

__all__ = ["Corrected", "correct_labels", "correct_scores", "suit_trees"]

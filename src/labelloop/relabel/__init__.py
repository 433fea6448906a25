"""Relabelling: predictions, given labels and clean rows become corrected labels with honest probabilities.

It uses only numpy and scikit-learn, and no networks or files.
"""

from __future__ import annotations

from labelloop.relabel.learners import suit_trees
from labelloop.relabel.relabel import Corrected, correct_labels, correct_scores

__all__ = ["Corrected", "correct_labels", "correct_scores", "suit_trees"]

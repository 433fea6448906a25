"""The guard where a lead is exactly its margin, in numbers that floats hold exactly."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.relabel.guard import Guard


@pytest.mark.parametrize(("margin", "changes"), [(0.25, True), (0.5, False), (0.75, False)])
def test_a_lead_must_be_above_the_margin(margin, changes):
    said, given = np.array([[0.75, 0.25]], dtype=np.float32), np.array([1])  # the lead is 0.5
    guard = Guard(np.array([2000, 2000]), margin=margin)
    assert guard.moves(said, given).tolist() == [True]
    assert guard.changes(said, given).tolist() == [changes]


@pytest.mark.parametrize(("worth", "changes"), [(2.0, True), (3.0, False), (4.0, False)])
def test_a_label_of_a_rare_class_is_kept_in_a_tie(worth, changes):
    said, given = np.array([[0.75, 0.25]], dtype=np.float32), np.array([1])  # 0.75 against 0.25 times its worth
    guard = Guard(np.array([2000, 2000]), margin=0.25, worth=np.array([1.0, worth]))
    assert guard.changes(said, given).tolist() == [changes]

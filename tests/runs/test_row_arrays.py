"""runs/result_files.py: half precision only where no number would become infinite."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.runs.result_files import row_arrays

LABELS = np.array([0, 1])
LARGEST = 65504.0  # the largest number of half precision


@pytest.mark.parametrize(
    ("largest", "kind"), [(LARGEST, np.float16), (-LARGEST, np.float16), (65505, np.float32), (-65505, np.float32)]
)
def test_features_are_kept_in_half_precision_up_to_its_largest_number(largest, kind):
    features = np.array([[0.5, 1.0], [largest, 0.0]], dtype=np.float32)
    kept = row_arrays(LABELS, LABELS, features=features, logits=features)
    assert kept.inputs["features"].dtype == kind
    assert kept.inputs["logits"].dtype == np.float32
    assert kept.inputs["features"].tolist() == features.tolist()


def test_no_rows_are_kept_as_no_rows():
    kept = row_arrays(LABELS[:0], LABELS[:0], features=np.zeros((0, 3), np.float32))
    assert (kept.inputs["features"].shape, kept.inputs["features"].dtype) == ((0, 3), np.float16)

"""Metrics against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labelloop.runs.labels import accuracy, expected_calibration_error, label_metrics, negative_log_likelihood

# Five rows of three classes.
TARGETS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.0, 0.0, 1.0]], np.float32)
TRUE = np.array([0, 0, 0, 2, 1])


def test_accuracy():
    assert accuracy(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2])) == 0.75
    assert math.isnan(accuracy(np.array([], int), np.array([], int)))


def test_the_nll_is_the_mean_log_of_what_the_true_class_got():
    expected = -(math.log(0.7) + math.log(0.1) + math.log(0.5) + math.log(0.5)) / 4
    assert negative_log_likelihood(TARGETS[:4], TRUE[:4]) == pytest.approx(expected, rel=1e-6)


def test_the_nll_of_a_sure_mistake_is_large_and_finite():
    assert negative_log_likelihood(TARGETS[4:], TRUE[4:]) == pytest.approx(-math.log(1e-12))


def test_the_ece_by_hand():
    # Two bins: confidences 0.5 to 1 all fall in the second. Mean confidence 3.5 / 5 = 0.7; right: rows 0, 2, 3.
    assert expected_calibration_error(TARGETS, TRUE, bins=2) == pytest.approx(abs(0.7 - 0.6), abs=1e-6)
    # Fifteen bins: 0.7 -> 10, 0.8 -> 12, 0.5 and 0.5 -> 7, 1.0 -> 14.
    gaps = (1 - 0.7) + (0.8 - 0) + abs(1.0 - 2) + (1.0 - 0)
    assert expected_calibration_error(TARGETS, TRUE) == pytest.approx(gaps / 5, abs=1e-6)


def test_a_perfectly_calibrated_coin_has_no_ece():
    assert expected_calibration_error(np.tile([[0.75, 0.25]], (4, 1)), np.array([0, 0, 0, 1])) == pytest.approx(0)


def test_label_metrics_by_hand():
    #               kept, right | broken     | mended     | changed to wrong | kept, wrong
    given = np.array([0, 0, 1, 1, 2])
    found = label_metrics(TARGETS, given, TRUE)
    assert found["given_label_accuracy"] == pytest.approx(2 / 5)
    assert found["corrected_label_accuracy"] == pytest.approx(3 / 5)
    assert found["changed_labels"] == pytest.approx(3 / 5)  # rows 1, 2, 3
    assert found["changed_label_accuracy"] == pytest.approx(2 / 3)  # rows 2 and 3 became right, row 1 wrong
    assert found["good_labels_broken"] == pytest.approx(1 / 2)  # of rows 0 and 1, the second
    assert found["corrected_label_nll"] == pytest.approx(negative_log_likelihood(TARGETS, TRUE))
    assert found["corrected_label_ece"] == pytest.approx(expected_calibration_error(TARGETS, TRUE))


def test_rows_without_a_true_label_or_without_a_target_do_not_count():
    given, true = np.array([0, 0, 1, 1, 2]), np.array([0, -1, 0, -1, 1])
    targets = TARGETS.copy()
    targets[4] = 0
    assert label_metrics(targets, given, true) == label_metrics(TARGETS[[0, 2]], given[[0, 2]], true[[0, 2]])


def test_a_missing_given_label_is_neither_changed_nor_good():
    given = np.array([-1, 0, 1, 1, 2])
    found = label_metrics(TARGETS, given, TRUE)
    assert found["given_label_accuracy"] == pytest.approx(1 / 4)
    assert found["corrected_label_accuracy"] == pytest.approx(3 / 5)
    assert found["changed_labels"] == pytest.approx(3 / 5)
    assert found["good_labels_broken"] == 1.0


def test_the_rarest_class_is_counted_by_itself():
    true = np.array([0] * 8 + [1] * 2)
    given = true.copy()
    targets = np.eye(2, dtype=np.float32)[[0] * 8 + [0, 1]]  # one of the two rare labels is erased
    found = label_metrics(targets, given, true)
    assert found["good_labels_broken"] == pytest.approx(1 / 10)
    assert found["rarest_labels_broken"] == pytest.approx(1 / 2)


def test_nothing_to_compare_is_not_a_number_and_no_warning():
    found = label_metrics(TARGETS, np.array([0, 0, 1, 1, 2]), np.full(5, -1))
    assert len(found) == 8
    assert all(math.isnan(value) for value in found.values())

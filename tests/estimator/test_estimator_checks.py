"""scikit-learn's own battery, for the plain classifier and for the whole loop."""

from __future__ import annotations

import collections
import warnings
from typing import Any

import numpy as np
import pytest
from estimator_rows import quick
from sklearn.utils.estimator_checks import check_classifiers_classes, check_estimator

from labelloop import LabelLoopClassifier

pytestmark = pytest.mark.slow

EXPECTED_TO_FAIL = {
    "check_classifiers_classes": (
        "it ends with the classes -1 and 1, and -1 is a missing label here, as in scikit-learn's semi-supervised "
        "classifiers, which the check knows by name and exempts"
    )
}
MAY_BE_SKIPPED = {
    "check_array_api_input",  # unless SCIPY_ARRAY_API is set
    "check_classifier_data_not_an_array",  # its last part needs pandas
}


class WithCleanRows(LabelLoopClassifier):
    """Takes every other given label of a check for verified, so that the battery runs through the whole loop."""

    def fit(self, X: Any, y: Any) -> WithCleanRows:
        labels = np.asarray(y, dtype=object).ravel()
        clean = np.where(np.arange(len(labels)) % 4 < 2, labels, None)
        return super().fit(X, y, clean if len(labels) > 3 else None)


@pytest.mark.parametrize("kind", [LabelLoopClassifier, WithCleanRows])
def test_the_battery_passes(kind, capsys, monkeypatch):
    monkeypatch.setattr("labelloop.relabel.calibration.NOISE_MODELS", {})  # the calibrators that take most of the time
    params = quick(epochs=4, random_state=None).get_params()
    params["config"] |= {"rounds": 0, "learners": "networks"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # most checks give no clean labels
        results = check_estimator(kind(**params), expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None, on_skip=None)
    by_status = collections.defaultdict(set)
    for result in results:
        by_status[result["status"]].add(result["check_name"])
    counts = collections.Counter(result["status"] for result in results)
    with capsys.disabled():
        print(f"\n{kind.__name__}: {len(results)} checks of scikit-learn, {dict(counts)}")
    failures = [f"{r['check_name']}: {r['exception']!r}" for r in results if r["status"] == "failed"]
    assert failures == []
    assert by_status["xfail"] == set(EXPECTED_TO_FAIL)
    assert by_status["skipped"] <= MAY_BE_SKIPPED
    assert counts["passed"] >= 55


@pytest.mark.filterwarnings("ignore:no row has a clean label")
def test_the_expected_failure_is_only_about_minus_one():
    check_classifiers_classes("SelfTrainingClassifier", quick())  # this name is exempt from the classes -1 and 1
    with pytest.raises(ValueError, match="-1 cannot be a class"):
        check_classifiers_classes("LabelLoopClassifier", quick())

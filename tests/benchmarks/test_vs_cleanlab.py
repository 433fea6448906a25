"""The comparison with cleanlab: its measures by hand, its table from the stored runs, and what each side is given."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(name)


@pytest.fixture
def measured(monkeypatch):
    return script("vs_cleanlab", monkeypatch)


@pytest.fixture
def shown(monkeypatch):
    return script("vs_cleanlab_page", monkeypatch)


def test_errors_found_by_hand(measured):
    quality = np.array([0.1, 0.2, 0.3, 0.4, 0.9])  # low is bad
    wrong = np.array([True, False, True, False, False])
    flagged = np.array([True, True, False, False, False])
    found = measured.detection(quality, flagged, wrong)
    assert found["auroc"] == pytest.approx(5 / 6)  # of 6 pairs (wrong, right), only (0.3, 0.2) is in the wrong order
    assert found["auprc"] == pytest.approx((1 / 1 + 2 / 3) / 2)  # precision where each of the two errors is met
    assert found["f1"] == pytest.approx(1 / 2)  # precision 1/2, recall 1/2


def test_corrected_labels_by_hand(measured):
    true = np.array([0, 0, 1, 1, 2])
    given = np.array([0, 0, 1, 2, 0])
    labels = np.array([0, 1, 1, 1, 1])  # one of 3 right ones broken, one of 2 wrong ones fixed
    found = measured.correction(labels, given, true, 3)
    assert found == pytest.approx({"label_accuracy": 3 / 5, "good_broken": 1 / 3, "wrong_fixed": 1 / 2})


def run_of(seed: int, theirs: float, ours: float) -> dict:
    measures = ("auroc", "auprc", "f1", "label_accuracy", "good_broken", "wrong_fixed", "test_relabelled")
    rows = {
        "given labels": {"label_accuracy": 0.8},
        "cleanlab": dict.fromkeys(measures, theirs) | {"test_dropped": theirs, "cpu_seconds": 1.0},
        "labelloop.correct": dict.fromkeys(measures, ours) | {"test_dropped": ours, "cpu_seconds": 2.0},
        "labelloop.fit": dict.fromkeys(measures, 0.5)
        | {"test_dropped": 0.5, "cpu_seconds": 9.0, "test_own_model": 0.7},
    }
    return {
        "data": "digits",
        "noise": "made",
        "seed": seed,
        "realised_rate": 0.2,
        "versions": {"cleanlab": "9"},
        "cross_validation": {"cpu_seconds": 0.5},
        "rows": rows,
    }


def test_verdicts_by_hand(shown):
    runs = [run_of(0, theirs=0.90, ours=0.80), run_of(1, theirs=0.92, ours=0.80)]
    won = shown.verdict("made", runs, "auroc", "labelloop.correct")
    assert (won.row, won.tie) == ("cleanlab", False)
    assert won.ahead == pytest.approx(0.11)
    assert shown.verdict("made", runs, "good_broken", "labelloop.correct").ahead == pytest.approx(
        -0.11
    )  # less is better
    assert shown.verdict("made", runs, "cpu_seconds", "labelloop.correct").ahead == pytest.approx(1)
    near = [run_of(0, theirs=0.90, ours=0.80), run_of(1, theirs=0.80, ours=0.89)]  # +0.10 and -0.09
    assert shown.verdict("made", near, "auroc", "labelloop.correct").tie


def test_the_table_is_written_from_the_runs(shown):
    settings = {"digits": {"rows": 1200, "clean": 120}}
    runs = [run_of(0, theirs=0.90, ours=0.80), run_of(1, theirs=0.92, ours=0.80)]
    lines = shown.page({"settings": settings, "runs": runs}).splitlines()
    row = next(line for line in lines if line.startswith("| cleanlab |"))
    assert row.split(" | ")[1:5] == ["0.910 ± 0.014", "0.910 ± 0.014", "0.910 ± 0.014", "91.0 ± 1.4"]
    assert next(line for line in lines if line.startswith("| given labels |")).count("–") == 8
    own = next(line for line in lines if line.startswith("| labelloop.fit, its own network |"))
    assert "70.0 ± 0.0" in own
    assert "better in 1 (digits, made +0.110), as good in 0, worse in 0 of 1" in "\n".join(lines)


def test_the_stored_runs_are_whole_and_on_the_page(measured, shown):
    record = json.loads((ROOT / "evidence" / "vs_cleanlab.json").read_text(encoding="utf-8"))
    if "version" not in record:  # else an older version measured it, which the page says
        assert record["settings"] == measured.SETTINGS
    stored = sorted((run["data"], run["noise"], run["seed"]) for run in record["runs"])
    wanted = [
        (name, noise, seed) for name, s in measured.SETTINGS.items() for noise in s["noises"] for seed in range(3)
    ]
    assert stored == sorted(wanted)
    for run in record["runs"]:
        assert set(measured.METHODS) < set(run["rows"])
    assert shown.page(record) in (ROOT / "docs" / "coming-from-cleanlab.md").read_text(encoding="utf-8")


@pytest.fixture
def bench(measured):
    pytest.importorskip("cleanlab", reason="the extra 'cleanlab' is not installed")
    return measured.Bench("digits", "symmetric 20%", 5, None, measured.SETTINGS["digits"])


def test_every_method_is_given_the_same(bench):
    case = bench.case
    assert len(case.verified) == 120
    np.testing.assert_array_equal(case.clean[case.verified], bench.true[case.verified])
    assert (case.given[case.verified] != bench.true[case.verified]).any()  # paired: the wrong label is still there
    np.testing.assert_array_equal(case.known[case.verified], bench.true[case.verified])
    np.testing.assert_array_equal(case.known[bench.rest], case.given[bench.rest])
    np.testing.assert_allclose(case.probabilities.sum(axis=1), 1)
    # Out of sample: a model that had seen the labels would repeat the wrong ones.
    wrong = bench.rest & (case.given != bench.true)
    assert (case.probabilities.argmax(axis=1) == case.given)[wrong].mean() < 0.2


def test_cleanlab_never_flags_a_verified_row_and_drops_with_its_weights(bench, measured):
    found = measured.METHODS["cleanlab"](bench.case)
    assert found.flagged.any()
    assert not found.flagged[bench.case.verified].any()
    np.testing.assert_array_equal(found.labels[~found.flagged], bench.case.known[~found.flagged])
    found.learner.clf = bench.classifier()
    found.learner.fit(bench.inputs, bench.case.known, label_issues=found.flagged)
    weights = np.asarray(found.learner.sample_weight)
    assert (weights[found.flagged] == 0).all()
    assert (weights[~found.flagged] >= 1).all()


def test_both_sides_correct_labels(bench):
    for method in ("cleanlab", "labelloop.correct"):
        row = bench.measure(method)
        assert row["label_accuracy"] > (bench.case.given == bench.true)[bench.rest].mean() + 0.1, method
        assert row["cpu_seconds"] > bench.cross_validation["cpu_seconds"], method

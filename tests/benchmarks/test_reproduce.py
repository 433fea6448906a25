"""benchmarks/reproduce.py: a run that came out otherwise is seen, and times are not compared."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from reproduce import EVIDENCE, differences

from labelloop.paper.evidence import read_evidence_lines


@pytest.fixture(scope="module")
def stored():
    return next(run for run in read_evidence_lines(EVIDENCE) if run["rounds"])


def test_a_run_is_equal_to_itself_whatever_it_took(stored):
    again = copy.deepcopy(stored)
    again["history"] |= {"seconds": {}, "peak_memory_mib": []}
    again["versions"] = {}
    assert differences(stored, again) == []


def test_what_differs_is_named(stored):
    again = copy.deepcopy(stored)
    again["history"]["loss"][-1] += 1e-9
    del again["history"]["test_accuracy"]
    again["rounds"] = []
    again["noisy_labels_sha256"] = "another"
    assert set(differences(stored, again)) == {"loss", "test_accuracy", "rounds", "noisy_labels_sha256"}

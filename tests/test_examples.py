"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from labelloop.data.datasets.digits import digits
from labelloop.noise import NOISES
from labelloop.seeds import stream
from labelloop.splits import clean_split

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_correction_in_a_training_loop_of_ones_own():
    inputs, labels, test_inputs, test_labels = digits()
    noisy, clean = clean_split(labels, 200, stream(0, "clean-split"))
    given = NOISES["instance"](labels, 10, 0.4, stream(0, "noise"), images=inputs).labels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network, targets = load("own_training_loop").train(
            inputs[noisy], given[noisy], inputs[clean], labels[clean], num_classes=10
        )
    np.testing.assert_allclose(targets.sum(axis=1), 1, atol=1e-5)
    before, after = (given[noisy] == labels[noisy]).mean(), (targets.argmax(axis=1) == labels[noisy]).mean()
    assert before < 0.65
    assert after > 0.8
    predicted = network(torch.from_numpy(test_inputs)).argmax(dim=1).numpy()
    assert (predicted == test_labels).mean() > 0.8


def test_the_example_is_short():
    lines = (EXAMPLES / "own_training_loop.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 40

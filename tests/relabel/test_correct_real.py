"""The bar on real arrays: as good as the best single competitor, without being told which that is."""

from __future__ import annotations

import numpy as np
import pytest

import labelloop

pytestmark = pytest.mark.slow

SPLITS = 1


@pytest.mark.parametrize(
    ("name", "best_single"), [("cifar10n_aggre_resnet18", 0.958), ("cifar10_classcond20_resnet50", 0.923)]
)
def test_within_a_hair_of_the_best_single_competitor(shared_data, name, best_single):
    with np.load(shared_data / "pred_probs" / f"{name}.npz") as file:
        p, given, true = (file[key] for key in ("pred_probs", "given_label", "true_label"))
    reached, ignoring = [], []
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(true))
        rows, rest = order[:1000], order[1000:]
        clean = np.full(len(true), -1)
        clean[rows] = true[rows]
        found = labelloop.correct(given, clean, pred_probs=p)
        reached.append((found.corrected_labels == true)[rest].mean())
        ignoring.append((found.predicted_proba.argmax(axis=1) == true)[rest].mean())
    assert np.mean(reached) > best_single - 0.003
    assert np.mean(reached) > np.mean(ignoring) + 0.01

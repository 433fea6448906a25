"""Instant correction where the best possible answer is known, and where given labels must not be believed."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import NUM_CLASSES, class_conditional, worthless_labels

from labelloop.relabel import correct_labels
from labelloop.relabel.calibration import calibrator_of_any_class, side_by_side
from labelloop.relabel.relabel import _keep_absent, at_most_on_average, relabel
from labelloop.relabel.sample import largest_share
from labelloop.splits import deal

pytestmark = pytest.mark.slow


# What is learnt is linear in the logarithms, so it cannot wholly undo a noise matrix in the probabilities; and the
# guard keeps a label where two classes are nearly as likely.
@pytest.mark.parametrize(("source", "short_of_best"), [("pred_probs", 0.04), ("embeddings", 0.015), ("both", 0.02)])
def test_close_to_the_best_possible_with_paired_rows(source, short_of_best):
    world = class_conditional()
    clean = world.clean(500)
    known = {"pred_probs": world.probabilities, "embeddings": world.embeddings}
    given = known if source == "both" else {source: known[source]}
    found = correct_labels(world.given, clean, NUM_CLASSES, **given)
    best = world.accuracy(world.posterior.argmax(axis=1), clean)
    reached = world.accuracy(found.targets.argmax(axis=1), clean)
    ignoring = world.accuracy(found.predicted.argmax(axis=1), clean)
    assert reached > best - short_of_best
    assert reached > ignoring + 0.02
    assert reached > world.accuracy(world.given, clean) + 0.1


def test_probabilities_are_close_to_the_true_posterior():
    world = class_conditional()
    found = correct_labels(world.given, world.clean(500), NUM_CLASSES, pred_probs=world.probabilities)
    assert np.allclose(found.targets.sum(axis=1), 1, atol=1e-5)
    assert np.abs(found.targets - world.posterior).mean() < 0.06


def test_unpaired_rows_let_the_given_label_count():
    world = class_conditional()
    clean = world.clean(500)
    hidden = np.where(clean >= 0, -1, world.given)
    found = correct_labels(hidden, clean, NUM_CLASSES, pred_probs=world.probabilities)
    best = world.accuracy(world.posterior.argmax(axis=1), clean)
    reached = world.accuracy(found.targets.argmax(axis=1), clean)
    assert reached > best - 0.065
    assert reached > world.accuracy(found.predicted.argmax(axis=1), clean) + 0.02
    assert reached > world.accuracy(world.given, clean) + 0.1


def test_unpaired_rows_do_no_harm_where_given_labels_tell_nothing():
    world = worthless_labels()
    clean = world.clean(500)
    found = correct_labels(np.where(clean >= 0, -1, world.given), clean, NUM_CLASSES, pred_probs=world.probabilities)
    reached = world.accuracy(found.targets.argmax(axis=1), clean)
    assert reached > world.accuracy(world.given, clean) - 0.005


def test_given_labels_that_tell_nothing_do_no_harm():
    world = worthless_labels()
    clean = world.clean(500)
    found = correct_labels(world.given, clean, NUM_CLASSES, pred_probs=world.probabilities)
    best = world.accuracy(world.probabilities.argmax(axis=1), clean)
    assert world.accuracy(found.targets.argmax(axis=1), clean) > best - 0.01


def test_wrong_probabilities_are_not_believed():
    world = class_conditional()
    clean = world.clean(500)
    noise = np.random.default_rng(3).dirichlet(np.ones(NUM_CLASSES), len(world.true))
    found = correct_labels(world.given, clean, NUM_CLASSES, pred_probs=noise)
    majority = np.array([np.bincount(world.true[world.given == k]).argmax() for k in range(NUM_CLASSES)])[world.given]
    assert world.accuracy(found.targets.argmax(axis=1), clean) > world.accuracy(majority, clean) - 0.02


def test_weights_lie_on_the_simplex_and_name_the_components():
    world = class_conditional(2000)
    found = correct_labels(world.given, world.clean(200), NUM_CLASSES, pred_probs=world.probabilities)
    for weights in (found.weights, found.weights_without_label):
        assert sum(weights.values()) == pytest.approx(1)
        assert min(weights.values()) >= 0
    assert {"label corrector", "given label, noise by class", "inputs alone"} <= set(found.weights)
    assert "label corrector" not in found.weights_without_label


def test_rows_without_a_given_label_get_the_label_free_answer():
    world = class_conditional(3000)
    given = world.given.copy()
    given[1000:1100] = -1
    found = correct_labels(given, world.clean(300), NUM_CLASSES, pred_probs=world.probabilities)
    assert np.array_equal(found.targets[1000:1100], found.predicted[1000:1100])
    assert not np.array_equal(found.targets, found.predicted)


def test_cross_fitted_accuracy_is_that_of_unseen_rows():
    gaps = []
    for seed in range(4):
        world = class_conditional(2000, seed)
        clean = world.clean(150, seed)
        found = correct_labels(world.given, clean, NUM_CLASSES, pred_probs=world.probabilities, seed=seed)
        verified = clean >= 0
        assert np.isnan(found.cross_fitted[~verified]).all()
        estimate = (found.cross_fitted[verified].argmax(axis=1) == clean[verified]).mean()
        gaps.append(estimate - world.accuracy(found.targets.argmax(axis=1), clean))
    assert abs(np.mean(gaps)) < 0.04


def test_same_seed_same_result():
    world = class_conditional(2000)
    runs = [
        correct_labels(
            world.given,
            world.clean(200),
            NUM_CLASSES,
            pred_probs=world.probabilities,
            embeddings=world.embeddings,
            seed=seed,
        )
        for seed in (5, 5, 6)
    ]
    assert np.array_equal(runs[0].targets, runs[1].targets)
    assert not np.array_equal(runs[0].targets, runs[2].targets)


def test_classes_can_be_renumbered():
    world = class_conditional(2000)
    clean, order = world.clean(200), np.array([2, 0, 3, 1])  # class k becomes order[k]
    renumbered = np.append(order, -1)
    plain = correct_labels(world.given, clean, NUM_CLASSES, pred_probs=world.probabilities)
    p = np.empty_like(world.probabilities)
    p[:, order] = world.probabilities
    other = correct_labels(renumbered[world.given], renumbered[clean], NUM_CLASSES, pred_probs=p)
    agree = order[plain.targets.argmax(axis=1)] == other.targets.argmax(axis=1)
    assert agree.mean() > 0.98  # not all: the folds are dealt in the order of the classes


def test_few_pairs_among_many_clean_rows_do_no_harm():
    world = class_conditional(3000)
    clean = world.clean(300)
    hidden = np.where((clean >= 0) & (np.cumsum(clean >= 0) > 5), -1, world.given)
    found = correct_labels(hidden, clean, NUM_CLASSES, pred_probs=world.probabilities)
    assert world.accuracy(found.targets.argmax(axis=1), clean) > world.accuracy(world.given, clean) + 0.1


def test_two_clean_rows_are_enough_to_answer():
    world = class_conditional(500)
    clean = np.full(500, -1)
    clean[[3, 7]] = world.true[[3, 7]]
    found = correct_labels(world.given, clean, NUM_CLASSES, pred_probs=world.probabilities)
    assert np.isfinite(found.targets).all()
    assert np.array_equal(found.targets.argmax(axis=1), world.given), "two rows cannot tell what a change does"
    assert found.targets.max() < 0.76, "what two rows speak for"


def test_a_class_without_clean_rows_stays_possible():
    world = class_conditional(matrix=0.8 * np.eye(NUM_CLASSES) + 0.05)
    clean = world.clean(400)
    clean[clean == 2] = -1
    found = correct_labels(world.given, clean, NUM_CLASSES, pred_probs=world.probabilities)
    third = (world.true == 2) & (clean < 0)
    assert (found.targets.argmax(axis=1) == 2)[third].mean() > 0.5


def test_folds_are_dealt_evenly():
    groups = np.repeat([0, 1, 2], [10, 7, 3])
    fold = deal(groups, np.random.default_rng(0))
    assert np.bincount(fold).tolist() == [4, 4, 4, 4, 4]
    assert np.bincount(fold[groups == 0]).tolist() == [2, 2, 2, 2, 2]
    assert set(deal(np.zeros(3, int), np.random.default_rng(0))) == {0, 1, 2}


def test_a_clean_row_is_predicted_as_if_its_class_had_no_clean_row_where_it_is_the_only_one():
    """The only clean row of a class is predicted by what the other rows teach of any class, as a noisy one of it is."""
    world = class_conditional(400)
    rows = np.concatenate([np.flatnonzero(world.true == k)[: 1 if k == 0 else 10] for k in range(NUM_CLASSES)])
    clean = np.full(400, -1)
    clean[rows] = world.true[rows]
    scores = np.log(np.maximum(world.probabilities, 1e-7)).astype(np.float32)
    found = relabel(scores, np.where(clean >= 0, -1, world.given), clean, NUM_CLASSES)
    only = np.flatnonzero(found.noise.validation.labels == 0)
    validation = found.noise.validation
    others = validation.clean_rows[validation.clean_fold != validation.fold[only[0]]]
    as_any = calibrator_of_any_class(validation.observed, others, use_given=False)
    expected = as_any.predict(validation.observed, rows[:1], use_given=False)
    np.testing.assert_allclose(found.q.oof[only, 0], expected[:, 0], atol=1e-5)
    assert not np.allclose(found.q.final[rows[:1], 0], world.probabilities[rows[:1], 0], atol=1e-3), (
        "it is learnt from in q"
    )


def test_a_prediction_that_is_sure_of_a_class_without_clean_rows_stays_a_probability():
    """Nothing is left to share out among the other classes, and the scores rule this class out."""
    world = class_conditional(400)
    clean = world.clean(40)
    clean[clean == 2] = -1
    scores = np.log(np.maximum(world.probabilities, 1e-7)).astype(np.float32)
    scores[0] = np.where(np.arange(NUM_CLASSES) == 2, -300, np.log(1 / (NUM_CLASSES - 1)))
    q = relabel(scores, np.where(clean >= 0, -1, world.given), clean, NUM_CLASSES)
    sure = q.q.changed(q.noise.validation, lambda some, rows, fold: np.eye(NUM_CLASSES)[np.full(len(some), 2)])
    kept = _keep_absent(sure, q.noise.validation)
    np.testing.assert_allclose(kept.final.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(
        kept.final[0], np.where(np.arange(NUM_CLASSES) == 2, 0, 1 / (NUM_CLASSES - 1)), atol=1e-6
    )


def test_what_clean_rows_teach_holds_for_classes_without_a_clean_row():
    """One source is right and another worthless: that is learnt on ten of twenty classes, and true of the others."""
    rng = np.random.default_rng(0)
    true = np.arange(800) % 20
    good, bad = 3 * np.eye(20)[true] + rng.normal(size=(800, 20)), 3 * rng.normal(size=(800, 20))
    given = np.where(rng.random(800) < 0.7, true, rng.integers(20, size=800))
    clean = np.where((true < 10) & (np.arange(800) < 80), true, -1)
    found = relabel(side_by_side([good, bad], np.float32), np.where(clean >= 0, -1, given), clean, 20)
    rest, right = clean < 0, found.q.final.argmax(axis=1) == true
    alone = (good.argmax(axis=1) == true)[rest].mean()
    assert ((good + bad).argmax(axis=1) == true)[rest].mean() < alone - 0.15, "the worthless source does harm as it is"
    assert right[rest & (true >= 10)].mean() > alone - 0.1
    assert right[rest].mean() > alone - 0.05


def swallowed_labels(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions of the given label, given and true labels: an eighth of all labels is wrong and says 3, ten are 3."""
    rng = np.random.default_rng(seed)
    true = np.where(np.arange(2000) < 10, 3, np.arange(2000) % 3)
    given = np.where((rng.random(2000) < 0.125) & (true != 3), 3, true)
    q = np.exp(3 * np.eye(4)[true] + rng.normal(size=(2000, 4)))
    q /= q.sum(axis=1, keepdims=True)
    noise = np.eye(4) + 0.125 * np.array([[-1, 0, 0, 1], [0, -1, 0, 1], [0, 0, -1, 1], [0, 0, 0, 0]])
    return (q @ noise).astype(np.float32), given, true


def test_pairs_show_that_a_class_without_clean_rows_has_more_labels_than_rows():
    """An eighth of the pairs says 3 and none is 3; so the class keeps its likeliest labels, as many as it has rows."""
    p, given, true = swallowed_labels()
    rows = np.random.default_rng(1).permutation(np.arange(10, 2000))[:200]
    clean = np.full(2000, -1)
    clean[rows] = true[rows]
    found = correct_labels(given, clean, 4, pred_probs=p)
    labels, rest = found.targets.argmax(axis=1), clean < 0
    assert (given[rows] == 3).sum() > 15
    assert (labels == true)[rest].mean() > (given == true)[rest].mean() + 0.08
    assert (labels[:10] == 3).sum() >= 8, "those that are right are the likeliest"
    assert (labels == 3)[rest].sum() <= 2 * np.ceil(largest_share(0, 200) * 2000)
    held_out = found.cross_fitted[rows].argmax(axis=1) == true[rows]
    assert abs(held_out.mean() - (labels == true)[rest].mean()) < 0.05


def test_a_class_that_nobody_looked_at_keeps_its_labels():
    """Pairs that were chosen by their label show nothing about the labels of a class that none of them has."""
    p, given, true = swallowed_labels()
    rows = np.random.default_rng(1).permutation(np.flatnonzero(given != 3))[:200]
    clean = np.full(2000, -1)
    clean[rows] = true[rows]
    found = correct_labels(given, clean, 4, pred_probs=p)
    mine = (clean < 0) & (given == 3)
    assert (found.targets[mine].argmax(axis=1) == 3).mean() > 0.95


def test_odds_make_a_class_as_rare_as_it_may_be():
    """With a third of the odds, one half becomes a quarter; what is below its limit stays."""
    p = np.tile([0.5, 0.3, 0.2], (6, 1))
    np.testing.assert_allclose(at_most_on_average(p, np.array([0.25, 0.4, 0.2])), [1 / 3, 1, 1])
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    factor = at_most_on_average(p, np.array([0.3, 1.0]))[0]
    assert np.mean(p[:, 0] * factor / (p[:, 0] * factor + p[:, 1])) == pytest.approx(0.3)
    assert at_most_on_average(np.ones((4, 1)), np.array([0.1])) == pytest.approx(np.exp(-10)), "no odds are enough"
    assert at_most_on_average(np.zeros((0, 2)), np.array([0.1, 0.1])).tolist() == [1, 1]

"""DMLP: the closed form and its gradient, the write-back, and whole runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_settings import small_config
from torch.nn import functional as F
from toys import SETTINGS, digits_accuracy, noisy_digits, quiet, toy_problem

from labelloop.errors import UsageError
from labelloop.methods import METHODS, dmlp
from labelloop.training.epoch import extract
from labelloop.training.setup import new_classifier, resolve
from labelloop.types import Rows

pytestmark = pytest.mark.slow


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the closed form -------------------------------------------------------------------------------------------------


def test_orthonormal_features_by_hand():
    z = torch.linalg.qr(random(20, 4)).Q
    labels = random(20, 3, seed=1).requires_grad_()
    weight = dmlp.solve(z, dmlp.gram_factor(z, 0.0), labels)
    weight.retain_grad()
    torch.testing.assert_close(weight, z.T @ labels)
    dmlp.clean_loss(weight, z, random(7, 4, seed=2), torch.arange(7) % 3, 1.0).backward()
    torch.testing.assert_close(labels.grad, z @ weight.grad)


def test_the_closed_form_is_the_least_squares_solution():
    z, labels = random(30, 5), random(30, 3, seed=1)
    expected = torch.linalg.lstsq(z, labels).solution
    torch.testing.assert_close(dmlp.solve(z, dmlp.gram_factor(z, 0.0), labels), expected)


def test_dependent_features_are_solved_with_the_ridge():
    z = random(30, 5)
    z[:, 4] = z[:, 3]
    z[:, 2] = 0
    weight = dmlp.solve(z, dmlp.gram_factor(z, 1e-4), random(30, 3, seed=1))
    assert weight.isfinite().all()
    assert weight.abs().max() < 10


@pytest.mark.parametrize("entry", [(0, 0), (13, 2)])
def test_the_gradient_in_the_labels_is_that_of_finite_differences(entry):
    z, clean_z, clean_labels = random(20, 4), random(7, 4, seed=2), torch.arange(7) % 3
    factor = dmlp.gram_factor(z, 1e-4)

    def loss(labels):
        return dmlp.clean_loss(dmlp.solve(z, factor, labels), z, clean_z, clean_labels, 1.0)

    labels = random(20, 3, seed=1).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(labels), labels)
    step = torch.zeros_like(labels)
    step[entry] = 1e-6
    with torch.no_grad():
        slope = (loss(labels + step) - loss(labels - step)) / 2e-6
    assert slope.item() == pytest.approx(gradient[entry].item(), rel=1e-5)


def test_labels_that_already_suit_the_clean_rows_have_no_gradient_from_the_squared_error():
    z, clean_z, best = random(20, 4), random(7, 4, seed=2), random(4, 3, seed=3)
    labels = (z @ best).requires_grad_()
    weight = dmlp.solve(z, dmlp.gram_factor(z, 0.0), labels)
    (gradient,) = torch.autograd.grad(dmlp.squared_error(clean_z @ weight, clean_z @ best), labels)
    np.testing.assert_allclose(gradient, 0, atol=1e-9)


def test_the_clean_loss_by_hand():
    weight, clean_z, labels = random(4, 3), random(7, 4, seed=2), torch.arange(7) % 3
    scores = clean_z @ weight
    expected = F.cross_entropy(scores, labels) + ((scores - torch.eye(3)[labels]) ** 2).sum()
    torch.testing.assert_close(dmlp.clean_loss(weight, random(9, 4), clean_z, labels, 0.0), expected)
    mean = torch.softmax(random(9, 4) @ weight, dim=1).mean(dim=0)
    expected = expected + 2 * (torch.log(1 / 3 / mean) / 3).sum()
    torch.testing.assert_close(dmlp.clean_loss(weight, random(9, 4), clean_z, labels, 2.0), expected)


def test_the_divergence_is_zero_only_where_all_classes_are_predicted_alike_often():
    assert dmlp.uniform_divergence(torch.eye(3, dtype=torch.float64)).item() == pytest.approx(0, abs=1e-12)
    uneven = torch.tensor([[0.5, 0.3, 0.2]])
    assert dmlp.uniform_divergence(uneven).item() == pytest.approx(np.log(1 / 3) - np.log([0.5, 0.3, 0.2]).mean())


# --- the write-back --------------------------------------------------------------------------------------------------


def separable(n: int = 6000, classes: int = 10, width: int = 64):
    """Separable clouds with 40% symmetric noise, of which a tenth hits the true class: 64% of the labels are right."""
    rng = np.random.default_rng(0)
    true = rng.integers(classes, size=n)
    z = (rng.normal(size=(classes, width))[true] + 0.5 * rng.normal(size=(n, width))).astype(np.float32)
    given = np.where(rng.random(n) < 0.4, rng.integers(classes, size=n), true)
    return z, true, given


def test_writing_a_good_probe_back_purifies_the_labels():
    z, true, given = separable()
    features, labels = dmlp.with_bias(z), torch.eye(10)[given]
    scores = features @ dmlp.solve(features, dmlp.gram_factor(features, 1e-4), labels)
    assert (scores.argmax(dim=1).numpy() == true).mean() > 0.99
    right = []
    for _ in range(30):
        dmlp.write_back(labels, 20 * scores, 0.1)
        right.append((labels.argmax(dim=1).numpy() == true).mean())
    assert right[4] == pytest.approx((given == true).mean())  # 0.9 ** 5 > 1 / 2: no label can have changed yet
    assert right[9] > 0.9
    assert right[29] > 0.99
    torch.testing.assert_close(labels.sum(dim=1), torch.ones(6000))


def test_a_rate_of_1_replaces_the_labels():
    labels, logits = torch.eye(3), torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    dmlp.write_back(labels, logits, 1.0)
    torch.testing.assert_close(labels, torch.softmax(logits, dim=1))


def purify(z, given, true, **changes):
    settings = {"purify_epochs": 40, "block_size": 1000} | changes
    clean = np.arange(len(z) - 200, len(z))
    rest = np.arange(len(z) - 200)
    return rest, *dmlp.purify(z[rest], z[clean], given[rest], true[clean], 10, dmlp.Config(**settings), 0)


@pytest.mark.parametrize("changes", [{}, {"write_back_every": 20, "write_back_rate": 1.0}])
def test_the_purifier_finds_the_true_labels_of_separable_rows(changes):
    z, true, given = separable(2200)
    rest, soft, summary = purify(z, given, true, **changes)
    assert (soft.argmax(axis=1) == true[rest]).mean() > 0.98
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-5)
    assert soft.min() >= 0
    assert summary["probe_clean_accuracy"] > 0.98
    assert 0.3 < summary["labels_moved"] < 0.4


def test_without_write_back_the_closed_form_alone_changes_few_labels():
    z, true, given = separable(2200)
    rest, soft, _ = purify(z, given, true, write_back_every=1000, purify_epochs=5)
    assert (soft.argmax(axis=1) == given[rest]).mean() > 0.95


def test_one_block_does_not_move_the_labels_of_another(monkeypatch):
    """With the first block's gradient only, Adam must leave the second block as it is."""
    z, true, given = separable(1200)
    monkeypatch.setattr(dmlp, "train_probe", lambda *_: None)
    calls = []
    original = dmlp.clean_loss

    def first_block_only(*arguments):
        calls.append(1)
        return original(*arguments) * (len(calls) == 1)

    monkeypatch.setattr(dmlp, "clean_loss", first_block_only)
    settings = {"purify_epochs": 1, "block_size": 500, "write_back_every": 2, "label_weight_decay": 0.0}
    _, soft, _ = purify(z, given, true, **settings)
    moved = (soft != np.eye(10)[given[:1000]]).any(axis=1)
    assert 400 < moved.sum() <= 500


def test_a_small_block_has_as_many_probe_steps_as_a_full_one():
    config = dmlp.Config(block_size=100, probe_batch_size=10)
    for rows in (100, 50):
        probe = torch.zeros(4, 3, requires_grad=True)
        optimizer = torch.optim.Adam([probe])
        dmlp.train_probe(
            probe, optimizer, random(rows, 4).float(), torch.eye(3)[torch.arange(rows) % 3], config,
            np.random.default_rng(0),
        )  # fmt: skip
        assert optimizer.state[probe]["step"].item() == 10


def test_rows_come_back_to_the_simplex():
    rows = dmlp.on_simplex(torch.tensor([[0.2, -0.1, 0.6], [-1.0, -2.0, -0.5]]))
    torch.testing.assert_close(rows, torch.tensor([[0.25, 0.0, 0.75], [1 / 3, 1 / 3, 1 / 3]]))


# --- whole runs ------------------------------------------------------------------------------------------------------

QUICK = {"purify_epochs": 3}


def test_the_features_are_the_inputs_as_the_network_sees_them(monkeypatch):
    problem, seen = toy_problem(unlabelled=7), []
    original = dmlp.purify
    monkeypatch.setattr(dmlp, "purify", lambda *arguments: (seen.append(arguments[:2]), original(*arguments))[1])
    config = small_config("dmlp", problem, **QUICK)
    fitted = dmlp.fit(problem, config, quiet())
    scale = new_classifier(config, problem, 0).normalise
    expected = scale(torch.from_numpy(problem.clean.inputs[problem.clean.index]))
    np.testing.assert_array_equal(seen[0][1], expected)
    assert len(seen[0][0]) == 83
    assert fitted.rounds[0]["features"] == "inputs"


def test_the_features_of_weights_are_those_of_their_encoder(monkeypatch, tmp_path):
    problem, seen = toy_problem(images=True, unlabelled=7), []
    encoder = new_classifier(small_config("dmlp", problem), problem, 5).encoder
    save_file(encoder.state_dict(), tmp_path / "ssl.safetensors")
    config = small_config("dmlp", problem, weights=str(tmp_path / "ssl.safetensors"), **QUICK)
    original = dmlp.purify
    monkeypatch.setattr(dmlp, "purify", lambda *arguments: (seen.append(arguments[1]), original(*arguments))[1])
    fitted = dmlp.fit(problem, config, quiet())
    expected = extract(new_classifier(config, problem, 0), problem.clean, quiet()).features
    np.testing.assert_allclose(seen[0], expected, atol=1e-5)
    assert fitted.rounds[0]["features"] == "weights"


def test_the_retraining_is_cross_entropy_on_the_purified_labels():
    problem = toy_problem(unlabelled=0)
    fitted = dmlp.fit_without_ssl(problem, small_config("dmlp-nossl", problem, warm_up=3, **QUICK), quiet())
    train = problem.train
    purified = Rows(train.inputs, train.index, fitted.targets.argmax(axis=1), train.clean_labels)
    plain = METHODS["cross-entropy"].fit(
        type(problem)(purified, problem.clean, problem.class_names), small_config("cross-entropy", problem), quiet()
    )
    state, expected = fitted.model.state_dict(), plain.model.state_dict()
    assert all(torch.equal(state[key], expected[key]) for key in expected)


def test_the_record_says_what_an_epoch_was_and_where_the_features_came_from():
    problem, runtime = toy_problem(unlabelled=7), quiet()
    fitted = dmlp.fit_without_ssl(problem, small_config("dmlp-nossl", problem, warm_up=3, **QUICK), runtime)
    assert [row["stage"] for row in runtime.history] == ["warm-up"] * 3 + ["purified labels"] * 4
    assert fitted.rounds[0]["features"] == "warm-up"
    np.testing.assert_allclose(fitted.targets[:-7].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(fitted.targets[-7:], 0)


def test_images_without_weights_are_refused_with_the_way_out():
    problem = toy_problem(images=True, unlabelled=7)
    with pytest.raises(UsageError, match="dmlp-nossl"):
        dmlp.fit(problem, small_config("dmlp", problem), quiet())


@pytest.mark.parametrize(
    "changes",
    [
        {"purify_epochs": 0}, {"block_size": 0}, {"label_learning_rate": 0.0}, {"ridge": 0.0},
        {"label_weight_decay": -1.0}, {"confidence_penalty": -0.1}, {"write_back_every": 0},
        {"write_back_rate": 0.0}, {"write_back_rate": 1.1},
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(changes):
    with pytest.raises(UsageError, match=next(iter(changes))):
        dmlp.Config(**changes)


def test_there_is_a_warm_up():
    with pytest.raises(UsageError, match="warm_up"):
        dmlp.NoSslConfig(warm_up=0)


def test_without_noise_it_is_nearly_as_good_as_cross_entropy():
    plain = digits_accuracy("cross-entropy", 0.0)
    assert digits_accuracy("dmlp-nossl", 0.0, warm_up=10) > plain - 0.02
    assert digits_accuracy("dmlp", 0.0) > plain - 0.05  # a linear probe of raw pixels cannot do better


def test_with_noise_it_is_better_and_mends_labels():
    plain = digits_accuracy("cross-entropy", 0.4)
    assert digits_accuracy("dmlp", 0.4) > plain + 0.1
    problem, truth = noisy_digits(0.4)
    runtime = quiet(truth=truth)
    config = resolve(dmlp.NoSslConfig(**SETTINGS, warm_up=10), problem)
    dmlp.fit_without_ssl(problem, config, runtime)
    last = runtime.history[-1]
    assert last["test_accuracy"] > plain + 0.1
    assert last["corrected_label_accuracy"] > last["given_label_accuracy"] + 0.25

"""FasTEN: one step by hand, the labels that come and go, and whole runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_settings import small_config, without_clean
from torch.nn import functional as F
from toys import digits_accuracy, noisy_digits, quiet, toy_problem

from labelloop.errors import DataError, UsageError
from labelloop.methods import fasten
from labelloop.models import Outputs
from labelloop.training.setup import new_classifier

pytestmark = pytest.mark.slow


def outputs(rows: int, seed: int) -> Outputs:
    random = torch.Generator().manual_seed(seed)
    features, logits, noisy_logits = (torch.randn(rows, n, generator=random, requires_grad=True) for n in (5, 3, 3))
    return Outputs(features, logits, noisy_logits)


def test_the_loss_of_a_step_by_hand():
    out, clean_out = outputs(8, 0), outputs(6, 1)
    labels, clean_labels = torch.arange(8) % 3, torch.tensor([0, 0, 1, 1, 2, 2])
    loss = fasten.step_loss(out, clean_out, labels, clean_labels, 0.5)
    transition = torch.softmax(clean_out.noisy_logits, dim=1).view(3, 2, 3).mean(dim=1)
    likelihood = (torch.softmax(out.logits, dim=1) @ transition)[torch.arange(8), labels]
    on_clean = F.cross_entropy(clean_out.logits, clean_labels, reduction="none")
    both = torch.cat([-torch.log(likelihood + 1e-7), on_clean])
    expected = both.sum() / 14 + 0.5 * F.cross_entropy(out.noisy_logits, labels)
    torch.testing.assert_close(loss, expected)


def test_no_gradient_reaches_the_noisy_head_from_the_clean_rows():
    out, clean_out = outputs(8, 0), outputs(6, 1)
    labels, clean_labels = torch.arange(8) % 3, torch.tensor([0, 0, 1, 1, 2, 2])
    fasten.step_loss(out, clean_out, labels, clean_labels, 0.5).backward()
    assert clean_out.noisy_logits.grad is None
    (alone,) = torch.autograd.grad(0.5 * F.cross_entropy(out.noisy_logits, labels), out.noisy_logits)
    assert torch.equal(out.noisy_logits.grad, alone)


def test_the_noisy_head_has_the_same_gradient_whatever_the_clean_batch():
    problem = toy_problem(images=True, unlabelled=7)
    model = new_classifier(small_config("fasten", problem), problem, 0).train()
    images = torch.from_numpy(problem.train.inputs).permute(0, 3, 1, 2)
    labels, clean_labels = torch.from_numpy(problem.train.labels[10:40]), torch.arange(9) % 3
    gradients = []
    for clean_images in (images[90:99], images[99:108]):
        model.zero_grad()
        fasten.step_loss(model(images[10:40]), model(clean_images), labels, clean_labels, 0.5).backward()
        gradients.append(model.noisy_head.weight.grad.clone())
    assert torch.equal(*gradients)


def test_a_sure_noisy_head_that_agrees_with_the_clean_labels_gives_cross_entropy():
    out, clean_out = outputs(8, 0), outputs(3, 1)
    labels = torch.arange(8) % 3
    clean_out = clean_out._replace(noisy_logits=1000 * torch.eye(3))
    loss = fasten.step_loss(out, clean_out, labels, torch.arange(3), 0.5)
    both = torch.cat([F.cross_entropy(out.logits, labels, reduction="none"),
                      F.cross_entropy(clean_out.logits, torch.arange(3), reduction="none")])  # fmt: skip
    torch.testing.assert_close(loss, both.mean() + 0.5 * F.cross_entropy(out.noisy_logits, labels), atol=1e-5, rtol=0)


def test_labels_are_corrected_from_the_threshold_on_and_revert_below_it():
    logits = torch.log(torch.tensor([[0.8, 0.2], [0.79, 0.21], [0.1, 0.9]]))
    given = torch.tensor([1, 1, 1])
    assert fasten.corrected_labels(logits.double(), given, 0.8 - 1e-9).tolist() == [0, 1, 1]
    assert fasten.corrected_labels(logits, given, 1.1).tolist() == [1, 1, 1]


class Steps:
    """Notes the labels every step uses, and how sure the network is made to be."""

    def __init__(self, monkeypatch, sure) -> None:
        self.used: list[list[int]] = []
        original, corrected = fasten.step_loss, fasten.corrected_labels

        def note(out, clean_out, labels, clean_labels, weight):
            self.used.append(labels.tolist())
            return original(out, clean_out, labels, clean_labels, weight)

        def answer(logits, given, threshold):  # sure of class 2 whenever `sure` says so
            own = torch.full_like(logits, -50)
            own[:, 2] = 50 if sure(len(self.used)) else -50
            return corrected(own, given, threshold)

        monkeypatch.setattr(fasten, "step_loss", note)
        monkeypatch.setattr(fasten, "corrected_labels", answer)


def test_a_step_uses_the_labels_of_the_visit_before(monkeypatch):
    problem = toy_problem(unlabelled=0)
    given = sorted(problem.train.labels.tolist())
    steps = Steps(monkeypatch, sure=lambda number: number in (2, 4))  # in epochs 2 and 4 of 5, a batch an epoch
    fitted = fasten.fit(problem, small_config("fasten", problem, epochs=5, batch_size=90), quiet())
    assert [sorted(labels) for labels in steps.used] == [given, given, [2] * 90, given, [2] * 90]
    np.testing.assert_array_equal(fitted.targets, np.eye(3)[problem.train.labels])  # the last visit reverted them


def test_a_network_that_is_never_sure_leaves_the_labels_as_they_are():
    problem = toy_problem(unlabelled=7)
    fitted = fasten.fit(problem, small_config("fasten", problem, threshold=1.1), quiet())
    np.testing.assert_array_equal(fitted.targets[:-7], np.eye(3)[problem.train.labels[:-7]])
    np.testing.assert_array_equal(fitted.targets[-7:], 0)


def test_clean_batches_are_balanced_and_ordered_by_class():
    labels = np.array([2, 0, 1, 0, 2, 1, 0, 2, 2])
    order = fasten.balanced(labels, 2, 50, np.random.default_rng(0)).reshape(50, 6)
    np.testing.assert_array_equal(labels[order], np.tile([0, 0, 1, 1, 2, 2], (50, 1)))
    assert all(len(set(batch)) == 6 for batch in order.tolist())
    assert set(order.ravel()) == set(range(9))
    few = fasten.balanced(labels, 3, 1, np.random.default_rng(0))  # class 1 has but two rows
    assert sorted(labels[few]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_left_over_row_is_trained_on():
    problem = toy_problem(unlabelled=25)  # 65 rows in batches of 32
    assert fasten.fit(problem, small_config("fasten", problem), quiet()).stop_reason == "epoch limit"


def test_a_class_without_clean_rows_is_named():
    problem = toy_problem(unlabelled=7)
    with pytest.raises(DataError, match="no clean row of class 'cat'"):
        fasten.fit(without_clean(problem, 2), small_config("fasten", problem), quiet())


@pytest.mark.parametrize("changes", [{"clean_per_class": 0}, {"threshold": -0.1}, {"noisy_head_weight": 0.0}])
def test_a_value_that_does_not_fit_is_refused(changes):
    with pytest.raises(UsageError, match=next(iter(changes))):
        fasten.Config(**changes)


def test_without_noise_it_is_as_good_as_cross_entropy():
    assert digits_accuracy("fasten", 0.0) > digits_accuracy("cross-entropy", 0.0) - 0.03


def test_with_noise_it_is_better_and_mends_labels():
    assert digits_accuracy("fasten", 0.4) > digits_accuracy("cross-entropy", 0.4) + 0.1
    problem, truth = noisy_digits(0.4)
    runtime = quiet(truth=truth)
    config = small_config("fasten", problem, epochs=20, network_options={"hidden": [64]}, learning_rate=0.1)
    fasten.fit(problem, config, runtime)
    assert runtime.history[-1]["corrected_label_accuracy"] > runtime.history[-1]["given_label_accuracy"] + 0.2

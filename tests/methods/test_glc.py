"""GLC: two trainings, one matrix between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_settings import small_config, without_clean
from torch.nn import functional as F
from toys import digits_accuracy, quiet, toy_problem

from labelloop.errors import DataError, UsageError
from labelloop.methods import METHODS, glc
from labelloop.splits import labelled_rows
from labelloop.training.epoch import extract
from labelloop.training.setup import new_classifier

pytestmark = pytest.mark.slow


def test_trusted_rows_have_cross_entropy_and_the_others_the_corrected_loss():
    logits = torch.log(torch.tensor([[0.8, 0.2], [0.8, 0.2]]))
    transition = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    losses = glc.row_losses(logits, torch.tensor([1, 1]), torch.tensor([False, True]), transition)
    np.testing.assert_allclose(losses, [1.514128, -np.log(0.2)], rtol=1e-6)


def test_the_estimate_is_the_mean_posterior_of_each_clean_class():
    problem = toy_problem(unlabelled=7)
    runtime = quiet()
    model = new_classifier(small_config("glc", problem), problem, 0)
    posterior = torch.softmax(torch.from_numpy(extract(model, problem.clean, runtime).logits), dim=1).numpy()
    transition = glc.estimate(model, problem.clean, runtime)
    for number in range(3):
        expected = posterior[problem.clean.clean_labels == number].mean(axis=0)
        np.testing.assert_allclose(transition[number], expected, rtol=1e-5)
    np.testing.assert_allclose(transition.sum(axis=1), 1, rtol=1e-6)


def test_mixup_concerns_the_second_stage_alone():
    problem, losses, matrices = toy_problem(unlabelled=7), [], []
    for mixup in (0.0, 1.0):
        runtime = quiet()
        matrices.append(glc.fit(problem, small_config("glc", problem, mixup=mixup), runtime).rounds)
        losses.append([row["loss"] for row in runtime.history])
    half = len(losses[0]) // 2
    assert matrices[0] == matrices[1]
    assert losses[0][:half] == losses[1][:half]
    assert losses[0][half:] != losses[1][half:]


def test_the_first_stage_is_cross_entropy_on_the_labelled_rows_and_the_second_starts_anew(monkeypatch):
    problem = toy_problem(unlabelled=0)
    config = small_config("glc", problem)
    plain = METHODS["cross-entropy"].fit(problem, small_config("cross-entropy", problem), quiet()).model.state_dict()
    seen = []
    estimate, corrected_epoch = glc.estimate, glc.corrected_epoch

    def note_estimate(model, *rest):
        seen.append(("estimate", all(torch.equal(model.state_dict()[key], plain[key]) for key in plain)))
        return estimate(model, *rest)

    def note_epoch(model, noisy, clean, transition, optimizer, *rest):
        fresh = new_classifier(config, problem, 0).state_dict()
        at_start = all(torch.equal(model.state_dict()[key], fresh[key]) for key in fresh)
        loss = corrected_epoch(model, noisy, clean, transition, optimizer, *rest)
        seen.append((at_start, len(noisy), len(clean), round(optimizer.param_groups[0]["lr"], 6)))
        return loss

    monkeypatch.setattr(glc, "estimate", note_estimate)
    monkeypatch.setattr(glc, "corrected_epoch", note_epoch)
    runtime = quiet()
    fitted = glc.fit(problem, config, runtime)
    assert seen == [
        ("estimate", True), (True, 90, 30, 0.05), (False, 90, 30, 0.05), (False, 90, 30, 0.005), (False, 90, 30, 0.0005)
    ]  # fmt: skip
    assert [row["stage"] for row in runtime.history] == ["noisy labels"] * 4 + ["corrected loss"] * 4
    assert np.array(fitted.rounds[0]["transition"]).shape == (3, 3)


def test_the_first_step_of_the_second_stage_has_no_momentum(monkeypatch):
    problem, states = toy_problem(unlabelled=7), []
    original = glc.corrected_epoch

    def note(model, noisy, clean, transition, optimizer, *rest):
        states.append(len(optimizer.state))
        return original(model, noisy, clean, transition, optimizer, *rest)

    monkeypatch.setattr(glc, "corrected_epoch", note)
    glc.fit(problem, small_config("glc", problem, epochs=2), quiet())
    assert states[0] == 0
    assert states[1] > 0


def test_one_epoch_of_the_second_stage_equals_a_plain_loop():
    problem = toy_problem(unlabelled=7)
    config = small_config("glc", problem, network_options={"hidden": [16]}, batch_size=200)
    _, noisy = labelled_rows(problem.train)
    transition = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]], np.float32)
    models = [new_classifier(config, problem, 0) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    loss = glc.corrected_epoch(models[0], noisy, problem.clean, transition, optimizers[0], config, quiet(), 5)

    optimizers[1].param_groups[0]["lr"] = 0.05
    inputs = problem.train.inputs
    noisy_p = torch.softmax(models[1](torch.from_numpy(inputs[noisy.index])).logits, dim=1)
    likelihood = (noisy_p @ torch.from_numpy(transition))[torch.arange(len(noisy)), noisy.labels]
    clean_logits = models[1](torch.from_numpy(inputs[problem.clean.index])).logits
    clean_loss = F.cross_entropy(clean_logits, torch.from_numpy(problem.clean.clean_labels), reduction="sum")
    expected = (-torch.log(likelihood).sum() + clean_loss) / (len(noisy) + len(problem.clean))
    expected.backward()
    optimizers[1].step()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, value in models[0].state_dict().items():
        torch.testing.assert_close(value, models[1].state_dict()[name], rtol=1e-4, atol=1e-6)


def test_the_given_labels_are_handed_back():
    problem = toy_problem(unlabelled=7)
    fitted = glc.fit(problem, small_config("glc", problem), quiet())
    np.testing.assert_array_equal(fitted.targets[:-7], np.eye(3)[problem.train.labels[:-7]])
    np.testing.assert_array_equal(fitted.targets[-7:], 0)


def test_a_class_without_clean_rows_is_named():
    problem = toy_problem(unlabelled=7)
    with pytest.raises(DataError, match="no clean row of class 'bee'"):
        glc.fit(without_clean(problem, 1), small_config("glc", problem), quiet())


def test_a_value_that_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="epochs"):
        glc.Config(epochs=0)


def test_without_noise_it_is_as_good_as_cross_entropy():
    assert digits_accuracy("glc", 0.0) > digits_accuracy("cross-entropy", 0.0) - 0.02


def test_with_noise_it_is_better():
    assert digits_accuracy("glc", 0.4) > digits_accuracy("cross-entropy", 0.4) + 0.1

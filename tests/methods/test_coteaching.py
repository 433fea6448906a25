"""Co-teaching: which rows each network hands to the other, and whole runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from small_settings import small_config
from torch.nn import functional as F
from toys import digits_accuracy, quiet, same, toy_problem

from labelloop.errors import UsageError
from labelloop.methods import METHODS, coteaching
from labelloop.seeds import integer
from labelloop.training.setup import new_classifier

pytestmark = pytest.mark.slow


def test_each_network_trains_on_the_rows_that_the_other_finds_easy():
    first = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    second = torch.tensor([40.0, 10.0, 20.0, 30.0], requires_grad=True)
    on_first, on_second = coteaching.exchanged([first, second], [first.detach(), second.detach()], 0.5, slice(None))
    assert on_first.item() == 2.5  # rows 1 and 2, easy to the second
    assert on_second.item() == 25.0  # rows 0 and 1, easy to the first
    (on_first + on_second).backward()
    assert first.grad.tolist() == [0, 0.5, 0.5, 0]
    assert second.grad.tolist() == [0.5, 0.5, 0, 0]


def test_something_is_always_kept():
    losses = [torch.tensor([3.0, 1.0]), torch.tensor([1.0, 3.0])]
    assert [loss.item() for loss in coteaching.exchanged(losses, losses, 0.99, slice(None))] == [3.0, 3.0]


def test_the_parts_of_a_batch_add_up_to_its_loss():
    rng = np.random.default_rng(0)
    losses = [torch.from_numpy(rng.random(11)) for _ in range(2)]
    expected = coteaching.exchanged(losses, losses, 0.4, slice(None))
    for cuts in ([0, 4, 11], [0, 0, 1, 11]):
        parts = [slice(*pair) for pair in pairwise(cuts)]
        found = [coteaching.exchanged([loss[mine] for loss in losses], losses, 0.4, mine) for mine in parts]
        for network in range(2):
            torch.testing.assert_close(sum(each[network] for each in found), expected[network])


def test_the_forget_rate_grows_from_nothing_to_the_noise_rate():
    rates = [coteaching.forget_rate(0.4, 5, epoch) for epoch in range(1, 8)]
    np.testing.assert_allclose(rates, [0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert [coteaching.forget_rate(0.4, 1, epoch) for epoch in (1, 2)] == [0, 0.4]


def test_the_noise_rate_is_configured_or_counted_in_paired_clean_rows():
    problem = toy_problem(unlabelled=7)
    assert coteaching.known_noise_rate(problem.clean, coteaching.Config(noise_rate=0.3)) == 0.3
    labels = problem.clean.clean_labels.copy()
    labels[:5] = (labels[:5] + 1) % 3
    labels[20:] = -1
    assert coteaching.known_noise_rate(replace(problem.clean, labels=labels), coteaching.Config()) == 0.25
    with pytest.raises(UsageError, match="set noise_rate"):
        coteaching.known_noise_rate(problem.clean, coteaching.Config())


def test_the_first_step_equals_a_plain_one():
    problem = toy_problem(unlabelled=0)
    config = small_config(
        "co-teaching", problem, noise_rate=0.5, forget_epochs=1, epochs=2, batch_size=90, weight_decay=0.0,
        network_options={"hidden": [16]}, momentum=0.0, learning_rate_drops=(),
    )  # fmt: skip
    fitted = coteaching.fit(problem, config, quiet())
    models = [new_classifier(config, problem, seed) for seed in (0, integer(0, "second network"))]
    x, y = torch.from_numpy(problem.train.inputs[:90]), torch.from_numpy(problem.train.labels)
    for count in (90, 45):
        losses = [F.cross_entropy(model(x).logits, y, reduction="none") for model in models]
        easy = [loss.argsort()[:count] for loss in losses]
        for model, loss, rows in zip(models, losses, easy[::-1], strict=True):
            model.zero_grad()
            loss[rows].mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.05 * parameter.grad
    for name, value in fitted.model.state_dict().items():
        torch.testing.assert_close(value, models[0].state_dict()[name], rtol=1e-4, atol=1e-6)


def test_clean_labels_are_not_read_and_given_ones_are_handed_back():
    problem = toy_problem(unlabelled=7)
    config = small_config("co-teaching", problem, noise_rate=0.3)
    other = replace(problem, clean=replace(problem.clean, clean_labels=(problem.clean.clean_labels + 1) % 3))
    fitted = coteaching.fit(problem, config, quiet())
    assert same(fitted, coteaching.fit(other, config, quiet()))
    np.testing.assert_array_equal(fitted.targets[:-7], np.eye(3)[problem.train.labels[:-7]])
    np.testing.assert_array_equal(fitted.targets[-7:], 0)


@pytest.mark.parametrize("changes", [{"noise_rate": 1.0}, {"noise_rate": -0.2}, {"forget_epochs": 0}])
def test_a_value_that_does_not_fit_is_refused(changes):
    with pytest.raises(UsageError, match=next(iter(changes))):
        coteaching.Config(**changes)


def test_without_noise_it_is_as_good_as_cross_entropy():
    assert digits_accuracy("co-teaching", 0.0, noise_rate=0.0) > digits_accuracy("cross-entropy", 0.0) - 0.02


def test_with_noise_it_is_better():
    assert METHODS["co-teaching"].clean_rows == "not used"
    assert digits_accuracy("co-teaching", 0.4, noise_rate=0.4) > digits_accuracy("cross-entropy", 0.4) + 0.1

"""Algorithm 1 as a whole: the schedule, what reaches the classifier, the combination in real runs, and resuming."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import assert_same, run, tiny_config
from torch import nn
from torch.nn import functional as F
from toys import new_folder, quiet, random_states, same_state, state_of, toy

from labelloop.errors import DataError, UsageError
from labelloop.methods import METHODS
from labelloop.methods.closed_loop import Config, fit, loop
from labelloop.methods.closed_loop.state import LoopState
from labelloop.runs.folder import RunFolder
from labelloop.seeds import integer, stream
from labelloop.splits import stratified_split
from labelloop.training.checkpoint import Checkpoint
from labelloop.training.epoch import extract
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier, resolve
from labelloop.types import MISSING, Problem, Truth

pytestmark = pytest.mark.slow

# --- the schedule ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (5, [40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95]),
        (8, [40, 48, 56, 64, 72, 80, 88, 96]),
        (10, [40, 50, 60, 70, 80, 90]),
    ],
)
def test_a_run_of_100_epochs_corrects_when_the_paper_does(every, expected):
    problem, _ = toy(n=24, m=15)
    corrector = {"max_epochs": 1, "hidden": 4}
    config = tiny_config(problem, epochs=100, warm_up=40, correct_every=every, corrector=corrector)
    fitted = run(problem, config)
    assert [r["epoch"] for r in fitted.rounds] == expected
    assert [r["round"] for r in fitted.rounds] == list(range(1, len(expected) + 1))
    assert [len(r["weights"]) for r in fitted.rounds] == list(range(2, len(expected) + 2))
    assert fitted.stop_reason == "epoch limit"


def test_the_defaults_give_twelve_corrections():
    config = Config()
    assert sum(config.corrects_after(epoch) for epoch in range(1, config.epochs + 1)) == 12
    assert (config.noisy_loss_weight, config.clean_fit_fraction, config.combination) == (0.5, 0.8, "convex")


def test_no_correction_follows_the_last_epoch_and_none_comes_before_the_end_of_warm_up():
    problem, _ = toy()
    assert run(problem, tiny_config(problem, epochs=3, warm_up=3)).rounds == ()
    assert [r["epoch"] for r in run(problem, tiny_config(problem, epochs=4, warm_up=3)).rounds] == [3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"combination": "convexe"}, "did you mean 'convex'"),
        ({"combination": "last"}, "'latest'"),
        ({"warm_up": 0}, "warm_up"),
        ({"correct_every": 0}, "correct_every"),
        ({"noisy_loss_weight": -0.1}, "noisy_loss_weight"),
        ({"clean_fit_fraction": 1.0}, "clean_fit_fraction"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        Config(**changes)


# --- plain cross-entropy is the special case -------------------------------------------------------------------------


def plain_cross_entropy(problem: Problem, config: Config, seed: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """One head, integer labels, F.cross_entropy, a loop of its own; only the names of the streams are shared."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(seed, "network"))
        hidden = nn.Linear(6, 16)
        head = nn.Linear(16, 3)
    scale = new_classifier(config, problem, seed).normalise
    optimizer = torch.optim.SGD([*hidden.parameters(), *head.parameters()], lr=0.05, momentum=0.9, weight_decay=5e-4)
    x, y = torch.tensor(problem.train.inputs[problem.train.index]), torch.tensor(problem.train.labels)
    losses = []
    for epoch in range(1, config.epochs + 1):
        optimizer.param_groups[0]["lr"] = config.learning_rate_in(epoch)
        total = 0.0
        order = torch.tensor(stream(seed, "batches", epoch).permutation(len(x)))
        for batch in order.split(config.batch_size):
            logits = head(torch.relu(hidden(scale(x[batch]))))
            loss = F.cross_entropy(logits, y[batch], ignore_index=MISSING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(batch)
        losses.append(total / len(x))
    state = {"encoder.hidden.0.weight": hidden.weight, "encoder.hidden.0.bias": hidden.bias}
    return state | {"head.weight": head.weight, "head.bias": head.bias}, losses


@pytest.mark.parametrize("unlabelled", [0, 25])
@pytest.mark.parametrize("seed", [0, 3])
def test_without_the_noisy_loss_and_corrections_it_is_plain_cross_entropy_bit_for_bit(unlabelled, seed):
    problem, _ = toy(n=117, unlabelled=unlabelled)  # 117: the last batch is smaller
    config = tiny_config(problem, epochs=6, warm_up=6, noisy_loss_weight=0.0)
    runtime = quiet(seed)
    fitted = fit(problem, config, runtime)
    expected, losses = plain_cross_entropy(problem, config, seed)
    state = fitted.model.state_dict()
    for name, value in expected.items():
        assert torch.equal(state[name], value), name
    untouched = new_classifier(config, problem, seed).state_dict()
    assert torch.equal(state["noisy_head.weight"], untouched["noisy_head.weight"])
    np.testing.assert_allclose([row["loss"] for row in runtime.history], losses, rtol=1e-5)


def test_the_cross_entropy_method_is_the_same_special_case():
    problem, _ = toy(n=117)
    config = tiny_config(problem, epochs=6, warm_up=6, noisy_loss_weight=0.0)
    shared = {f.name: getattr(config, f.name) for f in dataclasses.fields(METHODS["cross-entropy"].config)}
    plain = METHODS["cross-entropy"].fit(problem, METHODS["cross-entropy"].config(**shared), quiet())
    fitted = run(problem, config)
    assert same_state(plain.model.state_dict(), fitted.model.state_dict())
    np.testing.assert_array_equal(plain.targets, fitted.targets)


def test_the_noisy_loss_trains_the_noisy_head_and_the_encoder():
    problem, _ = toy()
    without = run(problem, tiny_config(problem, epochs=2, warm_up=2, noisy_loss_weight=0.0)).model.state_dict()
    with_it = run(problem, tiny_config(problem, epochs=2, warm_up=2, noisy_loss_weight=0.5)).model.state_dict()
    for name in ("noisy_head.weight", "encoder.hidden.0.weight"):
        assert not torch.equal(without[name], with_it[name])


# --- the clean rows never train the classifier -----------------------------------------------------------------------


def with_other_clean_rows(problem: Problem) -> Problem:
    inputs = problem.clean.inputs.copy()
    inputs[problem.clean.index] = np.roll(inputs[problem.clean.index], 7, axis=0)[:, ::-1] * 3 + 1
    clean = replace(problem.clean, inputs=inputs, clean_labels=(problem.clean.clean_labels + 1) % 3)
    return replace(problem, train=replace(problem.train, inputs=inputs), clean=clean)


def test_other_clean_rows_leave_the_warmed_up_classifier_bit_identical():
    problem, _ = toy(paired=10)
    config = tiny_config(problem, epochs=4, warm_up=4)
    fitted, other = run(problem, config), run(with_other_clean_rows(problem), config)
    assert same_state(fitted.model.state_dict(), other.model.state_dict())


def test_clean_rows_reach_the_classifier_through_the_targets_alone(monkeypatch):
    problem, _ = toy()
    config = tiny_config(problem)
    corrected = run(problem, config), run(with_other_clean_rows(problem), config)
    assert not same_state(corrected[0].model.state_dict(), corrected[1].model.state_dict())
    fixed = np.random.default_rng(0).dirichlet(np.ones(3), len(problem.train)).astype(np.float32)
    monkeypatch.setattr(loop, "combine", lambda *_: fixed)
    held = run(problem, config), run(with_other_clean_rows(problem), config)
    assert held[0].rounds != held[1].rounds
    assert same_state(held[0].model.state_dict(), held[1].model.state_dict())


class Watching(Runtime):
    """Notes the rows of every forward pass, by the number in their first column, and whether gradients were on."""

    def __init__(self) -> None:
        super().__init__(0, device="cpu", progress=False)
        self.with_gradient: list[int] = []
        self.without: list[int] = []

    def prepare(self, model):
        def note(_, inputs):
            rows = np.round(inputs[0][:, 0].numpy()).astype(int).tolist()
            (self.with_gradient if torch.is_grad_enabled() else self.without).extend(rows)

        model.register_forward_pre_hook(note)
        return super().prepare(model)


def watched(**changes) -> tuple[Watching, Problem, Config]:
    problem, _ = toy(paired=10, unlabelled=5)
    problem.train.inputs[:, 0] = np.arange(len(problem.train.inputs))
    config = tiny_config(problem, **changes)
    runtime = Watching()
    fit(problem, config, runtime)
    return runtime, problem, config


def test_no_clean_row_is_in_any_forward_pass_with_gradients():
    runtime, problem, config = watched()
    assert sorted(runtime.with_gradient) == sorted(problem.train.index.tolist() * config.epochs)
    assert set(runtime.without) == set(problem.train.index) | set(problem.clean.index)
    rounds = sum(config.corrects_after(epoch) for epoch in range(1, config.epochs + 1))
    assert len(runtime.without) == rounds * (len(problem.train) + len(problem.clean))


def test_a_method_sees_no_truth():
    names = {name for name in dir(Problem) if not name.startswith("_")} | {f.name for f in dataclasses.fields(Problem)}
    assert names == {"train", "clean", "class_names", "num_classes"}
    assert list(inspect.signature(fit).parameters) == ["problem", "config", "runtime"]
    problem, truth = toy()
    assert (problem.train.clean_labels == MISSING).all()
    config = tiny_config(problem)
    wrong = Truth((truth.train_labels + 1) % 3, replace(truth.test, clean_labels=(truth.test.clean_labels + 1) % 3))
    blind = run(problem, config)
    assert_same(run(problem, config, truth=truth), blind)
    assert_same(run(problem, config, truth=wrong), blind)


# --- extraction, seeds, random state ---------------------------------------------------------------------------------


def test_corrections_leave_batch_norm_and_dropout_as_they_would_be_without(monkeypatch):
    """Extraction in a round must not move a running mean or a random number that the next epoch uses."""
    problem, _ = toy(images=True)
    monkeypatch.setattr(loop, "combine", lambda components, _: loop.one_hot(problem.train.labels, 3))
    config = tiny_config(problem, images=True, epochs=6)
    corrected = run(problem, config)
    assert len(corrected.rounds) == 2
    never = run(problem, replace(config, warm_up=6))
    assert same_state(corrected.model.state_dict(), never.model.state_dict())


@pytest.mark.parametrize("images", [False, True])
def test_one_seed_agrees_with_itself_bit_for_bit_and_another_differs(images):
    problem, _ = toy(images=images)
    config = tiny_config(problem, images=images)
    fitted = run(problem, config)
    assert_same(fitted, run(problem, config))
    other = run(problem, config, seed=1)
    assert not same_state(fitted.model.state_dict(), other.model.state_dict())
    assert not np.array_equal(fitted.targets, other.targets)


def test_a_run_leaves_the_global_random_states_alone():
    problem, truth = toy()
    config = tiny_config(problem, network_options={"hidden": [16], "dropout": 0.5})
    before = random_states()
    run(problem, config, truth=truth)
    assert random_states() == before


def test_the_callers_random_states_do_not_matter():
    problem, _ = toy()
    config = tiny_config(problem, network_options={"hidden": [16], "dropout": 0.5})
    fitted = run(problem, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        assert_same(run(problem, config), fitted)


# --- what the correction network and the combination are given -------------------------------------------------------


class Noted:
    """Notes what the loop hands to the correction network and to the combination, and what it makes of it."""

    def __init__(self, monkeypatch) -> None:
        self.corrector: list[dict] = []
        self.components: list[list[np.ndarray]] = []
        self.combined: list[list[np.ndarray]] = []
        fit_corrector, weights, combine = loop.fit_corrector, loop.fit_simplex_weights, loop.combine
        names = list(inspect.signature(fit_corrector).parameters)

        def note_corrector(*arguments):
            self.corrector.append(dict(zip(names, arguments, strict=True)))
            return fit_corrector(*arguments)

        def note_weights(components, labels, previous):
            self.components.append(components)
            return weights(components, labels, previous)

        def note_combine(components, omega):
            self.combined.append(components)
            return combine(components, omega)

        monkeypatch.setattr(loop, "fit_corrector", note_corrector)
        monkeypatch.setattr(loop, "fit_simplex_weights", note_weights)
        monkeypatch.setattr(loop, "combine", note_combine)


def test_paired_rows_show_their_real_label_and_unpaired_ones_the_posterior(monkeypatch):
    problem, _ = toy(paired=15, noise=0.5)
    noted = Noted(monkeypatch)
    fitted = run(problem, tiny_config(problem))
    assert len(noted.corrector) == len(fitted.rounds) == 3
    real = np.eye(3)[problem.clean.labels[:15]]
    for given, components in zip(noted.corrector, noted.components, strict=True):
        np.testing.assert_array_equal(given["noisy"][:15], real)
        assert ((given["noisy"][15:] > 0) & (given["noisy"][15:] < 1)).all(), "a posterior, not a label"
        val = given["clean_val"]
        np.testing.assert_array_equal(components[0], given["noisy"][val])
        assert (val < 15).any()
        assert (val >= 15).any()
    assert not np.array_equal(noted.corrector[0]["noisy"][15:], noted.corrector[1]["noisy"][15:]), "simulated again"


def test_the_base_of_an_unlabelled_row_is_its_posterior(monkeypatch):
    problem, _ = toy(unlabelled=30)
    noted = Noted(monkeypatch)
    config = tiny_config(problem, epochs=4, warm_up=3, learning_rate_drops=())
    run(problem, config)
    at_correction = run(problem, replace(config, epochs=3)).model
    base = noted.combined[0][0]
    expected = extract(at_correction, problem.train, quiet()).noisy_posterior
    np.testing.assert_array_equal(base[:90], np.eye(3)[problem.train.labels[:90]])
    np.testing.assert_allclose(base[90:], expected[90:], atol=1e-6)


def test_the_posterior_and_columns_are_those_of_the_classifier_in_evaluation_mode(monkeypatch):
    problem, _ = toy(images=True)
    noted = Noted(monkeypatch)
    config = tiny_config(problem, images=True, epochs=4, warm_up=3, learning_rate_drops=())
    run(problem, config)
    at_correction = run(problem, replace(config, epochs=3)).model  # the same classifier, as it was then
    expected = extract(at_correction, problem.clean, quiet())
    np.testing.assert_allclose(noted.corrector[0]["noisy"], expected.noisy_posterior, atol=1e-6)
    np.testing.assert_allclose(noted.corrector[0]["columns"]["features"], expected.features, atol=1e-6)


def test_fit_and_val_rows_are_disjoint_cover_the_clean_rows_and_stay_the_same(monkeypatch):
    problem, _ = toy(m=50)
    noted = Noted(monkeypatch)
    run(problem, tiny_config(problem))
    first = noted.corrector[0]
    assert sorted([*first["clean_fit"], *first["clean_val"]]) == list(range(50))
    assert len(first["clean_fit"]) == 40
    assert set(problem.clean.clean_labels[first["clean_val"]]) == {0, 1, 2}
    for later in noted.corrector[1:]:
        np.testing.assert_array_equal(later["clean_fit"], first["clean_fit"])
        np.testing.assert_array_equal(later["clean_val"], first["clean_val"])
    assert len({given["seed"] for given in noted.corrector}) == len(noted.corrector), "a fresh network every round"


def test_components_are_the_base_and_every_correction_so_far_never_recomputed(monkeypatch):
    problem, _ = toy()
    noted = Noted(monkeypatch)
    fitted = run(problem, tiny_config(problem))
    for number, (on_val, on_train) in enumerate(zip(noted.components, noted.combined, strict=True), start=1):
        assert len(on_val) == len(on_train) == number + 1
        np.testing.assert_array_equal(on_train[0], np.eye(3)[problem.train.labels])
    for earlier, later in zip(noted.combined, noted.combined[1:], strict=False):
        assert all(np.array_equal(a, b) for a, b in zip(earlier, later, strict=False))
    for earlier, later in zip(noted.components, noted.components[1:], strict=False):
        assert all(np.array_equal(a, b) for a, b in zip(earlier[1:], later[1:], strict=False))
    weights = np.array(fitted.rounds[-1]["weights"])
    expected = sum(w * c for w, c in zip(weights, noted.combined[-1], strict=True))
    np.testing.assert_allclose(fitted.targets, expected, atol=1e-6)


@pytest.mark.parametrize(
    "inputs",
    [
        ("logits",),
        ("probabilities",),
        ("extra",),
        ("noisy_logits",),
        ("all_features",),
        ("past_labels",),
        ("features+extra+logits",),
        ("features", "logits", "extra"),
        ("features", "all_features+past_labels+noisy_logits"),
    ],
)
def test_every_input_of_the_correction_network_works_in_a_run(monkeypatch, inputs):
    problem, _ = toy(extra=True)
    noted = Noted(monkeypatch)
    fitted = run(problem, tiny_config(problem, corrector={"inputs": inputs}))
    assert all(r["corrector"]["inputs"] in inputs for r in fitted.rounds)
    np.testing.assert_allclose(fitted.targets.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(noted.corrector[0]["columns"]["extra"], problem.clean.extra)


def test_an_input_that_the_data_lacks_is_refused():
    problem, _ = toy(extra=False)
    config = tiny_config(problem, corrector={"inputs": ("features+extra",)})
    with pytest.raises(UsageError, match="'extra'"):
        run(problem, config)
    with pytest.raises(UsageError, match="'extra'"):
        METHODS["closed-loop"].check(problem, config)
    METHODS["closed-loop"].check(toy(extra=True)[0], config)


def widths(monkeypatch, problem: Problem, inputs: str) -> list[int]:
    """How many numbers per row the correction network of every round takes."""
    found, fit_corrector = [], loop.fit_corrector

    def note(*arguments):
        corrector = fit_corrector(*arguments)
        found.append(corrector.network.first.in_features)
        return corrector

    monkeypatch.setattr(loop, "fit_corrector", note)
    run(problem, tiny_config(problem, corrector={"inputs": (inputs,)}))
    return found


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("features", [3 + 16, 3 + 16, 3 + 16]),
        ("noisy_logits", [3 + 3, 3 + 3, 3 + 3]),
        ("all_features", [3 + 16, 3 + 2 * 16, 3 + 3 * 16]),
        ("past_labels", [3, 3 + 3, 3 + 2 * 3]),
        ("features+past_labels", [3 + 16, 3 + 16 + 3, 3 + 16 + 2 * 3]),
    ],
)
def test_a_correction_network_is_as_wide_as_its_inputs(monkeypatch, inputs, expected):
    assert widths(monkeypatch, toy()[0], inputs) == expected


def test_all_features_are_those_of_every_round_oldest_first(monkeypatch):
    problem, _ = toy()
    noted = Noted(monkeypatch)
    run(problem, tiny_config(problem, corrector={"inputs": ("features", "all_features")}))
    seen = [given["columns"]["features"] for given in noted.corrector]
    assert len(seen) == 3
    for k, given in enumerate(noted.corrector):
        np.testing.assert_array_equal(given["columns"]["all_features"], np.concatenate(seen[: k + 1], axis=1))


def test_past_labels_are_the_corrections_of_earlier_rounds(monkeypatch):
    problem, _ = toy()
    noted = Noted(monkeypatch)
    run(problem, tiny_config(problem, corrector={"inputs": ("past_labels",)}))
    val = noted.corrector[0]["clean_val"]
    for k, given in enumerate(noted.corrector):
        shown = given["columns"]["past_labels"]
        assert shown.shape == (len(problem.clean), 3 * k)
        earlier = noted.components[k][1 : k + 1]  # without the given label and without this round
        np.testing.assert_array_equal(shown[val], np.concatenate([np.empty((len(val), 0)), *earlier], axis=1))


def test_noisy_logits_are_those_of_the_noisy_head_up_to_a_constant_of_the_row(monkeypatch):
    problem, _ = toy()
    noted = Noted(monkeypatch)
    config = tiny_config(problem, epochs=4, warm_up=3, learning_rate_drops=(), corrector={"inputs": ("noisy_logits",)})
    run(problem, config)
    model = run(problem, replace(config, epochs=3)).model.eval()
    with torch.no_grad():
        logits = model(torch.tensor(problem.clean.inputs[problem.clean.index])).noisy_logits.numpy()
    apart = noted.corrector[0]["columns"]["noisy_logits"] - logits
    np.testing.assert_allclose(apart, np.broadcast_to(apart[:, :1], apart.shape), atol=1e-4)
    assert np.ptp(logits, axis=1).max() > 0.1  # else any constant row would do


# --- what comes out --------------------------------------------------------------------------------------------------


def test_targets_are_rows_of_probabilities_and_better_than_the_given_labels():
    problem, truth = toy(n=200, m=80, noise=0.4)
    runtime = quiet(truth=truth)
    fitted = fit(problem, tiny_config(problem, epochs=12), runtime)
    assert fitted.targets.shape == (200, 3)
    assert fitted.targets.dtype == np.float32
    assert (fitted.targets >= 0).all()
    np.testing.assert_allclose(fitted.targets.sum(axis=1), 1, atol=1e-6)
    last = runtime.history[-1]
    assert last["corrected_label_accuracy"] > last["given_label_accuracy"] + 0.1


def test_the_accuracy_on_clean_val_is_that_of_the_rows_that_judge_the_corrections():
    problem, truth = toy(noise=0.4)
    runtime = quiet(truth=truth)
    config = tiny_config(problem, epochs=4)
    fitted = fit(problem, config, runtime)
    clean = problem.clean
    _, held_out = stratified_split(clean.clean_labels, config.clean_fit_fraction, stream(runtime.seed, "clean-val"))
    right = extract(fitted.model, clean, runtime).logits.argmax(axis=1) == clean.clean_labels
    last = runtime.history[-1]
    assert last["clean_val_accuracy"] == pytest.approx(right[held_out].mean())
    assert last["clean_accuracy"] == pytest.approx(right.mean())
    assert right[held_out].mean() != right.mean()  # else nothing tells the two apart


def test_unlabelled_rows_get_a_corrected_label():
    problem, truth = toy(n=200, m=80, noise=0.2, unlabelled=60)
    fitted = run(problem, tiny_config(problem, epochs=12))
    np.testing.assert_allclose(fitted.targets[140:].sum(axis=1), 1, atol=1e-6)
    assert (fitted.targets[140:].argmax(axis=1) == truth.train_labels[140:]).mean() > 0.6


@pytest.mark.parametrize("changes", [{}, {"noisy_loss_weight": 0.0}])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_round_is_worse_on_clean_val_than_any_of_its_components(changes, seed):
    problem, _ = toy(paired=10, seed=seed)
    fitted = run(problem, tiny_config(problem, epochs=12, correct_every=1, **changes), seed=seed)
    assert len(fitted.rounds) == 9
    for record in fitted.rounds:
        assert len(record["component_losses"]) == len(record["weights"])
        assert record["clean_val_loss"] <= min(record["component_losses"]) + 1e-9
        assert sum(record["weights"]) == pytest.approx(1)
        assert min(record["weights"]) >= 0


def test_the_latest_correction_alone(monkeypatch):
    problem, _ = toy()
    noted = Noted(monkeypatch)
    fitted = run(problem, tiny_config(problem, combination="latest"))
    assert [r["weights"] for r in fitted.rounds] == [[0, 1], [0, 0, 1], [0, 0, 0, 1]]
    np.testing.assert_array_equal(fitted.targets, noted.combined[-1][-1])
    for record in fitted.rounds:
        assert record["clean_val_loss"] == record["component_losses"][-1]


def test_labels_moved_counts_the_rows_whose_label_changed(monkeypatch):
    problem, _ = toy()
    noisy = np.eye(3, dtype=np.float32)[problem.train.labels]
    first, second = noisy.copy(), noisy.copy()
    first[:30] = np.roll(noisy[:30], 1, axis=1)
    second[:36] = np.roll(noisy[:36], 1, axis=1)
    results = iter([first, second, second])
    monkeypatch.setattr(loop, "combine", lambda *_: next(results))
    assert [r["labels_moved"] for r in run(problem, tiny_config(problem)).rounds] == [30 / 120, 6 / 120, 0]


def test_an_unlabelled_row_has_no_label_that_could_move(monkeypatch):
    problem, _ = toy(unlabelled=60)
    view = np.eye(3, dtype=np.float32)[np.where(problem.train.labels == MISSING, 1, problem.train.labels)]
    other = np.eye(3, dtype=np.float32)[np.where(problem.train.labels == MISSING, 0, problem.train.labels)]
    moved = []
    for targets in (view, other):
        monkeypatch.setattr(loop, "combine", lambda *_, targets=targets: targets)
        moved.append(run(problem, tiny_config(problem)).rounds[0]["labels_moved"])
    assert moved[0] == moved[1]


@pytest.mark.filterwarnings("ignore")
def test_a_correction_network_that_diverges_does_not_ruin_the_targets():
    """An extra column of nanosecond time stamps is enough: 1.7e18 fits float32, its products do not."""
    problem, _ = toy(extra=True)
    for rows in (problem.train, problem.clean):
        rows.extra[:] = 1.7e18 * (1 + 0.01 * rows.extra)
    fitted = run(problem, tiny_config(problem, corrector={"inputs": ("features+extra",)}))
    assert np.isfinite(fitted.targets).all()


def test_a_last_batch_of_one_image_is_trained_on():
    problem, _ = toy(n=65, images=True)
    fitted = run(problem, tiny_config(problem, images=True, batch_size=32, epochs=4))
    assert len(fitted.rounds) == 1


# --- stopping and resuming -------------------------------------------------------------------------------------------


class Interrupted(Runtime):
    """Stops with Ctrl-C in an epoch: while it is recorded, or once its checkpoint is written."""

    def __init__(self, folder: RunFolder, epoch: int, where: str, truth: Truth) -> None:
        super().__init__(0, device="cpu", folder=folder, progress=False, truth=truth)
        self.epoch, self.where = epoch, where

    def record(self, epoch, *arguments, **named):
        super().record(epoch, *arguments, **named)
        if epoch == self.epoch and self.where == "record":
            raise KeyboardInterrupt

    def save(self, epoch, *arguments, **named):
        super().save(epoch, *arguments, **named)
        if epoch == self.epoch and self.where == "save":
            raise KeyboardInterrupt


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "candidates": {"corrector": {"inputs": ("features", "logits+extra")}},
    "dropout": {"network_options": {"hidden": [16], "dropout": 0.4}},
    "batch norm": {"images": True, "augment": "crop-flip"},
    "latest": {"combination": "latest"},
    "averaged": {"mixup": 0.5, "average_weights": 0.9, "augment": "none"},
    "noisy logits": {"corrector": {"inputs": ("noisy_logits+logits",)}},
    "all features": {"corrector": {"inputs": ("all_features",)}},
    "past labels": {"corrector": {"inputs": ("features+past_labels",)}},
    "all candidates": {"corrector": {"inputs": ("features", "all_features+past_labels", "noisy_logits")}},
}


def variant(name: str) -> tuple[Problem, Config, Truth]:
    images = VARIANTS[name].get("images", False)
    problem, truth = toy(n=100, paired=10, unlabelled=10, extra=True, images=images)
    return problem, tiny_config(problem, **VARIANTS[name]), truth


def without_costs(history: list[dict]) -> list[dict]:
    """The record without what no two runs share: time and memory."""
    return [{key: value for key, value in row.items() if key not in ("seconds", "peak_memory_mib")} for row in history]


@pytest.mark.parametrize("name", VARIANTS)
def test_an_interrupted_run_resumes_to_the_same_result_bit_for_bit(name, tmp_path):
    problem, config, truth = variant(name)
    whole_runtime = quiet(truth=truth)
    whole = fit(problem, config, whole_runtime)
    assert len(whole.rounds) >= 3
    before = random_states()
    # A correction follows epoch 3; epoch 4 is the first to train on corrected labels; 8 is the last.
    stops = [("save", 3), ("record", 7)]
    if name in ("plain", "batch norm", "all candidates"):
        stops += [("record", 3), ("save", 4)]
    if name in ("plain", "batch norm"):
        stops += [("record", 1), ("save", 2), ("save", 8)]
    for where, epoch in stops:
        path = tmp_path / f"{where}-{epoch}"
        with pytest.raises(KeyboardInterrupt):
            fit(problem, config, Interrupted(new_folder(path), epoch, where, truth))
        assert random_states() == before
        runtime = quiet(folder=RunFolder(path, resume=True), truth=truth)
        assert_same(fit(problem, config, runtime), whole)
        assert without_costs(runtime.history) == without_costs(whole_runtime.history)
        assert runtime.folder.read_metrics() == runtime.history


def test_a_run_may_be_interrupted_again_and_again(tmp_path):
    problem, config, truth = variant("candidates")
    whole = run(problem, config)
    folder = new_folder(tmp_path / "run")
    for epoch in range(1, config.epochs + 1):
        with pytest.raises(KeyboardInterrupt):
            fit(problem, config, Interrupted(folder, epoch, "save", truth))
        folder = RunFolder(tmp_path / "run", resume=True)
    assert_same(run(problem, config, folder=folder), whole)


def test_a_resumed_run_hands_the_weights_of_the_last_round_to_the_next(monkeypatch, tmp_path):
    problem, config, truth = variant("plain")
    with pytest.raises(KeyboardInterrupt):
        fit(problem, config, Interrupted(new_folder(tmp_path / "run"), 4, "save", truth))
    original, handed = loop.fit_simplex_weights, []

    def note(components, labels, previous):
        handed.append(previous)
        return original(components, labels, previous)

    monkeypatch.setattr(loop, "fit_simplex_weights", note)
    fitted = run(problem, config, folder=RunFolder(tmp_path / "run", resume=True))
    assert [weights.tolist() for weights in handed] == [record["weights"] for record in fitted.rounds[:-1]]


def test_a_checkpoint_with_half_networks_inside_the_loop_is_refused_in_words():
    targets = np.eye(2, dtype=np.float32)
    old = Checkpoint(3, {}, {}, {"targets": targets}, [], {"rounds": []})
    assert LoopState.restored(old, targets).past == []
    for name in ("held_out_train", "held_out_gap"):
        with pytest.raises(DataError, match=r"older version.*--overwrite"):
            LoopState.restored(replace(old, arrays=old.arrays | {name: targets}), targets)


def test_a_folder_changes_nothing(tmp_path):
    problem, config, _ = variant("plain")
    assert_same(run(problem, config, folder=new_folder(tmp_path / "run")), run(problem, config))


def test_resuming_continues_rather_than_starting_again(tmp_path):
    problem, config, truth = variant("plain")
    with pytest.raises(KeyboardInterrupt):
        fit(problem, config, Interrupted(new_folder(tmp_path / "run"), 5, "save", truth))

    class Counting(Runtime):
        trained = 0

        def phase(self, name):
            self.trained += name == "train"
            return super().phase(name)

    runtime = Counting(0, device="cpu", folder=RunFolder(tmp_path / "run", resume=True), progress=False)
    fit(problem, config, runtime)
    assert runtime.trained == 3


def test_automatic_values_are_resolved_from_the_rows():
    problem, _ = toy()
    assert resolve(Config(), problem).network == "mlp"
    images, _ = toy(images=True)
    resolved = resolve(Config(), images)
    assert (resolved.network, resolved.augment) == ("small-cnn", "crop-flip")


def test_the_model_is_the_one_trained_last():
    problem, _ = toy()
    fitted = run(problem, tiny_config(problem))
    assert not same_state(state_of(fitted.model), new_classifier(tiny_config(problem), problem, 0).state_dict())

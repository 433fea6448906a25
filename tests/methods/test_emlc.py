"""EMLC: soft labels, the gradient of the teacher over K steps, the gate, what the student trains on, whole runs."""

from __future__ import annotations

import copy
from typing import Any

import double_backward
import numpy as np
import pytest
import torch
from bilevel_toys import (
    CLASSES,
    TwoByOne,
    assert_close,
    buffers_of,
    by_hand,
    configure,
    conv_batch,
    conv_model,
    count_passes,
    permuted_clean,
    relabelled_clean,
    sgd,
    train,
    with_velocity,
)
from safetensors.torch import save_file
from torch.nn import functional as F
from toys import digits_accuracy, quiet, same_state, state_of, toy_problem

from labelloop.errors import UsageError
from labelloop.methods import METHODS, emlc
from labelloop.methods.bilevel import gradient, parameters_of, slopes
from labelloop.methods.emlc import Config, Gate, effect_on_clean, false_labels, fit, gate_loss, mixed, step, teach
from labelloop.training.setup import new_classifier
from labelloop.types import MISSING

pytestmark = pytest.mark.slow


def log_posterior(logits: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(logits, dim=1)


def new_gate(feature_dim: int = 8) -> Gate:
    torch.manual_seed(11)
    return Gate(feature_dim, CLASSES, 5).double()


def clean_loss(model, batch) -> float:
    with torch.no_grad():
        return float(F.cross_entropy(copy.deepcopy(model)(batch.clean_x).logits, batch.clean_labels))


class Group:
    """A student in the middle of training, a teacher and a gate, and all they need for a step."""

    def __init__(self, lr: float = 0.1, teacher_lr: float = 0.1, **settings) -> None:
        self.student, self.teacher, self.gate = conv_model(0), conv_model(1), new_gate()
        self.optimizer = with_velocity(self.student, lr=lr)
        self.teacher_optimizer = torch.optim.SGD([*self.teacher.parameters(), *self.gate.parameters()], lr=teacher_lr)
        self.config = Config(**({"batch_size": 6} | settings))

    def step(self, batch):
        return step(
            self.student, self.teacher, self.gate, self.optimizer, self.teacher_optimizer, batch, self.config
        )  # fmt: skip

    def states(self) -> dict[str, torch.Tensor]:
        parts = {"student": self.student, "teacher": self.teacher, "gate": self.gate}
        return {f"{part}.{name}": value for part, net in parts.items() for name, value in state_of(net).items()}


# --- soft labels -----------------------------------------------------------------------------------------------------


def test_the_gate_mixes_the_given_label_with_the_posterior_of_the_teacher():
    posterior = torch.softmax(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.tensor([0, 1, 2, 3, 0])
    torch.testing.assert_close(mixed(torch.ones(5), labels, posterior), F.one_hot(labels, 4).float())
    torch.testing.assert_close(mixed(torch.zeros(5), labels, posterior), posterior)
    found = mixed(torch.linspace(0, 1, 5), labels, posterior)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(5))
    torch.testing.assert_close(found[2], (F.one_hot(labels, 4)[2] + posterior[2]) / 2)


# --- the gradient of the teacher -------------------------------------------------------------------------------------


def test_the_example_by_hand():
    model, batch = TwoByOne(), by_hand()
    batch = batch._replace(x=batch.x[:1])
    targets = torch.full((1, 2), 0.5, dtype=torch.float64, requires_grad=True)
    old = {name: value.detach().clone() for name, value in model.named_parameters()}
    teach(model, sgd(model, lr=0.1, momentum=0.0, weight_decay=0.0), batch, targets, Config(student_steps=1))
    direction = gradient(F.cross_entropy(model(batch.clean_x).logits, batch.clean_labels), parameters_of(model))
    change = slopes(model, old, direction, batch.x, log_posterior)
    effect_on_clean([change], [targets], 0.1).backward()
    torch.testing.assert_close(targets.grad, torch.tensor([[-0.05, 0.05]], dtype=torch.float64), rtol=0, atol=1e-15)


@pytest.mark.parametrize("lr", [0.01, 0.1])
def test_for_one_step_it_equals_a_backward_through_a_backward(lr, monkeypatch):
    group, batch = Group(lr, student_steps=1, batch_size=12), conv_batch(12)
    student, optimizer = copy.deepcopy(group.student), copy.deepcopy(group.optimizer)
    twin_optimizer = sgd(student, lr=lr)
    twin_optimizer.load_state_dict(optimizer.state_dict())
    kept = []
    original = emlc.effect_on_clean

    def watch(changes, targets, *rest):
        targets[0].retain_grad()
        kept.append(targets[0])
        return original(changes, targets, *rest)

    monkeypatch.setattr(emlc, "effect_on_clean", watch)
    _, targets, _ = group.step(batch)
    expected = double_backward.target_gradient(student, twin_optimizer, targets, batch)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(kept[0].grad, expected, rtol=0, atol=1e-10)


def test_a_teacher_step_lowers_the_clean_loss_of_the_student_it_would_have_taught():
    """The point of it all: with the new teacher the same student would do better on the clean rows."""
    batch = conv_batch(12, 40)
    losses = []
    for rounds in (0, 30):
        group = Group(0.1, teacher_lr=1.0, student_steps=1, batch_size=12)
        for _ in range(rounds):
            group.student = conv_model(0)  # always the same student: only the teacher learns
            group.optimizer = with_velocity(group.student, lr=0.1)
            group.step(batch)
        student = conv_model(0)
        keep = torch.sigmoid(group.gate(group.teacher(batch.x).features, batch.labels))
        targets = mixed(keep, batch.labels, torch.softmax(group.teacher(batch.x).logits, dim=1))
        teach(student, with_velocity(student, lr=0.1), batch, targets, group.config)
        losses.append(clean_loss(student, batch))
    assert losses[1] < losses[0]


def test_earlier_steps_fade():
    same_change = torch.ones(3, 2, dtype=torch.float64)
    targets = [torch.zeros(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    effect_on_clean([same_change, same_change], targets, 0.1).backward()
    torch.testing.assert_close(targets[0].grad, same_change * 0.1 / 3 * 0.9)
    torch.testing.assert_close(targets[1].grad, same_change * 0.1 / 3)


def test_the_slopes_of_a_batch_meet_its_own_targets():
    rng = torch.Generator().manual_seed(0)
    changes = [torch.randn(4, 3, generator=rng) for _ in range(5)]
    for official, order in ((False, [0, 1, 2, 3, 4]), (True, [4, 3, 2, 1, 0])):
        targets = [torch.zeros(4, 3, requires_grad=True) for _ in range(5)]
        effect_on_clean(changes, targets, 0.1, official).backward()
        scale = 5 if official else 1  # that code also averages over the batches
        for number, source in enumerate(order):
            expected = changes[source] * 0.1 * 0.9 ** (4 - source) / 4 / scale
            torch.testing.assert_close(targets[number].grad, expected)


def test_permuting_batches_permutes_their_gradients():
    rng = torch.Generator().manual_seed(0)
    changes, order = [torch.randn(4, 3, generator=rng) for _ in range(5)], [3, 0, 4, 1, 2]
    grads = []
    for arranged in (changes, [changes[i] for i in order]):
        targets = [torch.zeros(4, 3, requires_grad=True) for _ in range(5)]
        effect_on_clean(arranged, targets, 1e-9).backward()  # so small that nothing fades
        grads.append([target.grad for target in targets])
    for number, source in enumerate(order):
        torch.testing.assert_close(grads[1][number], grads[0][source])


def test_batches_of_unequal_sizes_count_each_by_its_own_mean():
    changes = [torch.ones(4, 2), torch.ones(2, 2)]
    targets = [torch.zeros(4, 2, requires_grad=True), torch.zeros(2, 2, requires_grad=True)]
    effect_on_clean(changes, targets, 0.5).backward()
    torch.testing.assert_close(targets[0].grad, torch.full((4, 2), 0.5 * 0.5 / 4))
    torch.testing.assert_close(targets[1].grad, torch.full((2, 2), 0.5 / 2))


# --- the student -----------------------------------------------------------------------------------------------------


def test_the_student_trains_on_the_soft_labels_alone_and_sends_nothing_to_the_teacher():
    batch, config = conv_batch(12), Config(batch_size=4)
    student, twin = conv_model(), conv_model()
    targets = torch.softmax(torch.randn(12, CLASSES, dtype=torch.float64), dim=1).requires_grad_()
    _, lessons = teach(student, with_velocity(student), batch, targets, config)
    assert targets.grad is None
    optimizer = with_velocity(twin)
    for number in range(3):
        assert_close(lessons[number].parameters, dict(twin.named_parameters()), 1e-12)
        rows = slice(4 * number, 4 * number + 4)
        loss = F.cross_entropy(twin(batch.x[rows]).logits, targets[rows].detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_close(state_of(student), state_of(twin), 1e-12)


def test_with_mix_g_it_also_trains_on_half_of_the_clean_rows():
    batch, config = conv_batch(6, 8), Config(batch_size=6, mix_g=True)
    student, twin = conv_model(), conv_model()
    targets = torch.softmax(torch.randn(6, CLASSES, dtype=torch.float64), dim=1)
    _, (lesson,) = teach(student, sgd(student), batch, targets, config)
    logits = twin(torch.cat([batch.x, batch.clean_x[:4]])).logits
    loss = F.cross_entropy(logits[:6], targets) + F.cross_entropy(logits[6:], batch.clean_labels[:4])
    loss.backward()
    for (name, value), other in zip(student.named_parameters(), twin.parameters(), strict=True):
        assert value.grad is None or torch.equal(value.grad, other.grad), name
    assert len(lesson.x) == 10
    assert len(lesson.targets) == 6


@pytest.mark.parametrize("mix_g", [False, True])
def test_which_clean_labels_the_student_feels_at_once(mix_g):
    """In its own steps: none, or those of the first half with mix_g; the rest act through the teacher alone."""
    batch = conv_batch(6, 8)
    for half, felt in ((slice(0, 4), mix_g), (slice(4, 8), False)):
        labels = batch.clean_labels.clone()
        labels[half] = (labels[half] + 1) % CLASSES
        states = []
        for clean_labels in (batch.clean_labels, labels):
            group = Group(mix_g=mix_g)
            group.step(batch._replace(clean_labels=clean_labels))
            states.append(state_of(group.student))
        assert same_state(*states) is not felt


def test_running_statistics_are_those_of_the_steps_and_of_the_clean_pass():
    group, batch = Group(), conv_batch(12)
    twin, teacher = copy.deepcopy(group.student), copy.deepcopy(group.teacher)
    _, targets, _ = group.step(batch)
    teach(twin, with_velocity(twin), batch, targets, group.config)
    twin(batch.clean_x)
    assert same_state(buffers_of(group.student), buffers_of(twin))
    teacher(torch.cat([batch.x, batch.clean_x]))
    assert same_state(buffers_of(group.teacher), buffers_of(teacher))


def test_a_group_passes_over_its_rows_once_with_a_graph_and_once_in_forward_mode():
    group, batch = Group(), conv_batch(30, 9)
    by_student, by_teacher = count_passes(group.student), count_passes(group.teacher)
    group.step(batch)
    assert by_teacher == [39]
    assert by_student == [6] * 5 + [9] + [6] * 5


@pytest.mark.parametrize(("rows", "sizes"), [(18, [6, 6, 6]), (19, [7, 6, 6]), (4, [4]), (15, [8, 7]), (1, [1])])
def test_left_over_rows_join_the_other_steps(rows, sizes):
    batch, student = conv_batch(rows), conv_model()
    targets = torch.full((rows, CLASSES), 0.25, dtype=torch.float64)
    _, lessons = teach(student, sgd(student), batch, targets, Config(batch_size=6))
    assert [len(lesson.x) for lesson in lessons] == sizes


def test_the_order_of_the_clean_rows_does_not_matter():
    states = []
    for batch in (conv_batch(12), permuted_clean(conv_batch(12))):
        group = Group()
        group.step(batch)
        group.step(batch)
        states.append(group.states())
    assert_close(*states, 1e-10)


# --- the teacher and its gate ----------------------------------------------------------------------------------------


def test_the_teacher_also_learns_the_clean_labels():
    group, batch = Group(teacher_lr=0.3, batch_size=12), conv_batch(12, 40)
    group.optimizer.param_groups[0]["lr"] = 0.0  # the student stands still: no effect, the clean loss alone
    before = clean_loss(group.teacher, batch)
    gate = state_of(group.gate)
    for _ in range(5):
        group.step(batch)
    assert clean_loss(group.teacher, batch) < before - 0.1
    assert same_state(gate, state_of(group.gate))


def test_false_labels():
    logits = torch.tensor([[3.0, 2, 1], [3, 2, 1], [0, 2, 1]])
    labels = torch.tensor([0, 1, 1])
    assert false_labels(logits, labels, "adversarial").tolist() == [1, 0, 2]
    torch.manual_seed(0)
    drawn = false_labels(torch.zeros(3000, 3), torch.zeros(3000, dtype=torch.long), "random")
    np.testing.assert_allclose(drawn.bincount() / 3000, 1 / 3, atol=0.05)


@pytest.mark.parametrize("kind", ["random", "adversarial"])
def test_the_gate_loss_shows_every_second_row_a_false_label(kind):
    gate, shown = new_gate(), []
    gate.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[1].clone()))
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(10, 8, dtype=torch.float64, generator=rng)
    logits = torch.randn(10, CLASSES, dtype=torch.float64, generator=rng)
    labels = torch.randint(CLASSES, (10,), generator=rng)
    loss = gate_loss(gate, features, logits, labels, kind)
    assert torch.equal(shown[0][::2], labels[::2])
    if kind == "adversarial":
        assert not (shown[0][1::2] == labels[1::2]).any()
    keep = torch.sigmoid(gate(features, shown[0]))
    expected = -torch.where(shown[0] == labels, keep, 1 - keep).log().mean()
    torch.testing.assert_close(loss, expected)
    assert float(gate_loss(gate, features, logits, labels, "none")) == 0


def test_a_saturated_gate_has_a_finite_loss():
    gate = new_gate()
    gate.out.bias.data += 1e4
    loss = gate_loss(gate, torch.randn(6, 8).double(), torch.randn(6, 4).double(), torch.arange(6) % 4, "adversarial")
    assert bool(torch.isfinite(loss))


@pytest.mark.parametrize("gate_loss", ["none", "random", "adversarial"])
@pytest.mark.parametrize("mix_g", [False, True])
@pytest.mark.parametrize("official_order", [False, True])
def test_every_form_of_a_step_moves_all_three(gate_loss, mix_g, official_order):
    group = Group(gate_loss=gate_loss, mix_g=mix_g, official_order=official_order)
    before = group.states()
    loss, targets, keep = group.step(conv_batch(19))
    after = group.states()
    assert all(bool(torch.isfinite(value).all()) for value in after.values())
    for part in ("student.head", "teacher.head", "gate.out"):
        assert not torch.equal(before[f"{part}.weight"], after[f"{part}.weight"])
    assert bool(torch.isfinite(loss))
    torch.testing.assert_close(targets.sum(dim=1), torch.ones(19, dtype=torch.float64))
    assert bool(((keep > 0) & (keep < 1)).all())


# --- whole runs ------------------------------------------------------------------------------------------------------


def test_noise_free_it_is_as_good_as_cross_entropy():
    assert digits_accuracy("emlc", 0.0, student_steps=1) > digits_accuracy("cross-entropy", 0.0) - 0.03


def test_noisy_it_is_better_than_cross_entropy():  # with the five steps of the default
    assert digits_accuracy("emlc", 0.4) > digits_accuracy("cross-entropy", 0.4) + 0.03


def test_unlabelled_rows_play_no_part_and_clean_labels_do():
    problem = toy_problem(unlabelled=7)
    fitted = train("emlc", problem, student_steps=2)
    assert (problem.train.labels[-7:] == MISSING).all()
    assert (fitted.targets[-7:] == 0).all()
    np.testing.assert_allclose(fitted.targets[:-7].sum(axis=1), 1, atol=1e-6)
    other = train("emlc", relabelled_clean(problem), student_steps=2)
    assert not same_state(fitted.model.state_dict(), other.model.state_dict())


class Stopped(Exception):
    pass


class Watching(type(quiet())):
    """Keeps the networks as they are before training."""

    def __init__(self) -> None:
        super().__init__(0, device="cpu", progress=False)
        self.networks: list[Any] = []

    def prepare(self, model):
        self.networks.append(model)
        return super().prepare(model)

    def restore(self, *parts):
        raise Stopped


def started(**changes):
    problem, runtime = toy_problem(), Watching()
    config = configure("emlc", problem, **changes)
    with pytest.raises(Stopped):
        fit(problem, config, runtime)
    student, teacher = runtime.networks
    assert same_state(state_of(student), state_of(new_classifier(config, problem, 0)))
    return state_of(student.encoder), state_of(teacher.encoder)


def test_student_and_teacher_start_apart_or_from_the_weights_of_a_file(tmp_path):
    student, teacher = started()
    assert not same_state(student, teacher)
    weights = {name: torch.full_like(value, 0.25) for name, value in student.items()}
    save_file(weights, tmp_path / "encoder.safetensors")
    student, teacher = started(weights=str(tmp_path / "encoder.safetensors"))
    assert same_state(student, weights)
    assert same_state(teacher, weights)


def test_the_record_says_how_much_is_kept():
    problem, runtime = toy_problem(), quiet()
    fit(problem, configure("emlc", problem), runtime)
    assert all(0 < row["kept"] < 1 for row in runtime.history)
    assert all(np.isfinite(row["loss"]) for row in runtime.history)


def test_the_defaults_are_the_published_ones():
    config = Config()
    assert (config.clean_batch_size, config.student_steps, config.teacher_learning_rate_factor) == (128, 5, 1.0)
    assert (config.gate_loss, config.mix_g, config.gate_width, config.official_order) == ("none", False, 128, False)
    assert METHODS["emlc"].fit is fit


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gate_loss": "adversary"}, "did you mean 'adversarial'"),
        ({"student_steps": 0}, "student_steps"),
        ({"clean_batch_size": 0}, "clean_batch_size"),
        ({"clean_batch_size": 1, "mix_g": True}, "mix_g"),
        ({"gate_width": 0}, "gate_width"),
        ({"teacher_learning_rate_factor": 0.0}, "teacher_learning_rate_factor"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        Config(**changes)

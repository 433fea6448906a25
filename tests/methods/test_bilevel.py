"""The shared helper: slopes by forward mode, gradients at virtual parameters, and batches with clean rows."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from bilevel_toys import buffers_of, configure, conv_batch, conv_model, train
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from toys import quiet, same_state, state_of, toy_problem

from labelloop.methods.bilevel import (
    _clean_order,
    _FastFormulas,
    batches_with_clean,
    clean_gradient,
    outputs_at,
    parameters_of,
    slopes,
)
from labelloop.models import TwoHeadClassifier, build_encoder
from labelloop.seeds import stream
from labelloop.splits import labelled_rows
from labelloop.training.averaging import from_arrays, to_arrays
from labelloop.types import MISSING

# --- slopes ----------------------------------------------------------------------------------------------------------


def random_direction(model: nn.Module, seed: int = 4) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {name: torch.randn_like(value) for name, value in model.named_parameters()}


def losses(labels: torch.Tensor):
    return lambda logits: F.cross_entropy(logits, labels, reduction="none")


def test_the_slopes_are_inner_products_with_the_gradient_of_every_row():
    model, batch = conv_model(), conv_batch()
    direction, parameters = random_direction(model), parameters_of(model)
    found = slopes(model, parameters, direction, batch.x, losses(batch.labels))
    row_losses = losses(batch.labels)(outputs_at(model, parameters, batch.x).logits)
    expected = []
    for loss in row_losses:
        grads = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
        pairs = zip(direction.values(), grads, strict=True)
        expected.append(sum((d * g).sum() for d, g in pairs if g is not None))
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-10)
    assert not found.requires_grad


def test_the_slopes_are_finite_differences():
    model, batch = conv_model(), conv_batch()
    direction, parameters, h = random_direction(model), parameters_of(model), 1e-6

    def at(sign: int) -> torch.Tensor:
        moved = {name: value + sign * h * direction[name] for name, value in parameters.items()}
        return losses(batch.labels)(outputs_at(model, moved, batch.x).logits).detach()

    found = slopes(model, parameters, direction, batch.x, losses(batch.labels))
    torch.testing.assert_close(found, (at(1) - at(-1)) / (2 * h), rtol=1e-5, atol=1e-6)


def test_a_parameter_without_a_direction_does_not_move():
    model, batch = conv_model(), conv_batch()
    direction = random_direction(model)
    some = {name: value for name, value in direction.items() if "bn" not in name}
    filled = {name: direction[name] if name in some else torch.zeros_like(direction[name]) for name in direction}
    parameters = parameters_of(model)
    a = slopes(model, parameters, some, batch.x, losses(batch.labels))
    b = slopes(model, parameters, filled, batch.x, losses(batch.labels))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_the_slopes_see_the_values_that_the_draw_drops():
    torch.manual_seed(0)
    model = TwoHeadClassifier(build_encoder("mlp", (6,), {"hidden": [16], "dropout": 0.5}), 4).double()
    x, labels = torch.randn(10, 6, dtype=torch.float64), torch.arange(10) % 4
    direction, parameters = random_direction(model), parameters_of(model)
    torch.manual_seed(7)
    found = slopes(model, parameters, direction, x, losses(labels))
    torch.manual_seed(7)
    mean_loss = F.cross_entropy(model(x).logits, labels)
    grads = torch.autograd.grad(mean_loss, list(parameters.values()), allow_unused=True)
    expected = sum((d * g).sum() for d, g in zip(direction.values(), grads, strict=True) if g is not None)
    torch.testing.assert_close(found.mean(), expected, rtol=0, atol=1e-12)


def test_virtual_passes_leave_the_network_alone():
    model, batch = conv_model(), conv_batch()
    before, direction = state_of(model), random_direction(model)
    random_state = torch.get_rng_state()
    outputs_at(model, parameters_of(model), batch.x)
    clean_gradient(model, parameters_of(model), batch.clean_x, batch.clean_labels)
    slopes(model, parameters_of(model), direction, batch.x, losses(batch.labels))
    assert any("running_mean" in name for name in before)
    assert same_state(before, state_of(model))
    assert all(value.grad is None for value in model.parameters())
    assert torch.equal(random_state, torch.get_rng_state())
    model(batch.x)
    assert not same_state(buffers_of(model), {name: before[name] for name in buffers_of(model)})  # the check can fail


def test_the_gradient_at_other_parameters_is_that_of_a_network_that_has_them():
    model, other, batch = conv_model(0), conv_model(1), conv_batch()
    found = clean_gradient(model, parameters_of(other), batch.clean_x, batch.clean_labels)
    F.cross_entropy(other(batch.clean_x).logits, batch.clean_labels).backward()
    expected = {name: value.grad for name, value in other.named_parameters() if value.grad is not None}
    assert same_state(found, expected)
    assert "head.weight" in found
    assert "noisy_head.weight" not in found


@pytest.mark.parametrize("shape", [(16, 5), (6, 5, 7), (4, 5, 3, 3)])
@pytest.mark.parametrize("moves", ["input", "input and scale", "input and shift", "everything", "parameters"])
@pytest.mark.parametrize("training", [True, False])
def test_fast_batch_norm_equals_the_formula_of_torch(shape, moves, training):
    rng = torch.Generator().manual_seed(0)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, dtype=torch.float64, generator=rng)

    x, scale, shift = draw(*shape) * 3 + 20, draw(5), draw(5)
    running = draw(5), draw(5).abs()
    tangents = draw(*shape), draw(5), draw(5)
    moving = {
        "input": (1, 0, 0), "input and scale": (1, 1, 0), "input and shift": (1, 0, 1), "everything": (1, 1, 1),
        "parameters": (0, 1, 1),
    }[moves]  # fmt: skip

    def run() -> forward_ad.UnpackedDualTensor:
        dual = [
            forward_ad.make_dual(v, t) if m else v
            for v, t, m in zip((x, scale, shift), tangents, moving, strict=True)
        ]  # fmt: skip
        copies = [r.clone() for r in running]
        return forward_ad.unpack_dual(F.batch_norm(dual[0], *copies, dual[1], dual[2], training))

    with torch.no_grad(), forward_ad.dual_level():
        expected = run()
        with _FastFormulas():
            found = run()
    torch.testing.assert_close(found.primal, expected.primal, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.tangent, expected.tangent, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("moves", "has_bias"),
    [((0, 1, 1), True), ((0, 1, 0), True), ((0, 0, 1), True), ((1, 1, 1), True), ((0, 1), False), ((1, 1), False)],
)
def test_fast_convolution_equals_the_formula_of_torch(moves, has_bias):
    layer = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=has_bias).double().requires_grad_(False)
    parts = [torch.randn(5, 3, 8, 8, dtype=torch.float64), *layer.parameters()]
    tangents = [torch.randn_like(part) for part in parts]

    def run() -> forward_ad.UnpackedDualTensor:
        pairs = zip(parts, tangents, moves, strict=True)
        x, *parameters = [forward_ad.make_dual(part, tangent) if move else part for part, tangent, move in pairs]
        named = dict(zip(("weight", "bias"), parameters, strict=False))
        return forward_ad.unpack_dual(torch.func.functional_call(layer, named, (x,)))

    with torch.no_grad(), forward_ad.dual_level():
        expected = run()
        with _FastFormulas():
            found = run()
    torch.testing.assert_close(found.primal, expected.primal, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.tangent, expected.tangent, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_first_slopes_of_a_process_raise_no_warning():
    code = (
        "import torch\n"
        "from torch.nn import functional as F\n"
        "from labelloop.methods.bilevel import slopes, parameters_of\n"
        "from labelloop.models import TwoHeadClassifier, build_encoder\n"
        "model = TwoHeadClassifier(build_encoder('small-cnn', (3, 8, 8), {'widths': [2]}), 2)\n"
        "p = parameters_of(model)\n"
        "print(slopes(model, p, p, torch.randn(4, 3, 8, 8), lambda l: F.log_softmax(l, 1)).shape)"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "torch.Size([4, 2])"


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size", "steps"), [(10, 3, 12), (7, 7, 5), (5, 1, 9), (100, 16, 3)])
def test_clean_rows_come_again_only_after_all_others(count, size, steps):
    order = _clean_order(count, size, steps, np.random.default_rng(0), fresh=False).reshape(steps, size)
    per_cycle = count // size
    for start in range(0, steps, per_cycle):
        cycle = order[start : start + per_cycle].ravel()
        assert len(set(cycle)) == len(cycle)
    assert order.max() < count


def test_fresh_clean_rows_are_drawn_anew_each_time():
    order = _clean_order(100, 60, 40, np.random.default_rng(0), fresh=True).reshape(40, 60)
    assert all(len(set(batch)) == 60 for batch in order)
    assert all(set(a) & set(b) for a, b in pairwise(order))
    assert set(order.ravel()) == set(range(100))


@pytest.mark.parametrize("n", [48, 50, 49])  # 49: one row is left over
def test_an_epoch_has_every_labelled_row_once_in_the_order_of_cross_entropy(n):
    problem = toy_problem(n + 5, unlabelled=5)
    known, train = labelled_rows(problem.train)
    assert known.tolist() == list(range(n))
    assert MISSING not in train.labels
    config = configure("l2b", problem)
    found = list(batches_with_clean(train, problem.clean, 16, 8, config, quiet(3), 2))
    order = np.concatenate([batch.position for batch in found])
    np.testing.assert_array_equal(order, stream(3, "batches", 2).permutation(n))
    for batch in found:
        np.testing.assert_array_equal(batch.x.numpy(), train.inputs[train.index[batch.position]])
        np.testing.assert_array_equal(batch.labels.numpy(), train.labels[batch.position])
        assert len(batch.clean_x) == 8
        for x, label in zip(batch.clean_x.numpy(), batch.clean_labels.numpy(), strict=True):
            (place,) = np.flatnonzero((problem.clean.inputs[problem.clean.index] == x).all(axis=1))
            assert problem.clean.clean_labels[place] == label


def test_fewer_clean_rows_than_a_batch_are_all_used():
    problem = toy_problem(m=5)
    config = configure("l2b", problem)
    found = list(batches_with_clean(problem.train, problem.clean, 16, 8, config, quiet(), 1))
    assert len(found) == 6
    assert all(
        sorted(b.clean_x[:, 0].tolist()) == sorted(problem.clean.inputs[problem.clean.index, 0].tolist()) for b in found
    )


def test_the_batches_of_an_epoch_depend_on_seed_and_epoch_alone():
    problem = toy_problem(images=True)
    config = configure("l2b", problem)
    assert config.augment == "crop-flip"

    def epoch(seed: int, number: int) -> list[np.ndarray]:
        found = batches_with_clean(problem.train, problem.clean, 16, 8, config, quiet(seed), number)
        return [part.numpy() for b in found for part in (b.x, b.clean_x, torch.tensor(b.draw))]

    first = epoch(0, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, epoch(0, 1), strict=True))
    for other in (epoch(0, 2), epoch(1, 1)):
        assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


# --- states ----------------------------------------------------------------------------------------------------------


def test_networks_and_optimisers_survive_as_arrays():
    network = conv_model()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    network(conv_batch().x).logits.sum().backward()
    optimizer.step()
    arrays = to_arrays("one", network) | to_arrays("two", optimizer)
    other = conv_model(1)
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.5)
    from_arrays("one", other, arrays)
    from_arrays("two", other_optimizer, arrays)
    assert same_state(network.state_dict(), other.state_dict())
    assert other_optimizer.param_groups[0]["lr"] == 0.5
    stored, found = optimizer.state_dict()["state"], other_optimizer.state_dict()["state"]
    assert stored.keys() == found.keys()
    assert all(same_state(stored[index], found[index]) for index in stored)


# --- frozen parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mw-net", "l2b", "emlc"])
def test_frozen_parts_of_a_network_stay_as_they_are(name, monkeypatch):
    from labelloop.training import setup

    built = setup.build_encoder

    def half_frozen(*arguments):
        encoder = built(*arguments)
        encoder.blocks[0].requires_grad_(False)
        return encoder

    monkeypatch.setattr(setup, "build_encoder", half_frozen)
    problem = toy_problem(images=True)
    changes = {"warm_up": 0} if name == "l2b" else {}
    before = setup.new_classifier(configure(name, problem), problem, 0).state_dict()
    after = train(name, problem, epochs=2, **changes).model.state_dict()
    assert torch.equal(before["encoder.blocks.0.conv.weight"], after["encoder.blocks.0.conv.weight"])
    assert not torch.equal(before["encoder.blocks.1.conv.weight"], after["encoder.blocks.1.conv.weight"])

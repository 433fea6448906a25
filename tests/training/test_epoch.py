"""One epoch: the loss of Eq. 1, its gradient, rows without a label, the random streams, the learning rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_rows import Items, float_rows, image_rows, make_model, make_rows
from torch.nn import functional as F
from toys import quiet, random_states, same_state, state_of

from labelloop.config.base import TrainingConfig
from labelloop.seeds import integer, stream
from labelloop.splits import one_hot
from labelloop.training.augmentation import crop_and_flip
from labelloop.training.epoch import soft_cross_entropy, train_epoch

CONFIG = TrainingConfig(epochs=10, batch_size=16, learning_rate=0.1, augment="none", weight_decay=0.0)


def logits(rows: int = 12, classes: int = 5, seed: int = 0) -> torch.Tensor:
    return (torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed)) * 3).requires_grad_()


def soft_targets(rows: int = 12, classes: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(classes), rows).astype(np.float32))


def one_epoch(model, rows, targets, noisy, weight=0.5, config=CONFIG, epoch=1, seed=0, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1.0)
    with torch.random.fork_rng(devices=[]):
        return train_epoch(model, rows, targets, noisy, weight, optimizer, config, quiet(seed), epoch)


# --- the loss --------------------------------------------------------------------------------------------------------


def test_the_loss_and_its_gradient_are_torchs_with_probabilities():
    ours, theirs, targets = logits(), logits(), soft_targets()
    loss, expected = soft_cross_entropy(ours, targets), F.cross_entropy(theirs, targets)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_the_gradient_is_torchs_with_integer_labels_bit_for_bit():
    ours, theirs = logits(), logits()
    labels = torch.tensor(np.random.default_rng(0).integers(5, size=12))
    loss, expected = soft_cross_entropy(ours, torch.eye(5)[labels]), F.cross_entropy(theirs, labels)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    loss.backward()
    expected.backward()
    assert torch.equal(ours.grad, theirs.grad)


def test_a_row_without_a_label_counts_nothing():
    all_rows, some = logits(), soft_targets()
    without = torch.tensor([1, 4, 5, 11])
    some[without] = 0
    kept = [i for i in range(12) if i not in without.tolist()]
    loss = soft_cross_entropy(all_rows, some)
    torch.testing.assert_close(loss, F.cross_entropy(all_rows[kept], some[kept]), rtol=1e-6, atol=0)
    loss.backward()
    assert (all_rows.grad[without] == 0).all()
    assert (all_rows.grad[kept] != 0).any(dim=1).all()


def test_a_batch_without_any_label_has_loss_zero_and_no_gradient():
    rows = logits()
    loss = soft_cross_entropy(rows, torch.zeros(12, 5))
    loss.backward()
    assert loss.item() == 0
    assert (rows.grad == 0).all()


def test_probabilities_that_vanish_do_not_make_the_loss_infinite():
    extreme = torch.tensor([[1000.0, -1000.0], [0.0, 2000.0]], requires_grad=True)
    loss = soft_cross_entropy(extreme, torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(extreme.grad).all()


# --- Eq. 1 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_with_equal_heads_and_uncorrected_labels_the_loss_is_one_plus_lambda_times_cross_entropy(weight):
    rows = float_rows(50)
    labels = one_hot(rows.labels, 3)
    model = make_model()
    model.noisy_head.load_state_dict(model.head.state_dict())
    with torch.no_grad():
        plain = float(F.cross_entropy(model(torch.tensor(rows.inputs)).logits, torch.tensor(rows.labels)))
    config = replace(CONFIG, batch_size=50)
    assert one_epoch(model, rows, labels, labels, weight, config) == pytest.approx((1 + weight) * plain, rel=1e-5)


def gradients(weight: float, targets: np.ndarray, noisy: np.ndarray) -> dict[str, torch.Tensor]:
    """What one step of SGD with learning rate 1 and one batch of all rows subtracts from each parameter."""
    model = make_model()
    before = state_of(model)
    one_epoch(model, float_rows(50), targets, noisy, weight, replace(CONFIG, batch_size=50, learning_rate=1.0))
    return {name: before[name] - value for name, value in model.state_dict().items()}


def test_both_terms_reach_the_encoder_and_each_its_own_head():
    rows = float_rows(50)
    noisy, targets = one_hot(rows.labels, 3), soft_targets(50, 3).numpy()
    nothing = np.zeros_like(noisy)
    both, first, second = (
        gradients(0.5, targets, noisy),
        gradients(0.5, targets, nothing),
        gradients(0.5, nothing, noisy),
    )
    encoder = "encoder.hidden.0.weight"
    assert first[encoder].abs().max() > 1e-3
    assert second[encoder].abs().max() > 1e-3
    torch.testing.assert_close(both[encoder], first[encoder] + second[encoder], rtol=1e-3, atol=1e-6)
    assert first["noisy_head.weight"].abs().max() == 0
    assert second["head.weight"].abs().max() == 0
    torch.testing.assert_close(both["head.weight"], first["head.weight"])
    torch.testing.assert_close(both["noisy_head.weight"], second["noisy_head.weight"])


def test_lambda_scales_the_noisy_term():
    rows = float_rows(50)
    noisy, nothing = one_hot(rows.labels, 3), np.zeros((50, 3), np.float32)
    half, double = gradients(0.5, nothing, noisy), gradients(1.0, nothing, noisy)
    for name in ("encoder.hidden.0.weight", "noisy_head.weight"):
        torch.testing.assert_close(2 * half[name], double[name], rtol=1e-3, atol=1e-6)


def test_eq_1_by_autograd_on_the_written_out_formula():
    rows = float_rows(50)
    targets = soft_targets(50, 3).numpy()
    model, x = make_model(), torch.tensor(rows.inputs)
    out = model(x)
    loss = F.cross_entropy(out.logits, torch.tensor(targets))
    (loss + 0.7 * F.cross_entropy(out.noisy_logits, torch.tensor(rows.labels))).backward()
    step = gradients(0.7, targets, one_hot(rows.labels, 3))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(step[name], parameter.grad, rtol=1e-3, atol=1e-6)


def test_unlabelled_rows_have_no_part_in_the_steps():
    """Without batch norm, other inputs in rows without a label leave every parameter bit-identical."""
    rows = float_rows(50)
    labels = one_hot(rows.labels, 3)
    labels[30:] = 0
    other = rows.inputs.copy()
    other[30:] = 9
    model, changed = make_model(), make_model()
    one_epoch(model, rows, labels, labels)
    one_epoch(changed, make_rows(other), labels, labels)
    assert same_state(model.state_dict(), changed.state_dict())


def test_a_row_with_a_target_and_no_noisy_label_trains_the_head_alone():
    rows = float_rows(50)
    model = make_model()
    before = state_of(model)
    one_epoch(model, rows, soft_targets(50, 3).numpy(), np.zeros((50, 3), np.float32))
    assert torch.equal(model.noisy_head.weight, before["noisy_head.weight"])
    assert not torch.equal(model.head.weight, before["head.weight"])


# --- order, streams, schedule ----------------------------------------------------------------------------------------


def test_every_row_is_seen_once_with_its_own_targets_in_the_order_of_its_stream():
    rows = float_rows(50)
    rows.inputs[:, 0] = np.arange(50)
    targets = soft_targets(50, 3).numpy()
    model = make_model()
    seen = []
    model.register_forward_pre_hook(lambda _, x: seen.append(x[0][:, 0].numpy().astype(int)))
    one_epoch(model, rows, targets, targets, epoch=3, seed=8)
    assert [len(batch) for batch in seen] == [16, 16, 16, 2]
    np.testing.assert_array_equal(np.concatenate(seen), stream(8, "batches", 3).permutation(50))


def test_the_network_is_in_training_mode():
    model = make_model("small-cnn").eval()
    rows = image_rows()
    before = state_of(model)
    one_epoch(model, rows, one_hot(rows.labels, 3), one_hot(rows.labels, 3))
    assert model.training
    assert not torch.equal(model.encoder.blocks[0].bn.running_mean, before["encoder.blocks.0.bn.running_mean"])


@pytest.mark.parametrize("epoch", [1, 6, 7, 9])
def test_the_learning_rate_is_that_of_the_epoch(epoch):
    rows, model = float_rows(), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=123.0)
    labels = one_hot(rows.labels, 3)
    one_epoch(model, rows, labels, labels, epoch=epoch, optimizer=optimizer)
    expected = {1: 0.1, 6: 0.1, 7: 0.01, 9: 0.001}[epoch]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)


def test_an_epoch_draws_the_same_whatever_came_before_and_another_epoch_draws_anew():
    rows = float_rows()
    labels = one_hot(rows.labels, 3)
    states = []
    for burn, epoch, seed in [(0, 2, 0), (99, 2, 0), (0, 3, 0), (0, 2, 1)]:
        model = make_model("mlp", hidden=[16], dropout=0.5)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(burn)
            torch.rand(burn)
            one_epoch(model, rows, labels, labels, epoch=epoch, seed=seed)
        states.append(state_of(model))
    assert same_state(states[0], states[1])
    assert not same_state(states[0], states[2])
    assert not same_state(states[0], states[3])


def test_dropout_is_drawn_from_its_own_stream():
    """With one batch of all rows, the order only moves sums about; what differs between epochs is the dropout."""
    rows = float_rows()
    labels = one_hot(rows.labels, 3)
    model = make_model("mlp", hidden=[16], dropout=0.5)
    masks = []
    model.encoder.register_forward_hook(lambda _, __, out: masks.append((out == 0).float().mean().item()))
    one_epoch(model, rows, labels, labels, config=replace(CONFIG, batch_size=50), epoch=4, seed=5)
    reference = make_model("mlp", hidden=[16], dropout=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(5, "dropout", 4))
        order = stream(5, "batches", 4).permutation(50)
        expected = (reference.encoder(torch.tensor(rows.inputs[order])) == 0).float().mean().item()
    assert masks == [expected]


def test_images_are_augmented_only_when_asked():
    rows = image_rows(40)
    labels = one_hot(rows.labels, 3)
    seen: dict[str, list[np.ndarray]] = {}
    for value in ("none", "crop-flip"):
        model = make_model("small-cnn")
        model.register_forward_pre_hook(lambda _, x, value=value: seen.setdefault(value, []).append(x[0].numpy()))
        one_epoch(model, rows, labels, labels, config=replace(CONFIG, augment=value, batch_size=40), epoch=2)
    order = stream(0, "batches", 2).permutation(40)
    plain = rows.inputs[order]
    np.testing.assert_array_equal(seen["none"][0], plain.transpose(0, 3, 1, 2))
    moved = crop_and_flip(plain, stream(0, "augmentation", 2))
    np.testing.assert_array_equal(seen["crop-flip"][0], moved.transpose(0, 3, 1, 2))
    assert not np.array_equal(moved, plain)


def test_a_dataset_trains_as_its_array_does():
    rows = float_rows(50)
    labels = one_hot(rows.labels, 3)
    from_array, from_items = make_model(), make_model()
    loss = one_epoch(from_array, rows, labels, labels)
    assert one_epoch(from_items, make_rows(Items(rows.inputs, "tuple")), labels, labels) == loss
    assert same_state(from_array.state_dict(), from_items.state_dict())


def test_numpys_global_random_state_is_left_alone():
    rows = image_rows(40)
    labels = one_hot(rows.labels, 3)
    before = random_states()[1:]
    one_epoch(make_model("small-cnn"), rows, labels, labels, config=replace(CONFIG, augment="crop-flip"))
    assert random_states()[1:] == before


class Jittered(Items):
    """A dataset that augments its items with torch's random numbers, as most do."""

    def __getitem__(self, i):
        return super().__getitem__(i) + torch.rand(())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_augments_draws_anew_every_epoch_and_the_same_when_an_epoch_is_run_again(workers):
    rows = make_rows(Jittered(np.zeros((20, 6), np.float32)))
    labels = one_hot(rows.labels, 3)
    seen = []
    for epoch, seed in [(1, 0), (2, 0), (2, 0), (2, 1)]:
        model = make_model()
        model.register_forward_pre_hook(lambda _, x: seen.append(x[0].clone()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        config, runtime = replace(CONFIG, batch_size=20), quiet(seed, workers=workers)
        with torch.random.fork_rng(devices=[]):
            train_epoch(model, rows, labels, labels, 0.5, optimizer, config, runtime, epoch)
    first, second, again, other_seed = seen
    assert torch.equal(second, again)
    assert not torch.equal(first, second)
    assert not torch.equal(second, other_seed)

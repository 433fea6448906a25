"""Extraction: evaluation mode, the order of the rows, and a network and random states that stay as they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_rows import Items, float_rows, image_rows, make_model, make_rows
from toys import quiet, random_states, same_state, state_of

from labelloop.training import epoch as module
from labelloop.training.epoch import extract


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["mlp", "small-cnn"])
def test_it_leaves_parameters_buffers_mode_and_random_states_as_they_were(kind, training):
    model = make_model("mlp", hidden=[16], dropout=0.5) if kind == "mlp" else make_model(kind)
    model.train(training)
    before, states = state_of(model), random_states()
    extract(model, float_rows() if kind == "mlp" else image_rows(), quiet())
    assert same_state(model.state_dict(), before)
    assert model.training is training
    assert all(part.training is training for part in model.modules())
    assert random_states() == states
    assert all(p.grad is None for p in model.parameters())


def test_a_frozen_part_stays_in_evaluation_mode():
    model = make_model("small-cnn").train()
    model.encoder.blocks[0].bn.eval()
    extract(model, image_rows(), quiet())
    assert not model.encoder.blocks[0].bn.training


def test_batch_norm_uses_its_running_statistics():
    model, rows = make_model("small-cnn").train(), image_rows(40)
    whole = extract(model, rows, quiet())
    single = extract(model, make_rows(rows.inputs[:1]), quiet())
    np.testing.assert_allclose(whole.features[:1], single.features, rtol=1e-4, atol=1e-6)


def test_it_is_what_the_network_says_row_by_row(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 16)  # several batches, the last one smaller
    model, rows = make_model("mlp", hidden=[16], dropout=0.5), float_rows(50)
    found = extract(model, rows, quiet())
    with torch.no_grad():
        expected = model.eval()(torch.tensor(rows.inputs))
    np.testing.assert_allclose(found.features, expected.features.numpy(), atol=1e-6)
    np.testing.assert_allclose(found.logits, expected.logits.numpy(), atol=1e-6)
    np.testing.assert_allclose(found.noisy_posterior, expected.noisy_logits.softmax(dim=1).numpy(), atol=1e-6)
    assert found.features.dtype == found.logits.dtype == found.noisy_posterior.dtype == np.float32
    np.testing.assert_allclose(found.noisy_posterior.sum(axis=1), 1, atol=1e-6)


def test_it_follows_the_index_of_the_rows():
    model, store = make_model(), float_rows(50)
    index = np.array([7, 3, 49, 3])
    some = extract(model, module.Rows(store.inputs, index, np.zeros(4, np.int64), np.zeros(4, np.int64)), quiet())
    np.testing.assert_allclose(some.logits, extract(model, store, quiet()).logits[index], atol=1e-6)


def test_two_extractions_agree_bit_for_bit_without_augmentation():
    model, rows = make_model("small-cnn"), image_rows()
    first, second = extract(model, rows, quiet(0)), extract(model, rows, quiet(1))
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.noisy_posterior, second.noisy_posterior)


def test_no_gradient_is_recorded():
    model = make_model()
    recorded = []
    model.register_forward_hook(lambda _, __, out: recorded.append(out.logits.requires_grad))
    extract(model, float_rows(), quiet())
    assert recorded == [False]


def test_a_dataset_is_extracted_as_its_array_is():
    model, rows = make_model(), float_rows(50)
    items = extract(model, make_rows(Items(rows.inputs, "tuple")), quiet())
    np.testing.assert_array_equal(items.features, extract(model, rows, quiet()).features)

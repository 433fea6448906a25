"""The correction network: its gradient, schedule and selection, what it is shown, and what it must not look at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from toys import random_states, same_state, state_of

from labelloop.errors import UsageError
from labelloop.methods.closed_loop import CorrectorConfig, corrector
from labelloop.methods.closed_loop.corrector import (
    INPUTS,
    CorrectionNetwork,
    fit_corrector,
    set_gradients,
)
from labelloop.seeds import integer, stream

M, C, D = 80, 3, 5
FIT, VAL, UNUSED = np.arange(0, 50), np.arange(50, 70), np.arange(70, 80)
# Large steps on few rows, so that the loss on clean_val rises soon and selection matters.
FAST = CorrectorConfig(hidden=8, learning_rate=0.2, low_learning_rate=0.02, batch_size=16, max_epochs=30, patience=3)


def clean_rows(seed: int = 0, paired: int = 10):
    """Noisy posteriors, columns and clean labels of M clean rows; the first `paired` of FIT are one-hot."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(C, size=M)
    noisy = rng.dirichlet(np.ones(C), M).astype(np.float32)
    noisy = (0.7 * noisy + 0.3 * np.eye(C, dtype=np.float32)[labels]).astype(np.float32)
    noisy[:paired] = np.eye(C, dtype=np.float32)[rng.integers(C, size=paired)]
    features = (rng.normal(size=(C, D))[labels] + rng.normal(size=(M, D))).astype(np.float32)
    columns = {
        "features": features,
        "logits": rng.normal(size=(M, C)).astype(np.float32),
        "probabilities": rng.dirichlet(np.ones(C), M).astype(np.float32),
        "extra": rng.normal(size=(M, 2)).astype(np.float32),
        "noisy_logits": rng.normal(size=(M, C)).astype(np.float32),
        "all_features": rng.normal(size=(M, 3 * D)).astype(np.float32),
        "past_labels": rng.dirichlet(np.ones(C), (M, 2)).reshape(M, 2 * C).astype(np.float32),
    }
    return noisy, columns, labels


def fit_on(rows, config=FAST, seed=0):
    noisy, columns, labels = rows
    return fit_corrector(noisy, columns, labels, FIT, VAL, config, seed)


def slow_fit(rows, config, seed=0):
    """The same schedule in plain torch: autograd, integer labels, optimisers as they come, row by row in Python."""
    noisy, columns, labels = rows
    x = np.concatenate([columns[name] for name in config.inputs[0].split("+")], axis=1)
    if config.standardise:
        x = (x - x[FIT].mean(axis=0)) / x[FIT].std(axis=0)
    x_val, y_val = torch.tensor(np.hstack([noisy[VAL], x[VAL]])), torch.tensor(labels[VAL])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(seed, "corrector-init"))
        first = torch.nn.Linear(x_val.shape[1], config.hidden)
        second = torch.nn.Linear(config.hidden, C)
    network = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "adamw":
        optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=decay)
    else:
        optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=config.momentum, weight_decay=decay)
    losses, states, drop = [], [], None
    for epoch in range(1, config.max_epochs + 1):
        order = stream(seed, "corrector-batches", epoch).permutation(len(FIT))
        for start in range(0, len(FIT), config.batch_size):
            batch = order[start : start + config.batch_size]
            inputs = torch.tensor(np.hstack([noisy[FIT][batch], x[FIT][batch]]))
            optimizer.zero_grad()
            F.cross_entropy(network(inputs), torch.tensor(labels[FIT][batch])).backward()
            optimizer.step()
        with torch.no_grad():
            logits = network(x_val)
        losses.append(float(F.cross_entropy(logits, y_val)))
        states.append([p.detach().clone() for p in network.parameters()])
        if drop is None and epoch > 1 and losses[-1] > losses[-2]:
            drop = epoch
            optimizer.param_groups[0]["lr"] = config.low_learning_rate
        best = int(np.argmin(losses)) + 1
        if drop is not None and epoch >= max(best, drop) + config.patience:
            break
    return states[best - 1], best, drop, epoch


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rows", [1, 7, 32])
def test_the_written_out_gradient_is_autograds(dtype, rows):
    generator = torch.Generator().manual_seed(rows)
    network = CorrectionNetwork(9, 13, 4).to(dtype)
    x = torch.randn(rows, 9, generator=generator, dtype=dtype)
    labels = torch.randint(4, (rows,), generator=generator)
    F.cross_entropy(network(x), labels).backward()
    expected = [p.grad.clone() for p in network.parameters()]
    set_gradients(network, x, torch.eye(4, dtype=dtype)[labels])
    tolerance = 1e-13 if dtype == torch.float64 else 1e-6
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert gradient.abs().sum() > 0
        torch.testing.assert_close(parameter.grad, gradient, rtol=tolerance, atol=tolerance)


def test_gradients_are_replaced_not_added_up():
    network = CorrectionNetwork(4, 6, 3)
    x, y = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.eye(3)[[0, 1, 2, 0, 1]]
    set_gradients(network, x, y)
    once = [p.grad.clone() for p in network.parameters()]
    set_gradients(network, x, y)
    assert all(torch.equal(p.grad, g) for p, g in zip(network.parameters(), once, strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"patience": 1},
        {"patience": 6},
        {"momentum": 0.0, "learning_rate": 0.5},
        {"weight_decay": 0.01},
        {"optimizer": "adamw", "learning_rate": 0.05, "low_learning_rate": 0.005},
        {"standardise": True},
        {"inputs": ("features+extra",)},
        {"batch_size": 7},
    ],
    ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()) or "default",
)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_follows_the_schedule_of_a_plain_reimplementation(changes, seed):
    config = replace(FAST, **changes)
    parameters, best, drop, last = slow_fit(clean_rows(), config, seed)
    fitted = fit_on(clean_rows(), config, seed)
    assert drop is not None, "the example must reach the drop of the learning rate"
    assert best < last
    assert fitted.epochs == last
    for ours, theirs in zip(fitted.network.parameters(), parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_training_ends_at_the_epoch_limit_when_the_loss_never_rises():
    config = replace(FAST, learning_rate=1e-4, low_learning_rate=1e-5, momentum=0.0, max_epochs=7, patience=1)
    _, best, drop, last = slow_fit(clean_rows(), config)
    assert drop is None
    assert best == last == 7
    assert fit_on(clean_rows(), config).epochs == 7


def recorded_fit(monkeypatch, rows, config=FAST, seed=0):
    """A fit together with the weights after every pass."""
    states = []
    evaluate = corrector._evaluate

    def spy(network, x, y):
        states.append(state_of(network))
        return evaluate(network, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(corrector, "_evaluate", spy)
        fitted = fit_on(rows, config, seed)
    return fitted, states[:-1]  # the last look is at the selected weights


def test_verified_labels_of_clean_val_select_but_do_not_train(monkeypatch):
    noisy, columns, labels = clean_rows()
    other = labels.copy()
    other[VAL] = (labels[VAL] + 1) % C
    fitted, states = recorded_fit(monkeypatch, (noisy, columns, labels))
    changed, changed_states = recorded_fit(monkeypatch, (noisy, columns, other))
    *_, drop, _ = slow_fit((noisy, columns, labels), FAST)
    *_, changed_drop, _ = slow_fit((noisy, columns, other), FAST)
    before_drop = min(drop, changed_drop)
    assert before_drop >= 1
    for a, b in zip(states[:before_drop], changed_states[:before_drop], strict=True):
        assert same_state(a, b)
    assert not same_state(fitted.network.state_dict(), changed.network.state_dict()), "clean_val must decide something"


def test_with_equal_learning_rates_clean_val_changes_no_step_at_all(monkeypatch):
    config = replace(FAST, low_learning_rate=FAST.learning_rate, patience=30)
    noisy, columns, labels = clean_rows()
    other = labels.copy()
    other[VAL] = (labels[VAL] + 1) % C
    _, states = recorded_fit(monkeypatch, (noisy, columns, labels), config)
    _, changed_states = recorded_fit(monkeypatch, (noisy, columns, other), config)
    assert len(states) == config.max_epochs
    assert all(same_state(a, b) for a, b in zip(states, changed_states, strict=True))


def test_only_rows_of_clean_fit_are_trained_on(monkeypatch):
    seen = []
    original = corrector.set_gradients
    monkeypatch.setattr(
        corrector, "set_gradients", lambda network, x, y: (seen.append(x.numpy().copy()), original(network, x, y))
    )
    noisy, columns, labels = clean_rows()
    columns["extra"] = np.arange(M, dtype=np.float32)[:, None] / 100
    fitted = fit_on((noisy, columns, labels), replace(FAST, inputs=("extra",)))
    for start in range(0, fitted.epochs):
        steps = -(-len(FIT) // FAST.batch_size)
        one_pass = np.concatenate([x[:, -1] for x in seen[start * steps : (start + 1) * steps]])
        np.testing.assert_array_equal(np.sort(np.round(one_pass * 100)).astype(int), FIT)


def test_rows_in_neither_part_change_nothing():
    noisy, columns, labels = clean_rows()
    fitted = fit_on((noisy, columns, labels), replace(FAST, standardise=True))
    noisy, labels = noisy.copy(), labels.copy()
    columns = {name: values.copy() for name, values in columns.items()}
    columns["features"][UNUSED], noisy[UNUSED], labels[UNUSED] = 1e6, np.eye(C)[0], 2
    changed = fit_on((noisy, columns, labels), replace(FAST, standardise=True))
    assert same_state(fitted.network.state_dict(), changed.network.state_dict())
    assert fitted.summary() == changed.summary()
    np.testing.assert_array_equal(fitted.mean, changed.mean)


def test_the_reported_loss_and_accuracy_are_those_of_clean_val():
    noisy, columns, labels = clean_rows()
    fitted = fit_on((noisy, columns, labels))
    corrected = fitted(noisy, columns)[VAL]
    loss = -np.log(corrected[np.arange(len(VAL)), labels[VAL]]).mean()
    assert fitted.clean_val_loss == pytest.approx(loss, rel=1e-5)
    assert fitted.clean_val_accuracy == (corrected.argmax(axis=1) == labels[VAL]).mean()


@pytest.mark.parametrize("inputs", [("logits", "features", "extra"), ("features", "extra", "logits")])
def test_the_candidate_best_on_clean_val_is_kept(inputs):
    rows = clean_rows()
    each = [fit_on(rows, replace(FAST, inputs=(name,))) for name in inputs]
    best = min(each, key=lambda c: c.clean_val_loss)
    kept = fit_on(rows, replace(FAST, inputs=inputs))
    assert kept.inputs == best.inputs == "features"
    assert kept.summary() == best.summary()
    assert same_state(kept.network.state_dict(), best.network.state_dict())


@pytest.mark.parametrize("name", [*INPUTS, "features+extra", "logits+probabilities+extra"])
def test_every_kind_of_input_is_used_beside_the_noisy_label(name):
    noisy, columns, labels = clean_rows()
    fitted = fit_on((noisy, columns, labels), replace(FAST, inputs=(name,)))
    width = sum(columns[part].shape[1] for part in name.split("+"))
    assert fitted.network.first.in_features == C + width
    corrected = fitted(noisy, columns)
    assert corrected.shape == (M, C)
    np.testing.assert_allclose(corrected.sum(axis=1), 1, atol=1e-6)
    for part in name.split("+"):
        moved = columns | {part: columns[part] + 1}
        assert not np.allclose(fitted(noisy, moved), corrected), f"{part} is not read"
    assert not np.allclose(fitted(np.roll(noisy, 1, axis=1), columns), corrected), "the noisy label is not read"
    unused = {part: values if part in name.split("+") else values * np.nan for part, values in columns.items()}
    np.testing.assert_array_equal(fitted(noisy, unused), corrected)


def test_the_output_is_the_softmax_of_the_two_layers_in_every_part_of_many_rows():
    noisy, columns, labels = clean_rows()
    fitted = fit_on((noisy, columns, labels), replace(FAST, standardise=True))
    many = {name: np.tile(values, (250, 1)) for name, values in columns.items()}
    corrected = fitted(np.tile(noisy, (250, 1)), many)  # more rows than go through the network at once
    w1, b1, w2, b2 = (p.numpy().astype(np.float64) for p in fitted.network.parameters())
    x = np.hstack([noisy, (columns["features"] - fitted.mean) / fitted.scale])
    logits = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(corrected, np.tile(expected, (250, 1)), atol=1e-5)


def test_standardised_columns_have_mean_zero_and_deviation_one_on_clean_fit(monkeypatch):
    noisy, columns, labels = clean_rows()
    columns["features"] = columns["features"] * np.array([1, 10, 100, 1000, 0], np.float32) + 7
    seen = []
    original = corrector.set_gradients
    monkeypatch.setattr(
        corrector, "set_gradients", lambda network, x, y: (seen.append(x.numpy().copy()), original(network, x, y))
    )
    fitted = fit_on((noisy, columns, labels), replace(FAST, standardise=True, max_epochs=1))
    x = np.concatenate(seen)[:, C:]
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(x.std(axis=0), [1, 1, 1, 1, 0], atol=1e-4)
    np.testing.assert_allclose(fitted.mean, columns["features"][FIT].mean(axis=0), rtol=1e-5)
    assert fitted.scale[4] == 1


def test_a_constant_column_does_not_blow_up_when_standardised():
    noisy, columns, labels = clean_rows()
    columns["features"] = np.tile(np.linspace(0.1, 9, 20, dtype=np.float32), (M, 1))
    fitted = fit_on((noisy, columns, labels), replace(FAST, standardise=True))
    np.testing.assert_array_equal(fitted.scale, 1)


def test_without_standardise_the_columns_are_taken_as_they_are(monkeypatch):
    seen = []
    original = corrector.set_gradients
    monkeypatch.setattr(
        corrector, "set_gradients", lambda network, x, y: (seen.append(x.numpy().copy()), original(network, x, y))
    )
    noisy, columns, labels = clean_rows()
    fit_on((noisy, columns, labels), replace(FAST, max_epochs=1))
    expected = np.hstack([noisy, columns["features"]])[FIT]
    x = np.concatenate(seen)
    np.testing.assert_array_equal(x[np.lexsort(x.T)], expected[np.lexsort(expected.T)])


def test_one_seed_gives_one_network_and_another_seed_another():
    rows = clean_rows()
    for config in (FAST, replace(FAST, optimizer="adamw")):
        fitted = fit_on(rows, config)
        assert same_state(fitted.network.state_dict(), fit_on(rows, config).network.state_dict())
        assert not same_state(fitted.network.state_dict(), fit_on(rows, config, seed=1).network.state_dict())


def test_the_global_random_states_are_left_alone():
    rows = clean_rows()
    before = random_states()
    fitted = fit_on(rows, replace(FAST, inputs=("features", "logits")))
    fitted(rows[0], rows[1])
    assert random_states() == before


def test_the_arguments_are_not_changed():
    noisy, columns, labels = clean_rows()
    copies = noisy.copy(), {name: values.copy() for name, values in columns.items()}, labels.copy()
    fit_on((noisy, columns, labels), replace(FAST, standardise=True))
    np.testing.assert_array_equal(noisy, copies[0])
    np.testing.assert_array_equal(labels, copies[2])
    assert all(np.array_equal(columns[name], copies[1][name]) for name in columns)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": ("featurs",)}, "did you mean 'features'"),
        ({"inputs": ("features+logit",)}, "'logits'"),
        ({"inputs": ()}, "at least one"),
        ({"optimizer": "adam"}, "did you mean 'adamw'"),
        ({"hidden": 0}, "corrector.hidden"),
        ({"max_epochs": 0}, "corrector.max_epochs"),
        ({"patience": 0}, "corrector.patience"),
        ({"batch_size": 0}, "corrector.batch_size"),
    ],
)
def test_a_value_that_does_not_exist_is_refused_and_the_nearest_named(changes, message):
    with pytest.raises(UsageError, match=message):
        CorrectorConfig(**changes)


def test_an_input_that_the_data_lacks_is_named():
    noisy, columns, labels = clean_rows()
    del columns["extra"]
    with pytest.raises(UsageError, match="'extra'"):
        fit_on((noisy, columns, labels), replace(FAST, inputs=("features+extra",)))


def test_the_defaults_are_the_papers():
    config = CorrectorConfig()
    assert (config.hidden, config.learning_rate, config.low_learning_rate) == (256, 1e-3, 1e-4)
    assert (config.optimizer, config.inputs) == ("sgd", ("features",))


def test_a_network_that_diverges_is_announced_and_never_kept_before_a_sound_candidate():
    noisy, columns, labels = clean_rows()
    columns["extra"] = 1e30 * (2 + columns["extra"])
    for inputs in (("extra", "features"), ("features", "extra")):
        with pytest.warns(UserWarning, match="'extra' diverged"):
            kept = fit_on((noisy, columns, labels), replace(FAST, inputs=inputs))
        assert kept.inputs == "features"
        assert np.isfinite(kept(noisy, columns)).all()


def test_a_network_that_diverged_holds_all_classes_equally_likely():
    noisy, columns, labels = clean_rows()
    columns["extra"] = 1e30 * (2 + columns["extra"])
    with pytest.warns(UserWarning, match="equally likely"):
        fitted = fit_on((noisy, columns, labels), replace(FAST, inputs=("extra",)))
    np.testing.assert_allclose(fitted(noisy, columns), 1 / C)


def broken(values):
    values = values.copy()
    values[3, 0] = np.nan
    return values


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda n, c, y: (broken(n), c, y), "row 3 holds a value that is not a number"),
        (lambda n, c, y: (n, c | {"features": broken(c["features"])}, y), "columns\\['features'\\], row 3"),
        (lambda n, c, y: (n, c | {"features": c["features"][1:]}, y), "columns\\['features'\\] has the shape"),
        (lambda n, c, y: (n, c, np.where(np.arange(M) == 2, -1, y)), "the label of row 2 is missing"),
        (lambda n, c, y: (n, c, np.where(np.arange(M) == 2, C, y)), f"the label of row 2 is {C}"),
        (lambda n, c, y: (n[:2], {k: v[:2] for k, v in c.items()}, y[:2]), "name rows from 0 to"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_in_words(change, words):
    with pytest.raises(UsageError, match=words):
        fit_on(change(*clean_rows()))


@pytest.mark.parametrize(("taught", "judged"), [(0, 3), (3, 0)])
def test_rows_to_train_on_and_rows_to_select_on_are_both_needed(taught, judged):
    with pytest.raises(UsageError, match=f"{taught} rows to train on and {judged} to select on"):
        fit_corrector(*clean_rows(), np.arange(taught), np.arange(judged))

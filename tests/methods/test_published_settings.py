"""The published settings: as defaults of the configurations, and as they reach the optimisers in a whole run."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from bilevel_toys import configure
from small_settings import small_config
from toys import quiet, toy_problem

from labelloop.config.base import TrainingConfig
from labelloop.methods import METHODS, dmlp, emlc, fasten, l2b, mwnet
from labelloop.training.setup import SGD

SHARED = set(asdict(TrainingConfig()))
DEFAULTS: dict[str, dict[str, Any]] = {
    "glc": {},
    "fasten": {"clean_per_class": 10, "threshold": 0.8, "noisy_head_weight": 0.5},
    "mw-net": {
        "clean_batch_size": 128, "weighting_hidden": 100, "weighting_learning_rate": 1e-3,
        "weighting_weight_decay": 1e-4, "weight_norm": "mean",
    },
    "l2b": {"clean_batch_size": 128, "warm_up": 10, "clip": 0.25, "weight_norm": "org", "temperature": 1.0},
    "emlc": {
        "clean_batch_size": 128, "student_steps": 5, "teacher_learning_rate_factor": 1.0, "gate_width": 128,
        "gate_loss": "none", "mix_g": False, "official_order": False,
    },
    "dmlp": {
        "purify_epochs": 100, "block_size": 7000, "label_learning_rate": 0.01, "label_weight_decay": 3e-4,
        "ridge": 1e-4, "clean_prior_weight": 1.0, "probe_batch_size": 500, "probe_learning_rate": 0.006,
        "confidence_penalty": 0.4, "probe_prior_weight": 1.0, "write_back_every": 1, "write_back_rate": 0.1,
    },
    "co-teaching": {"noise_rate": -1.0, "forget_epochs": 10},
    "dividemix": {
        "warm_up": 10, "confidence_penalty": 0.0, "threshold": 0.5, "temperature": 0.5, "mixup": 4.0,
        "unlabelled_weight": 25.0, "ramp_up": 16, "jitter": 0.1,
    },
}  # fmt: skip
DEFAULTS["dmlp-nossl"] = DEFAULTS["dmlp"] | {"warm_up": 40}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_of_a_method_are_the_published_ones(name):
    found = asdict(METHODS[name].config())
    own = {key: value for key, value in found.items() if key not in SHARED or key in DEFAULTS[name]}
    assert own == DEFAULTS[name]


def test_the_constants_that_are_no_settings():
    assert fasten.EPS == 1e-7
    assert dmlp.BETAS == (0.5, 0.999)


def groups_seen(module, monkeypatch, name: str, which: int, **changes) -> list[dict]:
    """The settings of one optimiser that `module.step` is handed, at every step of a short run."""
    seen, original = [], module.step

    def note(*arguments):
        group = arguments[which].param_groups[0]
        seen.append({key: value for key, value in group.items() if key != "params"} | {"is": type(arguments[which])})
        return original(*arguments)

    monkeypatch.setattr(module, "step", note)
    problem = toy_problem()
    METHODS[name].fit(problem, configure(name, problem, epochs=5, batch_size=90, **changes), quiet())
    return seen


DROPPING = [0.05, 0.05, 0.05, 0.005, 0.0005]


def test_the_weighting_network_has_adam_at_a_constant_rate(monkeypatch):
    seen = groups_seen(mwnet, monkeypatch, "mw-net", 3)
    assert [(group["is"], group["lr"], group["weight_decay"]) for group in seen] == [(torch.optim.Adam, 1e-3, 1e-4)] * 5


@pytest.mark.parametrize(("module", "name", "which"), [(mwnet, "mw-net", 2), (l2b, "l2b", 1)])
def test_a_look_ahead_takes_the_rate_that_the_classifier_has_now(module, name, which, monkeypatch):
    changes = {"warm_up": 0} if name == "l2b" else {}
    seen = groups_seen(module, monkeypatch, name, which, **changes)
    np.testing.assert_allclose([group["lr"] for group in seen], DROPPING)
    assert {(group["is"], group["momentum"], group["weight_decay"]) for group in seen} == {(SGD, 0.9, 5e-4)}


def test_the_teacher_has_plain_sgd_at_the_rate_of_the_student(monkeypatch):
    seen = groups_seen(emlc, monkeypatch, "emlc", 4, student_steps=1, teacher_learning_rate_factor=0.5)
    np.testing.assert_allclose([group["lr"] for group in seen], np.array(DROPPING) / 2)
    assert {(group["is"], group["momentum"], group["weight_decay"]) for group in seen} == {(torch.optim.SGD, 0, 0)}


# --- DMLP: the clean rows teach the labels, and nothing else ----------------------------------------------------------


def test_the_order_of_the_clean_rows_does_not_matter_to_the_purifier():
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=260)
    z = (rng.normal(size=(3, 5))[true] * 2 + rng.normal(size=(260, 5))).astype(np.float32)
    given = np.where(rng.random(260) < 0.3, (true + 1) % 3, true)
    config = dmlp.Config(purify_epochs=5, block_size=80)
    same, order = np.arange(60), rng.permutation(60)

    def purified(of_rows, of_labels):
        return dmlp.purify(z[60:], z[:60][of_rows], given[60:], true[:60][of_labels], 3, config, 0)[0]

    np.testing.assert_allclose(purified(order, order), purified(same, same), atol=1e-4)
    assert np.abs(purified(same, order) - purified(same, same)).max() > 0.01  # labels of other rows do matter


def test_the_warm_up_of_dmlp_does_not_see_the_clean_rows(monkeypatch):
    problem, states = toy_problem(unlabelled=7), []
    original = dmlp._features

    def note(model, *rest):
        states.append({name: value.clone() for name, value in model.state_dict().items()})
        return original(model, *rest)

    monkeypatch.setattr(dmlp, "_features", note)
    config = small_config("dmlp-nossl", problem, epochs=1, warm_up=2, purify_epochs=1)
    other = replace(problem, clean=replace(problem.clean, clean_labels=(problem.clean.clean_labels + 1) % 3))
    targets = [METHODS["dmlp-nossl"].fit(each, config, quiet()).targets for each in (problem, other)]
    assert all(torch.equal(states[0][name], states[2][name]) for name in states[0])
    assert not np.array_equal(*targets)

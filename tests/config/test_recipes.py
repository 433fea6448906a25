"""The recipes: known by name, valid for every method, and the paper's one is the paper's table."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from labelloop.config.base import DEFAULT_METHOD, DEFAULT_RECIPE, PAPER_METHOD, RECIPES, method_of
from labelloop.errors import UsageError
from labelloop.methods import METHODS, recipe_config
from labelloop.methods.closed_loop import Config


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", METHODS)
def test_every_recipe_fits_every_method(method, recipe):
    config = recipe_config(method, recipe)
    assert type(config) is METHODS[method].config
    if (method, recipe) == (PAPER_METHOD, DEFAULT_RECIPE):  # the paper's values, with a network that suits the rows
        assert config == replace(recipe_config(method, "paper"), network="auto")
        return
    concerned = [key for key in RECIPES[recipe] if hasattr(config, key)]
    assert concerned
    for key in concerned:
        if not isinstance(RECIPES[recipe][key], dict | list):
            assert getattr(config, key) == RECIPES[recipe][key]


def test_a_baseline_trains_as_long_as_the_method_of_its_recipe():
    for recipe in RECIPES:
        rivals = [method for method in METHODS if method not in (DEFAULT_METHOD, PAPER_METHOD)]
        ours = recipe_config(method_of(None, recipe), recipe).epochs
        assert {recipe_config(method, recipe).epochs for method in rivals} == {ours}


def test_a_recipe_of_the_paper_means_its_method_unless_another_is_named():
    assert [method_of(None, recipe) for recipe in RECIPES] == ["labelloop", "closed-loop", "closed-loop"]
    assert method_of("glc", "paper") == "glc"
    assert method_of("closed-loop", "default") == "closed-loop"


def test_the_paper_recipe_is_the_papers_table_for_cifar():
    config = recipe_config("closed-loop", "paper")
    assert config == Config(network="resnet34")
    assert (config.epochs, config.batch_size, config.learning_rate) == (100, 128, 0.1)
    assert (config.momentum, config.weight_decay) == (0.9, 5e-4)
    assert config.drop_epochs() == (60, 80)
    assert (config.warm_up, config.correct_every, config.noisy_loss_weight) == (40, 5, 0.5)
    assert sum(config.corrects_after(epoch) for epoch in range(1, 101)) == 12
    assert config.combination == "convex"
    corrector = config.corrector
    assert (corrector.hidden, corrector.learning_rate, corrector.low_learning_rate) == (256, 1e-3, 1e-4)
    assert (corrector.inputs, corrector.standardise) == (("features",), False)


def test_the_paper_recipe_for_clothing1m_drops_the_learning_rate_after_epochs_5_and_10():
    config = recipe_config("closed-loop", "paper-clothing1m")
    assert (config.network, config.epochs, config.batch_size) == ("resnet50", 15, 256)
    assert config.drop_epochs() == (5, 10)
    assert [round(config.learning_rate_in(epoch), 6) for epoch in (1, 5, 6, 10, 11)] == [0.01, 0.01, 1e-3, 1e-3, 1e-4]


def test_layers_win_over_the_recipe_and_keep_the_rest_of_it():
    before = deepcopy(RECIPES)
    config = recipe_config("closed-loop", "paper-clothing1m", {"epochs": 17}, {"corrector": {"hidden": 9}})
    plain = recipe_config("closed-loop", "paper-clothing1m")
    assert config.epochs == 17
    assert config.corrector.hidden == 9
    assert config.corrector.max_epochs == plain.corrector.max_epochs
    assert (config.warm_up, config.correct_every) == (plain.warm_up, plain.correct_every) == (3, 3)
    ours = recipe_config("labelloop", DEFAULT_RECIPE, {"epochs": 17})
    assert (ours.epochs, ours.learning_rate) == (17, recipe_config("labelloop").learning_rate)
    assert before == RECIPES  # not written into


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(UsageError, match="unknown method 'closed_loop'; did you mean 'closed-loop'"):
        recipe_config("closed_loop")
    with pytest.raises(UsageError, match="unknown recipe 'defalt'; did you mean 'default'"):
        recipe_config("closed-loop", "defalt")
    with pytest.raises(UsageError, match="unknown key warmup; did you mean 'warm_up'"):
        recipe_config("closed-loop", "paper", {"warmup": 3})

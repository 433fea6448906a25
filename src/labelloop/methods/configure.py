"""The configuration of a method, from a recipe and what is said on top of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from labelloop.config.base import TrainingConfig
from labelloop.config.build import build_config
from labelloop.config.recipes import DEFAULT_RECIPE, RECIPES
from labelloop.errors import UsageError, nearest
from labelloop.methods import METHODS


def recipe_config(method: str, recipe: str = DEFAULT_RECIPE, *layers: Mapping[str, Any]) -> TrainingConfig:
    """The configuration of a method: the recipe, as far as it concerns the method, then the layers on top of it."""
    if method not in METHODS:
        raise UsageError(f"unknown method {method!r}; {nearest(method, METHODS)}")
    if recipe not in RECIPES:
        raise UsageError(f"unknown recipe {recipe!r}; {nearest(recipe, RECIPES)}")
    kind = METHODS[method].config
    concerned = {field.name for field in fields(kind)}
    config = build_config(kind, {k: v for k, v in RECIPES[recipe].items() if k in concerned}, *layers)
    config.check_schedule()
    return config

"""The configuration of a method, from a recipe and overrides."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from labelloop.config.base import TrainingConfig
from labelloop.config.build import build_config
from labelloop.config.recipes import DEFAULT_RECIPE, PAPER_METHOD, RECIPES
from labelloop.errors import UsageError, nearest
from labelloop.methods import METHODS


def recipe_config(method: str, recipe: str = DEFAULT_RECIPE, *layers: Mapping[str, Any]) -> TrainingConfig:
    """The configuration of a method: the settings of the recipe that the method has, then the layers on top."""
    if method not in METHODS:
        raise UsageError(f"unknown method {method!r}; {nearest(method, METHODS)}")
    if recipe not in RECIPES:
        raise UsageError(f"unknown recipe {recipe!r}; {nearest(recipe, RECIPES)}")
    kind = METHODS[method].config
    concerned = {field.name for field in fields(kind)}
    usual = {} if (method, recipe) == (PAPER_METHOD, DEFAULT_RECIPE) else RECIPES[recipe]
    base = {k: v for k, v in usual.items() if k in concerned}
    config = build_config(kind, _in_step(kind, base, layers), *layers)
    config.check_schedule()
    return config


def _in_step(
    kind: type[TrainingConfig], base: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The recipe, with its warm-up scaled if the layers set too few `epochs` for it and no `warm_up`."""
    asked = {key: value for layer in layers for key, value in layer.items()}
    usual = build_config(kind, base)
    warm_up, epochs = getattr(usual, "warm_up", None), asked.get("epochs")
    if warm_up is None or "warm_up" in asked or not isinstance(epochs, int) or not 1 < epochs <= warm_up + 1:
        return dict(base)
    scaled = max(1, round(warm_up * epochs / usual.epochs))
    warnings.warn(
        f"{epochs} epochs: the warm-up is {scaled} of them, as it is {warm_up} of {usual.epochs} in the recipe; warm_up"
        " sets it",
        stacklevel=3,
    )
    return {**base, "warm_up": scaled}

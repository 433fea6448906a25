"""The methods (step 3 of 5), by name. To add one: write its file, add its line here.

Below the table: the configuration of a method, from a recipe and overrides.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from labelloop.config.base import DEFAULT_RECIPE, PAPER_METHOD, RECIPES, TrainingConfig
from labelloop.config.build import build_config
from labelloop.errors import UsageError, nearest
from labelloop.types import Fitted, Problem


@dataclass(frozen=True)
class Method:
    """A way to train on noisy labels.

    Attributes:
        config: Its frozen configuration.
        fit: `fit(problem, config, runtime) -> Fitted`.
        clean_rows: How it uses the clean rows, in a few words for tables.
        check: `check(problem, config)` refuses a problem that it cannot be trained on, before anything is written.
        is_oracle: Whether it trains on the true labels instead of the noisy ones. Only experiments have them.
        shares_batches: Whether several processes can train it together: it uses `train_epoch`, or sums the gradients
            of `rank_batches`. Other methods need whole batches in every step and refuse to run in several processes.
    """

    config: type[TrainingConfig]
    fit: Callable[[Any, Any, Any], Fitted]
    clean_rows: str
    check: Callable[[Problem, Any], None]
    is_oracle: bool = False
    shares_batches: bool = False


def _method(
    module: str,
    clean_rows: str,
    fit: str = "fit",
    config: str = "Config",
    check: str = "",
    is_oracle: bool = False,
    shares: bool = False,
) -> Method:
    """The method in a file of this folder, imported by name: a method is its file and one line here."""
    place = import_module(f"{__name__}.{module}")
    return Method(
        getattr(place, config),
        getattr(place, fit),
        clean_rows,
        getattr(place, check) if check else _any_will_do,
        is_oracle,
        shares,
    )


def _any_will_do(problem: Problem, config: TrainingConfig) -> None:
    """The check of a method that can be trained on any problem."""


METHODS: dict[str, Method] = {
    "labelloop": _method("labelloop", "teach the correction, and trained on", shares=True),
    "closed-loop": _method("closed_loop", "teach the correction", check="check", shares=True),
    "cross-entropy": _method("cross_entropy", "not used", "fit_noisy", shares=True),
    "clean-only": _method("cross_entropy", "trained on, alone", "fit_clean", shares=True),
    "noisy-and-clean": _method("cross_entropy", "trained on", "fit_both", shares=True),
    "fine-tune": _method("cross_entropy", "trained on, afterwards", "fit_fine_tune", "FineTuneConfig", shares=True),
    "oracle": _method("cross_entropy", "not used", "fit_noisy", is_oracle=True, shares=True),
    "logistic-corrector": _method("logistic", "teach one correction", check="check", shares=True),
    "glc": _method("glc", "estimate the noise, and trained on", check="check", shares=True),
    "fasten": _method("fasten", "estimate the noise, and trained on", check="check"),
    "dmlp": _method("dmlp", "teach the labels", check="check", shares=True),
    "dmlp-nossl": _method("dmlp", "teach the labels", "fit_without_ssl", "NoSslConfig", shares=True),
    "mw-net": _method("mwnet", "teach the weights"),
    "l2b": _method("l2b", "set the weights"),
    "emlc": _method("emlc", "teach and train the teacher"),
    "co-teaching": _method("coteaching", "not used", check="check", shares=True),
    "dividemix": _method("dividemix", "not used"),
}


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

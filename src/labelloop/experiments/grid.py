"""A grid: a TOML file that lists what differs between experiments, and becomes a list of them.

Keys outside [axes] are the same for all. Under [axes] every key has a list, and all combinations are run. Each
[[methods]] entry names a method and what differs for it; without them, `method` is a key like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from labelloop.errors import UsageError, nearest
from labelloop.experiments.configuration import read_toml
from labelloop.experiments.experiment import Experiment

KEYS = tuple(field.name for field in fields(Experiment))
METHOD_KEYS = ("name", "method", "recipe", "config", "paired")


def read_grid(path: Path) -> list[Experiment]:
    """The experiments of a grid file.

    Raises:
        UsageError: An unknown key (with the nearest known one), an empty axis, or settings that do not fit.
    """
    return expand(read_toml(path), str(path))


def expand(content: Mapping[str, Any], source: str) -> list[Experiment]:
    """All combinations of the axes, for every method, each experiment once."""
    content = dict(content)
    axes, methods = content.pop("axes", {}), content.pop("methods", [{}])
    for key in content:
        _require(key, (*KEYS, "axes", "methods"), source)
    for key, values in axes.items():
        _require(key, KEYS, f"{source}, [axes]")
        if not isinstance(values, list) or not values:
            raise UsageError(f"{source}, [axes]: {key} must be a list with at least one value, not {values!r}")
    if not methods:
        raise UsageError(f"{source}: methods is empty; name at least one, or leave it out")
    experiments: dict[str, Experiment] = {}
    for method in methods:
        for key in method:
            _require(key, METHOD_KEYS, f"{source}, [[methods]]")
        for values in itertools.product(*axes.values()):
            settings = {**content, **dict(zip(axes, values, strict=True)), **method}
            settings["config"] = {**content.get("config", {}), **method.get("config", {})}
            experiment = _experiment(settings, source)
            experiments.setdefault(experiment.key + experiment.title, experiment)
    return list(experiments.values())


def _experiment(settings: Mapping[str, Any], source: str) -> Experiment:
    kinds = {"rate": float, "clean": int, "seed": int, "paired": bool}
    settings = dict(settings)
    if isinstance(settings.get("rate"), int):
        settings["rate"] = float(settings["rate"])
    for key, kind in kinds.items():
        if key in settings and type(settings[key]) is not kind:
            raise UsageError(f"{source}: {key} must be a {kind.__name__}, not {settings[key]!r}")
    try:
        return Experiment(**settings)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def _require(key: str, known: tuple[str, ...], source: str) -> None:
    if key not in known:
        raise UsageError(f"{source}: unknown key {key!r}; {nearest(key, known)}")

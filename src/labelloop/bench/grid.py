"""A grid: a TOML file that lists what differs between experiments.

Keys outside [axes] are the same for all. Under [axes] every key has a list, and all combinations are run. Each
[[methods]] entry names a method and what differs for it; without them, `method` is a key like any other. The `config`
tables of all three are merged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from labelloop.bench.experiment import Experiment
from labelloop.config.build import merge, read_toml
from labelloop.errors import UsageError, nearest
from labelloop.trust import Stored

METHOD_KEYS = ("name", "method", "recipe", "config", "paired")
KINDS = {name: get_origin(kind) or kind for name, kind in get_type_hints(Experiment).items()}
KEYS = tuple(KINDS)


def read_grid(path: Path, trust_code: bool = False) -> list[Experiment]:
    """The experiments of a grid file.

    Args:
        path: The file.
        trust_code: Whether it may name code of its own as a network.

    Raises:
        UsageError: An unknown key (with the nearest known one), an empty axis, or settings that do not fit.
        DataError: A noise file is missing, or the grid names code and may not.
    """
    found = expand(read_toml(path), str(path))
    for network, options in {repr(pair): pair for pair in map(_network, found)}.values():
        Stored(path, trust_code).check_network(network, options, "config.network")
    return found


def _network(experiment: Experiment) -> tuple[Any, Any]:
    return experiment.config.get("network", "auto"), experiment.config.get("network_options", {})


def expand(content: Mapping[str, Any], source: str) -> list[Experiment]:
    """All combinations of the axes, for every method, each experiment once."""
    content = dict(content)
    axes, methods = content.pop("axes", {}), content.pop("methods", [{}])
    _check(content, axes, methods, source)
    experiments: dict[str, Experiment] = {}
    for method in methods:
        for values in itertools.product(*axes.values()):
            layers = (content, dict(zip(axes, values, strict=True)), method)
            settings = {key: value for layer in layers for key, value in layer.items()}
            settings["config"] = merge(*(_config(layer, source) for layer in layers))
            experiment = _experiment(settings, source)
            experiments.setdefault(f"{experiment.key} {experiment.title}", experiment)
    return list(experiments.values())


def _check(content: Mapping[str, Any], axes: Any, methods: Any, source: str) -> None:
    """Refuses unknown keys, axes without a value, and a key in two places."""
    require(content, (*KEYS, "axes", "methods"), source)
    if not isinstance(axes, dict):
        raise UsageError(f"{source}: axes must be a table of lists, not {axes!r}")
    require(axes, KEYS, f"{source}, [axes]")
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{source}, [axes]: {key} must be a list with at least one value, not {values!r}")
        if key in content and key != "config":
            raise UsageError(f"{source}: {key} is set in [axes] and outside it; leave one of them out")
    if not isinstance(methods, list) or not all(isinstance(method, dict) for method in methods):
        raise UsageError(f"{source}: methods must be [[methods]] entries, not {methods!r}")
    if not methods:
        raise UsageError(f"{source}: methods is empty; name at least one, or leave it out")
    for key in {key for method in methods for key in method}:
        require([key], METHOD_KEYS, f"{source}, [[methods]]")
        if key in axes and key != "config":
            raise UsageError(f"{source}: {key} is set in [axes] and in [[methods]]; leave one of them out")


def _config(layer: Mapping[str, Any], source: str) -> dict[str, Any]:
    config = layer.get("config", {})
    if not isinstance(config, dict):
        raise UsageError(f"{source}: config must be a table, not {config!r}")
    return config


def _experiment(settings: Mapping[str, Any], source: str) -> Experiment:
    settings = dict(settings)
    if type(settings.get("rate")) is int and abs(settings["rate"]) < 2**63:
        settings["rate"] = float(settings["rate"])
    for key, value in settings.items():
        if type(value) is not KINDS[key]:
            raise UsageError(f"{source}: {key} must be a {KINDS[key].__name__}, not {value!r}")
    try:
        return Experiment(**settings)
    except UsageError as error:
        raise UsageError(f"{source}, method {settings.get('method', 'closed-loop')!r}: {error}") from None


def require(keys: Iterable[str], known: tuple[str, ...], source: str) -> None:
    """Refuses an unknown key, and names the nearest known one."""
    for key in keys:
        if key not in known:
            raise UsageError(f"{source}: unknown key {key!r}; {nearest(key, known)}")

"""From TOML files and key=value overrides to a method's frozen configuration, with every key and type checked."""

from __future__ import annotations

import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from labelloop.errors import UsageError, nearest

Config = TypeVar("Config")

_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a table"}

DEEPEST = 20  # tables in tables


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a TOML file."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such configuration file") from None
    except (ValueError, RecursionError) as error:  # not TOML, not text, nested too deep, a number of 5,000 digits
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    if _is_deep(found, DEEPEST):
        raise UsageError(f"{path} is not a configuration: its tables are nested more than {DEEPEST} deep")
    return found


def _is_deep(value: Any, most: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not most or any(_is_deep(one, most - 1) for one in inner)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Turns ["epochs=50", "corrector.inputs=features,logits"] into nested keys and values."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"cannot read {text!r}; write it as key=value, such as epochs=50")
        *outer, last = key.strip().split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise UsageError(f"{text!r}: {name} already has a value")
        place[last] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # text without quotes stays text


def build_config(kind: type[Config], *layers: Mapping[str, Any]) -> Config:
    """A configuration of class `kind` from its defaults and the given layers; later layers win.

    Raises:
        UsageError: An unknown key, with the nearest known one, or a value of the wrong type or out of range.
    """
    return _build(kind, merge(*layers), "")


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The layers merged, nested tables included. The layers themselves are not changed."""
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer)
    return merged


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = deepcopy(dict(value)) if isinstance(value, Mapping) else value


def _build(kind: type[Config], values: Mapping[str, Any], prefix: str) -> Config:
    assert is_dataclass(kind)
    types_of, known = _types_of(kind), [field.name for field in fields(kind)]
    for key in values:
        if key not in known:
            raise UsageError(f"unknown key {prefix}{key!s}; {nearest(key, known)}")
    return kind(**{key: _convert(value, types_of[key], prefix + key) for key, value in values.items()})


_types_of = cache(typing.get_type_hints)  # reading annotations is slow, and a table of the paper has many experiments


def _convert(value: Any, kind: Any, key: str) -> Any:
    origin = typing.get_origin(kind)
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise UsageError(f"{key} is a group of settings, such as {key}.{fields(kind)[0].name}; give one of those")
        return _build(typing.cast("type[Any]", kind), value, f"{key}.")
    if origin is tuple:
        item = typing.get_args(kind)[0]
        if isinstance(value, str):
            value = [_value(part.strip()) if item is not str else part.strip() for part in value.split(",")]
        elif not isinstance(value, list | tuple):
            value = [value]
        return tuple(_convert(part, item, key) for part in value)
    kind = dict if origin is dict else kind
    if origin is types.UnionType:
        raise TypeError(f"{key}: a configuration value has one type")
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UsageError(f"{key} must be {_NAMES[kind]}, not {value!r}")
    return value


def deciding(config: Any) -> dict[str, Any]:
    """The settings that identify a run: all except those added later (`config.base.added`) that keep their default."""
    found: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        if one.metadata.get("added") and value == one.default:
            continue
        found[one.name] = deciding(value) if is_dataclass(value) else _plain(value)
    return found


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as plain JSON values."""
    return {key: _plain(value) for key, value in asdict(config).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as one: corrector.hidden."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found

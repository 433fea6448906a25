"""From files and key=value texts to a frozen configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from labelloop.config.build import build_config, parse_overrides, read_toml, to_dict
from labelloop.errors import UsageError
from labelloop.methods import METHODS
from labelloop.methods.closed_loop import Config


@dataclass(frozen=True)
class Inner:
    size: int = 3
    rate: float = 0.5
    words: tuple[str, ...] = ("a",)


@dataclass(frozen=True)
class Outer:
    name: str = "x"
    on: bool = False
    shares: tuple[float, ...] = (0.5,)
    options: dict[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs=50", {"epochs": 50}),
        ("rate=1e-3", {"rate": 1e-3}),
        ("on=true", {"on": True}),
        ("name=mlp", {"name": "mlp"}),
        ('name="3"', {"name": "3"}),
        (" name = a b ", {"name": "a b"}),
        ("name=a=b", {"name": "a=b"}),
        ("name=", {"name": ""}),
        ("a.b.c=[1, 2]", {"a": {"b": {"c": [1, 2]}}}),
        ("options={hidden = [8]}", {"options": {"hidden": [8]}}),
        ("weights=C:\\files\\w.pth", {"weights": "C:\\files\\w.pth"}),
    ],
)
def test_overrides_are_read(text, expected):
    assert parse_overrides([text]) == expected


def test_overrides_add_up_and_the_last_wins():
    assert parse_overrides(["a.b=1", "a.c=2", "d=3", "a.b=4"]) == {"a": {"b": 4, "c": 2}, "d": 3}
    assert parse_overrides([]) == {}


@pytest.mark.parametrize("text", ["epochs", "=3", " =3", ""])
def test_a_text_that_is_no_override_is_refused(text):
    with pytest.raises(UsageError, match="key=value"):
        parse_overrides([text])


def test_a_key_cannot_be_a_value_and_a_table():
    with pytest.raises(UsageError, match="corrector already has a value"):
        parse_overrides(["corrector=3", "corrector.hidden=4"])


def test_layers_lie_on_top_of_each_other():
    layers = ({"name": "first", "inner": {"size": 1, "rate": 1}}, {"name": "second", "inner": {"size": 2}})
    found = build_config(Outer, *layers)
    assert found == Outer(name="second", inner=Inner(size=2, rate=1.0))
    assert type(found.inner.rate) is float
    assert layers[0] == {"name": "first", "inner": {"size": 1, "rate": 1}}  # left as it was
    assert build_config(Outer) == Outer()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"shares": 0.25}, Outer(shares=(0.25,))),
        ({"shares": [1, 0.5]}, Outer(shares=(1.0, 0.5))),
        ({"shares": "0.1, 0.2"}, Outer(shares=(0.1, 0.2))),
        ({"shares": []}, Outer(shares=())),
        ({"inner": {"words": "a, b"}}, Outer(inner=Inner(words=("a", "b")))),
        ({"inner": {"words": ["a", "b"]}}, Outer(inner=Inner(words=("a", "b")))),
        ({"options": {"anything": [1, "two"]}}, Outer(options={"anything": [1, "two"]})),
    ],
)
def test_values_are_brought_to_their_type(values, expected):
    assert build_config(Outer, values) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nam": "y"}, "unknown key nam; did you mean 'name'"),
        ({"zzz": 1}, "unknown key zzz; known: name, on, shares, options, inner"),
        ({"inner": {"sise": 1}}, "unknown key inner.sise; did you mean 'size'"),
        ({"inner": 3}, "inner is a group of settings, such as inner.size"),
        ({"name": 3}, "name must be text, not 3"),
        ({"on": 1}, "on must be true or false, not 1"),
        ({"on": "yes"}, "on must be true or false, not 'yes'"),
        ({"inner": {"size": 2.0}}, "inner.size must be a whole number, not 2.0"),
        ({"inner": {"size": True}}, "inner.size must be a whole number, not True"),
        ({"inner": {"rate": "fast"}}, "inner.rate must be a number, not 'fast'"),
        ({"inner": {"rate": True}}, "inner.rate must be a number, not True"),
        ({"shares": "a,b"}, "shares must be a number, not 'a'"),
        ({"inner": {"words": [1]}}, "inner.words must be text, not 1"),
        ({"options": [1]}, "options must be a table"),
    ],
)
def test_a_wrong_key_or_type_is_named(values, message):
    with pytest.raises(UsageError) as error:
        build_config(Outer, values)
    assert message in str(error.value)


def test_toml_files_are_read_or_named(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("epochs = 3\n[corrector]\nhidden = 5\n", encoding="utf-8")
    assert read_toml(file) == {"epochs": 3, "corrector": {"hidden": 5}}
    file.write_bytes(b"epochs = 3 # \xff\n")
    with pytest.raises(UsageError, match=r"c\.toml is not valid TOML"):
        read_toml(file)
    with pytest.raises(UsageError, match="no such configuration file"):
        read_toml(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("method", METHODS)
def test_every_configuration_survives_json_and_can_be_built_again(method):
    config = METHODS[method].config(network_options={"hidden": (8, 4)}, learning_rate_drops=(0.5,))
    stored = to_dict(config)
    assert json.loads(json.dumps(stored)) == stored  # a tuple would come back as a list and look like a change
    again = build_config(METHODS[method].config, stored)
    assert again.learning_rate_drops == (0.5,)
    assert to_dict(again) == stored
    if isinstance(config, Config):
        assert again.corrector == config.corrector
        assert stored["corrector"]["inputs"] == ["features"]

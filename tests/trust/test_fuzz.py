"""Damaged files end in one line that names them: the short form of the fuzzer, with a fixed seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fuzz import base_runs, fuzz
from strangers import change, corrected_run, told

CASES = 300  # `make torture` reads 20,000


def test_nothing_but_our_own_errors_escapes(tmp_path: Path) -> None:
    for name in ("base", "work"):
        (tmp_path / name).mkdir()
    done, escaped, examples = fuzz(base_runs(tmp_path / "base"), tmp_path / "work", CASES, seed=1)
    assert (done, dict(escaped)) == (CASES, {}), examples


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", "0"),
        ("rounds", {}),
        ("data", []),
        ("data.classes", "cat"),
        ("data.classes[0]", 7),
        ("estimate", [1]),
        ("estimate.corrected_label_accuracy.value", "0.9"),
        ("source.path", None),
        ("source.options", "none"),
        ("config", None),
        ("config.corrector", 3),
        ("versions", ["1"]),
        ("weights.given label", {}),
        ("schema_version", True),
    ],
)
def test_a_wrong_type_is_one_line_with_the_file_and_the_field(tmp_path: Path, field: str, value: object) -> None:
    run = corrected_run(tmp_path / "run")

    def put(record: dict[str, object]) -> None:
        inner: object = record
        *outer, last = field.replace("[0]", ".0").split(".")
        for key in outer:
            inner = inner.setdefault(key, {})  # type: ignore[attr-defined]
        inner[int(last) if last == "0" else last] = value  # type: ignore[index]

    change(run / "run.json", put)
    for command in (("export", run, "--to", "issues", "--output", tmp_path / "x.csv"), ("plan", run)):
        ended = told(*command)
        lines = [line for line in ended.err.splitlines() if "damage cannot be noticed" not in line]
        assert (ended.code, len(lines)) == (1, 1), ended.err
        assert f"run.json: {field} is" in lines[0] or "schema_version" in lines[0]


def test_a_network_larger_than_its_weights_takes_no_memory(tmp_path: Path) -> None:
    from strangers import model

    folder = model(tmp_path / "model")
    for options in ({"hidden": [10**9]}, {"hidden": [2**62]}, {"hidden": -1}, {"width": 1}):
        change(folder / "model.json", lambda about, options=options: {**about, "network_options": options})  # type: ignore[misc]
        ended = told("predict", folder, tmp_path / "new.csv")
        assert ended.code in (1, 2)
        assert len(ended.err.splitlines()) == 1, ended.err
    change(folder / "model.json", lambda about: {**about, "network_options": {"hidden": [4]}, "input_shape": [10**12]})
    assert told("predict", folder, tmp_path / "new.csv").code == 1
    assert json.loads((folder / "model.json").read_text())["network"] == "mlp"

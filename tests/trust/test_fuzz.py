"""Damaged files end in one line that names them: the short form of the fuzzer, with a fixed seed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fuzz import base_runs, fuzz
from strangers import ROWS, change, corrected_run, model, told

from labelloop.data.encoding import Column, from_json, to_json
from labelloop.errors import DataError
from labelloop.report.review.looks import Columns
from labelloop.trained_model import load_model

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


@pytest.mark.parametrize(
    ("field", "value"),
    [("classes", ["cat", "cat"]), ("classes", [10**200, 2]), ("encoder_form", {"name": "words", "kind": "text"})],
)
def test_a_model_that_no_run_writes_is_one_line(tmp_path: Path, field: str, value: object) -> None:
    folder = model(tmp_path / "model")
    change(folder / "model.json", lambda about: about.update({field: value}))
    ended = told("predict", folder, tmp_path / "new.csv")
    assert (ended.code, ended.err.count("\n"), f"model.json: {field}" in ended.err) == (1, 1, True), ended.err


def test_a_field_of_a_newer_version_is_left_out(tmp_path: Path) -> None:
    folder = model(tmp_path / "model")
    form = {"name": "words", "kind": "text", "version": "", "later": 1}
    image = {"height": 8, "width": 8, "streamed": False, "later": 1}
    change(folder / "model.json", lambda about: about.update(encoder_form=form, image_form=image))
    found = load_model(folder)
    assert (getattr(found.encoder_form, "name", None), getattr(found.image_form, "height", None)) == ("words", 8)


@pytest.mark.parametrize(("kind", "size"), [("BF16", 2), ("F8_E5M2", 1)])
def test_weights_of_a_kind_that_numpy_has_not_are_one_line(tmp_path: Path, kind: str, size: int) -> None:
    folder = model(tmp_path / "model")
    header = json.dumps({"a": {"dtype": kind, "shape": [1], "data_offsets": [0, size]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    ended = told("predict", folder, tmp_path / "new.csv")
    assert (ended.code, "model.safetensors is damaged" in ended.err) == (1, True), ended.err


def test_a_plan_of_classes_that_there_are_not_is_one_line(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    for risk in ({"class": 99, "why": "rare", "verify": 5}, {"class": 0}):

        def put(about: dict[str, Any], risk: dict[str, Any] = risk) -> None:
            about["estimate"].update(at_risk=[risk])

        change(run / "run.json", put)
        ended = told("plan", run)
        assert (ended.code, "run.json: estimate.at_risk" in ended.err) == (1, True), ended.err
        assert not (run / "verify.csv").exists()


def test_a_noise_file_that_no_version_writes_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    made = tmp_path / "noise.parquet"
    assert told("noise", tmp_path / "rows.csv", "--output", made, "--noise", "symmetric").code == 0
    table = pq.read_table(made)
    about = json.loads(table.schema.metadata[b"labelloop"])
    lacking = {key: value for key, value in about.items() if key != "clean"}
    for text in (json.dumps(lacking), "[" * 100_000):
        pq.write_table(table.replace_schema_metadata({b"labelloop": text}), made)
        ended = told("fit", tmp_path / "rows.csv", "--noisy-labels", made, "--output-dir", tmp_path / "run")
        assert (ended.code, "is not a noise file, or is damaged" in ended.err) == (1, True), ended.err
    made.unlink()
    os.mkfifo(made)
    ended = told("fit", tmp_path / "rows.csv", "--noisy-labels", made, "--output-dir", tmp_path / "run")
    assert (ended.code, "is not a file" in ended.err) == (1, True), ended.err


@pytest.mark.parametrize(
    "change",
    [{"missing": {}}, {"kind": "os"}, {"levels": [1]}, {"median": "x"}, {"sentinels": [None]}, {"form": 3}],
)
def test_a_column_that_no_run_writes_is_one_line(tmp_path: Path, change: dict[str, object]) -> None:
    stored = [{**to_json([Column("a", "number")])[0], **change}]
    with pytest.raises(DataError, match=r"model\.json: the description of the columns cannot be read"):
        from_json(stored, "model.json")


def test_a_run_without_rows_can_be_looked_at() -> None:
    assert Columns([], np.zeros(0, np.int64)) is not None

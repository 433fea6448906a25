"""run.json: one shape, older versions brought up to date, newer ones refused, rows counted in one place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from labelloop.errors import DataError
from labelloop.runs.folder import RunFolder, read_record
from labelloop.runs.run_json import SCHEMA_VERSION, RunRecord, data_record, from_json

PLACE = Path("run.json")
COUNTS = ("rows", "noisy", "unlabelled", "clean_paired", "clean_unpaired")
LOOP = {"epochs": 3, "lr_drops": [0.5], "freeze_base": False, "corrector": {"hidden": 8, "noisy_view": "soft"}}
OLD = {
    "schema_version": 1,
    "method": "closed-loop",
    "config": LOOP,
    "seed": 3,
    "data": {"source": "a.csv", "rows": 2, "classes": ["x", "y"]},
    "versions": {"numpy": "2"},
    "state": "finished",
    "demo": True,
}


def test_what_is_written_is_read_again_as_it_was(tmp_path):
    record = RunRecord(
        kind="refit", method="closed-loop", config={"epochs": 2}, seed=4, source={"path": "a.csv"},
        rounds=({"round": 1},), state="finished", stop_reason="epoch limit",
        estimate={"notes": []}, about={"refitted_from": "old"},
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run")
    folder.write_record(record)
    assert folder.read_record() == record
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    assert content["schema_version"] == SCHEMA_VERSION == 3
    assert content["refitted_from"] == "old"


def test_every_kind_of_run_has_the_same_keys():
    shapes = {tuple(RunRecord(kind=kind).to_json()) for kind in ("fit", "correct", "refit", "bench")}
    assert len(shapes) == 1
    assert {"kind", "method", "config", "seed", "data", "versions", "source", "state"} <= set(shapes.pop())


def test_version_1_is_brought_up_to_date():
    record = from_json(OLD | {"config": LOOP | {"final_labels": "loop"}}, PLACE)
    assert (record.kind, record.method, record.seed, record.about) == ("fit", "closed-loop", 3, {"demo": True})
    assert record.config == {"epochs": 3, "learning_rate_drops": [0.5], "corrector": {"hidden": 8}}
    assert record.data["test"] is None
    assert record.data["source"] == "a.csv"
    assert from_json(OLD | {"method": "correct", "config": {}}, PLACE).kind == "correct"
    assert from_json(OLD | {"refitted_from": "x"}, PLACE).kind == "refit"
    bench = from_json({"schema_version": 1, "experiment": {"method": "glc", "seed": 2}, "state": "running"}, PLACE)
    assert (bench.kind, bench.method, bench.seed, bench.config) == ("bench", "glc", 2, {})


def test_the_default_of_before_is_now_called_labelloop():
    assert from_json(OLD, PLACE).method == "labelloop"  # version 1 knew no other labels
    second = OLD | {"schema_version": 2, "config": {"epochs": 3, "final_labels": "held_out", "beliefs": "all"}}
    assert from_json(second, PLACE).method == "labelloop"
    assert from_json(second, PLACE).config["epochs"] == 3
    assert from_json(second | {"config": {"epochs": 3, "final_labels": "loop"}}, PLACE).method == "closed-loop"


def test_a_setting_that_is_gone_is_left_out_where_it_made_no_difference():
    stored = RunRecord(config={"epochs": 3, "mixup_after": 0, "corrector": {"hidden": 8}}).to_json()
    assert from_json(stored, PLACE).config == {"epochs": 3, "corrector": {"hidden": 8}}
    with pytest.raises(DataError, match=r"mixup_after = 2.*run it again"):
        from_json(stored | {"config": {"mixup_after": 2}}, PLACE)


def test_a_setting_that_is_gone_is_refused_where_it_made_a_difference():
    with pytest.raises(DataError, match=r"corrector\.noisy_view = 'sampled'.*run it again"):
        from_json(OLD | {"config": {"final_labels": "loop", "corrector": {"noisy_view": "sampled"}}}, PLACE)


@pytest.mark.parametrize(
    ("version", "words"),
    [(SCHEMA_VERSION + 1, r"newer version \(schema 4, not 3\); update"), ("2", "'2'")],
)
def test_a_newer_or_a_strange_version_is_refused_in_words(version, words, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(RunRecord().to_json() | {"schema_version": version}))
    with pytest.raises(DataError, match=words):
        read_record(tmp_path)


def test_rows_are_counted_by_the_labels_they_have():
    given, clean = np.array([0, 1, -1, 0, -1, 1]), np.array([-1, -1, -1, 1, 0, 1])
    counted = data_record("a.csv", ["x", "y"], given, clean)
    assert [counted[key] for key in COUNTS] == [
        6,
        2,
        1,
        2,
        1,
    ]
    used = np.array([False, True, True, True, True, False])
    counted = data_record("a.csv", ["x", "y"], given, clean, used)
    assert [counted[key] for key in COUNTS] == [
        6,
        1,
        1,
        1,
        1,
    ]

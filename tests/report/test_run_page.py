"""The report of one run: what it says, that it is one safe file, and that it makes do with half a run."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from page_reader import Page, unpacked
from reported_runs import CLASSES, made_run

from labelloop.errors import DataError
from labelloop.report import run_page as rows_module
from labelloop.report.html import write_report
from labelloop.report.run_page import run_page
from labelloop.runs.result_files import Preview, write_preview
from labelloop.runs.survey import survey


def page_of(folder: Path) -> Page:
    return Page(write_report([folder]).read_text(encoding="utf-8"))


def test_the_answer_comes_first(tmp_path):
    page = page_of(made_run(tmp_path / "run"))
    labels = pq.read_table(tmp_path / "run" / "labels.parquet")
    changed = int((labels["changed"].to_numpy() & ~labels["verified"].to_numpy()).sum())
    assert f"Labels changed {changed}" in page.text
    assert "Given labels that were wrong 33.3%" in page.text  # 4 of the 12 clean rows that judged
    assert "66.7% → 90.0%" in page.text
    assert "95% interval 80.0 to 95.0%, from 12 held-out clean rows" in page.text
    assert "held-out networks 90.0% right, compared with 85.0% of the loop's own labels" in page.text
    assert "Test accuracy 90.0% on 9 rows" in page.text
    assert "labelloop review" in page.text
    assert page.text.index("The answer") < page.text.index("Pictures") < page.text.index("The changed rows")


def test_it_is_one_file_that_fetches_nothing(tmp_path):
    page = page_of(made_run(tmp_path / "run"))
    assert len(page.elements) > 50
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        assert "src" not in attributes
        assert str(attributes.get("href", "#")).startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert page.policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in page.policy.split("script-src")[1].split(";")[0]
    assert page.digests() == page.allowed()
    assert len(page.allowed()) == 5


def test_names_of_the_user_are_only_text(tmp_path):
    evil = "</script><script>alert(1)</script>"
    ids = [f"{evil}{k}" for k in range(60)]
    folder = made_run(tmp_path / "<img src=x onerror=alert(2)>", ids=ids, method=evil, stop_reason=evil)
    page = page_of(folder)
    assert len(page.scripts) == 6  # five of ours, and the data
    assert not [tag for tag, _ in page.elements if tag in ("img", "b")]
    assert page.data["classes"] == list(CLASSES)
    assert unpacked(page.data["rows"]["columns"])["ids"][0].startswith(evil)
    assert page.digests() == page.allowed()


def test_pictures_show_the_run(tmp_path):
    shown = page_of(made_run(tmp_path / "run")).data["pictures"]
    assert [name for name, picture in shown.items() if picture is None] == []
    assert np.sum(shown["noise"]["share"], axis=1) == pytest.approx(1, abs=0.001)
    assert shown["dynamics"]["rounds"] == [2, 3]
    assert shown["dynamics"]["drops"] == [2]
    assert {bar["component"] for bar in shown["weights"]["bars"]} == {"given label", "round 1", "round 2"}
    assert shown["seconds"]["phases"][0] == {"phase": "train", "seconds": 6.0}
    coverage = shown["coverage"]["points"]
    assert [point["changes"] for point in coverage] == sorted((point["changes"] for point in coverage), reverse=True)
    assert sum(flow["rows"] for flow in shown["flows"]["flows"]) == shown["coverage"]["all_changes"]


def test_the_table_has_every_change(tmp_path):
    folder = made_run(tmp_path / "run")
    labels = pq.read_table(folder / "labels.parquet").to_pylist()
    wanted = {row["id"]: row for row in labels if row["changed"] and not row["verified"]}
    data = page_of(folder).data
    columns = unpacked(data["rows"]["columns"])
    numbers = {name: base64.b64decode(columns[name]) for name in ("given", "corrected", "confidence")}
    given, corrected = (np.frombuffer(numbers[name], "<u2") for name in ("given", "corrected"))
    confidence = np.frombuffer(numbers["confidence"], "<f4")
    assert sorted(columns["ids"]) == sorted(wanted)
    for k, name in enumerate(columns["ids"]):
        assert data["classes"][given[k]] == wanted[name]["given_label"]
        assert data["classes"][corrected[k]] == wanted[name]["corrected_label"]
        assert confidence[k] == pytest.approx(wanted[name]["corrected_confidence"])
    assert (np.diff(confidence) <= 0).all()


def test_too_many_changes_are_a_stated_sample(tmp_path):
    page = Page(run_page(survey(made_run(tmp_path / "run")), 6))
    confidence = np.frombuffer(base64.b64decode(unpacked(page.data["rows"]["columns"])["confidence"]), "<f4")
    assert len(confidence) == 6
    assert confidence[2] > confidence[3] + 0.1
    assert "the 3 most confident and the 3 most doubtful of" in page.text


def test_thumbnails_are_a_stated_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "MOST_IMAGES", 4)
    folder = made_run(tmp_path / "run")
    rows = list(range(0, 60))
    write_preview(folder, Preview("image", rows, [b"\xff\xd8picture" if k != 3 else None for k in rows], sample="all"))
    page = page_of(folder)
    images = page.data["rows"]["images"]
    last = page.data["rows"]["count"] - 1
    assert {"0", str(last)} <= set(images)
    assert len(images) == 4
    assert "4 of these rows are shown with their pictures" in page.text


def test_texts_and_values_go_with_their_rows(tmp_path):
    folder = made_run(tmp_path / "run")
    write_preview(folder, Preview("values", [1, 2, 59], [["a", "1"], ["b", "2"], ["c", "3"]], ("colour", "size")))
    columns = unpacked(page_of(folder).data["rows"]["columns"])
    assert columns["names"] == ["colour", "size"]
    row = np.frombuffer(base64.b64decode(columns["row"]), "<u4")
    kept = {1: ["a", "1"], 2: ["b", "2"], 59: ["c", "3"]}
    assert [look for _, look in columns["shown"]] != []
    assert all(kept[row[place]] == look for place, look in columns["shown"])


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("running", "the run is still running, or was killed"),
        ("failed", "the run failed: out of memory"),
        ("interrupted", "the run was interrupted"),
        ("odd", "does not say how the run ended"),
    ],
)
def test_a_run_that_is_not_finished(tmp_path, state, says):
    folder = made_run(tmp_path / "run", state=state, stop_reason="out of memory", estimate=None, rounds=[])
    for name in ("labels.parquet", "targets.npy"):
        (folder / name).unlink()
    page = page_of(folder)
    assert "This report is incomplete" in page.text
    assert says in page.text
    assert "labels.parquet is missing" in page.text
    assert "--resume" in page.text
    assert page.data["pictures"]["dynamics"]["epochs"] == [1, 2, 3, 4]
    assert page.data["rows"] is None


def test_half_written_and_damaged_files(tmp_path):
    folder = made_run(tmp_path / "run")
    (folder / "run.json").write_text('{"schema_version": 1, "meth', encoding="utf-8")
    (folder / "metrics.jsonl").write_text('{"epoch": 1, "loss": 2.0}\n{"epoch": 2, "lo', encoding="utf-8")
    (folder / "targets.npy").write_bytes(b"\x93NUMPY")
    page = page_of(folder)
    for words in ("run.json is damaged", "targets.npy is damaged", "preview.parquet is missing"):
        assert words in page.text
    assert page.data["pictures"]["dynamics"]["epochs"] == [1]
    assert page.data["rows"]["count"] > 0  # the labels are whole
    (folder / "labels.parquet").write_bytes(b"PAR1")
    assert "labels.parquet is damaged" in page_of(folder).text


def test_a_run_of_an_older_version(tmp_path):
    folder = made_run(tmp_path / "run", estimate=None, rounds=[{"round": 1, "epoch": 2}])
    labels = pq.read_table(folder / "labels.parquet").drop_columns(["verified", "label_score"])
    pq.write_table(labels, folder / "labels.parquet")
    page = page_of(folder)
    assert "there is no estimate of how good the labels are" in page.text
    assert "labels.parquet has no column verified, label_score" in page.text
    assert page.data["pictures"]["weights"] is None
    assert page.data["rows"]["count"] == int(labels["changed"].to_numpy().sum())


def test_files_of_different_runs(tmp_path):
    folder = made_run(tmp_path / "run")
    np.save(folder / "targets.npy", np.ones((3, 3), np.float32))
    assert "belong to different runs" in page_of(folder).text


def test_no_run_and_no_report(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        write_report([tmp_path / "nowhere"])
    with pytest.raises(DataError, match="not a run folder"):
        write_report([tmp_path])
    folder = made_run(tmp_path / "run")
    (folder / "report.html").write_text("<p>my own notes</p>", encoding="utf-8")
    with pytest.raises(DataError, match="not a report of LabelLoop"):
        write_report([folder])
    assert (folder / "report.html").read_text(encoding="utf-8") == "<p>my own notes</p>"
    (folder / "report.html").unlink()
    first = write_report([folder]).read_bytes()
    assert write_report([folder]).read_bytes() == first  # ours is replaced, and the same run gives the same page


def test_numbers_that_are_not_finite(tmp_path):
    folder = made_run(tmp_path / "run")
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record["estimate"]["reliability"][0]["low"] = float("nan")
    record["estimate"]["corrected_label_accuracy"]["value"] = float("nan")
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    page = page_of(folder)
    assert page.data["pictures"]["reliability"]["bins"][0]["low"] is None
    assert "nan" not in page.text.lower()

"""The report of one run: what it says, that it is one safe file, and that it makes do with half a run."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
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
from labelloop.runs.result_files import Preview, RowArrays, write_preview, write_row_arrays
from labelloop.runs.survey import survey
from labelloop.types import DIFFER


def page_of(folder: Path) -> Page:
    return Page(write_report([folder]).read_text(encoding="utf-8"))


def test_the_answer_comes_first(tmp_path):
    page = page_of(made_run(tmp_path / "run"))
    labels = pq.read_table(tmp_path / "run" / "labels.parquet")
    changed = int((labels["changed"].to_numpy() & ~labels["verified"].to_numpy()).sum())
    assert f"Changed {changed}" in page.text
    assert "Wrong as given 10 to 65% With 95% certainty. There are too few clean rows for a narrower" in page.text
    assert "Right now 90.0% Between 80.0% and 95.0%, with 95% certainty. Before: 35 to 90%." in page.text
    assert "Be careful about Only 12 clean rows test these labels" in page.text
    assert "right on 90.0% of 9 rows not used for training" in page.text
    parts = ["What to do next", "labelloop review", "Class by class", "The changed rows", "Pictures", "Method"]
    places = [page.text.index(part) for part in parts]
    assert places == sorted(places)


def test_the_estimate_is_that_of_the_run(tmp_path):
    share = {"value": 0.75, "low": 0.6, "high": 0.9, "rows": 40}
    classes = [
        {"good": 5, "broken": 0, "wrong": 2, "fixed": 1, "clean_rows": 9, "precision": share, "recall": None},
        {"good": 1, "broken": 0, "wrong": 1, "fixed": 1, "clean_rows": 2, "precision": share, "recall": share},
        {"good": 9, "broken": 0, "wrong": 1, "fixed": 1, "clean_rows": 10, "precision": None, "recall": None},
    ]
    estimate = {
        "given_label_accuracy": {**share, "how": "assumed"},
        "corrected_label_accuracy": {**share, "value": 0.8, "how": "bounded"},
        "by_class": classes,
        "at_risk": [
            {"class": 0, "why": "a tenth of its good labels may be broken", "verify": 30},
            {"class": 99, "why": "", "verify": 5},
        ],
        "notes": [f"{DIFFER}: verify random rows"],
    }
    page = page_of(made_run(tmp_path / "run", estimate=estimate))
    assert "Be careful about Clean rows differ from the others: verify random rows. cat: " in page.text
    assert "Wrong as given 25.0% Between 10.0% and 40.0%, if the noise is as the run assumes." in page.text
    assert "Right now 60 to 90% Anything in between is possible" in page.text  # no value between bounds is better
    assert "cat: a tenth of its good labels may be broken. Verify about 30 of its rows." in page.text
    assert "Fewer than 5 clean rows: dog." in page.text
    table = page.text[page.text.index("Class by class") : page.text.index("The changed rows")]
    assert "cat at risk" in table.replace("  ", " ")
    assert "75% (60–90) – 9" in table.replace("  ", " ")


def test_where_nothing_was_changed_the_numbers_agree_and_say_why(tmp_path):
    folder = made_run(tmp_path / "run")
    labels = pq.read_table(folder / "labels.parquet")
    kept = labels.set_column(labels.column_names.index("corrected_label"), "corrected_label", labels["given_label"])
    pq.write_table(kept, folder / "labels.parquet")
    bounds = {"low": 0.2, "high": 0.9, "rows": 5, "how": "bounded"}
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record["estimate"] = {
        "given_label_accuracy": {**bounds, "value": 0.55},
        "corrected_label_accuracy": {**bounds, "value": 0.6},
        "wrong_labels_fixed": {"value": 0.0, "low": 0.0, "high": 0.9, "rows": 2},
    }
    record["guard"] = {"line": "all kept", "clean_rows": 5, "held_back": 148, "changed": 0, "sure": None}
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    page = page_of(folder)
    assert "Wrong as given 10 to 80%" in page.text
    assert "Right now 20 to 90%" in page.text
    assert "The same as given: nothing was changed." in page.text
    assert "Changed 0 5 clean rows do not show that changes help. 148 changes wait for more evidence." in page.text
    assert "are fixed" not in page.text
    assert "Click" not in page.text  # there are no rows to show
    assert "What to do next Answer about 50 random rows in labelloop review" in page.text


@pytest.mark.parametrize("how", ["measured", "bounded", "assumed"])
def test_no_probability_stands_where_the_noise_is_assumed(tmp_path, how):
    """Also for runs of older versions, which stored one."""
    guard = {"line": "some changed", "clean_rows": 12, "held_back": 0, "changed": 5, "sure": 0.97, "how": how}
    text = page_of(made_run(tmp_path / "run", guard=guard)).text
    assert ("no clean row has shown that they fix more labels than they break" in text) == (how == "assumed")
    assert ("97.0% certainty" in text) == (how != "assumed")
    assert ("97.0% certainty, whatever the noise, if the clean rows are a random sample." in text) == (how == "bounded")


@pytest.mark.parametrize(
    ("right", "low", "rows", "first"),
    [
        (0.9, 0.6, 20, "Answer about 50 random rows"),  # hardly anything is known
        (0.9, 0.85, 300, "Review the most doubtful rows"),
        (0.99, 0.985, 2000, "Use the labels"),
    ],
)
def test_the_next_step_is_what_helps_most(tmp_path, right, low, rows, first):
    share = {"value": right, "low": low, "high": 0.995, "rows": rows}
    estimate = {"given_label_accuracy": share, "corrected_label_accuracy": share}
    page = page_of(made_run(tmp_path / "run", estimate=estimate))
    assert f"What to do next {first}" in page.text
    assert ("random rows in labelloop review" in page.text) == (rows == 20)  # elsewhere 50 rows would tell little more


def test_the_doubtful_rows_hold_a_share_of_what_is_wrong(tmp_path):
    folder = made_run(tmp_path / "run", rows=1000)
    labels = pq.read_table(folder / "labels.parquet").to_pylist()
    doubt = sorted((1 - row["corrected_confidence"] for row in labels if not row["verified"]), reverse=True)
    assert f"the first 200 hold about {100 * sum(doubt[:200]) / sum(doubt):.0f}% of the" in page_of(folder).text


def test_many_classes_at_risk_are_a_few_lines(tmp_path):
    risks = [{"class": k, "why": "only 2 clean rows of this class", "verify": 5} for k in range(8)]
    classes = tuple(f"c{k}" for k in range(9))
    page = page_of(made_run(tmp_path / "run", rows=200, classes=classes, estimate={"at_risk": risks}))
    assert page.text.count("only 2 clean rows of this class") == 5
    assert "3 more classes are at risk" in page.text


def test_columns_that_tell_classes_apart_come_first(tmp_path):
    folder = made_run(tmp_path / "run", rows=400)
    labels = pq.read_table(folder / "labels.parquet")["corrected_label"].to_pylist()
    values = [[str(row % 7), f"{name[:3]} {row % 2}"] for row, name in enumerate(labels)]
    write_preview(folder, Preview("values", list(range(400)), values, ("day", "kind")))
    columns = unpacked(page_of(folder).data["rows"]["columns"])
    assert columns["names"] == ["kind", "day"]
    rows = np.frombuffer(base64.b64decode(columns["row"]), "<u4")
    assert all(look == values[rows[place]][::-1] for place, look in columns["shown"])


def test_a_column_that_says_the_label_is_a_leak(tmp_path):
    folder = made_run(tmp_path / "run")
    labels = pq.read_table(folder / "labels.parquet")["given_label"].to_pylist()
    values = [[f"code {name}", str(row), "same"] for row, name in enumerate(labels)]
    write_preview(folder, Preview("values", list(range(60)), values, ("code", "number", "constant")))
    text = page_of(folder).text
    assert "The column code reproduces the given label in 100% of the rows" in text
    assert "The column number" not in text
    assert "The column constant" not in text


def test_many_classes_are_clustered_by_what_is_confused(tmp_path):
    count = 20
    folder = made_run(tmp_path / "run", rows=2000, classes=tuple(f"c{k:02d}" for k in range(count)))
    targets = np.load(folder / "targets.npy")
    labels = pq.read_table(folder / "labels.parquet")
    given = np.array([int(name[1:]) for name in labels["given_label"].to_pylist()])
    partner = (given + 10) % count  # every class is confused with one far from it in the alphabet
    targets[:] = 0.6 * np.eye(count)[given] + 0.4 * np.eye(count)[partner]
    np.save(folder / "targets.npy", targets.astype(np.float32))
    order = page_of(folder).data["pictures"]["noise"]["codes"]
    assert sorted(order) == list(range(count))
    beside = {frozenset(pair) for pair in pairwise(order)}
    assert all(frozenset((k, k + 10)) in beside for k in range(10))


def test_the_map_holds_two_components(tmp_path):
    folder = made_run(tmp_path / "run")
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(60, 2)) * [5, 2]
    features = np.column_stack([plane, np.zeros((60, 6))]) @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
    labels = np.full(60, -1)
    write_row_arrays(folder, RowArrays(labels, labels, labels >= 0, {"features": features.astype(np.float32)}))
    found = page_of(folder).data["pictures"]["map"]
    x = np.frombuffer(base64.b64decode(found["x"]), "<u2").astype(float)
    first = np.linalg.svd(features - features.mean(axis=0))[0][:, 0]
    assert abs(np.corrcoef(x, first)[0, 1]) == pytest.approx(1, abs=1e-4)
    assert found["here"].endswith("The picture shows 100% of how they differ.")
    assert len(base64.b64decode(found["row"])) == 4 * 60


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
    assert len(page.allowed()) == 6


def test_names_of_the_user_are_only_text(tmp_path):
    evil = "</script><script>alert(1)</script>"
    ids = [f"{evil}{k}" for k in range(60)]
    folder = made_run(tmp_path / "<img src=x onerror=alert(2)>", ids=ids, method=evil, stop_reason=evil)
    page = page_of(folder)
    assert len(page.scripts) == 7  # six of ours, and the data
    assert not [tag for tag, _ in page.elements if tag in ("img", "b")]
    assert page.data["classes"] == list(CLASSES)
    assert unpacked(page.data["rows"]["columns"])["ids"][0].startswith(evil)
    assert page.digests() == page.allowed()


def test_pictures_show_the_run(tmp_path):
    shown = page_of(made_run(tmp_path / "run")).data["pictures"]
    assert [name for name, picture in shown.items() if picture is None] == ["map"]  # there are no features
    assert all(picture["here"] for picture in shown.values() if picture is not None)
    sums = np.zeros(3)
    for true, _, share, _ in shown["noise"]["cells"]:
        sums[true] += share
    assert sums == pytest.approx(1, abs=0.005)
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

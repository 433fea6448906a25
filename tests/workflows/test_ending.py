"""Every run leaves a report and what its rows look like; neither can spoil it."""

from __future__ import annotations

import io
import json
import re
import warnings
from html import unescape

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from page_reader import Page, unpacked

import labelloop
from labelloop.cli import main
from labelloop.data.image_files import ImageFiles
from labelloop.data.table import from_arrays
from labelloop.errors import DataError
from labelloop.runs.folder import RunFolder
from labelloop.runs.result_files import read_preview
from labelloop.runs.reviews import Answer, append_answers
from labelloop.runs.survey import survey
from labelloop.workflows import ending
from labelloop.workflows.ending import make_preview, wanted_rows
from labelloop.workflows.refit import refit_run

pytestmark = pytest.mark.slow

QUICK = ["--set", "epochs=4", "--set", "rounds=1", "--quiet"]


def small_table(path, text=False):
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=120)
    inputs = rng.normal(size=(120, 3)) + 3 * true[:, None]
    given = np.where(rng.random(120) < 0.2, 1 - true, true)
    names = np.array(["no", "yes"])
    clean = [names[label] if k % 3 == 0 else "" for k, label in enumerate(true)]
    columns = {"id": [f"row {k}" for k in range(120)], "a": inputs[:, 0], "b": inputs[:, 1], "c": inputs[:, 2]}
    if text:
        columns["text"] = [f"a text <b>{k}</b>" for k in range(120)]
    pa.csv.write_csv(pa.table({**columns, "label": names[given], "clean_label": clean}), path)
    return path


def page_of(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_fit_review_refit_and_correct_leave_reports(tmp_path, capsys):
    data, run = small_table(tmp_path / "data.csv"), tmp_path / "run"
    assert main(["fit", str(data), "--output-dir", str(run), *QUICK]) == 0
    page = page_of(run)
    assert "This report is incomplete" not in page.text
    assert read_preview(run).columns == ("a", "b", "c")
    assert page.data["pictures"]["dynamics"]["epochs"] == [1, 2, 3, 4]

    labels = pq.read_table(run / "labels.parquet").to_pylist()
    open_rows = [k for k, row in enumerate(labels) if not row["verified"]][:4]
    said = ["yes", "no", "yes", "no"]
    append_answers(
        run,
        [
            Answer(f"key-{k}", k, f"row {k}", "ann", "label", label, "now")
            for k, label in zip(open_rows, said, strict=True)
        ],
    )
    capsys.readouterr()
    assert main(["refit", str(run)]) == 0
    assert "4 new clean rows" in capsys.readouterr().out
    new = pq.read_table(tmp_path / "run-refit" / "labels.parquet").to_pylist()
    assert [new[k]["corrected_label"] for k in open_rows] == said
    assert all(new[k]["verified"] for k in open_rows)
    assert "refitted from" in page_of(tmp_path / "run-refit").text
    assert read_preview(tmp_path / "run-refit") == read_preview(run)
    with pytest.raises(DataError, match="decisions of reviewers"):  # what people decided is not thrown away
        RunFolder(run, overwrite=True)

    other = tmp_path / "corrected"
    command = ["correct", str(data), "--feature-columns", "a,b,c", "--output-dir", str(other), "--quiet"]
    assert main([*command, "--no-report"]) == 0
    assert not (other / "report.html").exists()
    assert main([*command, "--overwrite"]) == 0
    assert page_of(other).data["pictures"]["map"] is not None
    assert main([*command, "--overwrite", "--no-report"]) == 0
    assert not (other / "report.html").exists()  # it was of the run that is gone


def test_texts_are_shown_as_they_are(tmp_path):
    data, run = small_table(tmp_path / "data.csv", text=True), tmp_path / "run"
    command = ["correct", str(data), "--feature-columns", "a,b,c", "--output-dir", str(run), "--quiet"]
    assert main(command) == 0
    columns = unpacked(page_of(run).data["rows"]["columns"])
    assert columns["kind"] == "text"
    assert re.fullmatch(r"a text <b>\d+</b>", columns["shown"][0][1])


def test_a_report_that_fails_does_not_spoil_the_run(tmp_path, monkeypatch, capsys):
    def fail(folders):
        raise RuntimeError("no room")

    monkeypatch.setattr(ending, "write_report", fail)
    data, run = small_table(tmp_path / "data.csv"), tmp_path / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["correct", str(data), "--feature-columns", "a,b,c", "--output-dir", str(run), "--quiet"]) == 0
    assert "is whole, but its report could not be written (no room)" in capsys.readouterr().err
    assert survey(run).record["state"] == "finished"


def test_a_notebook_shows_a_result():
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=200)
    given = np.where(rng.random(200) < 0.2, 1 - true, true)
    clean = np.where(np.arange(200) % 2 == 0, true, -1)
    result = labelloop.correct(given, clean, embeddings=rng.normal(size=(200, 2)) + 4 * true[:, None])
    html = result._repr_html_()
    outer = Page(html)
    assert "corrected labels that are right" in outer.text
    (frame,) = [attributes for tag, attributes in outer.elements if tag == "iframe"]
    assert frame["sandbox"] == "allow-scripts"
    inner = Page(frame["srcdoc"] or "")
    assert inner.digests() == inner.allowed()
    assert inner.data["pictures"]["noise"] is not None
    assert unescape(html).count("<iframe") == 1


def test_a_notebook_shows_a_fit():
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=80)
    inputs = (rng.normal(size=(80, 2)) + 4 * true[:, None]).astype(np.float32)
    clean = np.where(np.arange(80) % 2 == 0, true, -1)
    config = {"epochs": 3, "rounds": 1}
    result = labelloop.fit(inputs, true, clean, config=config, progress=False)
    inner = Page(next(a["srcdoc"] or "" for tag, a in Page(result._repr_html_()).elements if tag == "iframe"))
    assert inner.data["pictures"]["dynamics"]["epochs"] == [1, 2, 3]
    assert json.dumps(result.record.to_json())


def labels_of(confidence, verified, changed):
    return pa.table({"corrected_confidence": confidence, "verified": verified, "changed": changed})


def test_the_rows_that_matter_are_kept():
    confidence = np.linspace(0.2, 1, 100).astype(np.float32)
    verified, changed = np.arange(100) % 10 == 0, np.arange(100) % 2 == 1
    kept = wanted_rows(labels_of(confidence, verified, changed), 30)
    assert len(kept) == 30
    assert set(np.flatnonzero(verified)) <= set(kept.tolist())
    assert {1, 2, 3, 97, 99} <= set(kept.tolist())  # the most doubtful, and the surest changes
    assert (wanted_rows(labels_of(confidence, verified, changed), 200) == np.arange(100)).all()


def test_images_become_thumbnails_and_missing_ones_nothing(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="thumbnails need Pillow")
    labels = labels_of(np.ones(3, np.float32), np.ones(3, bool), np.zeros(3, bool))
    pixels = np.zeros((3, 300, 200, 3), np.uint8)
    found = make_preview(from_arrays(pixels, [0, 1, 0]), labels)
    assert found is not None
    assert image.open(io.BytesIO(found.shown[0])).size == (200, 300)  # few rows are kept larger
    for shape in ((3, 8, 8), (3, 8, 8, 1)):
        grey = make_preview(from_arrays(np.zeros(shape, np.float32), [0, 1, 0]), labels)
        assert grey is not None
        assert image.open(io.BytesIO(grey.shown[0])).mode == "L"
    image.new("RGB", (400, 400)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"damaged")
    table = from_arrays(ImageFiles([tmp_path / name for name in ("a.png", "b.png", "gone.png")]), [0, 1, 0])
    files = make_preview(table, labels)
    assert files is not None
    assert [shown is None for shown in files.shown] == [False, True, True]


def test_random_rows_that_were_reviewed_judge_a_refit_and_picked_ones_do_not(tmp_path):
    rng = np.random.default_rng(0)
    true = np.arange(300) % 3
    inputs = np.eye(3)[true] * 4 + rng.normal(size=(300, 3))
    given = np.where(rng.random(300) < 0.2, (true + 1) % 3, true)
    clean = np.where(np.arange(300) % 5 == 0, true, -1)
    np.savez(tmp_path / "rows.npz", embeddings=inputs.astype(np.float32), label=given, clean_label=clean)
    run = tmp_path / "run"
    assert main(["correct", str(tmp_path / "rows.npz"), "--output-dir", str(run), "--quiet", "--no-report"]) == 0
    open_rows = [row for row in range(300) if clean[row] == -1]
    answers = [
        Answer(f"key-{row}", row, str(row), "ann", "label", str(true[row]), "2026-01-01T00:00:00", None, queue)
        for row, queue in zip(open_rows[:12], ["improve", "estimate"] * 6, strict=True)
    ]
    append_answers(run, answers)
    refit_run(run, None, tmp_path / "refit", report=False)
    record = json.loads((tmp_path / "refit" / "run.json").read_text(encoding="utf-8"))
    assert record["newly_verified"] == 12
    assert record["estimate"]["corrected_label_accuracy"]["rows"] == 60 + 6

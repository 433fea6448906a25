"""Cells that a spreadsheet would run are escaped when asked; threads are on record."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from strangers import ROWS, told

from labelloop.report.review.session import Session
from labelloop.runs.reviews import Answer, append_answers
from labelloop.runs.survey import survey
from labelloop.trust import safe_cell

TINY = ("epochs=2", "warm_up=1", "correct_every=1", "network=mlp", "augment=none", "network_options.hidden=[4]")
PAPER = ("--recipe", "paper", "--quiet", "--no-report", *(f"--set={text}" for text in TINY))


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", " =1", "=", "-"])
def test_a_formula_is_escaped(cell: str) -> None:
    assert safe_cell(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "a=b", "-1.5", "+3e-4", "- 1".replace(" ", ""), "cat", "1", "-12%", ".5"])
def test_numbers_and_words_stay(cell: str) -> None:
    assert safe_cell(cell) == cell


def cells(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [cell for row in csv.reader(file) for cell in row]


def test_an_export_has_no_formula_when_asked(tmp_path: Path) -> None:
    text = ROWS.replace("cat", '"=HYPERLINK(""http://evil"")"').replace("r", "=r").replace("=r", "=r", 1)
    (tmp_path / "rows.csv").write_text("id" + text[text.index(",") :])
    run = tmp_path / "run"
    ended = told("correct", tmp_path / "rows.csv", "--output-dir", run, "--quiet", "--no-report")
    assert ended.code == 0, ended.err
    for to, name in (("csv", "a.csv"), ("issues", "i.csv"), ("noise-matrix", "n.csv")):
        assert told("export", run, "--to", to, "--output", tmp_path / name, "--safe-cells").code == 0
        assert not [cell for cell in cells(tmp_path / name) if cell.startswith(("=", "@", "+"))]
        assert told("export", run, "--to", to, "--output", tmp_path / f"plain-{name}").code == 0
        assert [cell for cell in cells(tmp_path / f"plain-{name}") if cell.startswith("=")]
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith((".cells", ".partial", ".export"))]
    assert told("undo", tmp_path / "a.csv.undo.zip", "--output", tmp_path / "back.csv").code == 0
    assert (tmp_path / "back.csv").read_bytes() == (tmp_path / "rows.csv").read_bytes()


def test_the_decisions_of_a_review_have_no_formula_and_can_be_read_back(tmp_path: Path) -> None:
    text = ROWS.replace("cat", '"=HYPERLINK(""http://evil"")"').replace("r", "=r")
    (tmp_path / "rows.csv").write_text("id" + text[text.index(",") :])
    run, file = tmp_path / "run", tmp_path / "reviews.csv"
    ended = told("correct", tmp_path / "rows.csv", "--output-dir", run, "--quiet", "--no-report")
    assert ended.code == 0, ended.err
    append_answers(run, [Answer("key-00000000", 31, "=r31", "=ann()", "accept", '=HYPERLINK("http://evil")', "t")])
    file.write_text(Session(survey(run), [31]).csv())
    assert not [cell for cell in cells(file) if cell.startswith(("=", "@", "+"))]
    assert [cell for cell in cells(file) if cell.startswith("'=r31")]
    ended = told("refit", run, "--clean-file", file, "--output-dir", tmp_path / "new", "--no-report")
    assert ended.code == 0, ended.err
    refitted = survey(tmp_path / "new")
    assert refitted.flags("verified").sum() == survey(run).flags("verified").sum() + 1


def test_threads_are_on_record_and_a_resume_with_others_says_so(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    command = ("fit", tmp_path / "rows.csv", "--output-dir", tmp_path / "run", *PAPER)
    assert told(*command).code == 0
    place = tmp_path / "run" / "run.json"
    record = json.loads(place.read_text())
    assert record["threads"]["torch"] >= 1
    place.write_text(json.dumps({**record, "state": "interrupted", "threads": {"torch": 17}}))
    ended = told(*command, "--resume")
    assert (ended.code, "was started with 17 threads" in ended.err) == (0, True), ended.err
    ended = told(*command, "--resume")
    assert (ended.code, "threads" in ended.err) == (0, False)


def test_a_class_writes_no_commands_to_the_terminal(tmp_path: Path) -> None:
    """Control characters of a class, or of a file in a stranger's folder, are shown and not sent."""
    (tmp_path / "rows.csv").write_text(ROWS.replace("cat", "\x1b]0;title\x07\x1b[2Jcat"))
    run = tmp_path / "run"
    ended = told("correct", tmp_path / "rows.csv", "--output-dir", run, "--no-report")
    assert (ended.code, "\x1b" in ended.out + ended.err, "\\x1b[2Jcat" in ended.out) == (0, False, True), ended.err
    (run / "\x1b[31mfile").write_text("x")
    ended = told("verify", run)
    assert ("\x1b" in ended.out + ended.err, "\\x1b[31mfile" in ended.out) == (False, True), ended.out
    ended = told("export", tmp_path / "\x1b[2J", "--to", "csv")
    assert (ended.code, "\x1b" in ended.err) == (1, False)

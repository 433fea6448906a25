"""`labelloop paper` as a user runs it: stored runs, runs made anew, figures."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benches import FORKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from store_evidence import compact, write_evidence

from labelloop.bench import pool
from labelloop.bench.tables import best
from labelloop.cli import main
from labelloop.errors import DataError, UsageError
from labelloop.paper import grids as paper_files
from labelloop.paper import items as paper
from labelloop.paper.evidence import agreement, expand, read_evidence, same_numbers
from labelloop.paper.figures import draw

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

COMMON = """
[protocols.p]
scale = "small"
title = "digits"
dataset = "digits"
clean = 40
recipe = "default"
config = { epochs = 3, network_options = { hidden = [16] } }
seed = [0, 1]
[protocols.f]
scale = "full"
title = "digits, at length"
dataset = "digits"
clean = 40
recipe = "default"
seed = [0]
[rows."cross-entropy"]
method = "cross-entropy"
[rows."closed loop"]
method = "closed-loop"
on.p = { warm_up = 1, correct_every = 1 }
"""
ITEM = """
place = "Table 1"
label = "tab:one"
title = "a small table"
shows = "accuracy"
[[runs]]
protocol = "p"
beside = "theirs"
rows = ["cross-entropy", "closed loop"]
noise = ["symmetric"]
rate = [0.4]
[[runs]]
protocol = "f"
rows = ["cross-entropy"]
noise = ["symmetric"]
rate = [0.4]
[published.theirs.last]
"closed loop" = [1.0, 88.73, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
"""

PAPER_FOLDER = paper_files.paper_folder


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with one table, run once and stored."""
    root = tmp_path_factory.mktemp("repository")
    (root / "paper").mkdir()
    (root / "evidence").mkdir()
    (root / "paper" / "common.toml").write_text(COMMON, encoding="utf-8")
    (root / "paper" / "table1.toml").write_text(ITEM, encoding="utf-8")
    for name, shows in (("figure2", "dynamics"), ("weights", "weights")):
        text = ITEM.replace('shows = "accuracy"', f'shows = "{shows}"')
        (root / "paper" / f"{name}.toml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_files, "paper_folder", lambda: root / "paper")
        patch.setattr(paper, "evidence_folder", lambda: root / "evidence")
        patch.setattr(pool, "subprocess", FORKING)
        item = paper.find_item("table1")
        fresh, words = paper.rerun(item, "small", root / "first", 2, 0)
        assert "nothing to compare" in words
        write_evidence(root / "evidence" / "p.jsonl", [compact(key, record) for key, record in fresh.items()])
        yield root


def test_a_table_is_printed_from_stored_runs_with_the_papers_numbers(repository, capsys, tmp_path):
    assert main(["paper", "table1", "--output-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "| closed loop | " in text
    assert "(2) [88.7] |" in text
    assert "missing" not in text


def test_a_rerun_agrees_with_the_stored_runs_bit_for_bit(repository, capsys, tmp_path):
    assert main(["paper", "table1", "--rerun", "--output-dir", str(tmp_path), "--jobs", "2"]) == 0
    assert "4 of these 4 runs are stored: 4 agree bit for bit" in capsys.readouterr().out


def test_the_resources_of_full_runs_are_seconds_and_memory_not_accuracy(repository):
    item = replace(paper.find_item("table1"), shows="resources")
    full = replace(item, parts=[replace(part, scale="full") for part in item.at("small")])
    text = paper.show(full, "full", paper.stored_runs())
    assert "| method | seconds | times the loop's | memory, MiB | times the loop's |" in text
    assert re.search(r"\| closed loop \| \d+\.\d \| 1\.00 \| \d+ \| 1\.00 \|", text)
    assert "Test accuracy" not in text


def test_a_rerun_with_a_run_that_failed_exits_with_1(repository, capsys, monkeypatch, tmp_path):
    stored = paper.stored_runs()
    monkeypatch.setattr(paper, "rerun", lambda *_: (dict(list(stored.items())[1:]), "failed: one of them"))
    assert main(["paper", "table1", "--rerun", "--output-dir", str(tmp_path)]) == 1
    assert "failed: one of them" in capsys.readouterr().out


def test_a_run_that_differs_is_said_to_differ_and_by_how_much(repository):
    stored = paper.stored_runs()
    key = next(iter(stored))
    row = [k for k in stored if stored[k]["title"] == stored[key]["title"]]
    fresh = json.loads(json.dumps(stored))
    for number, each in enumerate(row):  # two seeds, 4 points apart
        for runs in (fresh, stored):
            runs[each]["history"][-1]["test_accuracy"] = 0.5 + 0.04 * number
    assert agreement(fresh, stored) == "4 of these 4 runs are stored: 4 agree bit for bit"
    fresh[key]["history"][-1]["test_accuracy"] += 0.02  # the mean by 1 point, less than the deviation of 2.8
    assert not same_numbers(fresh[key], stored[key])
    assert agreement(fresh, stored) == (
        "4 of these 4 runs are stored: 3 agree bit for bit; of 1 means that differ, 1 agree within "
        "the spread over seeds after the last epoch"
    )
    fresh[key]["history"][-1]["test_accuracy"] += 0.2  # the mean by 11
    first, second = agreement(fresh, stored).splitlines()
    assert first.endswith("of 1 means that differ, 0 agree within the spread over seeds after the last epoch")
    assert second.endswith("digits, symmetric 0.4: 63.0 ± 12.7 (2) here, 52.0 ± 2.8 (2) stored")
    assert "nothing to compare" in agreement({"another": stored[key]}, stored)


def test_the_list_says_what_is_stored_and_what_is_missing(repository, capsys, tmp_path):
    assert main(["paper", "--output-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "labelloop paper table1 --scale small" in text
    assert "all 4 runs stored" in text
    assert "0 of 1 runs stored, 1 missing; needs a GPU" in text


def test_the_full_scale_asks_for_a_gpu(repository, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(paper, "has_gpu", lambda: False)
    assert main(["paper", "table1", "--scale", "full", "--output-dir", str(tmp_path)]) == 2
    assert "needs a GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_figures_are_drawn_and_the_same_runs_give_the_same_file(repository, capsys, tmp_path):
    for name in ("figure2", "weights"):
        for place in (tmp_path / name, tmp_path / f"{name}-again"):
            assert main(["paper", name, "--figure", str(place), "--output-dir", str(tmp_path)]) == 0
        one, other = (tmp_path / f"{name}{end}.svg" for end in ("", "-again"))
        assert one.read_bytes() == other.read_bytes()
        assert one.read_bytes().startswith(b"<?xml")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote" in capsys.readouterr().out


@pytest.mark.parametrize("scale", ["small", "full"])
def test_the_time_of_the_methods_is_drawn_as_multiples_of_the_loops(repository, tmp_path, scale):
    measured = {"closed loop": {"seconds": 2.0, "memory_mib": 1.0}, "L2B": {"seconds": 5.0, "memory_mib": 1.0}}
    item = replace(paper.find_item("table1"), shows="resources")
    runs = paper.stored_runs()
    if scale == "small":
        record = {"caption": "seconds and memory", "methods": measured}
        (repository / "evidence" / paper.EFFICIENCY).write_text(json.dumps(record), encoding="utf-8")
    else:
        item = replace(item, parts=[replace(part, scale="full") for part in item.at("small")])
    ((_, methods),) = paper.panels(item, scale, runs).items()
    seconds = {method["title"]: method["seconds"] for method in methods}
    others = [name for name in seconds if name != "closed loop"]
    assert others
    _, drawn = draw("resources", {"seconds": methods}, tmp_path / "time")
    for name in others:
        assert f" ({seconds[name] / seconds['closed loop']:.1f} ×) -->" in drawn.read_text(encoding="utf-8")


@pytest.mark.parametrize("shows", ["clean-accuracy", "clean-error"])
def test_clothing1m_shows_test_rows_and_those_that_judge_the_corrections(repository, tmp_path, shows):
    runs = [run for run in paper.stored_runs().values() if run["title"] == "closed loop"]
    _, drawn = draw(shows, {"one": runs}, tmp_path / "figure")
    text = drawn.read_text(encoding="utf-8")
    assert all(f"<!-- {label} -->" in text for label in ("test rows", "clean rows that judge the corrections"))
    del runs[0]["history"][0]["clean_val_accuracy"]
    with pytest.raises(UsageError, match="a run of closed loop has no clean_val_accuracy"):
        draw(shows, {"one": runs}, tmp_path / "figure")


def test_the_learning_rate_drops_stand_in_the_dynamics():
    from labelloop.paper.figures import drops

    assert drops({"config": {"epochs": 100, "learning_rate_drops": [0.6, 0.8]}}) == [60, 80]


def test_stored_runs_keep_what_they_must():
    record = {
        "experiment": {"name": "a", "method": "m"},
        "title": "a",
        "noisy_labels_sha256": "x",
        "rounds": [{"epoch": 1, "weights": [0.123456789, 0.876543211], "clean_val_loss": 3.0}],
        "history": [
            {"epoch": 1, "loss": 1 / 3, "test_accuracy": 2 / 3, "clean_accuracy": 2 / 3, "seconds": {"train": 1.23456}},
            {"epoch": 2, "loss": 0.1, "test_accuracy": 0.7, "clean_accuracy": None, "seconds": {}},
        ],
    }
    again = expand(json.loads(json.dumps(compact("k", record))))
    assert same_numbers(again, record)
    assert [row["clean_accuracy"] for row in again["history"]] == [0.66667, None]
    assert [row["seconds"] for row in again["history"]] == [{"train": 1.235}, {"train": 0.0}]
    assert again["rounds"] == [{"epoch": 1, "weights": [0.12346, 0.87654]}]


@pytest.mark.parametrize(
    "line",
    [
        *(b'{"key": "a"}', b"[]", b'"text"', b"", b"{broken", b"\xff\xfe"),
        b'{"history": {"epoch": [1]}, "experiment": {"method": "m"}}',
        b'{"key": "a", "history": {"epoch": [1], "loss": []}, "experiment": {"method": "m"}}',
        b'{"key": "a", "history": {"epoch": [1]}, "experiment": []}',
        b'{"key": "a", "history": {"epoch": [1], "seconds": {"train": []}}, "experiment": {"method": "m"}}',
    ],
)
def test_a_damaged_line_is_named(repository, capsys, tmp_path, line):
    good = (repository / "evidence" / "p.jsonl").read_bytes().splitlines()[0]
    (tmp_path / "a.jsonl").write_bytes(good + b"\n" + line + b"\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2 is not a stored run"):
        read_evidence(tmp_path)
    (repository / "evidence" / "broken.jsonl").write_bytes(line + b"\n")
    try:
        assert main(["paper", "table1"]) == 1
    finally:
        (repository / "evidence" / "broken.jsonl").unlink()
    assert "broken.jsonl, line 1" in capsys.readouterr().err


def test_without_stored_runs_all_are_missing(repository, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(paper, "evidence_folder", lambda: tmp_path / "nowhere")
    assert main(["paper", "--output-dir", str(tmp_path)]) == 0
    assert "0 of 4 runs stored, 4 missing" in capsys.readouterr().out
    assert main(["paper", "table1", "--output-dir", str(tmp_path)]) == 0
    assert "no runs yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--rerun"], 2, "name it, such as table1"),
        (["--dry-run"], 2, "name it, such as table1"),
        (["--figure", "x"], 2, "name it, such as table1"),
        (["tabel1"], 2, "did you mean 'table1'"),
        (["table1", "--rerun", "--jobs", "0"], 2, "--jobs must be at least 1"),
        (["table1", "--rerun", "--output-dir", "FILE"], 1, "is a file; give a folder"),
        (["table1", "--output-dir", "FILE"], 1, "is a file; give a folder"),
        (["table1", "--figure", "FILE/figure"], 1, "name another place"),
        (["table1", "--output-dir", "RECORDS"], 1, "one.json is not the record of a run"),
    ],
)
def test_wrong_requests_are_refused_in_words(repository, capsys, tmp_path, arguments, code, words):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "one.json").write_text("{}")
    places = {"FILE": str(tmp_path / "file"), "RECORDS": str(tmp_path / "records")}
    for name, place in places.items():
        arguments = [argument.replace(name, place) for argument in arguments]
    more = [] if "--output-dir" in arguments else ["--output-dir", str(tmp_path / "new")]
    assert main(["paper", *arguments, *more]) == code
    assert words in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("shows", "flag", "words"),
    [
        ("nothing", ["--rerun"], "has nothing to run at the small scale"),
        ("details", ["--rerun"], "has nothing to run at the small scale"),
        ("resources", ["--rerun"], "benchmarks/efficiency.py"),
        ("details", ["--figure", "x"], "Table 1 shows details, which cannot be drawn"),
        ("phases", ["--rerun", "--figure", "x"], "Table 1 shows phases, which cannot be drawn"),
    ],
)
def test_what_cannot_be_run_or_drawn_is_refused_before_anything_runs(
    repository, capsys, monkeypatch, tmp_path, shows, flag, words
):
    item = replace(paper.find_item("table1"), shows=shows)
    monkeypatch.setattr(paper, "find_item", lambda name: item)
    assert main(["paper", "table1", *flag, "--output-dir", str(tmp_path / "runs")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_best_leaves_out_a_network_that_is_thrown_away():
    history = [{"stage": "first", "test_accuracy": 0.9}, {"stage": "second", "test_accuracy": 0.5}]
    assert best({"history": history}) == 0.5


def test_every_stored_run_of_the_repository_is_one_that_a_table_asks_for(monkeypatch):
    monkeypatch.setattr(paper_files, "paper_folder", PAPER_FOLDER)  # not that of the small repository above
    wanted = {e.key for item in paper_files.read_items().values() for p in item.parts for e in p.experiments}
    stored = read_evidence(ROOT / "evidence")
    assert len(stored) > 100
    assert stored.keys() <= wanted
    for run in stored.values():
        assert run["versions"]["commit"]
        assert run["history"][-1]["test_accuracy"] is not None

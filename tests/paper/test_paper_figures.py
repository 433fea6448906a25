"""The figures of `labelloop paper`: what stands in them, and where they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labelloop.cli import main
from labelloop.paper import figures as paper_figures
from labelloop.paper import items as paper
from labelloop.paper.figures import THICK, curve, draw, styles_of
from labelloop.report import figure

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib", reason="figures need the extra report")

FINE_TUNE = "fine-tune on clean"


def run(title, accuracies, seed=0, epochs=3):
    history = [{"epoch": number + 1, "test_accuracy": value} for number, value in enumerate(accuracies)]
    config = {"epochs": epochs, "learning_rate_drops": [0.6]}
    return {"title": title, "history": history, "config": config, "experiment": {"seed": seed}, "rounds": []}


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws, and returns the figure of matplotlib instead of its files."""

    def draw_it(shows, panels):
        kept = []
        monkeypatch.setattr(paper_figures, "save", lambda made, path: kept.append(made) or [])
        draw(shows, panels, tmp_path / "figure")
        return kept[0]

    return draw_it


def look(line):
    return line.get_color(), str(line._dash_pattern[1]), line.get_linewidth() > 2


@pytest.fixture(scope="module")
def table1():
    """The panels of Table 1 with all their titles, each with a run."""
    return {
        f"{part.title} {experiment.noise} {experiment.rate}": [
            run(title, [0.5, 0.6, 0.7] * (1 + (title == FINE_TUNE)))
            for title in dict.fromkeys(each.title for each in part.experiments)
        ]
        for part in paper.find_item("table1").at("small")
        for experiment in part.experiments
    }


def test_in_all_panels_of_table_1_a_style_is_a_title_and_a_title_a_style(table1, drawn):
    made = drawn("accuracy", table1)
    titles = {record["title"] for records in table1.values() for record in records}
    assert len(titles) > 16
    pairs = {
        (line.get_label(), look(line))
        for axis in made.axes
        for line in axis.get_lines()
        if not line.get_label().startswith("_")
    }
    assert {label for label, _ in pairs} == titles - {FINE_TUNE}
    assert len(pairs) == len({label for label, _ in pairs}) == len({style for _, style in pairs})
    assert {label for label, style in pairs if style[2]} == set(THICK)


def test_the_legend_holds_every_title_of_all_panels_once(drawn):
    panels = {"one": [run("DMLP", [0.1])], "two": [run("DMLP without pretraining", [0.1]), run("DMLP", [0.2])]}
    texts = [text.get_text() for text in drawn("accuracy", panels).legends[0].get_texts()]
    assert texts == ["DMLP", "DMLP without pretraining"]


def test_every_row_of_the_paper_has_its_own_style_and_strangers_get_another():
    items = [
        item for name, item in paper.read_items().items() if name not in ("recipe", "cells", "alike")
    ]  # no pictures
    rows = {e.title for item in items for part in item.parts for e in part.experiments}
    known = styles_of([])
    assert rows <= known.keys()
    styles = styles_of(["somebody", "closed loop", "somebody else"])
    assert styles["closed loop"] == known["closed loop"]
    assert len({(style["color"], style["linestyle"]) for style in styles.values()}) == len(known) + 2


def test_a_method_that_goes_on_after_the_schedule_is_a_mark_with_its_deviation(drawn):
    panel = [run("cross-entropy", [0.5, 0.4, 0.3]), *(run(FINE_TUNE, [0.5, 0.4, 0.3, end], end) for end in (0.6, 0.8))]
    (axis,) = drawn("dynamics", {"one": panel}).axes
    assert axis.get_xlim() == (1, 3)
    assert all(tick == round(tick) for tick in axis.get_xticks())
    assert [line.get_label() for line in axis.get_lines() if not line.get_label().startswith("_")] == ["cross-entropy"]
    (mark,) = axis.containers
    assert mark.get_label() == f"{FINE_TUNE} (after more epochs)"
    middle, _, (bar,) = mark.lines
    assert middle.get_ydata() == pytest.approx([70])
    half = 10 * np.sqrt(2)  # of 60 and 80, over one less than their number
    assert bar.get_segments()[0][:, 1] == pytest.approx([70 - half, 70 + half])


def test_the_deviation_is_that_of_the_tables():
    _, mean, deviation = curve([run("a", [0.6, 0.5]), run("a", [0.8, 0.5])], "test_accuracy")
    assert mean == pytest.approx([70, 50])
    assert deviation == pytest.approx([10 * np.sqrt(2), 0])
    assert list(curve([run("a", [0.6])], "test_accuracy")[2]) == [0]


def test_resources_are_seconds_and_memory_each_with_multiples_of_the_loops(drawn):
    methods = [
        {"title": "closed loop", "seconds": 2.0, "memory_mib": 100.0},
        {"title": "L2B", "seconds": 5.0, "memory_mib": 120.0},
    ]
    made = drawn("resources", {"CPU seconds and memory of " + "much " * 40 + "work": methods})
    seconds, memory = made.axes
    assert [text.get_text() for text in seconds.texts] == ["5.0 (2.5 ×)", "2.0 (1.0 ×)"]
    assert [text.get_text() for text in memory.texts] == ["120 (1.2 ×)", "100 (1.0 ×)"]
    assert (seconds.get_xlabel(), memory.get_xlabel()) == ("seconds", "memory, MiB")
    assert "\n" in made.get_suptitle()


def test_the_measured_resources_stand_under_their_own_caption():
    for name in ("figure3", "table4"):
        (title,) = paper.panels(paper.find_item(name), "small", {})
        assert "CPU seconds" in title
        assert "Clothing1M" not in title


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_title_and_no_legend_is_cut(drawn, count):
    words = "CIFAR-10 images, small-cnn, 4,500 + 500, 14 epochs, no augmentation\ninstance 0.4"
    titles = ["AdamW and standardised columns for the correction network", "closed loop", "L2B", FINE_TUNE, "MW-Net"]
    made = drawn("dynamics", {f"{words} {n}": [run(title, [0.1, 0.2]) for title in titles] for n in range(count)})
    made.draw_without_rendering()
    frame = made.bbox
    boxes = [made.legends[0].get_window_extent(), *(axis.title.get_window_extent() for axis in made.axes)]
    boxes += [made._suptitle.get_window_extent()] if made._suptitle else []
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


# --- where it is written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "stem"),
    [("a.png", "a"), ("a.svg", "a"), ("a.PNG", "a"), ("a", "a"), ("noise-0.4", "noise-0.4"), ("v1.2.svg", "v1.2")],
)
def test_an_ending_is_taken_off_and_a_dot_is_none(tmp_path, given, stem):
    assert figure.figure_place(tmp_path / given) == tmp_path / stem


@pytest.mark.parametrize("ending", ["pdf", "JPG", "jpeg", "eps", "gif", "tif", "tiff", "webp"])
def test_other_kinds_of_pictures_are_refused(capsys, tmp_path, ending):
    assert main(["paper", "table4", "--figure", str(tmp_path / f"a.{ending}")]) == 2
    assert f"written as .png and .svg, not as .{ending.lower()}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_figure_is_written_to_both_files_whatever_its_ending(tmp_path):
    assert main(["paper", "table4", "--figure", str(tmp_path / "new" / "time.png")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["time.png", "time.svg"]


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [
        ("file/a", 1, "file is not a folder"),
        ("file/deeper/a", 1, "file is not a folder"),
        ("lost/a", 1, "lost is not a folder"),
        ("taken", 1, "taken.svg is a folder"),
        ("..", 2, "give the name of a figure in it"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    capsys, monkeypatch, tmp_path, place, code, words
):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken.svg").mkdir()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(paper, "rerun", lambda *_: pytest.fail("it ran"))
    assert main(["paper", "figure2", "--rerun", "--figure", str(tmp_path / place)]) == code
    assert words in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_can_be_written_is_checked_without_a_trace(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.png").write_text("old")
    for place in ("a", "new/deeper/a", "old.png"):
        figure.figure_place(Path(place))
    assert [path.name for path in tmp_path.rglob("*")] == ["old.png"]
    assert (tmp_path / "old.png").read_text() == "old"


def test_a_folder_of_others_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(figure.os, "access", lambda *_: False)
    with pytest.raises(figure.DataError, match="is not writable for you; name another place"):
        figure.figure_place(tmp_path / "a")


def test_without_matplotlib_nothing_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(figure, "find_spec", lambda name: None)
    monkeypatch.setattr(paper, "rerun", lambda *_: pytest.fail("it ran"))
    assert main(["paper", "figure2", "--rerun", "--figure", str(tmp_path / "a")]) == 2
    assert "labelloop[report]" in capsys.readouterr().err


def test_what_has_no_counterpart_says_so_and_not_to_run_it(capsys, monkeypatch, tmp_path):
    assert main(["paper", "figure7", "--figure", str(tmp_path / "a")]) == 2
    words = capsys.readouterr()
    assert "Figure 7 has no counterpart at the small scale" in words.err
    assert "--rerun" not in words.err + words.out
    monkeypatch.setattr(paper, "evidence_folder", lambda: tmp_path)
    assert main(["paper", "figure3", "--figure", str(tmp_path / "a")]) == 2
    assert "not measured yet: python benchmarks/efficiency.py" in capsys.readouterr().err

"""Several runs side by side."""

from __future__ import annotations

import json

from page_reader import Page
from reported_runs import made_run

from labelloop.cli import main
from labelloop.report.html import write_report


def test_seeds_are_one_setting_and_methods_are_two(tmp_path):
    runs = [made_run(tmp_path / f"loop-{seed}", seed=seed) for seed in range(3)]
    runs.append(made_run(tmp_path / "plain", method="cross-entropy", estimate=None))
    page = Page(write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "4 runs side by side" in page.text
    assert "closed-loop 0, 1, 2 66.7 ± 0.0 90.0 ± 0.0 – 90.0 ± 0.0" in page.text
    assert "cross-entropy 0" in page.text
    assert len(page.data["pictures"]["tests"]["points"]) == 4
    assert {point["setting"] for point in page.data["pictures"]["curves"]["points"]} == {"closed-loop", "cross-entropy"}
    assert page.digests() == page.allowed()


def test_an_ablation_is_named_by_what_differs(tmp_path):
    config = {"epochs": 4, "lr_drops": [0.5], "batch_size": 8}
    runs = [made_run(tmp_path / "a", config=config), made_run(tmp_path / "b", config={**config, "batch_size": 16})]
    page = Page(write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "closed-loop, batch_size 8" in page.text
    assert "closed-loop, batch_size 16" in page.text
    assert "epochs 4" not in page.text


def test_bounds_are_no_number(tmp_path):
    bounds = {"value": 0.75, "low": 0.6, "high": 0.9, "rows": 40, "how": "bounded"}
    runs = [made_run(tmp_path / "a"), made_run(tmp_path / "b", estimate={"corrected_label_accuracy": bounds})]
    page = Page(write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "60.0 to 90.0%" in page.text
    assert "75.0" not in page.text
    points = {each["run"]: each for each in page.data["pictures"]["compare"]["points"] if each["what"] == "corrected"}
    assert (points["a"]["value"], points["b"]["value"], points["b"]["low"]) == (0.9, None, 0.6)


def test_a_broken_run_among_others_is_said(tmp_path):
    runs = [made_run(tmp_path / "a"), made_run(tmp_path / "<b>", state="failed", stop_reason="disk full")]
    page = Page(write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "<b>: the run failed: disk full" in page.text


def test_the_command(tmp_path, capsys, monkeypatch):
    a, b = made_run(tmp_path / "a"), made_run(tmp_path / "b", seed=1)
    assert main(["report", str(a)]) == 0
    assert (a / "report.html").stat().st_size < 20_000_000
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(a), str(b)]) == 0
    assert "written: report.html" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert json.loads((a / "run.json").read_text(encoding="utf-8"))["state"] == "finished"  # nothing else is touched

"""Where `labelloop paper` finds stored runs, and what it says where there are none: a wheel holds the grids alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelloop.cli import main
from labelloop.paper import items

ROOT = Path(__file__).resolve().parents[2]


def test_an_installed_package_finds_the_runs_of_the_checkout_it_is_started_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    assert items.evidence_folder() == ROOT / "evidence"
    monkeypatch.setattr(items, "__file__", str(tmp_path / "lib" / "site-packages" / "labelloop" / "paper" / "items.py"))
    monkeypatch.chdir(ROOT)
    assert items.evidence_folder() == ROOT / "evidence"
    monkeypatch.chdir(tmp_path)
    assert not items.evidence_folder().exists()


def test_without_a_checkout_it_says_where_runs_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(items, "evidence_folder", lambda: tmp_path / "nowhere")
    for arguments in ([], ["table1"]):
        assert main(["paper", *arguments, "--output-dir", str(tmp_path / "runs")]) == 0
        assert "No runs are stored here" in capsys.readouterr().out
    assert main(["paper", "table9", "--output-dir", str(tmp_path / "runs")]) == 0  # a comparison of settings needs none
    assert "No runs are stored here" not in capsys.readouterr().out
    (tmp_path / "nowhere").mkdir()  # a checkout: only the runs are missing
    assert main(["paper", "--output-dir", str(tmp_path / "runs")]) == 0
    assert "No runs are stored here" not in capsys.readouterr().out

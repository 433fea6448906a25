"""Run folders that version 0.1 wrote: an interrupted run of the paper's loop, a finished one, and its default."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from labelloop.cli import main
from labelloop.runs.read import read_run

OLD = Path(__file__).parents[1] / "fixtures" / "version-0.1"
SMALL = ["--set", "network_options.hidden=[4]", "--no-report"]
PAPER = ["--recipe", "paper", "--set", "network=mlp", "--set", "epochs=6", "--set", "warm_up=2"]


@pytest.fixture
def old(tmp_path, monkeypatch):
    shutil.copytree(OLD, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def test_an_interrupted_run_of_the_paper_resumes_to_the_result_of_the_old_version(old):
    """To its bytes where this processor rounds like the one that made the stored runs, else up to rounding."""
    settings = [*PAPER, "--set", "correct_every=1", *SMALL]
    assert main(["fit", "rows.csv", "--output-dir", "anew", *settings]) == 0
    assert main(["fit", "rows.csv", "--output-dir", "paper-killed", "--resume", *settings]) == 0
    names = ("labels.parquet", "targets.npy", "model.safetensors")
    anew, resumed, then = (
        {name: (old / run / name).read_bytes() for name in names} for run in ("anew", "paper-killed", "paper-run")
    )
    assert resumed == then or anew != then
    stored, found = (np.load(old / run / "targets.npy") for run in ("paper-run", "paper-killed"))
    np.testing.assert_allclose(found, stored, atol=1e-3)
    ours, theirs = (load_file(old / run / "model.safetensors") for run in ("paper-killed", "paper-run"))
    assert ours.keys() == theirs.keys()
    for name, weights in theirs.items():
        np.testing.assert_allclose(ours[name], weights, atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*has no manifest")  # that is the word for an older folder
@pytest.mark.parametrize(("run", "method"), [("default-run", "labelloop"), ("paper-run", "closed-loop")])
def test_a_finished_run_is_reported_refitted_exported_and_predicts(old, run, method, capsys):
    assert read_run(old / run).record.method == method
    (old / "verified.csv").write_text("id,clean_label\nr30,x\nr31,y\n", encoding="utf-8")
    assert main(["report", run]) == 0
    assert main(["refit", run, "--clean-file", "verified.csv", "--output-dir", "again"]) == 0
    assert "2 new clean rows, 26 clean rows in all" in capsys.readouterr().out
    assert main(["predict", run, "rows.csv", "--output", "predicted.csv"]) == 0
    assert main(["export", run, "--to", "issues", "--output", "issues.csv"]) == 0


def test_the_default_of_then_is_not_resumed_as_that_of_now(old, capsys):
    assert main(["fit", "rows.csv", "--output-dir", "default-run", "--resume", "--set", "epochs=4", *SMALL]) == 1
    assert "default-run" in capsys.readouterr().err

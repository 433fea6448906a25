"""Stored runs of the default name code that is in the repository: a commit, or the checksum of the package in one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from labelloop.paper.evidence import read_evidence_lines

ROOT = Path(__file__).parents[2]


def git(*words: str, given: str = "") -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, input=given)
    if done.returncode:
        pytest.skip("this is not a checkout with its history")
    return done.stdout


def test_the_code_of_every_stored_run_of_the_default_is_here():
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("the history of this checkout is cut off")
    commits = git("rev-list", "HEAD").split()
    asked = "\n".join(f"{commit}:src/labelloop" for commit in commits)
    trees = {line.split()[0] for line in git("cat-file", "--batch-check", given=asked).splitlines()}
    runs = [run for run in read_evidence_lines(ROOT / "evidence") if run["experiment"]["method"] == "labelloop"]
    lost = [
        run["key"]
        for run in runs
        if run["versions"].get("commit") not in commits and run["versions"].get("tree") not in trees
    ]
    assert lost == []
    assert all("tree" in run["versions"] for run in runs)

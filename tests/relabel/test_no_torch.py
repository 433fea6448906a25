"""Relabelling needs no torch: neither do the commands that do nothing else."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np

RUN = """
import json, sys
from labelloop.cli import main
for words in json.loads(sys.argv[1]):
    code = main(words)
    print("ended", words[0], code, sorted({"torch", "labelloop.methods", "labelloop.training"} & sys.modules.keys()))
"""


def rows_file(path):
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=80)
    given = np.where(rng.random(80) < 0.2, 1 - true, true)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "a", "b", "label", "clean_label"])
        for row in range(80):
            clean = true[row] if row % 3 == 0 else ""
            writer.writerow([f"r{row}", *(true[row] + rng.normal(size=2)).round(3), given[row], clean])


def test_correct_plan_and_refit_import_no_torch(tmp_path):
    rows_file(tmp_path / "rows.csv")
    (tmp_path / "new.csv").write_text("id,clean_label\nr1,0\nr2,1\n", encoding="utf-8")
    commands = (
        ["correct", "rows.csv", "--output-dir", "run"],
        ["plan", "run"],
        ["refit", "run", "--clean-file", "new.csv", "--output-dir", "again"],
        ["export", "again", "--to", "issues", "--output", "issues.csv"],
    )
    words = [sys.executable, "-c", RUN, json.dumps(commands)]  # one process: what any of them imports is seen
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    ended = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
    assert ended == [f"ended {command[0]} 0 []" for command in commands], done.stderr

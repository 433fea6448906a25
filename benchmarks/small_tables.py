"""Small tables, command by command: `labelloop correct`, `plan` and `fit` as they are, beside cleanlab with a forest.

Each is a process of its own, and its seconds are those of the processor from the start of the interpreter to its end.
cleanlab's process reads the same CSV, cross-validates a forest of as many trees as ours on the same columns with the
clean labels in place, and finds label issues; CleanLearning.fit trains it once more on the rows that are left. The
tables are public ones with wrong labels, as in new_user_tables.py.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from clocks import Measured, Target

ROWS = 400  # of a table; smaller ones as they are
TABLES = {  # clean rows, and whether these kept their given labels
    "penguins": (60, True),
    "cars": (100, True),
    "biopsy": (50, False),
    "movies": (60, True),
    "weather": (30, False),
}
MOST = {"correct": 3.0, "fit": 6.0}  # seconds
ISSUES, LEARNING = "cleanlab, find_label_issues", "cleanlab, CleanLearning.fit"
CLEANLAB = """
import sys
import numpy as np, pandas
from cleanlab.classification import CleanLearning
from sklearn.ensemble import RandomForestClassifier
sys.path.insert(0, sys.argv[1])
from new_user_tables import CLEAN, LABEL, TREES, columns_of
frame = pandas.read_csv(sys.argv[2])
known = frame[CLEAN].where(frame[CLEAN].notna(), frame[LABEL])
labels = np.unique(known.astype(str), return_inverse=True)[1]
columns, _ = columns_of(frame.drop(columns=[LABEL, CLEAN]), native=False)
learner = CleanLearning(RandomForestClassifier(TREES, random_state=0), seed=0, find_label_issues_kwargs={"n_jobs": 1})
if sys.argv[3] == "issues":
    learner.find_label_issues(columns, labels)
else:
    learner.fit(columns, labels)
"""


def small_tables(names: Sequence[str], rows: int, repeats: int) -> list[Measured]:
    """Processor seconds of every command on every table; the repeats take turns.

    Args:
        names: Of TABLES.
        rows: The most rows of a table.
        repeats: Turns.
    """
    seconds: dict[tuple[str, str], list[float]] = {}
    sizes = {}
    with tempfile.TemporaryDirectory() as place:
        files = {name: Path(place) / f"{name.replace(' ', '-')}.csv" for name in names}
        for name, file in files.items():
            sizes[name] = write_table(name, rows, file)
        for turn in range(repeats):
            for name, file in files.items():
                for command, spent in one_turn(file, Path(place) / f"run-{file.stem}-{turn}").items():
                    seconds.setdefault((command, name), []).append(spent)
    found = []
    for command in dict.fromkeys(command for command, _ in seconds):
        by_table = {name: seconds[command, name] for name in names}
        most = max(by_table, key=lambda name: statistics.median(by_table[name]))
        about = {"by_table": by_table, "rows": sizes, "clean_rows": {name: TABLES[name] for name in names}}
        target = Target(MOST[command]) if command in MOST else None
        what = command if command in (ISSUES, LEARNING) else f"`labelloop {command}`"
        found.append(
            Measured(f"{what}, the slowest of {len(names)} tables ({most})", by_table[most], target, "s", about)
        )
    plan, fit = (sum(statistics.median(seconds[command, name]) for name in names) for command in ("plan", "fit"))
    return [*found, Measured("`labelloop plan` by `labelloop fit`, all tables", [plan / fit], Target(1.0))]


def write_table(name: str, rows: int, file: Path) -> int:
    """Writes a table with wrong labels and some clean rows; returns how many rows it has."""
    made = importlib.import_module("new_user_tables")  # needs pandas and the packages of the tables
    clean, paired = TABLES[name]
    frame, labels = made.load(name)
    some = frame.assign(**{made.LABEL: labels}).sample(min(rows, len(frame)), random_state=0).reset_index(drop=True)
    case = made.make_case(name, 0, clean, paired, (some.drop(columns=made.LABEL), some[made.LABEL].to_numpy()))
    made.with_labels(case).to_csv(file, index=False)
    return len(some)


def one_turn(file: Path, run: Path) -> dict[str, float]:
    """What every command takes for a table."""
    ours, here = ("-m", "labelloop"), str(Path(__file__).parent)
    return {
        "correct": processor(*ours, "correct", file, "--output-dir", f"{run}-correct"),
        "fit": processor(*ours, "fit", file, "--output-dir", run),
        "plan": processor(*ours, "plan", run),
        ISSUES: processor("-c", CLEANLAB, here, file, "issues"),
        LEARNING: processor("-c", CLEANLAB, here, file, "classifier"),
    }


def processor(*arguments: object) -> float:
    """The processor seconds of Python with these arguments, in one thread."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run(
        [sys.executable, *map(str, arguments)], check=True, capture_output=True,
        env=environment | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system

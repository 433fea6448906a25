"""The bench: killed at any moment, two at once, with runs that fail; every run once, and always the same table."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from benches import (
    outcome_of,
    processes,
    start_bench,
    start_holding,
    start_run_bench,
    wait_until,
    wait_until_held,
)
from tiny_runs import GRID, tiny, without_clocks

from labelloop.bench import pool as bench
from labelloop.bench import worker
from labelloop.bench.experiment import run_experiment
from labelloop.bench.grid import read_grid
from labelloop.bench.pool import Outcome, bench_report, run_bench
from labelloop.runs.files import write_json
from labelloop.training import checkpoint
from labelloop.training.runtime import Runtime
from labelloop.workflows.noise import Corruption, make_noise_file

pytestmark = pytest.mark.slow

# At which runs are killed: while an epoch is kept, a checkpoint written, and the record written or just there.
MOMENTS = (
    (Runtime, "record", 2),
    (Runtime, "save", 3),
    (checkpoint, "write_atomically", 3),
    (shutil, "rmtree", 1),
    (checkpoint, "write_atomically", 6),
    (worker, "_write", 1),
)

# Networks that break only once they train, each in a way of its own.
BROKEN = """
import os, signal, sys, torch

class Broken(torch.nn.Module):
    feature_dim = 4

    def __init__(self, input_shape, ending=""):
        super().__init__()
        self.ending = ending
        self.layer = torch.nn.Linear(input_shape[0], 4)

    def forward(self, x):
        if not self.training:
            return self.layer(x)
        if self.ending == "threads":
            raise RuntimeError(torch.get_num_threads(), os.environ["OMP_NUM_THREADS"])
        if self.ending == "error":
            raise ZeroDivisionError("a bug\\nin two lines")
        if self.ending == "exit":
            print("what it said last")
            sys.exit(3)
        if self.ending == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x)
"""


def runs_started(folder: Path) -> int:
    return sum(log.read_text().count("run by process") for log in folder.glob(".work/*/log.txt"))


@pytest.fixture(scope="module")
def grid(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("grid") / "grid.toml"
    path.write_text(GRID, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def expected(grid) -> Outcome:
    """What comes out when nothing disturbs: every experiment on its own, in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return Outcome([run_experiment(experiment, progress=False) for experiment in read_grid(grid)], {})
    finally:
        torch.set_num_threads(threads)


def check_all_there(folder: Path, expected: Outcome, grid: Path) -> None:
    """Every record is there, and is what it should be, bit for bit."""
    names = [f"{experiment.key}.json" for experiment in read_grid(grid)]
    assert len(set(names)) == 8
    found = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert set(found) == set(names)
    for name, record in zip(names, expected.records, strict=True):
        assert without_clocks(found[name]) == json.loads(json.dumps(without_clocks(record)))


def test_the_table_has_every_run(expected):
    out = bench_report(expected)
    header, *rows = [line for line in out.splitlines() if line.startswith("| ")][:5]
    rate = sum({record["experiment"]["seed"]: record["realised_rate"] for record in expected.records}.values()) / 2
    assert header == f"| method | symmetric 0.3 (realised {rate:.3f}) |"
    titles = ["cross-entropy", "oracle", "logistic-corrector", "closed-loop"]
    assert [row.split(" | ")[0] for row in rows] == [f"| {title}" for title in titles]
    assert all(row.endswith("(2) |") for row in rows)
    assert "Accuracy of the corrected labels" in out
    assert len({record["noisy_labels_sha256"] for record in expected.records}) == 2  # one per seed


def test_killed_at_any_moment_it_ends_with_the_same_table(grid, expected, tmp_path):
    """SIGKILL for its workers alone, then Ctrl-C; SIGKILL for the bench alone. Each time two runs are in the middle."""
    folder, keys = tmp_path / "bench", [experiment.key for experiment in read_grid(grid)]
    held = dict(zip(keys[2:], MOMENTS, strict=True))

    def results() -> set[str]:
        return {path.stem for path in folder.glob("*.json")}

    bench = start_bench(grid, folder, held)
    wait_until_held(folder, keys[2:4], bench)
    killed = [process for process in processes(bench.pid) if process != bench.pid]
    assert len(killed) == 3  # the worker and its two runs
    for process in killed:
        os.kill(process, signal.SIGKILL)
    wait_until_held(folder, keys[4:6], bench)  # it went on, in new processes
    os.killpg(bench.pid, signal.SIGINT)
    ended = bench.wait()
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.count("killed by signal 9") == 2
    assert "interrupted; finished runs are kept, and the same command continues" in ended.err
    assert "Traceback" not in ended.err
    wait_until(lambda: processes(bench.pid) == [], "the workers to end")
    assert results() == {*keys[:2], keys[5]}  # the last was killed after its record had been written

    bench = start_bench(grid, folder, {key: held[key] for key in keys[6:]})
    wait_until_held(folder, keys[6:], bench)
    bench.kill()
    assert bench.wait().code == -signal.SIGKILL
    wait_until(lambda: processes(bench.pid) == [], "the workers to notice that the bench is gone")
    assert results() == {*keys[:6]}

    ended = start_bench(grid, folder).wait()
    assert "8 of 8 runs" in ended.err
    assert (ended.code, ended.out) == (0, bench_report(expected) + "\n")
    check_all_there(folder, expected, grid)
    assert runs_started(folder) == 8 + 5  # all but the one whose record was there were begun again ...
    logs = [folder / ".work" / key / "log.txt" for key in keys]
    assert not any("started again" in log.read_text() for log in logs)  # ... and continued


def test_two_at_once_share_the_work_and_both_print_the_whole_table(grid, expected, tmp_path):
    folder = tmp_path / "bench"
    # As `srun` starts them: a bench shares experiments through the folder, not batches with other processes.
    both = [start_bench(grid, folder, RANK=rank, WORLD_SIZE="2", SLURM_PROCID=rank) for rank in "01"]
    for process in both:
        ended = process.wait()
        assert ended.code == 0, ended.err
        assert ended.out == bench_report(expected) + "\n"
        assert "8 of 8 runs" in ended.err
        line = r"1 of 8 runs, about \d\d:\d\d left: \S+, digits, symmetric 0.3, seed \d: \d+\.\d%"
        assert re.search(line, ended.err)
    assert runs_started(folder) == 8
    check_all_there(folder, expected, grid)


def test_a_finished_bench_starts_nothing_and_a_new_name_changes_nothing(tmp_path, monkeypatch):
    def started(*_):
        raise AssertionError("a process was started")

    (tmp_path / f"{tiny().key}.json").write_text(json.dumps(run_experiment(tiny(), progress=False)))
    monkeypatch.setattr(bench, "_Worker", started)
    renamed = tiny(name="plain")
    outcome = run_bench([tiny(), renamed], tmp_path, progress=False)
    assert [record["title"] for record in outcome.records] == ["cross-entropy", "plain"]
    assert "| plain | " in bench_report(outcome)
    assert not (tmp_path / ".work").exists()
    with pytest.raises(AssertionError, match="a process was started"):
        run_bench([tiny(config={"momentum": 0.8})], tmp_path, progress=False)


def test_failed_runs_are_listed_with_their_reason_and_stop_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_network.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    endings = [
        tiny(config={"network": "broken_network:Broken", "network_options": {"ending": by}}, name=f"ends by {by}")
        for by in ("error", "exit", "killed", "threads", "itself")
    ]
    make_noise_file("digits", tmp_path / "noise.parquet", Corruption(noise="symmetric", rate=0.3))
    options = {"path": str(tmp_path / "noise.parquet")}
    filed = tiny(dataset_options={}, noise="file", noise_options=options, name="from a file")
    diverging = tiny(config={"learning_rate": 1e30}, name="diverging")

    def check_and_lose_the_file(experiments):
        checked(experiments)
        (tmp_path / "noise.parquet").unlink(missing_ok=True)

    checked = bench.check_experiments
    monkeypatch.setattr(bench, "check_experiments", check_and_lose_the_file)
    outcome = run_bench([*endings[:4], filed, diverging, endings[4]], tmp_path / "bench", jobs=2)
    assert [record["title"] for record in outcome.records] == ["ends by itself"]
    reasons = {words.split(",")[0]: reason for words, reason in outcome.failures.items()}
    assert len(reasons) == 6
    assert reasons["ends by error"] == "ZeroDivisionError: a bug"
    assert "ended with code" in reasons["ends by exit"]
    assert "killed by signal 9" in reasons["ends by killed"]
    assert reasons["ends by threads"] == "RuntimeError: (1, '1')"  # pinned, whatever the surroundings say
    assert "no such noise file" in reasons["from a file"]
    assert "training broke down" in reasons["diverging"]
    place = tmp_path / "bench" / ".work" / endings[0].key
    assert "in forward" in (place / "failure.txt").read_text()  # the whole traceback
    assert "what it said last" in (tmp_path / "bench" / ".work" / endings[1].key / "log.txt").read_text()
    said = capsys.readouterr().err
    assert "7 of 7 runs" in said
    assert "ends by error, digits, symmetric 0.3, seed 0: failed: ZeroDivisionError: a bug" in said
    report = bench_report(outcome)
    assert report.count("failed: ") == 6
    assert "failed: diverging, digits, symmetric 0.3, seed 0\n  training broke down" in report

    # A failure of an earlier bench is tried again; one that another bench has just had is not.
    before = runs_started(tmp_path / "bench")
    other = start_holding(place / "lock")  # another bench is at it ...
    waiting = start_run_bench([endings[0]], tmp_path / "bench")
    time.sleep(0.5)
    assert waiting.lives()
    (place / "failure.txt").write_text("as the other one saw it\n")
    other.kill()  # ... and fails
    other.wait()
    assert list(outcome_of(waiting).failures.values()) == ["as the other one saw it"]
    assert runs_started(tmp_path / "bench") == before
    outcome = outcome_of(start_run_bench([endings[0]], tmp_path / "bench"))
    assert list(outcome.failures.values()) == ["ZeroDivisionError: a bug"]
    assert runs_started(tmp_path / "bench") == before + 1


def test_a_lock_is_held_by_the_living_only(tmp_path):
    """A lock that nobody holds any more is no obstacle; one that is held is waited for, and its result taken."""
    stale, held = tiny(seed=1), tiny(seed=2)
    for experiment in (stale, held):
        lock = tmp_path / ".work" / experiment.key / "lock"
        lock.parent.mkdir(parents=True)
        lock.write_text("")
    other = start_holding(lock)
    bench = start_run_bench([stale, held], tmp_path)
    wait_until((tmp_path / f"{stale.key}.json").exists, "the run with the stale lock")
    time.sleep(0.3)
    assert bench.lives()
    record = run_experiment(held, progress=False)
    write_json(tmp_path / f"{held.key}.json", record)  # whole at once, as the bench that holds the lock would
    other.kill()
    other.wait()
    assert [record["experiment"]["seed"] for record in outcome_of(bench).records] == [1, 2]
    assert runs_started(tmp_path) == 1


def test_a_checkpoint_is_continued_and_a_damaged_one_started_again(tmp_path, monkeypatch):
    save = Runtime.save

    def save_and_stop(self, epoch, *arguments, **named):
        save(self, epoch, *arguments, **named)
        if epoch == 2:
            raise KeyboardInterrupt

    whole, damaged = (tiny("closed-loop", config={"epochs": 4}, seed=seed) for seed in (1, 2))
    expected = [run_experiment(experiment, progress=False) for experiment in (whole, damaged)]
    runs = {}
    for experiment in (whole, damaged):
        runs[experiment.key] = tmp_path / ".work" / experiment.key / "run"
        with monkeypatch.context() as patch:
            patch.setattr(Runtime, "save", save_and_stop)
            with pytest.raises(KeyboardInterrupt):
                run_experiment(experiment, runs[experiment.key], progress=False)
    metrics = runs[whole.key] / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"epoch": 1,', '"epoch": 1, "mark": 1,'))
    state = runs[damaged.key] / "checkpoint" / "state.json"
    state.write_text(state.read_text()[:-20])
    outcome = outcome_of(start_run_bench([whole, damaged], tmp_path))
    marks = [record["history"][0].pop("mark", None) for record in outcome.records]
    assert marks == [1, None]  # the first epoch of one was kept, that of the other run again
    for record, wanted in zip(outcome.records, expected, strict=True):
        assert without_clocks(record) == json.loads(json.dumps(without_clocks(wanted)))
    assert "started again" in (runs[damaged.key].parent / "log.txt").read_text()


def test_progress_is_a_bar_in_a_terminal_and_can_be_silent(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for terminal, show, expected in (
        (Terminal(), True, "3/4"),
        (io.StringIO(), True, "3 of 4 runs, about 00:00 left: a\n4 of 4 runs: b\n"),
        (Terminal(), False, ""),
        (io.StringIO(), False, ""),
    ):
        monkeypatch.setattr(sys, "stderr", terminal)
        progress = bench._Progress(4, 2, show)
        progress.step("a")
        progress._bar.refresh() if not progress._bar.disable else None
        progress.step("b")
        progress.close()
        said = terminal.getvalue()
        assert said == expected if expected != "3/4" else expected in said

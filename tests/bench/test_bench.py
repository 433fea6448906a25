"""The bench: killed at random moments, two at once, with runs that fail; every run once, and always the same table."""

from __future__ import annotations

import fcntl
import io
import json
import os
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from tiny_runs import GRID, processes, start_bench, tiny, without_clocks

from labelloop.bench import pool as bench
from labelloop.bench.experiment import run_experiment
from labelloop.bench.grid import read_grid
from labelloop.bench.pool import Outcome, bench_report, run_bench
from labelloop.training.runtime import Runtime
from labelloop.workflows.noise import Corruption, make_noise_file

PATIENCE = 300  # seconds that any single step may take on a busy machine

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


def wait_until(happened, what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < until, f"waited {PATIENCE} s for {what}"
        time.sleep(0.05)


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
    assert len(set(names)) == 12
    found = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert set(found) == set(names)
    for name, record in zip(names, expected.records, strict=True):
        assert without_clocks(found[name]) == json.loads(json.dumps(without_clocks(record)))


def test_the_table_has_every_run(expected):
    out = bench_report(expected)
    header, *rows = [line for line in out.splitlines() if line.startswith("| ")][:5]
    rate = sum({record["experiment"]["seed"]: record["realised_rate"] for record in expected.records}.values()) / 3
    assert header == f"| method | symmetric 0.3 (realised {rate:.3f}) |"
    titles = ["cross-entropy", "oracle", "logistic-corrector", "closed-loop"]
    assert [row.split(" | ")[0] for row in rows] == [f"| {title}" for title in titles]
    assert all(row.endswith("(3) |") for row in rows)
    assert "Accuracy of the corrected labels" in out
    assert len({record["noisy_labels_sha256"] for record in expected.records}) == 3  # one per seed


def test_killed_at_random_moments_it_ends_with_the_same_table(grid, expected, tmp_path, capsys):
    """SIGKILL for its workers alone, then Ctrl-C; SIGKILL for the bench alone."""
    folder, rng = tmp_path / "bench", random.Random(0)

    def until(results: int, process) -> None:
        """Waits for so many results, a run on its way, and a moment more."""

        def happened() -> bool:
            assert process.poll() is None, process.communicate()
            return len(list(folder.glob("*.json"))) >= results and any(folder.glob(".work/*/run/metrics.jsonl"))

        wait_until(happened, "results")
        time.sleep(rng.uniform(0, 0.3))

    process = start_bench(grid, folder)
    until(1, process)
    killed = [worker for worker in processes(process.pid) if worker != process.pid]
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    assert killed
    until(3, process)  # it went on, in new processes
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "interrupted; finished runs are kept, and the same command continues" in err
    assert "Traceback" not in err
    assert processes(process.pid) == []

    process = start_bench(grid, folder)
    until(7, process)
    process.kill()
    process.communicate(timeout=PATIENCE)
    wait_until(lambda: processes(process.pid) == [], "the workers to notice that the bench is gone")

    assert 7 <= len(list(folder.glob("*.json"))) < 12
    outcome = run_bench(read_grid(grid), folder, jobs=2)
    assert "12 of 12 runs" in capsys.readouterr().err
    assert bench_report(outcome) == bench_report(expected)
    check_all_there(folder, expected, grid)


def test_two_at_once_share_the_work_and_both_print_the_whole_table(grid, expected, tmp_path):
    folder = tmp_path / "bench"
    # As `srun` starts them: a bench shares experiments through the folder, not batches with other processes.
    both = [start_bench(grid, folder, RANK=str(rank), WORLD_SIZE="2", SLURM_PROCID=str(rank)) for rank in range(2)]
    for process in both:
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        assert out == bench_report(expected) + "\n"
        assert "12 of 12 runs" in err
        assert re.search(r"1 of 12 runs, about \d\d:\d\d left: \S+, digits, symmetric 0.3, seed \d: \d+\.\d%", err)
    assert runs_started(folder) == 12
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
    lock = (place / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # another bench is at it ...
    found = []
    thread = threading.Thread(target=lambda: found.append(run_bench([endings[0]], tmp_path / "bench", progress=False)))
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    (place / "failure.txt").write_text("as the other one saw it\n")
    lock.close()  # ... and fails
    thread.join(PATIENCE)
    assert list(found[0].failures.values()) == ["as the other one saw it"]
    assert runs_started(tmp_path / "bench") == before
    outcome = run_bench([endings[0]], tmp_path / "bench", progress=False)
    assert list(outcome.failures.values()) == ["ZeroDivisionError: a bug"]
    assert runs_started(tmp_path / "bench") == before + 1


def test_a_lock_is_held_by_the_living_only(tmp_path):
    """A lock that nobody holds any more is no obstacle; one that is held is waited for, and its result taken."""
    stale, held = tiny(seed=1), tiny(seed=2)
    for experiment in (stale, held):
        (tmp_path / ".work" / experiment.key).mkdir(parents=True)
        (tmp_path / ".work" / experiment.key / "lock").write_text("")
    other = (tmp_path / ".work" / held.key / "lock").open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run_bench([stale, held], tmp_path, progress=False)))
    thread.start()
    wait_until((tmp_path / f"{stale.key}.json").exists, "the run with the stale lock")
    time.sleep(0.3)
    assert thread.is_alive()
    record = run_experiment(held, progress=False)
    (tmp_path / f"{held.key}.json").write_text(json.dumps(record))
    other.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [record["experiment"]["seed"] for record in outcomes[0].records] == [1, 2]
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
        monkeypatch.setattr(Runtime, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, runs[experiment.key], progress=False)
    metrics = runs[whole.key] / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"epoch": 1,', '"epoch": 1, "mark": 1,'))
    state = runs[damaged.key] / "checkpoint" / "state.json"
    state.write_text(state.read_text()[:-20])
    outcome = run_bench([whole, damaged], tmp_path, progress=False)
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

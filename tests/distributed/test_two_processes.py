"""Two processes do what one does: the same features, corrections, weights, targets and networks, up to rounding."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import contents, metrics_of, named_csv, run_json, settings, small
from launched import launched
from safetensors.numpy import load_file
from small_rows import quick_fit, small_rows
from tiny import tiny_config
from tiny_rows import float_rows, image_rows, make_model
from tiny_runs import quick_config
from toys import quiet, toy

from labelloop.cli import main
from labelloop.methods import METHODS, recipe_config
from labelloop.methods.closed_loop import loop
from labelloop.runs.folder import RunFolder
from labelloop.training import cross_fit
from labelloop.training.epoch import extract
from labelloop.training.ranks import ALONE, Ranks, join
from labelloop.training.setup import resolve

pytestmark = pytest.mark.slow

CLOSE = {"rtol": 0, "atol": 2e-5}  # sums of float32 in another order, through some dozens of steps
SHARED = (
    *("labelloop", "closed-loop", "cross-entropy", "clean-only", "noisy-and-clean", "fine-tune"),
    *("logistic-corrector", "glc", "dmlp", "dmlp-nossl", "co-teaching"),
)
PRACTICAL = {
    "mixup": 0.3,
    "average_weights": 0.9,
    "corrector": {"inputs": ("features", "all_features+past_labels")},  # each process keeps what it needs of rounds
}
NARROW = {"network_options": {"widths": [4, 6, 8, 8]}, "batch_size": 32}
FLOATS, TRUTH = toy(n=123, paired=15, unlabelled=7)
IMAGES, _ = toy(n=75, images=True, paired=15)
# Batches of 32 rows, and a last one of 27 or 11: no part divides evenly.
TASKS = {name: (FLOATS, name, quick_config(name) | {"mixup": 0.3, "average_weights": 0.9}) for name in SHARED}
TASKS |= {
    "images": (IMAGES, "closed-loop", tiny_config(IMAGES, images=True, epochs=5, **PRACTICAL)),
    "half precision": (IMAGES, "closed-loop", tiny_config(IMAGES, images=True, epochs=4, precision="bfloat16")),
    "default": (FLOATS, "labelloop", {"epochs": 6, "round_share": 1.0, "network_options": {"hidden": [8]}}),
    "default, images": (IMAGES, "labelloop", {"epochs": 3, "rounds": 1, "round_share": 1.0, **NARROW}),
    "every round": (FLOATS, "closed-loop", tiny_config(FLOATS, epochs=5, **PRACTICAL)),
}
ROWS = {"300 rows": float_rows(300), "1 row": float_rows(1), "137 images": image_rows(137)}


def trained(name: str, ranks: Ranks) -> dict[str, np.ndarray]:
    problem, method, config = TASKS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(config, dict):
            config = resolve(recipe_config(method, "default", config), problem)
        runtime = quiet(ranks=ranks, truth=TRUTH if problem is FLOATS else None)
        fitted = METHODS[method].fit(problem, config, runtime)
    found = {f"model/{key}": value.numpy() for key, value in fitted.model.state_dict().items()}
    losses = np.array([row["loss"] for row in runtime.history])
    weights = [np.array(row["weights"]) for row in fitted.rounds if "weights" in row]
    return found | {"targets": fitted.targets, "losses": losses} | {f"w{k}": each for k, each in enumerate(weights)}


def extracted(name: str, ranks: Ranks) -> dict[str, np.ndarray]:
    rows = ROWS[name]
    runtime = quiet(ranks=ranks)
    model = runtime.prepare(make_model("small-cnn" if "images" in name else "mlp"))
    return vars(extract(model, rows, runtime))


@pytest.fixture(scope="module")
def by_one() -> dict[str, dict[str, np.ndarray]]:
    """What a single process makes of everything. It comes first: what it imports the others have."""
    return {name: trained(name, ALONE) for name in TASKS} | {name: extracted(name, ALONE) for name in ROWS}


@pytest.fixture(scope="module")
def by_two(by_one, tmp_path_factory) -> Path:
    """What two processes make of everything: a file for each of them and each thing."""
    folder = tmp_path_factory.mktemp("two")

    def everything(rank: int) -> None:
        ranks = join(2)
        for make, names in ((trained, TASKS), (extracted, ROWS)):
            for name in names:
                np.savez(folder / f"{make.__name__}-{name}-{rank}.npz", **make(name, ranks))

    ended = launched(everything)
    assert [one.code for one in ended] == [0, 0], "\n".join(one.err for one in ended)
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_training_is_the_same(name, by_one, by_two):
    alone = by_one[name]
    assert len(alone["losses"]) >= 2
    for rank in range(2):
        shared = np.load(by_two / f"trained-{name}-{rank}.npz")
        if rank == 0 or TASKS[name][1] != "closed-loop":  # the first one keeps the weights of rounds
            assert set(shared.files) == set(alone)
        if name == "half precision":  # whose rounding is coarse
            np.testing.assert_allclose(shared["losses"], alone["losses"], rtol=0.02)
            continue
        for key in shared.files:
            np.testing.assert_allclose(shared[key], alone[key], **CLOSE, err_msg=f"{key}, process {rank}")


@pytest.mark.parametrize("name", ROWS)
def test_extraction_is_the_same_bit_for_bit(name, by_one, by_two):
    alone = by_one[name]
    assert {len(values) for values in alone.values()} == {len(ROWS[name])}
    for rank in range(2):
        shared = np.load(by_two / f"extracted-{name}-{rank}.npz")
        for key, values in alone.items():
            np.testing.assert_array_equal(shared[key], values)


def test_more_processes_than_rows_in_a_batch(tmp_path):
    problem = toy(n=11, m=12, images=True)[0]
    config = tiny_config(problem, images=True, epochs=2, warm_up=1, correct_every=1, batch_size=2, mixup=0.3)
    alone = METHODS["closed-loop"].fit(problem, config, quiet())

    def do(rank: int) -> None:
        np.save(tmp_path / f"{rank}.npy", METHODS["closed-loop"].fit(problem, config, quiet(ranks=join(3))).targets)

    ended = launched(do, 3)
    assert [one.code for one in ended] == [0, 0, 0], ended[0].err
    for rank in range(3):  # batch norm over two rows makes much of rounding
        np.testing.assert_allclose(np.load(tmp_path / f"{rank}.npy"), alone.targets, rtol=0, atol=2e-4)


# --- the command line ------------------------------------------------------------------------------------------------

SETTINGS = (
    *("epochs=8", "warm_up=2", "correct_every=1", "batch_size=16"),
    *("network_options.hidden=[8]", "corrector.hidden=8", "corrector.max_epochs=5"),
)
STOP, ROUNDS = 6, 6  # the epoch that is not finished, and the corrections of a whole run


def arguments(place: Path, run: str, *more: object) -> list[str]:
    data = ["fit", place / "rows.csv", "--method", "closed-loop", "--output-dir", place / run]
    parts = [*data, *settings(SETTINGS), "--no-report", *more]
    return [str(part) for part in parts]


def command(place: Path, run: str, *more: object) -> Callable[[int], int]:
    return lambda rank: main(arguments(place, run, *more))


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with rows, and the run of a single process that nobody stopped."""
    folder = tmp_path_factory.mktemp("runs")
    named_csv(folder / "rows.csv", small())
    assert main(arguments(folder, "whole", "--quiet")) == 0
    return folder


def stop_at(epoch: int, how: Callable[[], Any]) -> pytest.MonkeyPatch:
    """Does something in an epoch of the loop, before it is trained."""
    patch, train_epoch = pytest.MonkeyPatch(), loop.train_epoch

    def stopped(*given: Any) -> float:
        if given[-1] == epoch:
            how()
        return train_epoch(*given)

    patch.setattr(loop, "train_epoch", stopped)
    return patch


def assert_same_run(first: Path, second: Path, count: int = ROUNDS) -> None:
    """Features, corrections, weights and targets are the same up to rounding."""
    assert run_json(first)["state"] == run_json(second)["state"] == "finished"
    np.testing.assert_allclose(np.load(first / "targets.npy"), np.load(second / "targets.npy"), **CLOSE)
    features = [np.load(run / "features.npz") for run in (first, second)]
    assert "features" in features[0].files
    for key in features[0].files:
        np.testing.assert_allclose(features[0][key], features[1][key], **CLOSE)
    rounds = [run_json(run)["rounds"] for run in (first, second)]
    assert len(rounds[0]) == len(rounds[1]) == count
    for one, other in zip(*rounds, strict=True):
        np.testing.assert_allclose(one["weights"], other["weights"], **CLOSE)
    files = sorted(path.name for path in (first / "checkpoint").glob("round-*"))
    assert len(files) == count
    for name in files:
        one, other = (load_file(run / "checkpoint" / name) for run in (first, second))
        assert one.keys() == other.keys()
        for key, value in one.items():
            np.testing.assert_allclose(value, other[key], **CLOSE)


def test_a_killed_process_ends_the_run_and_one_process_resumes_it(place):
    def do(rank: int) -> int:
        if rank == 1:
            stop_at(STOP, lambda: os.kill(os.getpid(), signal.SIGKILL))
        return main(arguments(place, "killed"))

    first, second = launched(do)
    assert second.code == -signal.SIGKILL
    assert first.code == 1
    assert "2 processes take part\n" in first.out
    assert "process 0 of 2 has lost the others" in first.err
    assert "start the same command with --resume, on as many processes as you like" in first.err
    assert "Traceback" not in first.err
    assert run_json(place / "killed")["state"] == "failed"
    assert [row["processes"] for row in metrics_of(place / "killed")] == [2] * (STOP - 1)
    assert main(arguments(place, "killed", "--resume", "--quiet")) == 0
    assert [row.get("processes", 1) for row in metrics_of(place / "killed")] == [2] * (STOP - 1) + [1] * 3
    assert_same_run(place / "killed", place / "whole")


def test_the_default_killed_within_its_rounds_is_resumed_by_one_process_and_by_two(place):
    values = ("epochs=6", "rounds=2", "round_share=0.5", "learners=networks", "batch_size=16")
    flags = [*settings((*values, "network_options.hidden=[8]")), "--no-report"]

    def fit(run: str, *more: str) -> int:
        return main(["fit", str(place / "rows.csv"), "--output-dir", str(place / run), *flags, *more])

    def do(rank: int) -> int:
        if rank == 1:
            calls, train_epoch = iter(range(1, 100)), cross_fit.train_epoch

            def killed(*given: Any) -> float:
                if next(calls) == 14:  # of the second round: four networks of three epochs were the first
                    os.kill(os.getpid(), signal.SIGKILL)
                return train_epoch(*given)

            pytest.MonkeyPatch().setattr(cross_fit, "train_epoch", killed)
        return fit("default-killed")

    assert fit("default-whole", "--quiet") == 0
    first, second = launched(do)
    assert (first.code, second.code) == (1, -signal.SIGKILL)
    assert "start the same command with --resume" in first.err
    assert [path.name for path in (place / "default-killed" / "checkpoint").glob("round-*")] == [
        "round-001.safetensors"
    ]
    shutil.copytree(place / "default-killed", place / "default-again")
    assert fit("default-killed", "--resume", "--quiet") == 0
    ended = launched(lambda rank: fit("default-again", "--resume", "--quiet"))
    assert [one.code for one in ended] == [0, 0], ended[0].err + ended[1].err
    for run in ("default-killed", "default-again"):
        assert_same_run(place / run, place / "default-whole", count=3)
        assert len(metrics_of(place / run)) == 6


def test_a_launcher_that_ends_all_does_not_disturb_the_last_words(place, monkeypatch):
    """torchrun sends its signal while a process that has lost another one still writes, and once more at its end."""
    write_record = RunFolder.write_record

    def disturbed(self: RunFolder, record: Any) -> None:
        if record.state == "failed":
            os.kill(os.getpid(), signal.SIGTERM)
        write_record(self, record)

    def do(rank: int) -> int:
        if rank == 1:
            stop_at(STOP, lambda: os.kill(os.getpid(), signal.SIGKILL))
        monkeypatch.setattr(RunFolder, "write_record", disturbed)
        code = main(arguments(place, "disturbed", "--quiet"))
        os.kill(os.getpid(), signal.SIGTERM)
        return code

    first, _ = launched(do)
    assert first.code == 1
    assert "process 0 of 2 has lost the others" in first.err
    assert first.err.count("\n") == 1
    assert run_json(place / "disturbed")["state"] == "failed"


def test_two_processes_resume_what_one_began(place, capsys):
    def interrupt() -> None:
        raise KeyboardInterrupt

    patch = stop_at(STOP, interrupt)
    assert main(arguments(place, "begun", "--quiet")) == 130
    patch.undo()
    ended = launched(command(place, "begun", "--resume", "--processes", 2))
    assert [one.code for one in ended] == [0, 0], ended[0].err + ended[1].err
    assert ended[1].out == ended[1].err == ""  # one speaks for all
    assert run_json(place / "begun")["processes"] == 2
    assert_same_run(place / "begun", place / "whole")


REFUSED = {
    "another number": (("--processes", 3), 2, "processes asked for: 3, taking part: 2"),
    "a method that needs whole batches": (
        ("--method", "mw-net", "--config", "empty.toml"), 2, "method 'mw-net' trains in one process"
    ),
    "a folder that holds a run": ((), 1, "already holds a run"),
    "no such data": (("--clean-column", "nowhere"), 1, "nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_said_once_and_nothing_is_written(name, place):
    more, code, message = REFUSED[name]
    run = "whole" if name == "a folder that holds a run" else "refused"
    given = arguments(place, run, *more)
    if name == "a method that needs whole batches":
        given = [str(part) for part in ("fit", place / "rows.csv", "--output-dir", place / run, "--method", "mw-net")]
    before = contents(place)
    first, second = launched(lambda rank: main(given))
    assert first.code == code
    assert message in first.err
    assert first.err.count("\n") == 1
    assert (second.code, second.out, second.err) == (1, "", "")
    assert contents(place) == before


def test_processes_that_do_not_run_the_same_are_refused(place):
    first, second = launched(lambda rank: main(arguments(place, "refused", "--seed", rank)))
    assert (first.code, second.code) == (1, 1)
    assert "process 1 of 2 has other rows or settings than process 0" in first.err
    assert not (place / "refused").exists()


def test_what_only_one_process_cannot_read_is_said_by_the_first(place):
    def do(rank: int) -> int:
        rows = place / "rows.csv" if rank == 0 else place / "elsewhere.csv"
        return main(["fit", str(rows), "--output-dir", str(place / "refused")])

    first, second = launched(do)
    assert (first.code, second.code) == (1, 1)
    assert "process 1 of 2: " in first.err
    assert "elsewhere.csv" in first.err
    assert not (place / "refused").exists()


def test_networks_that_drift_apart_are_noticed(place):
    def do(rank: int) -> int:
        def drift() -> None:
            patch.setattr(Ranks, "sharing", lambda self, model, unused: nullcontext(model))

        patch = stop_at(2, drift)
        return main(arguments(place, "drifted", "--quiet"))

    first, second = launched(do)
    assert (first.code, second.code) == (1, 1)
    assert "process 1 of 2 has other weights than process 0" in first.err
    assert [row["epoch"] for row in metrics_of(place / "drifted")] == [1, 2]
    assert not list((place / "drifted" / "checkpoint").glob("epoch-0002*"))


def test_a_process_that_hangs_is_not_waited_for(place):
    def do(rank: int) -> int:
        os.environ["LABELLOOP_PROCESS_TIMEOUT"] = "2"
        if rank == 1:
            stop_at(2, lambda: time.sleep(4))
        return main(arguments(place, "hung", "--quiet"))

    first, second = launched(do)
    assert (first.code, second.code) == (1, 1)
    assert "process 0 of 2 has lost the others" in first.err


def test_a_process_that_never_comes_is_not_waited_for(place):
    def do(rank: int) -> int:
        os.environ["LABELLOOP_PROCESS_TIMEOUT"] = "1"
        return main(arguments(place, "refused")) if rank == 0 else 0

    first, _ = launched(do)
    assert first.code == 1
    assert "process 0 of 2 did not find the others at 127.0.0.1 within 1 s" in first.err
    assert not (place / "refused").exists()


def test_python_gives_every_process_the_same_result(tmp_path):
    rows = small_rows()
    alone = quick_fit(rows)

    def do(rank: int) -> None:
        result = quick_fit(rows, processes=2, output_dir=tmp_path / "run", report=False)
        np.savez(tmp_path / f"{rank}.npz", labels=result.corrected_labels, proba=result.predicted_proba)
        assert result.rounds
        assert result.record.about["processes"] == 2

    ended = launched(do)
    assert [one.code for one in ended] == [0, 0], ended[0].err + ended[1].err
    for rank in range(2):
        shared = np.load(tmp_path / f"{rank}.npz")
        np.testing.assert_array_equal(shared["labels"], alone.corrected_labels)
        np.testing.assert_allclose(shared["proba"], alone.predicted_proba, **CLOSE)


def test_processes_that_a_launcher_starts_again_resume(place):
    shutil.copytree(place / "whole", place / "again")
    for name in ("run.json", "metrics.jsonl"):
        assert (place / "again" / name).exists()
    before = metrics_of(place / "again")

    def do(rank: int) -> int:
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
        return main(arguments(place, "again", "--overwrite"))  # which was done when they were first started

    ended = launched(do)
    assert [one.code for one in ended] == [0, 0], ended[0].err + ended[1].err
    assert metrics_of(place / "again") == before


def test_torchrun(place):
    """The launcher itself; everything else is tested with its environment."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "labelloop"]
    given = ["fit", place / "rows.csv", "--output-dir", place / "torchrun", "--method", "cross-entropy", "--no-report"]
    done = subprocess.run(
        [*launcher, *map(str, given), "--set", "epochs=1", "--processes", "2"],
        capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 processes take part") == 1
    assert run_json(place / "torchrun")["processes"] == 2

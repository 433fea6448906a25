"""Killed, interrupted or finished: `--resume` ends with what an uninterrupted run ends with, bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_tools import (
    NAMES,
    Ran,
    contents,
    metrics_of,
    named_csv,
    numbers,
    run_json,
    settings,
    small,
    write_csv,
)
from forked import Ended, forked

from labelloop.cli import main
from labelloop.data import image_files as image_store
from labelloop.training import checkpoint as checkpoint_module
from labelloop.training.runtime import Runtime

pytestmark = pytest.mark.slow

DATA = small()
OTHER = small(40, seed=5)
# Enough rounds and epochs to be interrupted between, with all that a checkpoint has to bring back.
SIZES = ("round_share=0.5", "learners=networks", "batch_size=16", "network_options.hidden=[8]")
LONG = settings(("epochs=12", "rounds=2", *SIZES))
ROUNDS = 3
SHORT = [*LONG, *settings(("epochs=6", "rounds=1"))]
# The paper's method.
LOOP = [
    *("--method", "closed-loop"),
    *settings(("epochs=6", "warm_up=2", "correct_every=1", "batch_size=16", "network_options.hidden=[8]")),
    *settings(("corrector.hidden=16", "corrector.max_epochs=8", "corrector.inputs=features+logits")),
]
RESULTS = ("labels.parquet", "targets.npy", "model.safetensors", "model.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the data, the test rows and the uninterrupted run."""
    folder = tmp_path_factory.mktemp("resume")
    named_csv(folder / "rows.csv", DATA)
    write_csv(folder / "test.csv", {**numbers(OTHER), "label": OTHER.names(OTHER.true)})
    assert main([str(part) for part in fit(folder, folder / "whole")]) == 0
    assert len(metrics_of(folder / "whole")) == 12
    assert len(run_json(folder / "whole")["rounds"]) == ROUNDS
    return folder


@pytest.fixture(scope="module", params=[SHORT, LOOP], ids=["labelloop", "closed-loop"])
def short(place, request) -> tuple[Path, list[str]]:
    """An uninterrupted run that is short, of the default and of the paper's loop, and its settings."""
    run = place / f"short-{request.param_index}"
    assert main([str(part) for part in fit(place, run, long=request.param)]) == 0
    assert len(metrics_of(run)) == 6
    return run, request.param


def fit(folder: Path, run: Path, *flags: object, test: str | None = "test.csv", long: list[str] = LONG) -> list[object]:
    tested = ["--test", folder / test] if test else []
    return ["fit", folder / "rows.csv", "--output-dir", run, *long, *tested, "--quiet", *flags]


def epochs_in(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def assert_same_run(whole: Path, resumed: Path) -> None:
    for name in RESULTS:
        assert (resumed / name).read_bytes() == (whole / name).read_bytes(), name
    assert metrics_of(resumed) == metrics_of(whole)
    one, other = run_json(resumed), run_json(whole)
    assert one.pop("versions").keys() == other.pop("versions").keys()
    assert one == other
    assert one["state"] == "finished"
    assert not list(resumed.glob(".*.partial"))


def signalled(arguments: list[object], number: signal.Signals, part: object, name: str, at: int) -> Ended:
    """Runs a command in a process that gets a signal when `part.name` is called for the `at`-th time."""
    real, calls = getattr(part, name), iter(range(1, 10**6))

    def signalling(*args: object, **kwargs: object) -> object:
        if next(calls) == at:
            os.kill(os.getpid(), number)
        return real(*args, **kwargs)

    def do() -> int:
        setattr(part, name, signalling)
        warnings.resetwarnings()
        return main([str(argument) for argument in arguments])

    return forked(do)


def test_killed_at_random_moments(place, tmp_path, labelloop):
    """Between the rounds and twice between epochs, each time anywhere in what a round or an epoch writes."""
    run, dice = tmp_path / "run", random.Random(20)
    killed_at = []
    for resume in ([], ["--resume"], ["--resume"]):
        moments = [(Runtime, "save"), (checkpoint_module, "write_atomically")]
        part, name = dice.choice([*moments, (Runtime, "record")] if resume else moments)
        at = dice.randint(4, 5) * (2 if name == "write_atomically" else 1) if resume else dice.randint(2, 3)
        ended = signalled(fit(place, run, *resume), signal.SIGKILL, part, name, at)
        assert (ended.code, ended.out, ended.err) == (-signal.SIGKILL, "", "")
        assert run_json(run)["state"] == "running"
        assert not (run / "labels.parquet").exists()
        killed_at.append(epochs_in(run))
    assert 0 == killed_at[0] < killed_at[1] < killed_at[2] < 12
    ended = labelloop(*fit(place, run, "--resume"))
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert_same_run(place / "whole", run)


def test_interrupted_from_the_keyboard(place, tmp_path, labelloop):
    run = tmp_path / "run"
    ended = signalled(fit(place, run), signal.SIGINT, Runtime, "save", ROUNDS + 5)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert f"--resume --output-dir {run}" in ended.err
    assert ended.out == ""
    assert run_json(run)["state"] == "interrupted"
    assert 4 <= epochs_in(run) < 12
    assert not (run / "labels.parquet").exists()
    assert labelloop(*fit(place, run, "--resume")).code == 0
    assert_same_run(place / "whole", run)


# --- interrupted at a chosen moment, inside this process --------------------------------------------------------------


def interrupted(
    labelloop: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[object],
    part: object,
    name: str,
    at: int,
) -> None:
    """Runs a command that is interrupted when `part.name` is called for the `at`-th time."""
    real, calls = getattr(part, name), iter(range(1, 10**6))

    def interrupting(*args: object, **kwargs: object) -> object:
        if next(calls) == at:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(part, name, interrupting)
        assert labelloop(*arguments).code == 130


@pytest.mark.parametrize(
    ("part", "name", "at"),
    [
        (Runtime, "record", 1),  # before anything is kept
        (Runtime, "save", 1),  # a row of metrics and no checkpoint
        (Runtime, "save", 6),  # a row more than the checkpoint knows
        (checkpoint_module, "write_atomically", 9),
        (checkpoint_module, "write_atomically", 10),
        (checkpoint_module, "write_atomically", 11),
        (checkpoint_module, "write_atomically", 12),
    ],
)
def test_interrupted_while_writing(part, name, at, place, short, tmp_path, labelloop, monkeypatch):
    run, (whole, flags) = tmp_path / "run", short
    interrupted(labelloop, monkeypatch, fit(place, run, long=flags), part, name, at)
    assert run_json(run)["state"] == "interrupted"
    assert labelloop(*fit(place, run, "--resume", long=flags)).code == 0
    assert_same_run(whole, run)


@pytest.mark.parametrize(("streamed", "at"), [(False, 2), (True, 5)], ids=["in memory", "streamed"])
def test_a_folder_of_images_interrupted_and_resumed(streamed, at, tmp_path, labelloop, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="needs the extra images")
    if streamed:
        monkeypatch.setattr(image_store, "IN_MEMORY", 1000)
    rng, clean = np.random.default_rng(0), ["file_name,clean_label"]
    for i in range(40):
        name = f"{NAMES[(i + (i % 5 == 0)) % 2]}/{i}.png"  # every fifth in the wrong folder
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 120, (8, 8, 3)) + np.array([120 * (i % 2), 0, 60])
        image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "images" / name)
        clean += [f"{name},{NAMES[i % 2]}"] if i < 14 else []
    (tmp_path / "clean.csv").write_text("\n".join(clean) + "\n")
    quick = settings(("epochs=5", "rounds=1", "batch_size=16", "network_options.widths=[4, 4]"))

    def images(run: Path, *flags: str) -> list[object]:
        clean_file = ("--clean-file", tmp_path / "clean.csv")
        return ["fit", tmp_path / "images", *clean_file, "--output-dir", run, *quick, "--quiet", *flags]

    assert labelloop(*images(tmp_path / "whole")).code == 0
    run = tmp_path / "run"
    interrupted(labelloop, monkeypatch, images(run), Runtime, "save", at)
    assert run_json(run)["state"] == "interrupted"
    assert epochs_in(run) < 5
    assert labelloop(*images(run, "--resume")).code == 0
    assert_same_run(tmp_path / "whole", run)


def test_a_line_of_metrics_that_was_cut_short_is_written_again(place, short, tmp_path, labelloop, monkeypatch):
    run, (whole, flags) = tmp_path / "run", short
    interrupted(labelloop, monkeypatch, fit(place, run, long=flags), Runtime, "save", 6)
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text[:-20])
    assert labelloop(*fit(place, run, "--resume", long=flags)).code == 0
    assert_same_run(whole, run)


def test_interrupted_twice_in_a_row(place, tmp_path, labelloop, monkeypatch):
    run = tmp_path / "run"
    interrupted(labelloop, monkeypatch, fit(place, run), Runtime, "save", 2)
    assert epochs_in(run) == 0
    interrupted(labelloop, monkeypatch, fit(place, run, "--resume"), Runtime, "save", 5)
    assert len(metrics_of(run)) == 3  # the first two calls were for rounds
    assert labelloop(*fit(place, run, "--resume")).code == 0
    assert_same_run(place / "whole", run)


@pytest.mark.parametrize("method", ["cross-entropy", "fine-tune"])
def test_a_baseline_resumes_too(method, place, tmp_path, labelloop, monkeypatch):
    flags = ["--method", method, "--set", "epochs=6", "--set", "network_options.hidden=[8]", "--quiet"]
    flags += ["--set", "fine_tune_epochs=4"] if method == "fine-tune" else []
    arguments = ["fit", place / "rows.csv", *flags, "--output-dir"]
    assert labelloop(*arguments, tmp_path / "whole").code == 0
    at = 8 if method == "fine-tune" else 4
    interrupted(labelloop, monkeypatch, [*arguments, tmp_path / "run"], Runtime, "save", at)
    assert labelloop(*arguments, tmp_path / "run", "--resume").code == 0
    assert_same_run(tmp_path / "whole", tmp_path / "run")


# --- what is not resumed ----------------------------------------------------------------------------------------------


@pytest.fixture
def finished(place, tmp_path) -> Path:
    """A copy of the finished run."""
    shutil.copytree(place / "whole", tmp_path / "run")
    return tmp_path / "run"


def test_a_finished_run_gives_the_same_result_again(place, finished, labelloop):
    before = contents(finished)
    assert labelloop(*fit(place, finished, "--resume")).code == 0
    assert_same_run(place / "whole", finished)
    after = contents(finished)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} <= {"run.json", "report.html"}  # with dates


def test_results_that_got_lost_are_written_again(place, finished, labelloop):
    for name in RESULTS:
        (finished / name).unlink()
    assert labelloop(*fit(place, finished, "--resume")).code == 0
    assert_same_run(place / "whole", finished)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--seed", "1"], "seed = 0, not 1"),
        (["--set", "epochs=30"], "epochs = 12, not 30"),
        (["--set", "rounds=5"], "rounds = 2, not 5"),
        (["--set", "learners=all"], "learners = 'networks', not 'all'"),
        (["--set", "network_options.hidden=[9]"], "network_options.hidden = [8], not [9]"),
        (["--set", "learning_rate=0.06"], "learning_rate = 0.05, not 0.06"),
        (["--feature-columns", "a,b"], "other rows"),
    ],
)
def test_other_settings_are_refused_by_name(flags, word, place, finished, labelloop):
    before = contents(finished)
    ended = labelloop(*fit(place, finished, "--resume", *flags))
    assert ended.code == 1
    assert str(finished) in ended.err
    assert word in ended.err
    assert "another folder" in ended.err
    assert contents(finished) == before


def test_another_method_is_refused_by_name(place, finished, labelloop):
    before = contents(finished)
    flags = ("--output-dir", finished, "--method", "cross-entropy", "--resume")
    ended = labelloop("fit", place / "rows.csv", *flags)
    assert ended.code == 1
    assert "method = 'labelloop', not 'cross-entropy'" in ended.err
    assert contents(finished) == before


def other_features(folder: Path) -> None:
    b = numbers(DATA)["b"].copy()
    b[77] += 1
    named_csv(folder / "rows.csv", DATA, b=b)


def another_label(folder: Path) -> None:
    labels = DATA.names(DATA.y)
    labels[40] = "ant" if labels[40] != "ant" else "bee"
    named_csv(folder / "rows.csv", DATA, label=labels)


def other_names(folder: Path) -> None:
    labels = [[name.replace("cat", "cow") for name in DATA.names(v)] for v in (DATA.y, DATA.y_clean)]
    named_csv(folder / "rows.csv", DATA, label=labels[0], clean_label=labels[1])
    (folder / "test.csv").write_text((folder / "test.csv").read_text().replace("cat", "cow"))


def other_test_rows(folder: Path) -> None:
    labels = OTHER.names(OTHER.true)
    labels[0] = "ant" if labels[0] != "ant" else "bee"
    write_csv(folder / "test.csv", {**numbers(OTHER), "label": labels})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (other_features, "other rows"),
        (another_label, "other rows"),
        (other_names, "classes = ['ant', 'bee', 'cat'], not ['ant', 'bee', 'cow']"),
        (other_test_rows, "other test rows"),
    ],
)
def test_other_data_is_refused(change, word, place, finished, labelloop, tmp_path):
    for name in ("rows.csv", "test.csv"):
        shutil.copy(place / name, tmp_path)
    change(tmp_path)
    before = contents(finished)
    ended = labelloop(*fit(tmp_path, finished, "--resume"))
    assert ended.code == 1
    assert word in ended.err
    assert contents(finished) == before


def test_a_forgotten_test_file_is_refused(place, finished, labelloop):
    ended = labelloop(*fit(place, finished, "--resume", test=None))
    assert ended.code == 1
    assert "test rows" in ended.err


def test_other_extra_columns_are_refused(tmp_path, labelloop):
    flags = ("--method", "closed-loop", "--extra-columns", "hint", "--output-dir", tmp_path / "run", "--quiet")
    quick = settings(["epochs=3", "warm_up=1", "network_options.hidden=[4]", "corrector.inputs=extra"])
    data = named_csv(tmp_path / "rows.csv", DATA, hint=np.arange(120.0))
    assert labelloop("fit", data, *flags, *quick).code == 0
    assert labelloop("fit", data, *flags, *quick, "--resume").code == 0
    named_csv(data, DATA, hint=np.arange(120.0)[::-1])
    ended = labelloop("fit", data, *flags, *quick, "--resume")
    assert ended.code == 1
    assert "other rows" in ended.err


def test_there_must_be_a_run_to_resume(place, tmp_path, labelloop):
    ended = labelloop(*fit(place, tmp_path / "run", "--resume"))
    assert ended.code == 1
    assert "no run to resume" in ended.err
    assert not (tmp_path / "run").exists()


# --- damaged checkpoints ----------------------------------------------------------------------------------------------


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [truncated, emptied, flipped, Path.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["epoch-0012.safetensors", "round-001.safetensors", f"round-{ROUNDS:03d}.safetensors"])
def test_a_damaged_checkpoint_is_named_and_nothing_changes(name, damage, place, finished, labelloop):
    damage(finished / "checkpoint" / name)
    before = contents(finished)
    ended = labelloop(*fit(place, finished, "--resume"))
    assert ended.code == 1
    assert str(finished / "checkpoint" / name) in ended.err
    assert "start again in another folder" in ended.err
    assert contents(finished) == before


@pytest.mark.parametrize("name", ["checkpoint/state.json", "run.json"])
@pytest.mark.parametrize("damage", [truncated, emptied], ids=lambda damage: damage.__name__)
def test_a_damaged_record_is_named_and_nothing_changes(name, damage, place, finished, labelloop):
    damage(finished / name)
    before = contents(finished)
    ended = labelloop(*fit(place, finished, "--resume"))
    assert ended.code == 1
    assert str(finished / name) in ended.err
    assert contents(finished) == before


def test_no_file_of_a_run_is_pickled(place):
    files = [path for path in (place / "whole").rglob("*") if path.is_file()]
    assert len(files) >= 12
    kinds = {path.suffix for path in files if path.name != ".labelloop.lock"}
    assert kinds == {".html", ".json", ".jsonl", ".parquet", ".npy", ".npz", ".safetensors"}
    np.load(place / "whole/targets.npy", allow_pickle=False)
    with np.load(place / "whole/features.npz", allow_pickle=False) as features:
        assert all(features[name].dtype.kind in "bif" for name in features.files)
    json.loads((place / "whole/checkpoint/state.json").read_text())

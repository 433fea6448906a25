"""How commands end: by a signal, by two, killed and repeated; and what is on disk before anything is believed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from forked import forked
from strangers import ROWS, corrected_run, told

from labelloop.cli import main, memory
from labelloop.encoders.cache import FeatureCache
from labelloop.encoders.encoder import Encoder
from labelloop.runs import files as run_files
from labelloop.runs import reviews
from labelloop.runs.files import sweep, write_atomically
from labelloop.runs.folder import OUR_FILES, RunFolder, holds_run
from labelloop.runs.run_json import RunRecord
from labelloop.workflows import plan

CORRECT = ("correct", "rows.csv", "--output-dir", "run", "--quiet", "--no-report")


def signalled(number: int) -> int:
    """Corrects rows.csv in a fork, and sends it a signal while it would write the labels."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever started the tests may ignore signals
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def slowly(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(30)

    RunFolder.write_labels = slowly  # type: ignore[method-assign, assignment]
    return main([*CORRECT])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_in_order_and_the_same_command_just_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    ended = forked(lambda: signalled(number), tmp_path)
    assert ended.code == code, ended.err
    assert "labelloop: interrupted" in ended.err
    assert "Traceback" not in ended.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "interrupted"
    monkeypatch.chdir(tmp_path)
    assert told(*CORRECT).code == 0
    assert told("verify", "run").code == 0


def test_a_second_interrupt_prints_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    write_record = RunFolder.write_record

    def interrupted_again(folder: RunFolder, record: RunRecord) -> None:
        if record.state == "interrupted":
            (tmp_path / "again").touch()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
        write_record(folder, record)

    def do() -> int:
        RunFolder.write_record = interrupted_again  # type: ignore[method-assign, assignment]
        return signalled(signal.SIGINT)

    ended = forked(do, tmp_path)
    assert (ended.code, (tmp_path / "again").exists()) == (130, True), ended.err
    assert "Traceback" not in ended.err


def test_what_a_killed_correct_left_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    command = ("correct", tmp_path / "rows.csv", "--output-dir", run, "--quiet", "--no-report")
    assert told(*command).code == 1  # a finished run is never replaced without a word
    record = json.loads((run / "run.json").read_text())
    for state, kind, code in (("running", "fit", 1), ("failed", "correct", 1), ("running", "correct", 0)):
        (run / "run.json").write_text(json.dumps({**record, "state": state, "kind": kind}))
        (run / "manifest.json").unlink(missing_ok=True)
        assert told(*command).code == code, (state, kind)


def test_a_plan_that_was_killed_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of rows to verify is never written over, so it must come last."""
    run = corrected_run(tmp_path / "run")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("learning_curve", "_drawn"):
        with monkeypatch.context() as patch:
            patch.setattr(plan, step, killed)
            assert told("plan", run).code == 130
        assert not (run / "verify.csv").exists()
    assert told("plan", run).code == 0


def test_a_cache_that_was_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    encoder = Encoder("words", "text", "1", lambda: None)  # type: ignore[arg-type, return-value]
    cache = FeatureCache(tmp_path, encoder)
    with pytest.raises(TypeError):
        cache.add([b"k" * 16], np.ones((1, 3), np.float32), {"half": object()})
    (cache.folder / ".about.json.partial").write_text("half")
    FeatureCache(tmp_path, encoder).add([b"k" * 16], np.ones((1, 3), np.float32))
    assert sorted(os.listdir(cache.folder)) == ["about.json", "features.f32", "keys.bin", "lock"]


def test_partial_files_of_the_dead_are_swept_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = run_files._host()
    elsewhere = "0" * 6 if host != "0" * 6 else "1" * 6
    names = ((gone.pid, host), (os.getppid(), host), (gone.pid, elsewhere))
    dead, living, other = (tmp_path / f".labels.parquet.{pid}-{where}.partial" for pid, where in names)
    for path in (dead, living, other):
        path.write_text("half")
    sweep(tmp_path)
    assert [path.exists() for path in (dead, living, other)] == [False, True, True]
    dead.mkdir()
    write_atomically(tmp_path / "labels.parquet", lambda path: path.write_text("whole"))
    assert not dead.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("limit", [60_000, 350_000, 600_000, 700_000])
def test_too_little_memory_is_said_however_a_library_ends(tmp_path: Path, limit: int) -> None:
    """With more and more memory: an import fails, OpenBLAS ends the process, and then it asks for memory for ever."""
    (tmp_path / "rows.csv").write_text(ROWS)
    words = f"ulimit -v {limit}; exec {sys.executable} -m labelloop correct rows.csv --output out.csv"
    ended = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr.count("labelloop: ")) == (1, 1), ended.stderr
    assert f"not enough memory: `ulimit -v` allows {limit} KiB" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("said", ["error return without exception set", "f returned NULL without setting an exception"])
def test_python_without_memory_for_an_exception_lacks_memory_if_it_is_limited(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    for limit, expected in ((2**29, True), (None, False)):
        monkeypatch.setattr(memory, "_limit", lambda limit=limit: limit)
        assert memory.is_memory(SystemError(said)) == expected
        assert not memory.is_memory(SystemError("bad argument to internal function"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_child_that_asks_for_memory_in_vain_is_ended_and_one_that_works_is_not() -> None:
    words = (
        "import mmap, os, resource, sys, time; from labelloop.cli import memory; memory.PATIENCE = 1.0\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))\n"
        "def spin():\n"
        "    while True:\n"
        "        try: mmap.mmap(-1, 2**29)\n"
        "        except OSError: os.getrandom(2**16)\n"  # work for the system, more than for Python on any processor
        "def work():\n"
        "    until = time.monotonic() + 3\n"
        "    while time.monotonic() < until: pass\n"
        "    return 7\n"
        "sys.exit(memory.watched({'spin': spin, 'work': work}[sys.argv[1]]))"
    )
    ended = {
        name: subprocess.run([sys.executable, "-c", words, name], capture_output=True, text=True, timeout=60)
        for name in ("spin", "work")
    }
    assert (ended["spin"].returncode, "not enough memory" in ended["spin"].stderr) == (1, True), ended
    assert (ended["work"].returncode, ended["work"].stderr) == (7, "")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_a_child_under_a_limit(tmp_path: Path, number: signal.Signals) -> None:
    words = (
        "import os, resource, signal, sys, time; from labelloop.cli import memory\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))\n"
        "def wait():\n"
        "    try:\n"
        "        print(os.getpid(), flush=True)\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt: return 130\n"
        "sys.exit(memory.watched(wait))"
    )
    parent = subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(number)
    assert parent.wait(30) == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}[number]
    for _ in range(500):
        if not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text():
            break
        time.sleep(0.02)
    else:
        raise AssertionError("the child lives on")
    parent.stdout.close()


def test_a_refit_says_that_the_input_has_changed(tmp_path: Path) -> None:
    run = corrected_run(tmp_path / "run")
    (tmp_path / "clean.csv").write_text("id,clean_label\n" + "".join(f"r{k},cat\n" for k in range(21, 41, 2)))
    command = ("refit", run, "--clean-file", tmp_path / "clean.csv", "--overwrite", "--no-report", "--output-dir")
    ended = told(*command, tmp_path / "same")
    assert (ended.code, "has changed" in ended.out) == (0, False), ended.err
    (tmp_path / "rows.csv").write_text(ROWS + "r99,1,1,cat,\n")
    ended = told(*command, tmp_path / "changed")
    assert (ended.code, f"{tmp_path / 'rows.csv'} has changed since {run} read it" in ended.out) == (0, True), ended.out
    (tmp_path / "rows.csv").unlink()
    assert "has changed" not in told(*command, tmp_path / "gone").out


# --- crash safety: each of these fails if the step it is about is taken away ----------------------------------------


def test_a_file_is_on_disk_before_it_has_its_name_and_gets_it_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(("fsync", os.fstat(handle).st_ino))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)

    def named(old: object, new: object) -> None:
        done.append(("replace", os.stat(str(old)).st_ino))
        assert Path(str(new)).read_text() == "old"  # until then
        replace(str(old), str(new))

    monkeypatch.setattr(os, "replace", named)
    (tmp_path / "file").write_text("old")
    before = os.stat(tmp_path / "file").st_ino
    write_atomically(tmp_path / "file", lambda path: path.write_text("new"))
    after = os.stat(tmp_path / "file").st_ino
    assert after != before
    folder = os.stat(tmp_path).st_ino
    assert done == [("fsync", after), ("replace", after), ("fsync", folder)]  # the last one keeps the new name


def test_a_folder_has_its_name_on_disk_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    there = tmp_path / "model"
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, there.exists())))
    with run_files.fresh_folder(there) as partial:
        (partial / "file").write_text("x")
    assert synced == [(os.stat(tmp_path).st_ino, True)]


def test_metrics_are_on_disk_before_the_checkpoint_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, synced = RunFolder(tmp_path / "run"), []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, os.fstat(handle).st_size)))
    folder.append_metrics({"epoch": 1})
    places = (tmp_path / "run" / "metrics.jsonl", tmp_path / "run")
    assert synced == [(place.stat().st_ino, place.stat().st_size) for place in places]


def test_a_decision_is_on_disk_before_it_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, os.fstat(handle).st_size)))
    answers = [reviews.Answer(f"a-key-of-its-own-{k}", k, f"r{k}", "ann", "keep", "cat", "now") for k in range(2)]
    size = reviews.append_answers(tmp_path, answers[:1])
    file, folder = os.stat(tmp_path / "reviews.jsonl").st_ino, os.stat(tmp_path)
    assert synced == [(file, size), (folder.st_ino, folder.st_size)]  # the folder, since the file is new
    assert reviews.append_answers(tmp_path, answers[1:]) > size
    assert [place for place, _ in synced[2:]] == [file]


@pytest.mark.parametrize("stop", range(1, len(OUR_FILES)))
def test_a_folder_that_is_cleared_halfway_is_still_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    folder = RunFolder(tmp_path / "run")
    for name in OUR_FILES:
        (folder.path / name).write_text("{}")
    folder.write_record(RunRecord(state="finished"))
    deleted: list[Path] = []
    unlink = os.unlink

    def counted(path: Path, *given: object, **named: object) -> None:
        if Path(path).name in OUR_FILES:
            deleted.append(Path(path))
            if len(deleted) == stop:
                raise KeyboardInterrupt
        unlink(path)

    monkeypatch.setattr(os, "unlink", counted)
    with pytest.raises(KeyboardInterrupt):
        folder.clear()
    monkeypatch.setattr(os, "unlink", unlink)
    assert holds_run(folder.path)
    RunFolder(folder.path, overwrite=True)


# --- children -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_a_child_ends_with_a_killed_parent() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "inner = 'import sys, time; from labelloop.bench import end_with_parent;'"
        " 'end_with_parent(int(sys.argv[1])); print(1, flush=True); time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', inner, str(os.getpid())], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child lives on")

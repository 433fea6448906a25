"""What used to end in a traceback, a wrong word or silence."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_tools import command

from labelloop.errors import DataError
from labelloop.export.undo import undo, write_tree_undo
from labelloop.methods import recipe_config
from labelloop.runs.files import write_atomically
from labelloop.runs.folder import RunFolder
from labelloop.runs.lock import LOCK, lock, unlock

pytestmark = pytest.mark.slow


def table(path, count=60, separator=","):
    lines = [["id", "x", "z", "label", "clean_label"]]
    for i in range(count):
        name = "ab"[i % 2]
        lines.append([f"r{i}", str(i % 2 + i / 100), str(i % 5), name, name if i < 24 else ""])
    path.write_text("\n".join(separator.join(line) for line in lines) + "\n")
    return path


def test_a_file_name_that_is_not_utf8_is_refused_before_training(tmp_path, labelloop):
    image = pytest.importorskip("PIL.Image")
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        image.new("RGB", (4, 4)).save(tmp_path / "data" / name / "one.png")
    try:
        os.rename(tmp_path / "data" / "a" / "one.png", os.fsencode(tmp_path / "data" / "a") + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    ended = labelloop("fit", tmp_path / "data", "--output-dir", tmp_path / "run")
    assert ended.code == 1
    assert r"1 file names are not in UTF-8: a/caf\udce9.png; rename them" in ended.err
    assert not (tmp_path / "run").exists()


def test_inputs_without_columns_are_refused(tmp_path, labelloop):
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 0)), y=[0, 1, 2, 1], y_clean=[0, 1, -1, -1])
    ended = labelloop("fit", tmp_path / "a.npz", "--output-dir", tmp_path / "run")
    assert ended.code == 1
    assert "inputs without columns" in ended.err


def test_a_second_process_is_kept_out(tmp_path):
    lock(tmp_path)
    held = json.loads((tmp_path / LOCK).read_text())
    assert held["pid"] == os.getpid()
    take = f"from pathlib import Path; from labelloop.runs.lock import lock; lock(Path({str(tmp_path)!r}))"
    second = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True)
    assert f"in use by process {os.getpid()}" in second.stderr
    unlock(tmp_path)
    assert not (tmp_path / LOCK).exists()
    (tmp_path / LOCK).write_text(json.dumps({**held, "pid": os.getppid(), "flock": False}))  # an older version is alive
    with pytest.raises(DataError, match=f"in use by process {os.getppid()}"):
        RunFolder(tmp_path)
    (tmp_path / LOCK).write_text(json.dumps({**held, "host": "elsewhere"}))
    with pytest.raises(DataError, match="on elsewhere"):
        RunFolder(tmp_path)
    for left in ({**held, "pid": os.getppid()}, {"pid": 2**22 + 1, "host": held["host"]}, {}):
        (tmp_path / LOCK).write_text(json.dumps(left))  # of a process that was killed: the system has it no more
        RunFolder(tmp_path)
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
        unlock(tmp_path)
        assert not (tmp_path / LOCK).exists()


def test_overwrite_sets_the_old_plan_aside(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "verify.csv").write_text("mine")
    (tmp_path / "verify.curve.json").write_text("{}")
    folder.clear()
    assert (tmp_path / "verify-1.csv").read_text() == "mine"
    assert not (tmp_path / "verify.csv").exists()
    assert not (tmp_path / "verify.curve.json").exists()
    unlock(tmp_path)


def test_fewer_epochs_than_the_warm_up_scale_it_and_say_so():
    with pytest.warns(UserWarning, match="10 epochs: the warm-up is 4 of them, as it is 40 of 100 in the recipe"):
        assert recipe_config("closed-loop", "default", {"epochs": 10}).warm_up == 4
    assert recipe_config("closed-loop", "default", {"epochs": 50}).warm_up == 40
    assert recipe_config("closed-loop", "default", {"epochs": 10, "warm_up": 5}).warm_up == 5


def test_files_can_be_read_by_all_and_errors_name_them(tmp_path):
    def private(path):
        path.write_text("x")
        path.chmod(0o600)

    write_atomically(tmp_path / "a", private)
    (tmp_path / "b").write_text("x")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
    assert modes[0] == modes[1]

    def full(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_elsewhere(path):
        raise RuntimeError("Error while writing: No space left on device (os error 28)")

    for write in (full, full_elsewhere):
        with pytest.raises(OSError, match="No space left") as raised:
            write_atomically(tmp_path / "labels.parquet", write)
        assert raised.value.filename == str(tmp_path / "labels.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_undo_brings_empty_folders_back(tmp_path):
    source = tmp_path / "in"
    (source / "a").mkdir(parents=True)
    (source / "empty" / "inner").mkdir(parents=True)
    (source / "a" / "x.png").write_bytes(b"x")
    write_tree_undo(tmp_path / "u.zip", source, {"a/x.png": "b/x.png"}, tmp_path / "out", tmp_path / "run", whole=False)
    undo(tmp_path / "u.zip", tmp_path / "back")
    assert (tmp_path / "back" / "empty" / "inner").is_dir()
    assert (tmp_path / "back" / "a" / "x.png").read_bytes() == b"x"


def test_no_given_labels_is_said(tmp_path, labelloop):
    (tmp_path / "a.csv").write_text("x,clean_label\n1,a\n2,b\n3,\n")
    ended = labelloop("fit", tmp_path / "a.csv", "--output-dir", tmp_path / "run")
    assert ended.code == 1
    assert "clean labels, but no given labels to correct; name them with --label-column" in ended.err


def test_output_that_nobody_reads_to_the_end(tmp_path):
    path = table(tmp_path / "rows.csv", 4)
    shell = f"{' '.join(command('--help'))} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, cwd=path.parent)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plan_that_nobody_reads_to_the_end(corrected, tmp_path):
    _, run = corrected
    arguments = ["plan", str(run), "--output", str(tmp_path / "verify.csv")]
    code = (
        "import sys, labelloop.cli, labelloop.workflows.plan as plan; plan.MIN_CLEAN = 10**9;"  # no learning curve
        f"sys.exit(labelloop.cli.main({arguments!r}))"
    )
    read, write = os.pipe()
    os.close(read)  # nobody will read, as after the last line of `head`
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "verify.csv").is_file()


def test_a_run_without_a_folder_and_a_share_above_one_are_refused(tmp_path, labelloop):
    path = table(tmp_path / "rows.csv")
    ended = labelloop("fit", path)
    assert (ended.code, "name a new one with --output-dir" in ended.err) == (2, True)
    ended = labelloop("fit", path, "--dry-run", "--max-unreadable", "2")
    assert (ended.code, "--max-unreadable is a share of the images, from 0 to 1, not 2" in ended.err) == (2, True)


def test_an_interrupt_in_the_middle_of_an_import_is_one_line(tmp_path, capsys, monkeypatch):
    from labelloop import cli
    from labelloop.cli import fit

    def interrupted(options):
        raise KeyboardInterrupt

    def halfway(options):
        raise RecursionError

    monkeypatch.setattr(fit, "run", interrupted)
    monkeypatch.setattr(fit, "_kept", halfway)
    assert cli.main(["fit", str(tmp_path / "rows.csv"), "--output-dir", str(tmp_path / "run")]) == 130
    assert capsys.readouterr().err == "\nlabelloop: interrupted\n"


def test_a_lock_on_a_full_disk_names_its_file_and_leaves_none(tmp_path, monkeypatch):
    from labelloop.runs import lock

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lock.json, "dump", full)
    with pytest.raises(OSError, match=r"No space left on device.*lock"):
        lock.lock(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_can_only_be_read_names_the_file_not_a_temporary_one(tmp_path, monkeypatch):
    from labelloop.runs.files import write_atomically

    def read_only(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("pathlib.Path.unlink", read_only)
    with pytest.raises(OSError, match="Read-only") as caught:
        write_atomically(tmp_path / "rows.csv", read_only)
    assert caught.value.filename == str(tmp_path / "rows.csv")


@pytest.fixture(scope="module")
def corrected(tmp_path_factory):
    """A run of `correct` on a file with ; between its fields."""
    from labelloop.cli import main

    folder = tmp_path_factory.mktemp("corrected")
    path = table(folder / "rows.csv", separator=";")
    arguments = ["correct", path, "--output-dir", folder / "run", "--feature-columns", "x,z", "--quiet"]
    assert main(list(map(str, arguments))) == 0
    return path, folder / "run"


def test_a_semicolon_file_is_exported_and_restored_as_it_was(corrected, tmp_path, labelloop):
    path, run = corrected
    before = path.read_bytes()
    ended = labelloop("export", run, "--to", "csv", "--output", tmp_path / "out.csv")
    assert ended.code == 0, ended.err
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "id;x;z;label;clean_label;corrected_label;corrected_confidence;changed"
    assert [line.rsplit(";", 3)[0] for line in lines] == before.decode().splitlines()
    assert labelloop("undo", tmp_path / "out.csv.undo.zip", "--output", tmp_path / "back.csv").code == 0
    assert (tmp_path / "back.csv").read_bytes() == before


def test_an_export_finds_its_input_in_a_new_place(corrected, tmp_path, labelloop):
    path, run = corrected
    moved = tmp_path / "moved.csv"
    moved.write_bytes(path.read_bytes())
    kept = path.rename(path.with_name("away.csv"))
    try:
        ended = labelloop("export", run, "--to", "csv", "--output", tmp_path / "out.csv")
        assert ended.code == 1
        assert "give the input's present path with --input" in ended.err
        assert labelloop("export", run, "--to", "csv", "--output", tmp_path / "out.csv", "--input", moved).code == 0
        moved.write_text("other\n")
        ended = labelloop("export", run, "--to", "csv", "--output", tmp_path / "new.csv", "--input", moved)
        assert "has changed since the run read it" in ended.err
    finally:
        kept.rename(path)


def test_a_run_leaves_no_lock_and_counts_corrections_without_clean_rows(corrected):
    _, run = corrected
    assert not (run / LOCK).exists()
    labels = pq.read_table(run / "labels.parquet")
    assert len(labels) == 60

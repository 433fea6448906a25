"""A disk that is full in the middle of a fit: what is done stays, and the message says how to go on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from cli_tools import metrics_of, named_csv, run_json, settings, small

from labelloop.cli import main
from labelloop.runs.files import write_atomically
from labelloop.training import checkpoint

SETTINGS = ("epochs=6", "rounds=1", "learners=networks", "network_options.hidden=[8]")
FULL_IN = 4  # the epoch whose checkpoint finds no room


def failing(number: int) -> Callable[..., None]:
    """Writes files, but only the beginning of one of them."""

    def write(path: Path, content: Callable[[Path], object]) -> None:
        def some(partial: Path) -> None:
            partial.write_bytes(b"half of it")
            raise OSError(number, os.strerror(number))

        write_atomically(path, some if f"epoch-{FULL_IN:04d}" in path.name else content)

    return write


def test_a_full_disk_loses_nothing_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    named_csv(tmp_path / "rows.csv", small())

    def fit(run: str, *more: str) -> int:
        given = ["fit", tmp_path / "rows.csv", "--output-dir", tmp_path / run, *settings(SETTINGS), *more]
        return main([str(part) for part in (*given, "--no-report", "--quiet")])

    assert fit("whole") == 0
    monkeypatch.setattr(checkpoint, "write_atomically", failing(errno.ENOSPC))
    assert fit("full") == 1
    monkeypatch.undo()
    run = tmp_path / "full"
    (message,) = capsys.readouterr().err.splitlines()
    assert f"{run}/checkpoint/epoch-{FULL_IN:04d}.safetensors: no space left on device; free some space" in message
    assert message.endswith(f"the last finished epoch is kept; continue with --resume --output-dir {run}")
    assert run_json(run)["state"] == "failed"
    assert not list(run.glob(f"checkpoint/*epoch-{FULL_IN:04d}*"))
    assert fit("full", "--resume") == 0
    assert [row["epoch"] for row in metrics_of(run)] == list(range(1, 7))
    for name in ("targets.npy", "labels.parquet", "model.safetensors"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_another_error_of_the_system_says_nothing_of_that(tmp_path, capsys, monkeypatch):
    named_csv(tmp_path / "rows.csv", small())
    monkeypatch.setattr(checkpoint, "write_atomically", failing(errno.EACCES))
    given = ["fit", tmp_path / "rows.csv", "--output-dir", tmp_path / "run", *settings(SETTINGS), "--quiet"]
    assert main([str(part) for part in given]) == 1
    message = capsys.readouterr().err
    assert "check the path" in message
    assert "--resume" not in message

"""One lock, one holder: raced for by many processes, given back by the dead, and not kept by their children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from races import race

from labelloop.runs import lock as locks


def test_no_two_processes_hold_one_lock(tmp_path: Path) -> None:
    """Six processes, stale and empty files among them; `make torture` races more."""
    held, doubled = race(tmp_path, 6, 100)
    assert held >= 50
    assert doubled == 0


def test_the_lock_of_a_killed_process_is_free_though_its_child_lives(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from labelloop.runs.lock import lock\n"
        f"lock(Path({str(tmp_path)!r}))\n"
        "child = os.fork()\n"
        "print(child, flush=True) if child else None\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        time.sleep(0.2)
        holder.kill()
    try:
        locks.lock(tmp_path)
        locks.unlock(tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)


def test_without_locks_of_the_system_the_file_is_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    locks.lock(tmp_path)
    code = (
        "import sys; from pathlib import Path; from labelloop.runs import lock\n"
        f"lock.fcntl = None\nlock.lock(Path({str(tmp_path)!r}))"
    )
    assert "in use by process" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    locks.unlock(tmp_path)
    assert os.listdir(tmp_path) == []
    (tmp_path / locks.LOCK).write_text('{"pid": 4194305, "host": "' + locks.socket.gethostname() + '"}')
    os.utime(tmp_path / locks.LOCK, (0, 0))
    locks.lock(tmp_path)
    locks.unlock(tmp_path)

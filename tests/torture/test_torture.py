"""The short form of `make torture`: a few kills and failed writes of the quickest commands; the long one is marked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked import forked
from killing import everything

HERE = Path(__file__).resolve().parent


def tortured(command: str, step: int, *ways: str) -> list[dict[str, object]]:
    """A record per way, from a fork of this process, which has imported all that a command needs."""

    def do() -> None:
        for number, name in ((1, "stdout"), (2, "stderr")):  # a case redirects the numbers
            setattr(sys, name, os.fdopen(number, "w", buffering=1, closefd=False))
        everything([command], step, list(ways))

    return records(*vars(forked(do)).values())


def records(code: int, out: str, err: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert found, f"{code}: {err}"
    return found


def test_an_export_that_is_stopped_anywhere_can_be_repeated() -> None:
    """Every fifth of the events of writing, and the bytes of the repeat."""
    found = tortured("export", 5, "killed", "full", "read-only")
    assert len(found) == 3
    for one in found:
        assert one["wrong"] == []
        assert int(str(one["events"])) > 15
        assert int(str(one["stopped"])) > 3


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_an_export_without_memory_can_be_repeated() -> None:
    """With ever more memory, and with an ever later allocation that fails; in a process that has none to spare."""
    ways = ["memory", "allocation"][: 2 if find_spec("_testcapi") else 1]  # which lets an allocation fail
    words = [sys.executable, str(HERE / "killing.py"), "--step", "6", "--commands", "export", "--how", ",".join(ways)]
    ended = subprocess.run(words, capture_output=True, text=True)
    found = records(ended.returncode, ended.stdout, ended.stderr)
    assert [one["wrong"] for one in found] == [[] for _ in ways]
    assert len(ways) == 1 or int(str(found[1]["ended"])) > 0  # an export may fit into what the process has already


def test_a_correction_that_is_killed_anywhere_can_be_repeated() -> None:
    for one in tortured("correct", 12, "killed"):
        assert (one["wrong"], int(str(one["events"])) > 30) == ([], True)


def test_a_review_that_is_killed_keeps_what_it_confirmed() -> None:
    for one in tortured("review", 4, "killed"):
        assert (one["wrong"], int(str(one["events"])) > 10, int(str(one["ended"])) > 2) == ([], True, True)


def test_many_reviewers_lose_nothing_to_a_killed_server() -> None:
    words = [sys.executable, str(HERE / "reviewing.py"), "--reviewers", "8", "--kills", "2"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True).stdout.splitlines()[-1])
    assert (found["lost"], found["twice"], found["confirmed"] > 8) == (0, 0, True), found


@pytest.mark.torture
def test_every_event_of_every_command(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, str(HERE / "torture.py"), "--output", str(tmp_path / "torture.json")])
    assert ended.returncode == 0

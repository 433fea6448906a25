"""The short form of `make torture`: a few kills and failed writes of the quickest commands; the long one is marked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def tortured(*flags: str) -> list[dict[str, object]]:
    ended = subprocess.run([sys.executable, str(HERE / "killing.py"), *flags], capture_output=True, text=True)
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert found, ended.stderr
    return found


@pytest.mark.parametrize("flags", [(), ("--fails",)], ids=["killed", "failed"])
def test_an_export_that_is_stopped_anywhere_can_be_repeated(flags: tuple[str, ...]) -> None:
    """Every fifth of the events of writing, and the bytes of the repeat."""
    for one in tortured("--step", "5", "--commands", "export", *flags):
        assert one["wrong"] == []
        assert int(str(one["events"])) > 15
        assert int(str(one["stopped"])) > 3


def test_a_correction_that_is_killed_anywhere_can_be_repeated() -> None:
    for one in tortured("--step", "12", "--commands", "correct"):
        assert (one["wrong"], int(str(one["events"])) > 30) == ([], True)


@pytest.mark.torture
def test_every_event_of_every_command(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, str(HERE / "torture.py"), "--output", str(tmp_path / "torture.json")])
    assert ended.returncode == 0

"""Reviewers whose server is killed: at every event of writing, and again and again under many of them at once.

    python tests/torture/reviewing.py --reviewers 50 --kills 20

A decision counts once the server has confirmed it. Afterwards each must be in reviews.jsonl, and none twice.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from labelloop.report.review.server import NAME, TOKEN_HEADER
from labelloop.runs.reviews import read_answers

PATIENCE = 60.0  # seconds
DECISIONS = 4


def sent(place: dict[str, Any], reviewer: str, key: str, row: int) -> bool:
    """Whether the server confirmed a decision."""
    answer = {"reviewer": reviewer, "tab": "1", "decisions": [{"row": row, "action": "keep", "key": key}]}
    connection = http.client.HTTPConnection("127.0.0.1", place["port"], timeout=10)
    try:
        connection.request("POST", "/api/decide", json.dumps(answer), {TOKEN_HEADER: place["token"]})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def started(run: Path, alive: Callable[[], bool]) -> dict[str, Any] | None:
    """Where a server answers, once it does; None if its process ends before."""
    until = time.monotonic() + PATIENCE
    while alive() and time.monotonic() < until:
        try:
            place: dict[str, Any] = json.loads((run / NAME).read_text())
            socket.create_connection(("127.0.0.1", place["port"]), timeout=1).close()
            return place
        except (OSError, ValueError, KeyError):
            time.sleep(0.01)
    return None


def stored(run: Path) -> Counter[str]:
    return Counter(answer.key for answer in read_answers(run)[0])


# --- one reviewer, and a server that is stopped at an event ----------------------------------------------------------


def reviewed(run: Path, server: int, decisions: int, name: str) -> tuple[list[str], int]:
    """Sends decisions to a server in a forked process, ends it with Ctrl-C, and waits for it.

    Returns:
        The keys that were confirmed, and how the process ended.
    """
    code: list[int] = []

    def alive() -> bool:
        if not code and (ended := os.waitpid(server, os.WNOHANG))[0]:
            code.append(os.waitstatus_to_exitcode(ended[1]))
        return not code

    place, confirmed = started(run, alive), []
    if place is not None:
        keys = [f"{name}-key-{k:08d}" for k in range(decisions)]
        confirmed = [key for k, key in enumerate(keys) if sent(place, "ann", key, 20 + k)]
    until = time.monotonic() + PATIENCE
    if alive():
        os.kill(server, signal.SIGINT)  # once: a second one would end it at once
    while alive() and time.monotonic() < until:
        time.sleep(0.05)
    if alive():
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    return confirmed, code[0] if code else -1


def review_stopped(place: Path, step: int, how: str) -> dict[str, Any]:
    """A server that is stopped at every `step`-th event while decisions come in; see killing.py for the others."""
    from killing import CORRECT, begun, command, errors, rows, run

    base, case, words = place / "base", place / "case", ["review", "run"]
    base.mkdir(parents=True)
    os.chdir(base)
    rows(base)
    assert run(CORRECT) == 0, errors()
    wrong: list[str] = []
    stop, total, ended = 0, 1, 0
    while stop <= total:
        os.chdir(place)
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(base, case)
        os.chdir(case)
        server = begun(partial(command, words, stop, how, None if stop else case / "events"))
        confirmed, code = reviewed(case / "run", server, DECISIONS, "first")
        if not stop:  # the first one only counts
            total = int((case / "events").read_text())
            wrong += [] if (len(confirmed), code) == (DECISIONS, 0) else [f"review: {len(confirmed)} kept, {code}"]
        ended += len(confirmed) < DECISIONS
        if "Traceback" in errors():
            wrong.append(f"review, event {stop}: {errors()[-300:]}")
        again, code = reviewed(case / "run", begun(partial(command, words)), DECISIONS, "first")
        there = stored(case / "run")
        if set(confirmed) - there.keys() or len(again) != DECISIONS or code != 0 or any(n > 1 for n in there.values()):
            wrong.append(
                f"review, event {stop}: {len(confirmed)} confirmed, {dict(there)} stored, then {again}, {code}"
            )
        stop += 1 if not stop else step
    return {
        "command": "review",
        "events": total,
        "stopped": len(range(1, total + 1, step)),
        "ended": ended,
        "wrong": wrong,
    }


# --- many reviewers, and a server that is killed ---------------------------------------------------------------------


@dataclass
class Crowd:
    """Many reviewers at one server, which may go and come back at the same place.

    Attributes:
        run: The run folder.
        rows: How many rows it has.
        confirmed: The keys of decisions that the server confirmed.
        sending: How often a decision was sent.
    """

    run: Path
    rows: int
    confirmed: list[str] = field(default_factory=list)
    sending: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def review(self, number: int) -> None:
        """One reviewer: sends a decision again until it is confirmed, then the next one."""
        for k in range(self.rows):
            key, row = f"reviewer-{number}-{k:06d}", (k * 7 + number) % self.rows
            while not self.over.is_set():
                self.sending += 1
                try:
                    place = json.loads((self.run / NAME).read_text())
                except (OSError, ValueError):  # between two servers
                    place = None
                if place is not None and sent(place, f"reviewer {number}", key, row):
                    self.confirmed.append(key)
                    break
                time.sleep(0.05)


def crowd(run: Path, rows: int, reviewers: int, kills: int) -> dict[str, Any]:
    """What many reviewers lost to a server that is killed again and again."""
    people = Crowd(run, rows)
    threads = [threading.Thread(target=people.review, args=(number,)) for number in range(reviewers)]
    for thread in threads:
        thread.start()
    command = [sys.executable, "-m", "labelloop", "review", str(run)]
    for kill in range(kills + 1):
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert started(run, partial(_runs, server)) is not None
        time.sleep(0.3 + 0.1 * (kill % 5))
        if kill == kills:
            people.over.set()
            for thread in threads:
                thread.join()
        server.kill()
        server.wait()
    there = stored(run)
    return {
        "reviewers": reviewers,
        "kills": kills,
        "confirmed": len(people.confirmed),
        "sent": people.sending,
        "lost": len(set(people.confirmed) - there.keys()),
        "twice": sum(times > 1 for times in there.values()),
    }


def _runs(server: subprocess.Popen[bytes]) -> bool:
    return server.poll() is None


def crowded(reviewers: int, kills: int) -> dict[str, Any]:
    """`crowd` on a run of its own."""
    from killing import CORRECT, COUNT, rows

    from labelloop.cli import main

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as made:
        try:
            os.chdir(made)
            rows(Path(made))
            assert main(CORRECT) == 0
            return crowd(Path(made) / "run", COUNT, reviewers, kills)
        finally:
            os.chdir(here)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviewers", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    found = crowded(options.reviewers, options.kills)
    print(json.dumps(found))
    sys.exit(bool(found["lost"] or found["twice"] or not found["confirmed"]))

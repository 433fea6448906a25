"""Many processes that want one lock: each that gets it looks whether it is alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RACER = """
import os, random, sys, time
from pathlib import Path
from labelloop.errors import DataError
from labelloop.runs import lock as locks

place, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if len(sys.argv) > 4:
    locks.fcntl = None
draw, held, doubled = random.Random(seed), 0, 0
for _ in range(rounds):
    if draw.random() < 0.2:  # what a killed process may leave: an empty file, or one that names a dead process
        try:
            handle = os.open(place / locks.LOCK, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            host = locks.socket.gethostname().encode()
            os.write(handle, draw.choice([b"", b'{"pid": 4194305, "host": "%s"}' % host]))
            os.close(handle)
        except FileExistsError:
            pass
    try:
        locks.lock(place)
    except DataError:
        time.sleep(draw.random() * 0.003)
        continue
    try:
        inside = os.open(place / "inside", os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        doubled += 1
    else:
        held += 1
        time.sleep(draw.random() * 0.001)
        os.close(inside)
        os.unlink(place / "inside")
    locks.unlock(place)
print(held, doubled)
"""


def race(place: Path, processes: int, rounds: int, *flags: str) -> tuple[int, int]:
    """How often the lock was held, and how often by two."""
    command = [sys.executable, "-c", RACER, str(place), str(rounds)]
    started = [
        subprocess.Popen([*command, str(seed), *flags], stdout=subprocess.PIPE, env=os.environ)
        for seed in range(processes)
    ]
    held, doubled = 0, 0
    for one in started:
        words = one.communicate()[0].split()
        assert one.returncode == 0
        held, doubled = held + int(words[0]), doubled + int(words[1])
    return held, doubled

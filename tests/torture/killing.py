"""Kills, fails or starves every command at every event, repeats it, and compares the bytes with a whole run.

    python tests/torture/killing.py --step 1 --commands correct,refit

One process imports everything and forks for every run, since importing takes longer than a run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from events import KILLED, Events
from reviewing import review_stopped

from labelloop.cli import main, memory

COUNT = 60
TINY = ("epochs=2", "warm_up=1", "correct_every=1", "network=mlp", "augment=none", "network_options.hidden=[4]")
PAPER = ["--recipe", "paper", "--quiet", "--no-report", *(f"--set={text}" for text in TINY)]
MEMORY_STEP, MEMORY_STEPS, SLOWEST = 2**20, 48, 30  # bytes, how many steps, and seconds
ALLOCATIONS = 24  # from the thousandth to the ten millionth
WITHOUT = {"run/preview.parquet", "new/preview.parquet", "run/manifest.json", "new/manifest.json"}  # for the report
TIMES = ("seconds", "rows_per_second", "peak_memory_mib", "phases")  # of metrics.jsonl, which differ from run to run


@dataclass(frozen=True)
class Command:
    """A command, and how it is repeated after it was killed.

    Attributes:
        words: The arguments, in the folder of a case.
        prepare: Commands that come before.
        again: The arguments of the repeat, if they differ: those of `fit --resume`.
    """

    words: list[str]
    prepare: tuple[str, ...] = ()
    again: list[str] | None = None


CORRECT = ["correct", "rows.csv", "--output-dir", "run", "--quiet", "--no-report"]
COMMANDS = {
    "correct": Command(CORRECT),
    "correct --overwrite": Command([*CORRECT, "--overwrite"], ("correct",)),
    "refit": Command(["refit", "run", "--clean-file", "clean.csv", "--output-dir", "new", "--no-report"], ("correct",)),
    "export": Command(["export", "run", "--to", "csv", "--output", "out.csv"], ("correct",)),
    "export --to issues": Command(["export", "run", "--to", "issues", "--output", "issues.csv"], ("correct",)),
    "undo": Command(["undo", "out.csv.undo.zip", "--output", "back.csv"], ("correct", "export")),
    "report": Command(["report", "run"], ("correct",)),
    "plan": Command(["plan", "run"], ("correct",)),
    "noise": Command(["noise", "rows.csv", "--noise", "symmetric", "--output", "noisy.parquet"]),
    "embed": Command(["embed", "rows.csv", "--text", "id", "--encoder", "words", "--output", "words.npz", "--quiet"]),
    "fit": Command(["fit", "rows.csv", "--output-dir", "fit", *PAPER], again=["--resume"]),
    "predict": Command(["predict", "fit", "rows.csv", "--output", "predicted.csv"], ("fit",)),
    "export --to model": Command(["export", "fit", "--to", "model", "--output", "model"], ("fit",)),
}


def rows(folder: Path) -> None:
    def name(k: int) -> str:
        return "cat" if k % 2 else "dog"

    lines = [
        f"r{k},{k % 2 * 4 + k % 5 * 0.1:.1f},{k % 3 * 0.5:.1f},{name(k)},{name(k) if k < 20 else ''}"
        for k in range(COUNT)
    ]
    (folder / "rows.csv").write_text("\n".join(["id,a,b,label,clean_label", *lines]) + "\n")
    (folder / "clean.csv").write_text("id,clean_label\n" + "".join(f"r{k},{name(k)}\n" for k in range(20, 40)))


def forked(do: Callable[[], int]) -> int:
    """Runs a function in a fork, silently, and returns its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(begun(do), 0)[1])


def begun(do: Callable[[], int]) -> int:
    """The process of a fork that runs a function, silently."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            errors = os.open(os.environ["TORTURE_ERRORS"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(errors, 2)
            code = do()
        except BaseException:  # what escapes is what is looked for
            import traceback

            traceback.print_exc()
            code = 70
        finally:
            os._exit(code)
    return child


def preload(words: list[str]) -> None:
    """Imports in this process what a command imports, so that every fork has it at once."""
    place = Path("modules")

    def do() -> int:
        code = main(words)
        place.write_text(
            "\n".join(name for name in sys.modules if name.split(".")[0] in ("labelloop", "sklearn", "scipy"))
        )
        return code

    forked(do)
    for name in place.read_text().splitlines() if place.exists() else []:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    place.unlink(missing_ok=True)


def run(words: list[str], stop: int = 0, how: str = "killed", report: Path | None = None) -> int:
    return forked(partial(command, words, stop, how, report))


def command(words: list[str], stop: int = 0, how: str = "killed", report: Path | None = None) -> int:
    """A command that is stopped at an event, in a process of its own; "memory": that gets `stop` steps of it;
    "allocation": of which one fails, the later the higher `stop` is.
    """
    if how == "memory" and stop:
        signal.alarm(SLOWEST)  # a command that waits for memory for ever is found, too
        memory.PATIENCE = 2.0
        most = addresses() + stop * MEMORY_STEP
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        return main(words)
    if how == "allocation" and stop:
        testcapi = importlib.import_module("_testcapi")  # of CPython: the n-th allocation of an object fails, once

        signal.alarm(SLOWEST)
        resource.setrlimit(resource.RLIMIT_AS, (2**46, 2**46))  # so that the command is watched
        testcapi.set_nomemory(number := int(1000 * 10 ** (stop / 6)), number + 1)
        return main(words)
    with Events(stop, how) as events:
        code = main(words)
    if report is not None:
        report.write_bytes(str(events.count).encode())
    return code


def addresses() -> int:
    """The bytes of addresses that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def content(folder: Path) -> dict[str, Any]:
    """What a folder holds, without what differs from run to run."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name in ("events",) or ".labelloop.lock" in name:
            continue
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                found[name] = {member: archive.read(member) for member in archive.namelist()}
        elif path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{key: value for key, value in line.items() if not _is_time(key)} for line in lines]
        elif path.name == "manifest.json":
            files = json.loads(path.read_text())["files"]
            found[name] = {key: value for key, value in files.items() if key != "metrics.jsonl"}
        elif path.name != "state.json":  # its files are compared, and it lists them
            found[name] = path.read_bytes()
    return found


def _is_time(key: str) -> bool:
    return any(word in key for word in TIMES)


def torture(name: str, place: Path, step: int, how: str) -> dict[str, Any]:
    """Stops one command at every `step`-th event, and counts what came back."""
    one = COMMANDS[name]
    for made in (place / "base", place / "case"):
        shutil.rmtree(made, ignore_errors=True)
    case = place / "case"
    _new(case)
    preload(COMMANDS[(*one.prepare, name)[0]].words)
    _new(case)
    for before in one.prepare:
        assert run(COMMANDS[before].words) == 0, (name, before, errors())
    os.chdir(place)
    shutil.copytree(case, place / "base", symlinks=True)
    os.chdir(case)
    assert run(one.words, report=case / "events") == 0, (name, errors())
    total = {"memory": MEMORY_STEPS, "allocation": ALLOCATIONS}.get(how) or int((case / "events").read_text())
    wanted = content(case)
    wrong: list[str] = []
    ended = 0
    for stop in range(1, total + 1, step):
        os.chdir(place)
        shutil.rmtree(case)
        shutil.copytree(place / "base", case, symlinks=True)
        os.chdir(case)
        code = run(one.words, stop, how)
        first, ended = errors(), ended + (code != 0)
        wrong += _first_wrong(name, stop, code, how, first)
        code = _again(one, case)
        if code != 0 and not (how != "killed" and content(case) == wanted):
            wrong.append(f"{name}, event {stop}: the repeat ended with {code}: {errors()[-300:]}")
        elif content(case) != wanted:
            now = content(case)
            differ = {key for key in {*now, *wanted} if now.get(key) != wanted.get(key)}
            if not _told(differ, first):
                wrong.append(f"{name}, event {stop}: other bytes in {sorted(differ)}")
    return {"command": name, "events": total, "stopped": len(range(1, total + 1, step)), "ended": ended, "wrong": wrong}


def _new(case: Path) -> None:
    os.chdir("/")
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    os.chdir(case)
    rows(case)


def _first_wrong(name: str, stop: int, code: int, how: str, said: str) -> Iterator[str]:
    allowed = {KILLED, 0} if how == "killed" else {1, 0}
    if code not in allowed or "Traceback" in said:
        yield f"{name}, event {stop}: the first ended with {code}: {said[-300:]}"


def _told(missing: set[str], said: str) -> bool:
    """Whether a command that ended well said that it went on without these files, which nothing needs."""
    if missing <= WITHOUT:
        return "could not be written" in said
    return all(name.startswith("cache/") for name in missing) and "are not cached for the next run" in said


def _again(one: Command, case: Path) -> int:
    words = one.words
    if one.again is not None and (case / "fit" / "run.json").exists():
        words = [*words, *one.again]
    code = run(words)
    done = "already holds a run" in errors() or " exists" in errors()
    return 0 if code == 1 and done else code  # stopped after its last word was written


def errors() -> str:
    return Path(os.environ["TORTURE_ERRORS"]).read_text(errors="replace")


def everything(names: list[str], step: int, ways: list[str]) -> list[dict[str, Any]]:
    """One record per way and command."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        os.environ["TORTURE_ERRORS"] = str(place / "errors.txt")
        os.environ["LABELLOOP_CACHE"] = "cache"  # of the case
        found = []
        for how, name in itertools.product(ways, names):
            if name == "review":
                found.append(review_stopped(place / "review", step, how))
            else:
                found.append(torture(name, place / "work", step, how))
            print(json.dumps(found[-1]), flush=True)
        os.chdir("/")
        return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--commands", default=",".join((*COMMANDS, "review")))
    parser.add_argument("--how", default="killed", help="killed, full, read-only, memory, allocation, or several")
    options = parser.parse_args()
    sys.exit(any(one["wrong"] for one in everything(options.commands.split(","), options.step, options.how.split(","))))

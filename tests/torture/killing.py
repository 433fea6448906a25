"""Kills, or fails, every command at every event of writing, repeats it, and compares the bytes with a whole run.

    python tests/torture/killing.py --step 1 --commands correct,refit

One process imports everything and forks for every run, since importing takes longer than a run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from events import KILLED, Events

from labelloop.cli import main

COUNT = 60
TINY = ("epochs=2", "warm_up=1", "correct_every=1", "network=mlp", "augment=none", "network_options.hidden=[4]")
PAPER = ["--recipe", "paper", "--quiet", "--no-report", *(f"--set={text}" for text in TINY)]
TIMES = ("seconds", "rows_per_second", "peak_memory_mib", "phases")  # of metrics.jsonl, which differ from run to run


@dataclass(frozen=True)
class Command:
    """A command, and how it is repeated after it was killed.

    Attributes:
        words: The arguments, in the folder of a case.
        prepare: Commands that come before.
        again: The arguments of the repeat, if they differ: those of `fit --resume`.
        harmless: Whether a failed write may end in success, with a word: a report is no result.
    """

    words: list[str]
    prepare: tuple[str, ...] = ()
    again: list[str] | None = None
    harmless: bool = False


CORRECT = ["correct", "rows.csv", "--output-dir", "run", "--quiet", "--no-report"]
COMMANDS = {
    "correct": Command(CORRECT),
    "correct --overwrite": Command([*CORRECT, "--overwrite"], ("correct",)),
    "refit": Command(["refit", "run", "--clean-file", "clean.csv", "--output-dir", "new", "--no-report"], ("correct",)),
    "export": Command(["export", "run", "--to", "csv", "--output", "out.csv"], ("correct",)),
    "export --to issues": Command(["export", "run", "--to", "issues", "--output", "issues.csv"], ("correct",)),
    "undo": Command(["undo", "out.csv.undo.zip", "--output", "back.csv"], ("correct", "export")),
    "report": Command(["report", "run"], ("correct",), harmless=True),
    "fit": Command(["fit", "rows.csv", "--output-dir", "fit", *PAPER], again=["--resume"]),
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
    child = os.fork()
    if child == 0:
        code = 70
        try:
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
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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


def run(words: list[str], stop: int = 0, fails: bool = False, report: Path | None = None) -> int:
    def do() -> int:
        with Events(stop, fails) as events:
            code = main(words)
        if report is not None:
            report.write_bytes(str(events.count).encode())
        return code

    return forked(do)


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


def torture(name: str, place: Path, step: int, fails: bool) -> dict[str, Any]:
    """Stops one command at every `step`-th event, and counts what came back."""
    command = COMMANDS[name]
    for made in (place / "base", place / "case"):
        shutil.rmtree(made, ignore_errors=True)
    case = place / "case"
    case.mkdir(parents=True)
    os.chdir(case)
    rows(case)
    preload(COMMANDS[(*command.prepare, name)[0]].words)
    for made in (case / "run", case / "fit"):
        shutil.rmtree(made, ignore_errors=True)
    for before in command.prepare:
        assert run(COMMANDS[before].words) == 0, (name, before, errors())
    os.chdir(place)
    shutil.copytree(case, place / "base", symlinks=True)
    os.chdir(case)
    assert run(command.words, report=case / "events") == 0, (name, errors())
    total = int((case / "events").read_text())
    wanted = content(case)
    wrong: list[str] = []
    for stop in range(1, total + 1, step):
        os.chdir(place)
        shutil.rmtree(case)
        shutil.copytree(place / "base", case, symlinks=True)
        os.chdir(case)
        code = run(command.words, stop, fails)
        first = errors()
        wrong += _first_wrong(name, stop, code, fails, command.harmless, first)
        code = _again(command, case)
        if code != 0 and not (fails and content(case) == wanted):
            wrong.append(f"{name}, event {stop}: the repeat ended with {code}: {errors()[-300:]}")
        elif content(case) != wanted:
            now = content(case)
            differ = sorted(key for key in {*now, *wanted} if now.get(key) != wanted.get(key))
            wrong.append(f"{name}, event {stop}: other bytes in {differ}")
    return {"command": name, "events": total, "stopped": len(range(1, total + 1, step)), "wrong": wrong}


def _first_wrong(name: str, stop: int, code: int, fails: bool, harmless: bool, said: str) -> Iterator[str]:
    allowed = {1, 0} if fails else {KILLED, 0}
    if code not in allowed or "Traceback" in said:
        yield f"{name}, event {stop}: the first ended with {code}: {said[-300:]}"


def _again(command: Command, case: Path) -> int:
    words = command.words
    if command.again is not None and any((case / "fit" / one).exists() for one in ("run.json",)):
        words = [*words, *command.again]
    code = run(words)
    return 0 if code == 1 and "already holds a run" in errors() else code  # stopped after its last word was written


def errors() -> str:
    return Path(os.environ["TORTURE_ERRORS"]).read_text(errors="replace")


def everything(names: list[str], step: int, fails: bool) -> list[dict[str, Any]]:
    """One record per command."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        os.environ["TORTURE_ERRORS"] = str(place / "errors.txt")
        found = []
        for name in names:
            found.append(torture(name, place / "work", step, fails))
            print(json.dumps(found[-1]), flush=True)
        os.chdir("/")
        return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--fails", action="store_true")
    options = parser.parse_args()
    sys.exit(any(one["wrong"] for one in everything(options.commands.split(","), options.step, options.fails)))

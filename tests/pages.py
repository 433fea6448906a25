"""Runs a Markdown page as its reader would: every block in order, in one folder, names kept from one to the next."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from forked import Ended, forked

ROOT = Path(__file__).resolve().parents[1]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: .+ -->\n$")  # the line before a block; a reason is required


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. `line` is where its text starts."""

    language: str
    text: str
    line: int
    run: bool


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page in order. Those in sh and python are run, unless a line before says why not."""
    found = []
    for match in FENCE.finditer(text):
        before, language = text[: match.start()], match[1]
        run = language in ("sh", "python") and NOT_RUN.search(before) is None
        found.append(Block(language, match[2], before.count("\n") + 2, run))
    return found


def script_of(page: str, text: str) -> str:
    """A page as one program, so that names and imports last from block to block and errors name the page's line."""
    steps = []
    for block in blocks_of(text):
        if block.run and block.language == "python":
            steps.append(f"exec(compile({chr(10) * (block.line - 1) + block.text!r}, {page!r}, 'exec'))")
        elif block.run:
            steps += [f"# {page}:{block.line}", *(f"_{kind}({code!r})" for kind, code in commands_of(block.text))]
    return "\n".join(["from pages import labelloop as _labelloop, shell as _shell", *steps])


def commands_of(text: str) -> list[tuple[str, str]]:
    """A block of shell in parts: a plain `labelloop` command, or what stands between two of them.

    A plain command runs inside the page's own process: starting Python and torch once more would take seconds.
    """
    parts: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("labelloop ") and not re.search(r"[|<>&;$`\\]|\*", line.split(" #")[0]):
            parts.append(("labelloop", line))
        elif parts and parts[-1][0] == "shell":
            parts[-1] = ("shell", f"{parts[-1][1]}\n{line}")
        elif line.strip():
            parts.append(("shell", line))
    return parts


def labelloop(line: str) -> None:
    """Runs a command of the page in this process; fails if it does."""
    from labelloop.cli import main

    with warnings.catch_warnings():
        try:
            code: str | int | None = main(shlex.split(line, comments=True)[1:])
        except SystemExit as end:  # argparse
            code = end.code
    if code:
        raise RuntimeError(f"exit code {code}: {line}")


def shell(text: str) -> None:
    """Runs other lines of the page in bash; fails if any of them does."""
    subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)


def run_page(path: Path, folder: Path) -> Ended:
    """Runs a page in a folder, with the `labelloop` of this Python."""
    script = script_of(path.name, path.read_text(encoding="utf-8"))

    def do() -> None:
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        sys.path.insert(0, "")  # as in a shell: modules of the page's folder can be imported
        warnings.resetwarnings()
        exec(compile(script, "<page>", "exec"), {"__name__": "__main__"})

    return forked(do, folder)

"""Runs a Markdown page as its reader would: every block in order, in one folder, names kept from one to the next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 300  # seconds; a page takes a few, more on a busy machine

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
    steps = [
        f"exec(compile({chr(10) * (block.line - 1) + block.text!r}, {page!r}, 'exec'))"
        if block.language == "python"
        else f"# {page}:{block.line}\nsubprocess.run(['bash', '-euo', 'pipefail', '-c', {block.text!r}], check=True)"
        for block in blocks_of(text)
        if block.run
    ]
    return "\n".join(["import subprocess", *steps])


def run_page(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a page in a folder, with the `labelloop` of this Python."""
    script = script_of(path.name, path.read_text(encoding="utf-8"))
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

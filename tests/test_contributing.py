"""The examples of CONTRIBUTING.md, pasted as they stand: one file and one line each pass lint, types and contracts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from import_rules import arrows, methods_apart, no_torch, whole_names
from size_rules import file_names, functions, small_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(
    r"<!-- example: (\w+) -->\n`src/labelloop/([\w/]+\.py)`:\n\n```python\n(.*?)```\n\n"
    r"In `(\w+)` \(`([\w/]+\.py)`\): `([^`]+)`",
    flags=re.DOTALL,
)
# What the tools must refuse, or they looked at nothing.
REFUSED = "import os\ndef wrong( x: int ) -> str:\n    return x\n"


@dataclass(frozen=True)
class Example:
    """A file, and its line in a table.

    Attributes:
        file: Where it goes, below src/labelloop.
        code: What it holds.
        table: The name of the table.
        place: The file of the table.
        line: The entry: `"name": value`.
    """

    file: str
    code: str
    table: str
    place: str
    line: str

    @property
    def name(self) -> str:
        return self.line.split('"')[1]


EXAMPLES = {kind: Example(*rest) for kind, *rest in EXAMPLE.findall(PAGE)}
KINDS = list(EXAMPLES)


def paste(example: Example, package: Path) -> None:
    """Writes the file, its line at the end of the table, and the import of what the line names."""
    (package / example.file).write_text(example.code, encoding="utf-8")
    place = package / example.place
    before, start, rest = re.split(rf"(\n{example.table}\b[^\n]*= {{\n)", place.read_text(encoding="utf-8"))
    entries, end, after = rest.partition("\n}\n")
    value = example.line.split(": ")[1]
    if value.isidentifier():
        module = example.file.removesuffix(".py").replace("/", ".")
        before = before.replace("\nfrom labelloop.", f"\nfrom labelloop.{module} import {value}\nfrom labelloop.", 1)
    place.write_text(f"{before}{start}{entries}\n    {example.line},{end}{after}", encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all examples, and a file beside them that the tools must refuse."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "src" / "labelloop", folder / "src" / "labelloop")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for kind in KINDS:
        paste(EXAMPLES[kind], folder / "src" / "labelloop")
    (folder / "refused.py").write_text(REFUSED, encoding="utf-8")
    return folder


def run(project: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A module of Python in a process of its own that sees the copy."""
    surroundings = os.environ | {"PYTHONPATH": str(project / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=cwd or project, env=surroundings, capture_output=True, text=True)


def pasted(project: Path) -> list[str]:
    """The files of the examples, as paths from the project."""
    return [f"src/labelloop/{EXAMPLES[kind].file}" for kind in KINDS]


def test_the_page_has_one_of_each():
    assert list(EXAMPLES) == ["noise", "method", "learner", "command"]
    assert PAGE.count("<!-- example:") == len(EXAMPLES)
    assert [example.table for example in EXAMPLES.values()] == ["NOISES", "METHODS", "LEARNERS", "COMMANDS"]


@pytest.mark.parametrize("command", [("check", "--output-format=concise"), ("format", "--check")], ids=["lint", "form"])
def test_they_pass_lint(project, command):
    found = run(project, "ruff", *command, *pasted(project))
    assert found.returncode == 0, found.stdout
    assert run(project, "ruff", *command, "refused.py").returncode == 1


def test_they_pass_the_types(project):
    if (ROOT / ".mypy_cache").is_dir():  # left by `make check`: all but the examples was read already
        shutil.copytree(ROOT / ".mypy_cache", project / "cache")
    found = run(project, "mypy", "--cache-dir", str(project / "cache"), *pasted(project), "refused.py")
    errors = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, found.stdout + found.stderr
    assert errors[0].startswith("refused.py:3: error: Incompatible return value")


@pytest.mark.parametrize("rule", [arrows, methods_apart, no_torch, whole_names, functions, small_files, file_names])
def test_they_keep_the_rules(project, rule):
    found = rule(project / "src" / "labelloop")
    assert found.looked_at > 10
    assert found.wrong == []


# The tests of each contract, and how many there are at least for one name.
CONTRACTS = {
    "noise": ("noise/test_noise_every.py", 5),
    "method": ("bench/test_contract.py", 8),
    "learner": ("relabel/test_learner_every.py", 4),
}


@pytest.fixture(scope="module")
def outcomes(project: Path) -> str:
    """What came of the contracts on the copy, one line for every test with the name of an example."""
    names = [f"({' and '.join(EXAMPLES[kind].name.split())})" for kind in CONTRACTS]
    words = ("-p", "no:cacheprovider", "-p", "no:xdist", "-k", " or ".join(names), "-vv")
    return run(project, "pytest", *words, *(f"tests/{file}" for file, _ in CONTRACTS.values()), cwd=ROOT).stdout


@pytest.mark.parametrize("kind", CONTRACTS)
def test_it_keeps_the_contract(outcomes, kind):
    (file, least), name = CONTRACTS[kind], EXAMPLES[kind].name
    ended = re.findall(rf"^tests/{file}::.*{name}.* ([A-Z]+) +\[ *\d+%\]$", outcomes, flags=re.MULTILINE)
    assert len(ended) >= least, outcomes
    assert set(ended) <= {"PASSED", "SKIPPED"}, outcomes


def test_the_command_works(project, tmp_path):
    (tmp_path / "model.json").write_text(json.dumps({"classes": ["ant", "bee"]}))
    name = EXAMPLES["command"].name
    assert run(project, "labelloop", name, str(tmp_path)).stdout == "ant\nbee\n"
    assert name in run(project, "labelloop", "--help").stdout

"""Who may import whom, and what must not be imported at all. Every rule counts what it saw, and is shown to fail."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from import_rules import (
    ALLOWED,
    SHARED,
    arrows,
    configs_unasked,
    files,
    imports,
    methods_apart,
    no_torch,
    one_owner,
    ranks_in_one_file,
    room_of,
    tree_of,
    whole_names,
)
from size_rules import EXCEPTIONS, MOST_FILES, MOST_LINES, file_names, file_sizes, functions, house, small_files

SOURCE = Path(__file__).resolve().parents[1] / "src" / "labelloop"

# A rule, and how much it must have looked at.
RULES = {
    "arrows": (arrows, 500),
    "methods_apart": (methods_apart, 10),
    "no_torch": (no_torch, 50),
    "whole_names": (whole_names, 1000),
    "one_owner": (one_owner, 1000),
    "ranks_in_one_file": (ranks_in_one_file, 100),
    "configs_unasked": (configs_unasked, 100),
    "functions": (functions, 1000),
    "file_sizes": (file_sizes, 100),
    "small_files": (small_files, 100),
    "file_names": (file_names, 100),
    "house": (house, 100),
}
LIMITED = {"functions": functions, "file_sizes": file_sizes, "small_files": small_files}

# A rule, a file, and code that breaks the rule there.
MUTATIONS = [
    ("arrows", "noise/symmetric.py", "from labelloop.data.table import Table"),
    ("arrows", "noise/symmetric.py", "from labelloop import data"),
    ("arrows", "data/table.py", "import labelloop.noise.draw"),
    ("arrows", "data/table.py", "import labelloop.noise as n"),
    ("arrows", "data/table.py", "def read():\n    from labelloop.noise import NOISES\n    return NOISES"),
    ("arrows", "data/table.py", "from importlib import import_module\nimport_module('labelloop.noise')"),
    ("arrows", "data/table.py", "from importlib import import_module as load\nload('labelloop.noise')"),
    ("arrows", "data/table.py", "import importlib\nimportlib.import_module(name='labelloop.noise')"),
    ("arrows", "data/table.py", "__import__('labelloop.noise')"),
    ("arrows", "data/readers/csv.py", "from ...noise import NOISES"),
    ("arrows", "data/table.py", "from importlib import import_module\nimport_module('..noise', __package__)"),
    ("arrows", "data/table.py", "import labelloop\nlabelloop.noise.draw.draw()"),
    ("arrows", "data/table.py", "import typing\nif typing.TYPE_CHECKING:\n    from labelloop.noise import Noisy"),
    ("arrows", "bench/grid.py", "from labelloop.workflows.fit import fit_table"),
    ("arrows", "bench/grid.py", "from labelloop.workflows import fit"),
    ("arrows", "bench/grid.py", "from labelloop.methods import METHODS"),
    ("arrows", "runs/folder.py", "from labelloop.training.runtime import Runtime"),
    ("arrows", "report/page.py", "from labelloop.methods.closed_loop.one_correction import judge"),
    ("arrows", "methods/glc.py", "from labelloop.runs.folder import RunFolder"),
    ("arrows", "relabel/guard.py", "from labelloop.methods import METHODS"),
    ("arrows", "relabel/guard.py", "from labelloop.methods import closed_loop, glc"),
    ("arrows", "estimator.py", "from labelloop.methods import METHODS"),
    ("arrows", "attic/old.py", "import numpy"),
    ("methods_apart", "methods/glc.py", "from labelloop.methods import fasten"),
    ("methods_apart", "methods/glc.py", "from labelloop.methods import METHODS"),
    ("methods_apart", "methods/glc.py", "from labelloop.methods.fasten import fit"),
    ("methods_apart", "methods/glc.py", "from . import fasten"),
    ("methods_apart", "methods/glc.py", "from .fasten import fit"),
    ("methods_apart", "methods/closed_loop/loop.py", "from ..fasten import fit"),
    ("methods_apart", "methods/glc.py", "def fit():\n    import labelloop.methods.fasten"),
    ("methods_apart", "methods/glc.py", "import importlib\nimportlib.import_module('labelloop.methods.fasten')"),
    ("methods_apart", "methods/glc.py", "__import__('labelloop.methods.fasten')"),
    ("no_torch", "runs/folder.py", "import torch"),
    ("no_torch", "runs/folder.py", "def read():\n    from torch import nn"),
    ("no_torch", "report/page.py", "from importlib import import_module\nimport_module('torch.nn')"),
    ("whole_names", "methods/glc.py", "from .bilevel import step"),
    ("whole_names", "methods/glc.py", "from importlib import import_module\nimport_module('labelloop.' + name)"),
    ("whole_names", "methods/glc.py", "__import__(f'labelloop.{name}')"),
    ("one_owner", "export/csv.py", "from pathlib import Path\nPath('run').joinpath('run.json').read_text()"),
    ("one_owner", "report/page.py", "FILE = 'labels.parquet'"),
    ("ranks_in_one_file", "methods/glc.py", "import torch.distributed as dist"),
    ("ranks_in_one_file", "methods/glc.py", "from torch import distributed"),
    ("ranks_in_one_file", "methods/glc.py", "import torch\ntorch.distributed.all_reduce(x)"),
    ("ranks_in_one_file", "training/runtime.py", "from torch.distributed import all_reduce"),
    ("ranks_in_one_file", "cli/fit.py", "import os\nos.environ.get('RANK')"),
    ("ranks_in_one_file", "bench/worker.py", "import os\nos.environ['SLURM_PROCID']"),
    ("configs_unasked", "workflows/fit.py", "def go(c):\n    return isinstance(c, ClosedLoopConfig)"),
    ("configs_unasked", "workflows/fit.py", "isinstance(c, (int, closed_loop.Config))"),
    ("configs_unasked", "workflows/fit.py", "isinstance(c, closed_loop.Config | None)"),
    ("configs_unasked", "bench/grid.py", "from labelloop.methods.glc import Config as Glc\nissubclass(kind, Glc)"),
    ("configs_unasked", "export/export.py", "type(c) is Config"),
    ("configs_unasked", "export/export.py", "match c:\n    case Config():\n        pass"),
    ("functions", "bench/grid.py", "def run(a, b, c, d, e, f, *, g, h, i): ..."),
    ("functions", "workflows/plan.py", "def plan():\n" + "    pass\n" * 60),
    ("functions", "methods/glc.py", "async def fit():\n" + "    pass\n" * 60),
    ("functions", "data/table.py", "class Table:\n    def read(self, a, b, c, d, e, f, g, h, i): ..."),
    ("file_sizes", "noise/draw.py", "x = 1\n" * 301),
    ("small_files", "report/page.py", "import labelloop.report.facts"),
    ("small_files", "report/page.py", "from labelloop.report import facts"),
    ("small_files", "report/page.py", "from labelloop.report.facts import FACTS"),
    ("small_files", "noise/draw.py", "from labelloop.report.facts import FACTS"),
    ("small_files", "noise/draw.py", "from labelloop.noise.pair import pair"),
    ("file_names", "data/utils.py", ""),
    ("file_names", "training/helpers.py", ""),
    ("house", "data/table.py", "x = 1\n" * MOST_LINES),
]  # fmt: skip

# What looks like a breach and is none.
INNOCENT = [
    ("arrows", "bench/grid.py", "import labelloop.workflows.compose\nfrom labelloop.workflows import compose"),
    ("arrows", "data/table.py", "from labelloop.errors import DataError\nimport numpy\n'labelloop.noise'"),
    ("methods_apart", "methods/closed_loop/loop.py", "from labelloop.methods.closed_loop.config import Config"),
    ("methods_apart", "methods/l2b.py", "from labelloop.methods.bilevel import step"),
    ("methods_apart", "methods/__init__.py", "from labelloop.methods import METHODS"),
    ("no_torch", "training/epoch.py", "import torch"),
    ("whole_names", "models/__init__.py", "from importlib import import_module\nimport_module(name)"),
    ("one_owner", "runs/folder.py", "RUN = 'run.json'"),
    ("one_owner", "export/csv.py", "MESSAGE = 'it has no run.json; give another folder'"),
    ("ranks_in_one_file", "training/ranks.py", "import torch.distributed as dist\ndist.all_reduce(x)\n'RANK'"),
    ("ranks_in_one_file", "methods/glc.py", "import torch\nRANKING = 'the RANK of a matrix'\ntorch.distributions.Beta"),
    ("configs_unasked", "methods/cross_entropy.py", "isinstance(c, FineTuneConfig)"),
    ("configs_unasked", "workflows/fit.py", "isinstance(c, TrainingConfig)\nfrom labelloop.methods.glc import Config"),
    ("functions", "workflows/fit.py", "def fit(a, b, c, d, e, f, g, h, i): ..."),
    ("functions", "bench/grid.py", "class Grid:\n    def run(self, a, b, c, d, e, f, g, h): ..."),
    ("file_sizes", "noise/draw.py", "x = 1\n" * 300 + "\n# why\n" * 300),
    ("file_sizes", "noise/draw.py", '"""' + "What.\n" * 400 + '"""'),
    ("small_files", "noise/__init__.py", "from labelloop.noise.pair import pair"),
    ("small_files", "report/page.py", "from labelloop.report.page import own"),
    ("file_names", "data/useful.py", ""),
    ("house", "data/table.py", "x = 1\n" * (MOST_LINES - 2)),
]  # fmt: skip


def broken(rule: str, root: Path, file: str, code: str) -> list[str]:
    """What a rule says of a package with this file, beside two small ones."""
    for name, text in (("report/facts.py", "FACTS = 1\n"), ("noise/pair.py", "pair = 1\n"), (file, code)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return RULES[rule][0](root).wrong


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_every_rule(rule):
    check, least = RULES[rule]
    found = check(SOURCE)
    assert found.looked_at > least
    assert found.wrong == []


@pytest.mark.parametrize(("rule", "file", "code"), MUTATIONS)
def test_a_breach_is_seen(rule, file, code, tmp_path):
    assert len(broken(rule, tmp_path / "labelloop", file, code)) >= 1


@pytest.mark.parametrize(("rule", "file", "code"), INNOCENT)
def test_nothing_else_is(rule, file, code, tmp_path):
    assert broken(rule, tmp_path / "labelloop", file, code) == []


def test_every_rule_is_broken_once():
    assert {rule for rule, _, _ in MUTATIONS} == {rule for rule, _, _ in INNOCENT} == set(RULES)


def test_more_files_than_allowed_are_seen(tmp_path):
    for number in range(MOST_FILES + 1):
        (tmp_path / f"part_{number}.py").write_text("", encoding="utf-8")
    assert house(tmp_path).wrong == [f"{MOST_FILES + 1} files; at most {MOST_FILES}"]


@pytest.mark.parametrize("rule", LIMITED)
def test_every_exception_is_needed_and_has_a_reason(rule):
    breaches = LIMITED[rule](SOURCE, excepted=False).wrong
    listed = EXCEPTIONS[rule]
    assert set(EXCEPTIONS) == set(LIMITED)
    unneeded = [name for name in listed if not any(breach.startswith(f"{name} ") for breach in breaches)]
    assert unneeded == []
    assert all(len(reason) > 10 for reason in listed.values())


def test_every_arrow_is_used():
    used: dict[str, set[str]] = {}
    for path in files(SOURCE):
        names = {one.name.removeprefix("labelloop.") for one in imports(path, SOURCE) if one.name}
        used.setdefault(room_of(path, SOURCE), set()).update(names)
    assert used.keys() == ALLOWED.keys()
    for room, allowed in ALLOWED.items():
        unused = [one for one in allowed if not any(f"{name}.".startswith(f"{one}.") for name in used[room])]
        assert unused == [], room
    assert all(not ALLOWED[noun] for noun in SHARED)


def test_relabelling_loads_no_torch():
    workflows = [f"labelloop.workflows.{name}" for name in ("correct", "correct_file", "refit", "plan")]
    code = f"import sys, {', '.join(workflows)}; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert loaded.issuperset(workflows)
    assert not {"torch", "labelloop.methods", "labelloop.training"} & loaded


def test_contributing_lists_the_same_arrows():
    page = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.split("| package | may import")[1].split("\n\n")[0]
    listed: dict[str, set[str]] = {}
    for line in table.splitlines()[2:]:
        names, allowed = (set(re.findall(r"`([\w.]+)`", cell)) for cell in line.strip("|").split("|"))
        listed |= dict.fromkeys(names, allowed)
    assert listed == {
        room: allowed for room, allowed in ALLOWED.items() if room not in {*SHARED, "__init__", "__main__"}
    }


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, labelloop; print(sorted({'torch', 'scipy', 'sklearn', 'pyarrow', 'numpy'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_loop_stays_readable():
    lines = (SOURCE / "methods" / "closed_loop" / "loop.py").read_text(encoding="utf-8").splitlines()
    assert 60 < len(lines) < 150


def test_no_pickle():
    looked_at = 0
    for path in sorted(SOURCE.rglob("*.py")):
        looked_at += 1
        text = path.read_text(encoding="utf-8")
        for word in ("torch.save(", "pickle.load", "pickle.dump", "allow_pickle=True", "weights_only=False"):
            assert word not in text, f"{path.relative_to(SOURCE)} has {word}"
    assert looked_at > 40


CLOCKS = {"time", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns"}


def clocks_read(path: Path) -> list[str]:
    """Where a test reads a clock; `monotonic` is for deadlines of something that is waited for."""
    calls = [node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    named = [(getattr(call, "attr", getattr(call, "id", "")), ast.unparse(call), call.lineno) for call in calls]
    timed = [(whole, line) for last, whole, line in named if last in CLOCKS and whole in {last, f"time.{last}"}]
    return [f"{path.name}, line {line} reads {whole}" for whole, line in timed]


def test_no_test_depends_on_how_long_something_takes(tmp_path):
    looked_at = sorted(Path(__file__).parent.rglob("*.py"))
    assert len(looked_at) > 100
    assert [found for path in looked_at for found in clocks_read(path)] == []
    timed = tmp_path / "test_timed.py"
    timed.write_text("import time\nstart = time.perf_counter()\nassert perf_counter() - start < 1\n", encoding="utf-8")
    assert len(clocks_read(timed)) == 2

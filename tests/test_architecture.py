"""Who may import whom, and what must not be imported at all. Every rule counts what it saw, and is shown to fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from import_rules import arrows, methods_apart, no_torch, one_owner, ranks_in_one_file, sizes, whole_names

SOURCE = Path(__file__).resolve().parents[1] / "src" / "labelloop"
PUBLIC = {"workflows/fit.py::fit", "estimator.py::__init__"}  # what a user calls has keywords, not records


RULES = {
    "arrows": (lambda root: arrows(root), 500),
    "methods_apart": (lambda root: methods_apart(root), 10),
    "no_torch": (lambda root: no_torch(root), 50),
    "whole_names": (lambda root: whole_names(root), 1000),
    "one_owner": (lambda root: one_owner(root), 1000),
    "ranks_in_one_file": (lambda root: ranks_in_one_file(root), 100),
    "sizes": (lambda root: sizes(root, PUBLIC), 200),
}

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
    ("sizes", "bench/grid.py", "def run(a, b, c, d, e, f, *, g, h, i): ..."),
    ("sizes", "workflows/plan.py", "def plan():\n" + "    pass\n" * 60),
]  # fmt: skip

# What looks like a breach and is none.
INNOCENT = [
    ("arrows", "bench/grid.py", "import labelloop.workflows.compose\nfrom labelloop.workflows import compose"),
    ("arrows", "data/table.py", "from labelloop.errors import DataError\nimport numpy\n'labelloop.noise'"),
    ("methods_apart", "methods/closed_loop/loop.py", "from labelloop.methods.closed_loop.config import Config"),
    ("methods_apart", "methods/l2b.py", "from labelloop.methods.bilevel import step"),
    ("methods_apart", "methods/configure.py", "from labelloop.methods import METHODS"),
    ("no_torch", "training/epoch.py", "import torch"),
    ("whole_names", "models/build.py", "from importlib import import_module\nimport_module(name)"),
    ("one_owner", "runs/folder.py", "RUN = 'run.json'"),
    ("one_owner", "export/csv.py", "MESSAGE = 'it has no run.json; give another folder'"),
    ("ranks_in_one_file", "training/ranks.py", "import torch.distributed as dist\ndist.all_reduce(x)\n'RANK'"),
    ("ranks_in_one_file", "methods/glc.py", "import torch\nRANKING = 'the RANK of a matrix'\ntorch.distributions.Beta"),
    ("sizes", "workflows/fit.py", "def fit(a, b, c, d, e, f, g, h, i): ..."),
    ("sizes", "bench/grid.py", "class Grid:\n    def run(self, a, b, c, d, e, f, g, h): ..."),
]  # fmt: skip


def broken(rule: str, root: Path, file: str, code: str) -> list[str]:
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text(code, encoding="utf-8")
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

"""Who may import whom, and what must not be imported at all. Every check counts what it looked at."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "labelloop"

SHARED = {"types", "errors", "seeds", "splits", "safe_pickle"}  # anyone may import these
ALLOWED = {
    "types": set(),
    "errors": set(),
    "seeds": set(),
    "splits": set(),
    "safe_pickle": set(),
    "config": set(),
    "data": set(),
    "noise": set(),
    "models": set(),
    "encoders": set(),
    "runs": set(),
    "training": {"models", "runs", "config"},
    "methods": {"training", "models", "runs", "config"},
    "correction": {"methods", "training", "runs", "config"},
    "trained_model": {"data", "models", "training", "runs"},
    "workflows": {"data", "noise", "methods", "correction", "training", "runs", "config", "trained_model", "report"},
    "bench": {"correction", "workflows", "data", "noise", "methods", "training", "runs", "config"},
    "paper": {"bench", "runs", "report", "config"},
    "report": {"runs"},
    "estimator": {"workflows", "data", "methods", "correction", "training", "config", "trained_model"},
    "export": {"runs"},
    "cli": {"workflows", "bench", "paper", "report", "export", "config"},
    "__main__": {"cli"},
    "__init__": {"estimator", "workflows", "methods", "trained_model"},
}
TORCHLESS = {
    "types",
    "errors",
    "seeds",
    "splits",
    "safe_pickle",
    "data",
    "noise",
    "runs",
    "config",
    "report",
    "export",
    "cli",
    "__init__",
    "__main__",
}


def imports(path: Path) -> set[str]:
    """Every module a file imports, anywhere in it, with the names taken from the package itself."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write the whole name of the module, not a relative import"
            if node.module == "labelloop":
                found |= {f"labelloop.{alias.name}" for alias in node.names}
            else:
                found.add(node.module or "")
    return found


def part_of(path: Path) -> str:
    """The folder under the package, or the name of a file that stands in the package itself."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def test_arrows_point_one_way():
    looked_at = 0
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        part = part_of(path)
        assert part in ALLOWED, f"{path}: a new part of the package; say in ALLOWED what it may import"
        for name in imports(path):
            target = name.removeprefix("labelloop.").split(".")[0]
            if not name.startswith("labelloop.") or target == "__version__":
                continue
            looked_at += 1
            if target != part and target not in ALLOWED[part] | SHARED:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert looked_at > 50
    assert wrong == []


def test_no_method_imports_another_method():
    looked_at = 0
    wrong = []
    for path in sorted((SOURCE / "methods").rglob("*.py")):
        relative = path.relative_to(SOURCE / "methods")
        own = relative.parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        looked_at += 1
        taken = {name.split(".")[2] for name in imports(path) if name.startswith("labelloop.methods.")}
        wrong += [f"{relative} imports {name}" for name in taken - {own, "bilevel"}]
    assert looked_at > 5
    assert wrong == []


def test_torch_stays_where_it_belongs():
    looked_at = 0
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        if part_of(path) in TORCHLESS:
            looked_at += 1
            wrong += [f"{path.relative_to(SOURCE)} imports {n}" for n in imports(path) if n.split(".")[0] == "torch"]
    assert looked_at > 20
    assert wrong == []


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

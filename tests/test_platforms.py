"""Where Windows has no `fcntl` and no `resource`: everything imports, a run records no memory, a bench says why not."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "labelloop"
POSIX_ONLY = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}
NOT_ON_WINDOWS = {SOURCE / "bench" / "worker.py"}  # the process that a bench starts


def without_posix(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the package, imported once more as Windows would."""
    for name in POSIX_ONLY:
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location(f"on_windows_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def unguarded(path: Path) -> list[str]:
    """Imports of a POSIX module at the top of a file, outside `try`."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in POSIX_ONLY]
        elif isinstance(node, ast.ImportFrom) and node.module in POSIX_ONLY:
            found.append(node.module)
    return found


def test_posix_modules_are_imported_with_care():
    files = set(SOURCE.rglob("*.py"))
    assert len(files) > 100
    assert {str(path) for path in files - NOT_ON_WINDOWS if unguarded(path)} == set()
    assert [path for path in NOT_ON_WINDOWS if not unguarded(path)] == []  # the check sees what it looks for


def test_a_run_without_resource_records_no_memory(monkeypatch: pytest.MonkeyPatch):
    runtime = without_posix(SOURCE / "training" / "runtime.py", monkeypatch)
    assert runtime.resource is None
    assert runtime.Runtime(0, device="cpu", progress=False)._peak_memory() is None


def test_a_run_with_resource_records_its_memory():
    from labelloop.training.runtime import Runtime

    held = np.ones(2**20)
    memory = Runtime(0, device="cpu", progress=False)._peak_memory()
    assert memory is not None
    assert held.nbytes / 2**20 < memory < 2**20


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux keeps the peak of each process")
def test_the_memory_is_not_that_of_the_parent(monkeypatch: pytest.MonkeyPatch):
    from labelloop.training import runtime

    monkeypatch.setattr(runtime.resource, "getrusage", lambda _: pytest.fail("it begins at what the parent held"))
    held = np.ones(2**24)  # 128 MiB
    memory = runtime.Runtime(0, device="cpu", progress=False)._peak_memory()
    assert memory is not None
    assert held.nbytes / 2**20 < memory < 2**20


def test_a_bench_without_fcntl_says_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pool = without_posix(SOURCE / "bench" / "pool.py", monkeypatch)
    with pytest.raises(pool.UsageError, match="needs Linux or macOS"):
        pool.run_bench([], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()

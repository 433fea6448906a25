"""Small errors put into the core on purpose, one at a time: which of them do the tests notice?

    python benchmarks/mutants.py                 # 60 mutants, each against the tests of its room
    python benchmarks/mutants.py --root OTHER    # those of another checkout, against its own tests
    python benchmarks/mutants.py --output outcomes.json    # which continues if it was stopped
    python benchmarks/mutants.py --again outcomes.json    # only those that survived, after tests were added

The mutants are drawn with a fixed seed from every comparison, operator, number and flag of the core, so two runs on one
source meet the same ones. A mutant is killed if a test fails or takes too long. torch is imported once: each mutant is
tried in a fork.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {  # of the core, and the tests that are there for each, quick ones first; the first room that matches counts
    "relabel/stacking.py": ["relabel/test_stacking.py"],
    "relabel/noise_model.py": ["relabel/test_noise_model.py"],
    "relabel/estimate.py": ["relabel/test_estimate.py", "workflows/test_plan.py"],
    "workflows/plan.py": ["workflows/test_plan.py"],
    "relabel/learners/trees.py": ["relabel/test_forest.py"],
    "relabel/rounds.py": ["methods/test_labelloop.py"],
    "relabel/learners": ["relabel/test_scale.py", "relabel/test_correction.py"],
    "relabel": ["relabel/test_guard_margin.py", "relabel/test_evidence.py", "relabel/test_noise_start.py",
                "relabel/test_slopes.py", "relabel/test_guard.py", "relabel/test_correction.py",
                "workflows/test_correct_arrays.py"],
    "methods/closed_loop/corrector.py": ["closed_loop/test_corrector.py"],
    "methods/closed_loop": ["closed_loop"],
    "methods/labelloop.py": ["methods/test_labelloop.py"],
    "training/cross_fit.py": ["methods/test_labelloop.py"],
    "training/ranks.py": ["distributed"],
    "training/batches.py": ["training", "distributed"],
    "training": ["training", "closed_loop/test_loop.py"],
    "runs/reviews.py": ["report/test_reviews.py", "report/test_session.py"],
    "runs/survey.py": ["runs", "report/test_run_page.py"],
    "runs/result_files.py": ["report/test_run_page.py"],
    "runs/lock.py": ["runs", "cli/test_failures.py"],
    "runs": ["runs", "workflows/test_fit_api.py"],
}  # fmt: skip
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}  # fmt: skip


def places(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that can be changed: not in annotations, messages, or what only describes."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, (ast.Raise, ast.JoinedStr, ast.Assert)):
                continue
            if changed(node) is not None:
                yield node
            yield from places(node)


def changed(node: ast.AST) -> str | None:
    """What a mutation of this node is called, or None where there is none."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        return type(node.ops[0]).__name__
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
        return type(node.op).__name__
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        return repr(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        return type(node.op).__name__
    return None


def mutated(source: str, number: int) -> tuple[str, str]:
    """The source with its `number`-th place changed, and the change in words."""
    tree = ast.parse(source)
    node = list(places(tree))[number]
    before = ast.unparse(node)
    if isinstance(node, ast.Compare):
        node.ops = [SWAPS[type(node.ops[0])]()]
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)):
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = (not node.value) if isinstance(node.value, bool) else node.value + 1
    else:
        assert isinstance(node, ast.UnaryOp)
        node.op = ast.UAdd() if isinstance(node.op, ast.Invert) else ast.Not()
        node.operand = node.operand if isinstance(node.op, ast.UAdd) else ast.UnaryOp(ast.Not(), node.operand)
    line = getattr(node, "lineno", 0)
    after = ast.unparse(node)
    return ast.unparse(ast.fix_missing_locations(tree)), f"line {line}: {before}  ->  {after}"


def tests_of(name: str, tests: Path, rooms: dict[str, list[str]]) -> list[str]:
    room = next(room for room in rooms if name.startswith(room))
    return [str(tests / place) for place in rooms[room] if (tests / place).exists()]


def survivors(outcomes: Path, source: Path) -> list[tuple[str, int]]:
    """Those of an earlier run, which must be the same changes today."""
    found = []
    for one in json.loads(outcomes.read_text(encoding="utf-8")):
        if not one["killed"]:
            found.append((one["file"], one["number"]))
            if mutated((source / one["file"]).read_text(encoding="utf-8"), one["number"])[1] != one["change"]:
                sys.exit(f"{one['file']} has changed since {outcomes} was written; draw mutants anew")
    return found


def drawn(source: Path, count: int, rooms: Iterable[str]) -> list[tuple[str, int]]:
    """Places of the core, by file and number, every file in proportion to what it holds."""
    found = []
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if any(name.startswith(room) for room in rooms) and path.name != "__init__.py":
            found += [(name, number) for number in range(len(list(places(ast.parse(path.read_text("utf-8"))))))]
    return random.Random(0).sample(found, min(count, len(found)))  # in this order: the first ones are a sample, too


def is_killed(tree: Path, tests: list[str], seconds: int) -> bool:
    """Runs the tests on the sources of `tree` in a fork of this process.

    The limit is processor time, so that a busy machine kills no mutant; what only waits has ten times as long.
    """
    child = os.fork()
    if child == 0:
        _run_tests(tree, tests)
    until = time.monotonic() + 10 * seconds
    while time.monotonic() < until and processor_seconds(child) < seconds:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def processor_seconds(pid: int) -> float:
    """What a process and its children that have ended took. A limit of the system would make its own clock coarse."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _run_tests(tree: Path, tests: list[str]) -> None:
    """In the fork: never returns."""
    code = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        sys.path.insert(0, str(tree))
        os.environ["PYTHONPATH"] = str(tree)
        import pytest

        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    parser.add_argument("--layout", type=Path, help="rooms and their tests in a checkout with other folders, as JSON")
    parser.add_argument("--rooms", nargs="*", help="only these")
    parser.add_argument("--seconds", type=int, default=120, help="of processor time for the tests of one mutant")
    parser.add_argument("--output", type=Path, help="the outcome of every mutant, as JSON")
    parser.add_argument("--again", type=Path, metavar="OUTPUT", help="only the mutants that survived there")
    options = parser.parse_args()
    rooms = json.loads(options.layout.read_text(encoding="utf-8")) if options.layout else ROOMS
    for name in ("torch", "torch._dynamo", "sklearn.linear_model", "scipy.optimize", "pyarrow.parquet"):
        __import__(name)  # once, for all forks
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "src"
        shutil.copytree(options.root / "src", tree, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        source = tree / "labelloop"
        outcomes, fine = [], set[str]()
        known = json.loads(options.output.read_text("utf-8")) if options.output and options.output.exists() else []
        chosen = (
            survivors(options.again, source) if options.again else drawn(source, options.count, options.rooms or rooms)
        )
        for name, number in chosen:
            path, tests = source / name, tests_of(name, options.root / "tests", rooms)
            original = path.read_text(encoding="utf-8")
            text, words = mutated(copy.copy(original), number)
            if before := [one for one in known if (one["file"], one["number"], one["change"]) == (name, number, words)]:
                outcomes += before[:1]
                continue
            if " ".join(tests) not in fine and is_killed(tree, tests, 5 * options.seconds):
                sys.exit(f"{' '.join(tests)}: these fail without a mutant; run them alone to see why")
            fine.add(" ".join(tests))
            path.write_text(text, encoding="utf-8")
            killed = is_killed(tree, tests, options.seconds)
            path.write_text(original, encoding="utf-8")
            outcomes.append({"file": name, "number": number, "change": words, "killed": killed})
            print(f"{'killed  ' if killed else 'SURVIVED'}  {name}, {words}", flush=True)
            if options.output:
                options.output.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
    count = sum(outcome["killed"] for outcome in outcomes)
    print(f"{count} of {len(outcomes)} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How large anything may be, read from the source. Each rule counts what it saw; exceptions stand in one table."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from import_rules import PACKAGE, Found, files, imports, tree_of

LONGEST_FUNCTION, MOST_PARAMETERS = 60, 8
LONGEST_FILE, SMALL_FILE = 300, 50  # lines of code
MOST_FILES, MOST_LINES = 196, 23_590  # lower them when something goes
NAMELESS = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
# Where a file is an entry of a table, however small: the folder, and the file with the table that imports it.
TABLES = {
    "methods": "methods/__init__.py",
    "noise": "noise/__init__.py",
    "data/datasets": "data/datasets/__init__.py",
    "models": "models/__init__.py",
    "relabel/learners": "relabel/learners/__init__.py",
}

# A rule, and what it lets pass, with the reason. An entry that is not needed any more is itself an error.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "functions": {
        "workflows/fit.py::fit": "the public function: a user gives keywords, not records",
        "workflows/correct.py::correct": "the public function: a user gives keywords, not records",
        "estimator.py::__init__": "scikit-learn wants every setting as a keyword of the constructor",
        "export/export.py::export": "the public function: one keyword per flag of `labelloop export`",
        "data/table.py::from_arrays": "what a user may give beside arrays, one keyword each",
        "training/epoch.py::train_epoch": "the step of every method: model, rows, three labels, and how to train",
        "training/batches.py::augmented_batches": "the same as train_epoch, which hands them over",
        "training/batch_norm.py::forward": "the signature of torch's own function",
    },
    "file_sizes": {
        "paper/items.py": "the paper's tables side by side",
        "workflows/fit.py": "the public function, its result and their documentation",
    },
    "small_files": {},
}


@cache
def code_lines(path: Path) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    documented: set[int] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documented |= _docstring_lines(node)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def _docstring_lines(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    if not ast.get_docstring(node):
        return set()
    return set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))


def _passing(rule: str, wrong: Iterable[tuple[str, str]], excepted: bool) -> list[str]:
    """What breaks a rule, but for its exceptions."""
    known = EXCEPTIONS[rule] if excepted else {}
    return [f"{name}{what}" for name, what in wrong if name not in known]


def functions(root: Path, excepted: bool = True) -> Found:
    """No function is longer than 60 lines or has more than 8 parameters, in any room."""
    looked_at, wrong = 0, []
    for path in files(root):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            looked_at += 1
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            given = node.args
            parameters = len([*given.posonlyargs, *given.args, *given.kwonlyargs])
            parameters -= bool(given.args and given.args[0].arg in ("self", "cls"))
            if lines > LONGEST_FUNCTION or parameters > MOST_PARAMETERS:
                name = f"{path.relative_to(root).as_posix()}::{node.name}"
                wrong.append((name, f" has {lines} lines and {parameters} parameters"))
    return Found(looked_at, _passing("functions", wrong, excepted))


def file_sizes(root: Path, excepted: bool = True) -> Found:
    """No file has more than 300 lines of code."""
    sizes = {path.relative_to(root).as_posix(): code_lines(path) for path in files(root)}
    wrong = [(name, f" has {lines} lines of code") for name, lines in sizes.items() if lines > LONGEST_FILE]
    return Found(len(sizes), _passing("file_sizes", wrong, excepted))


def house(root: Path) -> Found:
    """The house does not grow: so many files and lines of code in all, and no more."""
    sizes = [code_lines(path) for path in files(root)]
    wrong = [f"{len(sizes)} files; at most {MOST_FILES}"] if len(sizes) > MOST_FILES else []
    wrong += [f"{sum(sizes)} lines of code; at most {MOST_LINES}"] if sum(sizes) > MOST_LINES else []
    return Found(len(sizes), wrong)


def importers(root: Path) -> dict[str, set[str]]:
    """By file, the files that import it or something in it."""
    places = {".".join([PACKAGE, *_parts(path, root)]): path.relative_to(root).as_posix() for path in files(root)}
    found: dict[str, set[str]] = {place: set() for place in places.values()}
    for path in files(root):
        own = path.relative_to(root).as_posix()
        for name in _named(path, root, set(places)):
            if places[name] != own:
                found[places[name]].add(own)
    return found


def _parts(path: Path, root: Path) -> list[str]:
    parts = list(path.relative_to(root).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def _named(path: Path, root: Path, modules: set[str]) -> Iterator[str]:
    """The modules that a file imports. `from a import b` counts for a.b where that is a module, else for a."""
    names = {one.name for one in imports(path, root) if one.name}
    whole = {name for name in names if not any(other.startswith(f"{name}.") for other in names)}
    for name in whole:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        if name:
            yield name


def small_files(root: Path, excepted: bool = True) -> Found:
    """A file with one importer and fewer than 50 lines of code belongs to its importer, unless a table lists it."""
    looked_at, wrong = 0, []
    for name, by in importers(root).items():
        looked_at += 1
        lines = code_lines(root / name)
        listed = by == {TABLES.get(Path(name).parent.as_posix())}
        if len(by) == 1 and lines < SMALL_FILE and not listed and not name.endswith("__init__.py"):
            wrong.append((name, f" has {lines} lines of code, and only {next(iter(by))} imports it"))
    return Found(looked_at, _passing("small_files", wrong, excepted))


def file_names(root: Path) -> Found:
    """A file is named for what it holds."""
    found = files(root)
    return Found(len(found), [path.relative_to(root).as_posix() for path in found if path.name in NAMELESS])

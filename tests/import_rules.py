"""Who may import whom, read from the source: every form of import, anywhere in a file. Each rule counts what it saw."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "labelloop"
SHARED = {
    "types",
    "errors",
    "seeds",
    "splits",
    "progress",
    "safe_pickle",
    "large_arrays",
    "trust",
}  # the nouns: anyone may import these
# A room, and what it may import beside itself and the nouns: rooms, or single modules of one.
ALLOWED: dict[str, set[str]] = {
    **{noun: set() for noun in SHARED},
    "config": set(),
    "data": set(),
    "noise": set(),
    "models": set(),
    "relabel": set(),
    "runs": set(),
    "encoders": {"data.pillow"},  # one rule for how an image is decoded
    "training": {"models", "runs", "config"},
    "methods": {"relabel", "training", "models", "config"},
    "trained_model": {"data", "encoders", "models", "training", "runs"},
    "workflows": {
        *("data", "encoders", "noise", "methods", "relabel", "training", "runs", "config", "trained_model"),
        "models",  # the type of what a method returns
        "report",  # a run ends with its report, and `labelloop review` serves a page
    },
    "bench": {"workflows.compose", "runs", "config"},
    "paper": {"bench", "runs", "report", "config.build"},  # its grids are settings in files
    "report": {"runs"},
    "export": {"runs"},
    "estimator": {"workflows", "config.base"},  # the name of the default recipe
    "cli": {"workflows", "bench", "paper", "report", "export", "config.build"},  # --set KEY=VALUE
    "__main__": {"cli"},
    "__init__": {"estimator", "workflows", "methods", "relabel", "trained_model"},
}
TORCHLESS = {*SHARED, "relabel", "data", "noise", "runs", "config", "report", "export", "cli", "__init__", "__main__"}
# Modules whose names are computed: those that look a name up in a table, or run a user's own function.
COMPUTED = {
    "__init__.py",
    "bench/worker.py",
    "cli/__init__.py",
    "encoders/inputs.py",
    "methods/__init__.py",
    "models/__init__.py",
}
RUN_FILES = {"run.json", "metrics.jsonl", "labels.parquet", "targets.npy", "features.npz"}
OF_RANKS = "training/ranks.py"
LAUNCHED = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # and all of SLURM's
SHARED_CONFIG = "TrainingConfig"  # of all methods; asking for it tells no method from another


@dataclass(frozen=True)
class Import:
    """One import: the module's whole name, or None where it is computed."""

    name: str | None
    line: int
    relative: bool = False


@dataclass(frozen=True)
class Found:
    """How much a rule looked at, and what breaks it."""

    looked_at: int
    wrong: list[str]


@cache
def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree; each file is read once."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, root: Path) -> tuple[Import, ...]:
    """Every import of a file. `from a import b` is an import of a and of a.b, whichever b is."""
    return tuple(_imports(tree_of(path), [PACKAGE, *path.relative_to(root).parent.parts]))


def _imports(tree: ast.AST, package: list[str]) -> Iterator[Import]:
    loaders = _loaders(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node.module or "", node.level, package)
            yield Import(base, node.lineno, relative=node.level > 0)
            yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_loader(node.func, loaders):
            yield _loaded(node, package)
        elif isinstance(node, ast.Attribute) and (name := _dotted(node)).startswith(f"{PACKAGE}."):
            yield Import(name, node.lineno)  # `import labelloop`, then labelloop.methods.glc


def _loaders(tree: ast.AST) -> set[str]:
    """The names under which a file knows a function that imports."""
    names = {"__import__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "importlib":
            known = [alias for alias in node.names if alias.name in ("import_module", "__import__")]
            names |= {alias.asname or alias.name for alias in known}
    return names


def _is_loader(function: ast.expr, loaders: set[str]) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in ("import_module", "__import__")
    return isinstance(function, ast.Name) and function.id in loaders


def _loaded(call: ast.Call, package: list[str]) -> Import:
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "name"), None)
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        text = given.value.lstrip(".")
        level = len(given.value) - len(text)
        return Import(_absolute(text, level, package), call.lineno, relative=level > 0)
    return Import(None, call.lineno)


def _absolute(name: str, level: int, package: list[str]) -> str:
    return ".".join([*package[: len(package) - level + 1], *([name] if name else [])]) if level else name


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def room_of(path: Path, root: Path) -> str:
    """The folder under the package, or the name of a file that stands in the package itself."""
    relative = path.relative_to(root)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def files(root: Path, under: str = "") -> list[Path]:
    return sorted((root / under).rglob("*.py"))


def arrows(root: Path) -> Found:
    """No room imports a room that it may not."""
    looked_at, wrong = 0, []
    for path in files(root):
        room = room_of(path, root)
        if room not in ALLOWED:
            wrong.append(f"{path.relative_to(root)}: a new room; say in ALLOWED what it may import")
            continue
        allowed = {room, *ALLOWED[room], *SHARED}
        ours = (one.name for one in imports(path, root) if one.name and one.name.startswith(f"{PACKAGE}."))
        names = {name.removeprefix(f"{PACKAGE}.") for name in ours}
        for name in names:
            target = name.split(".")[0]
            if target == "__version__":
                continue
            looked_at += 1
            if target in allowed or any(f"{name}.".startswith(f"{one}.") for one in allowed if "." in one):
                continue
            if any(one.startswith(f"{name}.") and any(f"{other}.".startswith(f"{one}.") for other in names)
                   for one in allowed):  # fmt: skip
                continue  # `from labelloop.workflows import compose` names the room too
            wrong.append(f"{path.relative_to(root)} imports {PACKAGE}.{name}")
    return Found(looked_at, wrong)


def methods_apart(root: Path) -> Found:
    """No method imports another, nor the table of them; `bilevel` is shared, and `configure` reads the table."""
    looked_at, wrong = 0, []
    for path in files(root, "methods"):
        relative = path.relative_to(root / "methods")
        own = relative.parts[0].removesuffix(".py")
        if own in ("__init__", "configure"):
            continue
        looked_at += 1
        start = f"{PACKAGE}.methods."
        names = [one.name for one in imports(path, root) if one.name and one.name.startswith(start)]
        taken = {name.removeprefix(start).split(".")[0] for name in names}
        wrong += [f"{relative} imports {name}" for name in sorted(taken - {own, "bilevel"})]
    return Found(looked_at, wrong)


def no_torch(root: Path) -> Found:
    """torch stays out of the rooms that do without."""
    looked_at, wrong = 0, []
    for path in files(root):
        if room_of(path, root) in TORCHLESS:
            looked_at += 1
            taken = {one.name for one in imports(path, root) if one.name and one.name.split(".")[0] == "torch"}
            wrong += [f"{path.relative_to(root)} imports {name}" for name in sorted(taken)]
    return Found(looked_at, wrong)


def whole_names(root: Path) -> Found:
    """Modules are imported by their whole names, and computed names stand only where names come from a table."""
    looked_at, wrong = 0, []
    for path in files(root):
        relative = path.relative_to(root).as_posix()
        for one in imports(path, root):
            looked_at += 1
            if one.relative:
                wrong.append(f"{relative}, line {one.line}: a relative import; write the module's whole name")
            if one.name is None and relative not in COMPUTED:
                wrong.append(f"{relative}, line {one.line}: imports a module by a computed name")
    return Found(looked_at, wrong)


def one_owner(root: Path) -> Found:
    """Only runs/ names the files of a run folder, so only runs/ reads and writes them."""
    looked_at, wrong = 0, []
    for path in files(root):
        if room_of(path, root) == "runs":
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                looked_at += 1
                if node.value in RUN_FILES:
                    wrong.append(f"{path.relative_to(root)}, line {node.lineno} names {node.value}; ask runs/ for it")
    return Found(looked_at, wrong)


def ranks_in_one_file(root: Path) -> Found:
    """Only one file knows of torch.distributed and of what launchers set: methods and the rest ask the runtime."""
    looked_at, wrong = 0, []
    for path in files(root):
        relative = path.relative_to(root).as_posix()
        if relative == OF_RANKS:
            continue
        looked_at += 1
        named = {one.name or "" for one in imports(path, root)}
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute):
                named.add(_dotted(node))
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if text in LAUNCHED or text.startswith(("SLURM_", "OMPI_COMM_")):
                wrong.append(f"{relative} asks for {text}; {OF_RANKS} knows")
        if any(f"{name}.".startswith("torch.distributed.") for name in named):
            wrong.append(f"{relative} takes torch.distributed; {OF_RANKS} alone may")
    return Found(looked_at, wrong)


def configs_unasked(root: Path) -> Found:
    """Outside methods/, nothing depends on which method's Config it has: what differs is said by the method."""
    looked_at, wrong = 0, []
    for path in files(root):
        if room_of(path, root) == "methods":
            continue
        looked_at += 1
        tree = tree_of(path)
        known = _configs(tree)
        for node in ast.walk(tree):
            for asked in _types_asked_for(node):
                names = {_dotted(part) for part in ast.walk(asked) if isinstance(part, ast.Name | ast.Attribute)}
                if any(name in known or _is_config(name) for name in names):
                    wrong.append(f"{path.relative_to(root)}, line {asked.lineno} asks for {ast.unparse(asked)}")
    return Found(looked_at, wrong)


def _is_config(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.endswith("Config") and last != SHARED_CONFIG


def _configs(tree: ast.AST) -> set[str]:
    """The names under which a file knows a Config of a method."""
    from_methods = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.methods")
    ]
    return {alias.asname or alias.name for node in from_methods for alias in node.names if _is_config(alias.name)}


def _types_asked_for(node: ast.AST) -> Iterator[ast.expr]:
    """What `isinstance(x, T)`, `type(x) is T` and `case T():` ask for."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
        yield from node.args[1:2]
    elif isinstance(node, ast.Compare) and any(_is_type_call(side) for side in (node.left, *node.comparators)):
        yield from (side for side in (node.left, *node.comparators) if not _is_type_call(side))
    elif isinstance(node, ast.MatchClass):
        yield node.cls


def _is_type_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"

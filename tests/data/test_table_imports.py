"""What the data folder may import: a heavy or a wrong import would slow down or tangle everything above it."""

from __future__ import annotations

import ast
from pathlib import Path

import labelloop.data

ALLOWED = {"numpy", "pyarrow", "sklearn", "labelloop.data", "labelloop.types", "labelloop.errors", "labelloop.seeds"}
STANDARD = {"__future__", "collections", "csv", "dataclasses", "hashlib", "pathlib", "typing", "warnings", "zipfile"}


def test_the_data_folder_imports_no_torch_and_no_other_part():
    files = sorted(Path(labelloop.data.__file__).parent.glob("*.py"))
    assert len(files) >= 10
    seen = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module]
            else:
                continue
            for module in modules:
                depth = 2 if module.startswith("labelloop") else 1
                seen.add((file.name, ".".join(module.split(".")[:depth])))
    assert len(seen) > 20
    assert {entry for entry in seen if entry[1] not in ALLOWED | STANDARD} == set()

"""The version of an encoder as a short text, which changes with its weights, settings or library."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "1"  # of our own code, such as pooling and truncation; a change there makes cached features stale
_PROSE = (".md", ".txt.license", ".gitattributes")
_PIECE = 1 << 20


def library_version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:  # the adapter then says what to install
        return "none"


def folder_version(folder: Path, library: str) -> str:
    """The version of a folder, from the content of every relevant file; its location does not matter."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(_PROSE):
            digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
    return f"files {digest.hexdigest()}, {library} {library_version(library)}, format {FORMAT}"


def hub_version(names: tuple[str, ...], library: str) -> tuple[str, str, str] | None:
    """The name, commit and version of a model that was downloaded before, or None."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    for name in names:
        try:
            found = try_to_load_from_cache(name, "config.json")
        except ValueError:  # not a valid name on the hub
            continue
        if isinstance(found, str) and "snapshots" in (parts := Path(found).parts):
            commit = parts[parts.index("snapshots") + 1]
            return name, commit, f"commit {commit}, {library} {library_version(library)}, format {FORMAT}"
    return None


def state_version(state: Mapping[str, Any], library: str, *settings: object) -> str:
    """The version of a network in memory, from its tensors."""
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=16)
    for key, value in state.items():
        digest.update(key.encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().float().numpy()).tobytes())
    return f"weights {digest.hexdigest()}, {library} {library_version(library)}, format {FORMAT}"

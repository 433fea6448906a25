"""What an encoder is, in a few characters: other weights, settings or another library give another version."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "1"  # of our own part: pooling, truncation; a change of these makes old features stale
_PROSE = (".md", ".txt.license", ".gitattributes")
_PIECE = 1 << 20


def library_version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:  # the adapter says what to install
        return "none"


def folder_version(folder: Path, library: str) -> str:
    """Of the content of every file that could matter; the place of the folder does not."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(_PROSE):
            digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
    return f"files {digest.hexdigest()}, {library} {library_version(library)}, format {FORMAT}"


def hub_version(names: tuple[str, ...], library: str) -> tuple[str, str, str] | None:
    """Of a model that was downloaded before: its name, its commit, the version. None where there is none."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    for name in names:
        try:
            found = try_to_load_from_cache(name, "config.json")
        except ValueError:  # not a name that the hub could know
            continue
        if isinstance(found, str) and "snapshots" in (parts := Path(found).parts):
            commit = parts[parts.index("snapshots") + 1]
            return name, commit, f"commit {commit}, {library} {library_version(library)}, format {FORMAT}"
    return None


def state_version(state: Mapping[str, Any], library: str, *settings: object) -> str:
    """Of the tensors of a network in memory."""
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=16)
    for key, value in state.items():
        digest.update(key.encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().float().numpy()).tobytes())
    return f"weights {digest.hexdigest()}, {library} {library_version(library)}, format {FORMAT}"

"""The libraries that provide encoders: imported only when used, silenced, with clear messages and versions."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.errors import UsageError

PATIENCE = 5.0  # seconds to wait for the hub

FORMAT = "1"  # of our own code, such as pooling and truncation; a change there makes cached features stale
_PROSE = (".md", ".txt.license", ".gitattributes")
_PIECE = 1 << 20


def need(module: str, extra: str, name: str) -> None:
    """Fails at once if a library is not installed."""
    try:
        found = find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise UsageError(f"encoder {name!r} needs {extra}: install it with pip install 'labelloop[{extra}]'")


def device_of(device: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


@contextmanager
def from_library(name: str, place: str, library: str) -> Iterator[None]:
    """Turns the errors of a library that loads a model into messages that say what to do."""
    is_folder = Path(place).expanduser().is_dir()
    looks_like_folder = os.sep in place and place.startswith((".", "/", "~"))
    unreachable = None if is_folder or looks_like_folder else why_unreachable()
    try:
        with offline() if unreachable else nullcontext():
            yield
    except ImportError as error:
        raise UsageError(
            f"encoder {name!r}: {library} cannot be imported ({error}); install it again with pip install"
            f" 'labelloop[{library}]'"
        ) from error
    except UsageError:
        raise
    except Exception as error:  # the libraries raise many kinds of errors
        if is_folder:
            advice = f"the folder {place} has no model that {library} can load; save one there with save_pretrained"
        elif looks_like_folder:
            advice = f"there is no folder {place}"
        elif unreachable:
            raise UsageError(
                f"encoder {name!r}: there is no folder {place!r} here, no model of that name has been downloaded, and"
                f" there is no network connection to look for it ({unreachable}); give the folder of a model, or"
                " download the model while connected"
            ) from error
        else:
            advice = (
                f"there is no folder {place!r} here, and {library} found no model of that name; check the spelling and"
                " the network, or give a folder"
            )
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"encoder {name!r}: {advice} ({type(error).__name__}: {reason})") from error


def why_unreachable() -> str | None:
    """Asks the Hugging Face hub once; None if it answers. The libraries would ask for every file several times."""
    try:
        from huggingface_hub import constants
        from huggingface_hub.utils import get_session
    except ImportError:
        return None
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # from whichever library makes the requests
        return " ".join(f"{constants.ENDPOINT}: {error}".split())[:200]
    return None


@contextmanager
def offline() -> Iterator[None]:
    """Lets the libraries use earlier downloads only, and fail at once without one."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def quiet() -> Iterator[None]:
    """Hides the progress bars and messages of the libraries while a model is loaded or saved."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from transformers.utils import logging
        except ImportError:
            yield
            return
        level = logging.get_verbosity()
        bars = logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()


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

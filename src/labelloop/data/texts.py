"""Text as features: a column of texts through a function of the user's, named `module:factory`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from labelloop.errors import DataError, UsageError, nearest, some
from labelloop.types import Floats

BATCH = 256  # texts a call


@dataclass(frozen=True)
class TextForm:
    """How a text becomes an input; kept in model.json so that new texts are treated alike.

    Attributes:
        column: The column of the file.
        embedder: `module:factory`, where `factory()` returns a function from a list of texts to an array [N, D].
    """

    column: str
    embedder: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def embed_texts(texts: Sequence[str], form: TextForm, source: str, progress: bool | None = None) -> Floats:
    """Calls the function on batches of texts and checks what it returns.

    Args:
        texts: A text for every row, empty where there is none.
        form: Names the column and the function.
        source: Where the texts come from, for messages.
        progress: Whether to draw a progress bar; None draws one only in a terminal.

    Returns:
        The embeddings [n, D].

    Raises:
        UsageError: There is no such module or factory, or it does not return a function.
        DataError: The function fails, or returns something else than finite numbers [N, D] with the same D.
    """
    function = _load(form.embedder)
    parts: list[Floats] = []
    hide = None if progress is None else not progress
    with tqdm(total=len(texts), unit="text", desc="embedding", disable=hide, leave=False) as bar:
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            where = f"embedder {form.embedder!r}, rows {start} to {start + len(batch) - 1} of {source}"
            try:
                found = _array(function(batch))
            except Exception as error:  # the user's code may raise anything
                raise DataError(f"{where}: failed ({type(error).__name__}: {error})") from error
            width = parts[0].shape[1] if parts else None
            parts.append(_checked(found, len(batch), width, start, where))
            bar.update(len(batch))
    return np.concatenate(parts)


def _load(name: str) -> Callable[[list[str]], Any]:
    """The function that the factory returns. Modules are looked for in the current folder too."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise UsageError(f"embedder {name!r} is not of the form 'module:factory', such as 'my_texts:make'")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # last, so that no file there hides an installed module; kept for later imports
    importlib.invalidate_caches()
    try:
        module: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise UsageError(
            f"embedder {name!r}: cannot import {module_name!r} ({type(error).__name__}: {error}); its file must be in"
            f" the current folder ({os.getcwd()}), installed, or on PYTHONPATH"
        ) from error
    factory = module
    for part in attribute.split("."):
        if not hasattr(factory, part):
            own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            place = getattr(module, "__file__", None) or module_name
            raise UsageError(f"embedder {name!r}: {place} has no {attribute!r}; {nearest(attribute, own)}")
        factory = getattr(factory, part)
    if not callable(factory):
        raise UsageError(f"embedder {name!r}: {attribute!r} is a {type(factory).__name__}, not a function")
    try:
        function = factory()
    except Exception as error:  # the user's code may raise anything
        raise UsageError(
            f"embedder {name!r}: {attribute}() failed ({type(error).__name__}: {error}); it takes no arguments and"
            " returns a function from a list of texts to an array [N, D]"
        ) from error
    if not callable(function):
        raise UsageError(
            f"embedder {name!r}: {attribute}() returned a {type(function).__name__}; it must return a function from a"
            " list of texts to an array [N, D]"
        )
    return function


def _array(found: Any) -> NDArray:
    if hasattr(found, "toarray"):  # a sparse matrix
        found = found.toarray()
    elif hasattr(found, "detach"):  # a tensor, perhaps on another device
        found = found.detach().cpu().float()
    return np.asarray(found)


def _checked(found: NDArray, count: int, width: int | None, start: int, where: str) -> Floats:
    if found.dtype.kind not in "biuf":
        raise DataError(f"{where}: returned {found.dtype} and not numbers; return an array [N, D] of numbers")
    if found.ndim != 2 or len(found) != count or not found.shape[1]:
        raise DataError(f"{where}: {count} texts gave an array of shape {found.shape}; expected ({count}, D)")
    if width is not None and found.shape[1] != width:
        raise DataError(
            f"{where}: {found.shape[1]} numbers a text, and {width} in the rows before; every text needs the same"
        )
    with np.errstate(over="ignore"):  # said below
        values = found.astype(np.float32)
    bad = start + np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise DataError(
            f"{where}: numbers that are NaN, infinite or too large for float32 in row {some(bad)} (the first row is 0)"
        )
    return values

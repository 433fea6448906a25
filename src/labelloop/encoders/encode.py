"""Encodes each row once: rows in the cache are read from it, and the others are encoded and added to it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from labelloop.data.pillow import name_of, why_unreadable
from labelloop.encoders.cache import FeatureCache
from labelloop.encoders.encoder import IMAGE, TEXT, Encoder, Loaded, checked, key_of, opened, sorted_by_length
from labelloop.errors import DataError, some
from labelloop.large_arrays import Releaser, cache_folder, zeros
from labelloop.types import Floats, RawInputs

READ_AT_ONCE = 4096  # rows read from the cache at a time


@dataclass(frozen=True)
class Encoded:
    """Encoded rows.

    Attributes:
        features: [n, D] in row order, zeros where unreadable; if they are large, in a memory-mapped file.
        unreadable: The row and name of every image that cannot be opened, and the reason.
        from_cache: The number of rows whose features were in the cache.
        encoded: The number of rows that were not. Equal rows are encoded only once.
        preprocessing: How the encoder prepares a row for its network.
    """

    features: Floats
    unreadable: tuple[tuple[int, str, str], ...]
    from_cache: int
    encoded: int
    preprocessing: Mapping[str, Any]


def encode_rows(
    raw: RawInputs,
    encoder: Encoder,
    source: str = "the given rows",
    *,
    width: int | None = None,
    cache: Path | None = None,
    progress: bool | None = None,
) -> Encoded:
    """Computes the features of texts or images.

    Args:
        raw: The rows.
        encoder: An encoder from `open_encoder`.
        source: Where the rows come from, for messages.
        width: The expected numbers per row, if known.
        cache: The folder of the cache; by default that of `cache_folder`.
        progress: Whether to show a progress bar; None shows one only in a terminal.

    Raises:
        DataError: No row can be read, or the encoder fails or returns anything but finite numbers [N, D] with the
            same D for every row.
    """
    keys: list[bytes | None] = []
    unreadable: list[tuple[int, str]] = []
    for row, item in enumerate(raw.items):
        try:
            keys.append(key_of(item))
        except OSError as error:
            keys.append(None)
            unreadable.append((row, why_unreadable(item, error)))
    store = _open_cache(cache or cache_folder(), encoder)
    room = _Room(len(raw))
    kept = 0
    if store is not None and len(store):
        if width not in (None, store.width):
            raise DataError(
                f"{source}: encoder {encoder.name!r} returns {store.width} numbers per row, but the model expects"
                f" {width}; use the encoder that the model was trained with"
            )
        kept = _from_cache(store, keys, room)
    missing: dict[bytes, list[int]] = {}  # the rows with each content that is yet to be encoded
    for row in np.flatnonzero(~room.full).tolist():
        if (key := keys[row]) is not None:
            missing.setdefault(key, []).append(row)
    if missing:
        unreadable += _encode_missing(raw, encoder, missing, store, room, width, source, progress)
    if len(unreadable) == len(raw):
        first, reason = unreadable[0]
        raise DataError(f"{source}: no row can be read, for example {name_of(raw.items[first], first)} ({reason})")
    named = tuple((row, name_of(raw.items[row], row), reason) for row, reason in sorted(unreadable))
    about = None if missing or store is None else store.preprocessing  # a full cache needs no library
    about = encoder.load().preprocessing if about is None else about
    return Encoded(room.features, named, kept, len(raw) - len(named) - kept, about)


def _from_cache(store: FeatureCache, keys: Sequence[bytes | None], room: _Room) -> int:
    """Fills in the rows that are intact in the cache, and counts them."""
    found = store.find(keys)
    known = np.flatnonzero(found >= 0)
    kept = 0
    for start in range(0, len(known), READ_AT_ONCE):
        part = known[start : start + READ_AT_ONCE]
        values, whole = store.read(found[part])
        if whole.any():
            room.put(part[whole], values[whole])
        kept += int(whole.sum())
    return kept


def _encode_missing(
    raw: RawInputs,
    encoder: Encoder,
    missing: Mapping[bytes, Sequence[int]],
    store: FeatureCache | None,
    room: _Room,
    width: int | None,
    source: str,
    progress: bool | None,
) -> list[tuple[int, str]]:
    """Encodes each distinct content once, for all its rows; returns the rows that cannot be opened, with reasons."""
    loaded = encoder.load()
    if raw.kind == TEXT:
        _warn_of_texts(raw, loaded, encoder, source)
    twins = {rows[0]: (key, rows) for key, rows in missing.items()}
    order = sorted_by_length(raw, twins)
    unreadable: list[tuple[int, str]] = []
    hide = None if progress is None else not progress
    with tqdm(total=len(order), unit=raw.kind, desc="encoding", disable=hide, leave=False) as bar:
        for rows, items, bad in _batches(raw, order, loaded.rows):
            unreadable += [(twin, reason) for row, reason in bad for twin in twins[row][1]]
            if rows:
                values = _call(loaded, rows, items, room.width or width, encoder, source)
                if store is not None:
                    store.add([twins[row][0] for row in rows], values, loaded.preprocessing)
                for row, value in zip(rows, values, strict=True):
                    room.put(np.array(twins[row][1]), value)
            bar.update(len(rows) + len(bad))
    return unreadable


def _open_cache(root: Path, encoder: Encoder) -> FeatureCache | None:
    try:
        return FeatureCache(root, encoder)
    except OSError as error:
        warnings.warn(
            f"{root} is not writable ({error.strerror}): features are not cached for the next run; set LABELLOOP_CACHE",
            stacklevel=3,
        )
        return None


def _batches(
    raw: RawInputs, order: Sequence[int], size: int
) -> Iterator[tuple[list[int], list[Any], list[tuple[int, str]]]]:
    """Rows, their content, and rows that cannot be opened. Images are opened while the previous batch is encoded."""
    parts = [list(order[start : start + size]) for start in range(0, len(order), size)]
    if raw.kind != IMAGE:
        yield from (_opened(raw, part) for part in parts)
        return
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(_opened, raw, parts[0])
        for part in parts[1:]:
            ready, coming = coming.result(), pool.submit(_opened, raw, part)
            yield ready
        yield coming.result()


def _opened(raw: RawInputs, part: Sequence[int]) -> tuple[list[int], list[Any], list[tuple[int, str]]]:
    rows: list[int] = []
    items: list[Any] = []
    bad: list[tuple[int, str]] = []
    for row in part:
        try:
            items.append(opened(raw.items[row]))
            rows.append(row)
        except ImportError:
            raise
        except Exception as error:  # a damaged image can fail in any way
            bad.append((row, why_unreadable(raw.items[row], error)))
    return rows, items, bad


def _call(
    loaded: Loaded, rows: list[int], items: list[Any], width: int | None, encoder: Encoder, source: str
) -> Floats:
    where = f"{source}: encoder {encoder.name!r}, batch of {len(rows)} rows, lowest row {min(rows)}"
    try:
        found = loaded.encode(items)
    except Exception as error:  # a library or the user's code may raise anything
        raise DataError(f"{where}: failed ({type(error).__name__}: {' '.join(str(error).split())[:300]})") from error
    return checked(found, rows, width, where)


def _warn_of_texts(raw: RawInputs, loaded: Loaded, encoder: Encoder, source: str) -> None:
    empty = [row for row, text in enumerate(raw.items) if not text.strip()]
    # A word is at least one token, so these texts are certainly cut; counting tokens would read every text twice.
    limit = loaded.limit
    cut = [] if limit is None else [row for row, text in enumerate(raw.items) if _longer(text, limit)]
    longer = f"longer than the {limit} tokens that encoder {encoder.name!r} reads, so only their beginning is used"
    for rows, what in ((empty, "empty and all have the same features"), (cut, longer)):
        if rows:
            where = f"row {some(rows)} (the first row is 0)"
            warnings.warn(f"{source}: {len(rows)} texts are {what}: {where}", stacklevel=4)


def _longer(text: str, tokens: int) -> bool:
    return len(text) > tokens and (len(text) > 20 * tokens or len(text.split()) > tokens)


class _Room:
    """An array for the features of n rows, allocated once their width is known."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._features: NDArray | None = None
        self._release: Releaser | None = None
        self.full = np.zeros(rows, dtype=bool)

    @property
    def width(self) -> int | None:
        return None if self._features is None else self._features.shape[1]

    @property
    def features(self) -> Floats:
        assert self._features is not None
        return self._features

    def put(self, rows: NDArray, values: Floats) -> None:
        if self._features is None or self._release is None:
            self._features = zeros((self._rows, values.shape[-1]))
            self._release = Releaser(self._features)
        self._features[rows] = values
        self.full[rows] = True
        self._release(len(rows))

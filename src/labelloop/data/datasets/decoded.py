"""Decoded images of a data set, kept in the cache folder: decoding takes seconds, and every run of a bench reads them.

A file is named by the content it was decoded from, and written whole before it gets its name, so processes that meet
there find a whole file or none.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from labelloop.cache_folder import cache_folder
from labelloop.data.datasets.cifar_record import Split

VERSION = "1"  # of how images are decoded
FEWEST = 1000  # images that are worth a file
FOLDER = "decoded"


def decoded_once(files: Sequence[Path], about: Sequence[object], decode: Callable[[], Split]) -> Split:
    """What `decode` makes of the files, from the cache where it is there.

    Args:
        files: What is decoded.
        about: What else decides the result.
        decode: Makes it.
    """
    key = hashlib.blake2b("\0".join(map(str, (VERSION, *about))).encode(), digest_size=16)
    for path in files:
        with path.open("rb") as file:
            key.update(hashlib.file_digest(file, "blake2b").digest())
    place = cache_folder() / FOLDER / f"{key.hexdigest()}.npz"
    try:
        with place.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return Split(stored["images"], stored["labels"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # not there, or damaged
        pass
    split = decode()
    if len(split.images) >= FEWEST:
        _keep(place, split)
    return split


def _keep(place: Path, split: Split) -> None:
    """Writes it, if the folder takes it; decoding again costs only time."""
    partial = place.with_name(f".{place.stem}.{os.getpid()}.npz")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(partial, images=split.images, labels=split.labels)
        partial.replace(place)
    except OSError:
        partial.unlink(missing_ok=True)

"""A cache of decoded images: decoding takes seconds, and every run of a bench reads them.

A file is named by the content it was decoded from, and written atomically, so that parallel processes find a complete
file or none.
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

VERSION = "1"  # version of the decoding
FEWEST = 1000  # fewer images are not worth a file
FOLDER = "decoded"


def decoded_once(files: Sequence[Path], about: Sequence[object], decode: Callable[[], Split]) -> Split:
    """The result of `decode`, from the cache if it is there.

    Args:
        files: The files that are decoded.
        about: What else the result depends on.
        decode: Decodes the files.
    """
    key = hashlib.blake2b("\0".join(map(str, (VERSION, *about))).encode(), digest_size=16)
    for path in files:
        with path.open("rb") as file:
            key.update(hashlib.file_digest(file, "blake2b").digest())
    place = cache_folder() / FOLDER / f"{key.hexdigest()}.npz"
    try:
        with place.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return Split(stored["images"], stored["labels"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # missing or damaged
        pass
    split = decode()
    if len(split.images) >= FEWEST:
        _keep(place, split)
    return split


def _keep(place: Path, split: Split) -> None:
    """Writes it if possible; a failure only costs time later."""
    partial = place.with_name(f".{place.stem}.{os.getpid()}.npz")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(partial, images=split.images, labels=split.labels)
        partial.replace(place)
    except OSError:
        partial.unlink(missing_ok=True)

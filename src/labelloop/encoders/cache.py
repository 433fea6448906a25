"""A cache of features on disk, so that no row is encoded twice.

Each encoder and version has its own folder. There, `features.f32` holds rows of float32, and `keys.bin` holds a content
key and a checksum for each of these rows. Rows are only ever appended, to the features first, so an interrupted write
loses nothing but the rows being added.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.encoders.encoder import KEY, Encoder
from labelloop.errors import DataError
from labelloop.trust import file_in
from labelloop.types import Floats, Labels

try:
    import fcntl
except ImportError:  # Windows: there, only one process at a time may fill a cache
    fcntl = None  # type: ignore[assignment]

RECORD = KEY + 4  # bytes: the key, and the CRC-32 of the features
ABOUT, KEYS, FEATURES, LOCK = "about.json", "keys.bin", "features.f32", "lock"


class FeatureCache:
    """The features of one encoder in one version.

    Args:
        root: The folder that holds the caches of all encoders.
        encoder: The encoder that made the features.

    Raises:
        OSError: The folder cannot be created or read.
    """

    def __init__(self, root: Path, encoder: Encoder) -> None:
        library = encoder.name.partition(":")[0]
        digest = hashlib.blake2b(f"{library}\0{encoder.kind}\0{encoder.version}".encode(), digest_size=8).hexdigest()
        readable = re.sub(r"[^A-Za-z0-9.-]+", "-", encoder.name)[-40:].strip("-.")
        self.folder = root / f"{readable}-{digest}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._about = {"encoder": encoder.name, "kind": encoder.kind, "version": encoder.version}
        self.width: int | None = None  # numbers per row; None while the cache is empty
        self.preprocessing: Mapping[str, Any] | None = None  # how the encoder prepares a row; None while it is empty
        self._rows: dict[bytes, int] = {}
        self._sums: NDArray[np.uint32] = np.zeros(0, np.uint32)
        (self.folder / LOCK).touch()
        with self._locked():
            self._read()

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, keys: Sequence[bytes | None]) -> Labels:
        """The position of each key's features [n], -1 if they are not in the cache."""
        return np.array([-1 if key is None else self._rows.get(key, -1) for key in keys], dtype=np.int64)

    def read(self, positions: Labels) -> tuple[Floats, NDArray[np.bool_]]:
        """Features [n, D], and which rows are intact: a damaged row must be encoded again."""
        count = len(self._sums)
        assert self.width is not None
        stored = np.memmap(self.folder / FEATURES, np.float32, "r", shape=(count, self.width))
        features = np.array(stored[positions])
        whole = [zlib.crc32(row.tobytes()) == self._sums[p] for row, p in zip(features, positions, strict=True)]
        return features, np.array(whole, dtype=bool)

    def add(
        self, keys: Sequence[bytes], features: Floats, preprocessing: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Adds rows. Several processes may add at once; each sees the others' rows when it next opens the cache."""
        features = np.ascontiguousarray(features, np.float32)
        with self._locked():
            if not (self.folder / ABOUT).exists():
                self._write_about(features.shape[1], preprocessing)
            elif (kept := self._read_about()) != features.shape[1]:
                raise DataError(
                    f"{self.folder} has {kept} numbers per row, but its encoder returns {features.shape[1]}: delete it"
                )
            self.width = features.shape[1]
            start = self._whole_rows()
            sums = [zlib.crc32(row.tobytes()) for row in features]
            record = b"".join(key + s.to_bytes(4, "little") for key, s in zip(keys, sums, strict=True))
            for name, whole, more in ((FEATURES, 4 * self.width, features.data), (KEYS, RECORD, record)):
                with (self.folder / name).open("r+b" if (self.folder / name).exists() else "wb") as file:
                    file.truncate(start * whole)
                    file.seek(0, os.SEEK_END)
                    file.write(more)
            if start != len(self._sums):  # another process has added rows in the meantime
                self._read()
                return
            self._rows |= {key: start + i for i, key in enumerate(keys)}
            self._sums = np.concatenate([self._sums, np.array(sums, np.uint32)])

    def _read(self) -> None:
        self.width = self._read_about()
        count = self._whole_rows()
        records = np.zeros((0, RECORD), np.uint8)
        if count:
            records = np.fromfile(self.folder / KEYS, np.uint8, count * RECORD).reshape(-1, RECORD)
        self._sums = np.ascontiguousarray(records[:, KEY:]).view("<u4").ravel()
        self._rows = {record[:KEY].tobytes(): i for i, record in enumerate(records)}

    def _whole_rows(self) -> int:
        """The number of rows with both parts: a process may have been stopped between the two writes."""
        if self.width is None:
            return 0
        files = ((self.folder / KEYS, RECORD), (self.folder / FEATURES, 4 * self.width))
        return min(path.stat().st_size // whole if path.exists() else 0 for path, whole in files)

    def _read_about(self) -> int | None:
        try:
            about = json.loads(file_in(self.folder, ABOUT).read_text(encoding="utf-8"))
            kept, width = about.get("preprocessing"), int(about["width"])
            if width < 1:
                raise ValueError("no width")
            self.preprocessing = None if kept is None else dict(kept)
            return width
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise DataError(f"{self.folder / ABOUT} is damaged; delete its folder, which is only a cache") from None

    def _write_about(self, width: int, preprocessing: Mapping[str, Any]) -> None:
        about: dict[str, Any] = {**self._about, "width": width, "preprocessing": dict(preprocessing)}
        partial = self.folder / f".{ABOUT}.partial"  # one name, under the lock: a killed process leaves nothing behind
        partial.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.folder / ABOUT)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / LOCK).open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

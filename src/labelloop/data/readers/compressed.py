"""Files as bytes, decompressed if they end in .gz or .zst."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pyarrow as pa

from labelloop.errors import DataError

PACKED = {".gz": "gzip", ".zst": "zstd"}


def ending_of(path: Path) -> str:
    """The extension of a file without that of the compression: .csv for rows.csv.gz."""
    packed = path.suffix.lower() in PACKED
    return (path.with_suffix("") if packed else path).suffix.lower()


def content_of(path: Path) -> bytes:
    """The content of a file, decompressed."""
    packing = PACKED.get(path.suffix.lower())
    if packing is None:
        return path.read_bytes()
    try:
        if packing == "gzip":
            return gzip.decompress(path.read_bytes())
        with pa.input_stream(path, compression=packing) as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be decompressed ({error}); compress it again") from error

"""The trust boundary: what a stored file may name, where its paths may lead, how much its arrays may claim.

Code that it names runs only if the user says so.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError, some

PRETRAINED = "labelloop.encoders.network:pretrained"  # the one network of this form that is built in: an exact match
WORDS = "words"
LIBRARIES = ("sentence-transformers", "transformers", "timm")

_CODE = (".py", ".pyc", ".so", ".pkl", ".pickle", ".joblib", ".bin", ".pt", ".pth", ".ckpt", ".npy", ".npz")
_LARGEST = 2**26  # bytes of a JSON file that is looked through; a vocabulary has a few million
_OWN_PARTS = ("sentence_transformers.", "torch.")
_NAMING = ("type", "types", "activation_function")  # keys under which sentence-transformers names a class
_ON_HUB = re.compile(r"(hf[-_]hub:)?[^:?#\x00-\x1f]+")

NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # for `os.open`: a link that a stranger made is not written through
LONGEST, LONGEST_PART = 4000, 255  # letters that a path and a name of a file may have
# What numpy raises for a damaged header.
NO_HEADER = (ValueError, EOFError, SyntaxError, RecursionError, MemoryError, OverflowError, TypeError, TokenError)
# What zipfile raises for a damaged archive.
NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError)
SUSPICIOUS = 2**30  # bytes; an archive that grows beyond this and by more than MOST_GROWTH is a bomb
MOST_GROWTH = 200
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of archives that numpy and exports write
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%?")


@dataclass(frozen=True)
class Stored:
    """A file that names a network or an encoder.

    Attributes:
        file: Where the names were read.
        trust_code: Whether the user lets it name code.
    """

    file: Path
    trust_code: bool = False

    def check_network(self, network: Any, options: Any, field: str = "network") -> None:
        """Refuses a network that is code of the file's choice.

        Raises:
            DataError: The file names code, and the user has not said that it may; or it names nothing that can be one.
        """
        if not isinstance(network, str):
            raise DataError(f"{self.file}: {field} must be the name of a network, not {network!r:.80}")
        if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
            raise DataError(f"{self.file}: {field}_options must be a table of options, not {options!r:.80}")
        if network == PRETRAINED or "encoder" in options:
            self.check_encoder(options.get("encoder"), f"{field}_options.encoder")
        if network != PRETRAINED and ":" in network:
            self._import(network, field)

    def check_encoder(self, encoder: Any, field: str) -> None:
        """Refuses an encoder that is code of the file's choice, or a folder with code in it."""
        if not isinstance(encoder, str):
            raise DataError(f"{self.file}: {field} must be the name of an encoder, not {encoder!r:.80}")
        library, _, named = encoder.partition(":")
        if encoder == WORDS:
            return
        if library not in LIBRARIES:
            self._import(encoder, field)
            return
        place = named.removeprefix("local-dir:")
        try:
            folder = Path(place).expanduser()
            is_folder = folder.is_dir()
        except (RuntimeError, ValueError, OSError):  # no such user, or no path at all
            is_folder, place = False, ""
        if is_folder:
            self.check_folder(folder, field)
        elif place != named or not _ON_HUB.fullmatch(place):  # versions of timm differ in what they take for a folder
            raise DataError(f"{self.file}: {field} must be the name of an encoder, not {encoder!r:.80}")

    def check_folder(self, folder: Path, field: str) -> None:
        """Refuses the folder of a library's model that would make the library run code or unpickle something."""
        found = next(_code_in(folder), None) if folder.is_dir() else None
        if found is not None:
            self._import(found, field)

    def _import(self, name: str, field: str) -> None:
        if not self.trust_code:
            raise DataError(
                f"{self.file}: {field} names code to run, {name!r:.80}; nothing was imported. If you trust whoever made"
                " the file, say so with trust_code"
            )
        warnings.warn(f"{self.file}: {field} imports {name!r:.80}, as trust_code allows", stacklevel=4)


def _code_in(folder: Path) -> Iterator[str]:
    """What a library would run or unpickle if it loaded a model from a folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _CODE or path.name == "adapter_config.json" or (path.is_symlink() and path.is_dir()):
            yield str(path)
        elif path.suffix.lower() == ".json" and path.is_file():
            yield from (f"{path}: {name}" for name in _named_in(path))


def _named_in(path: Path) -> Iterator[str]:
    try:
        if path.stat().st_size > _LARGEST:
            yield "more text than a model needs"
            return
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # the library refuses it too
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            yield from (f"{key} {part[key]!r:.60}" for key in ("auto_map", "custom_pipelines") if part.get(key))
            named = [value for key in _NAMING for value in _values(part.get(key))]
            yield from (name for name in named if "." in name and not name.startswith(_OWN_PARTS))
            files = [name for name in _values(part.get("weight_map")) if not name.endswith(".safetensors")]
            yield from (f"weight_map {name!r:.60}" for name in files)


def _values(found: Any) -> list[str]:
    values = found.values() if isinstance(found, dict) else [found]
    return [value for value in values if isinstance(value, str)]


def safe_cell(cell: str) -> str:
    """A cell as a spreadsheet shows it, and does not run it: with an apostrophe in front; a number stays one."""
    formula = cell.lstrip(" ").startswith(FORMULA) and not NUMBER.fullmatch(cell.strip(" "))
    return f"'{cell}" if formula else cell


def is_inside(name: Any) -> bool:
    """Whether a name can only mean something below the folder that it is looked up in."""
    if not isinstance(name, str) or not name.strip("./\\ ") or "\0" in name:
        return False
    if len(name) > LONGEST or any(len(part) > LONGEST_PART for part in name.split("/")):
        return False
    as_windows = PureWindowsPath(name)  # takes / and \, and knows drives
    return (
        not name.startswith(("/", "\\")) and ".." not in as_windows.parts and not (os.name == "nt" and as_windows.drive)
    )


def inside(root: Path, name: Any, source: object) -> Path:
    """The path of a name that a file gave, below a folder.

    Args:
        root: The folder, which need not exist.
        name: A relative path in POSIX form.
        source: What gave the name, for the message.

    Raises:
        DataError: It is absolute, has a part "..", or a link on the way leads out of the folder.
    """
    if not is_inside(name):
        raise DataError(f"{source}: {name!r:.200} leads out of {root}, or is not a file name; nothing was done with it")
    place = root / name
    if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(root)):
        raise DataError(f"{source}: {name!r:.200} is a link that leads out of {root}; put the file there instead")
    return place


def all_inside(root: Path, names: Sequence[str], source: str) -> list[Path]:
    """The files that a table names, all of them inside its folder."""
    leaving = [name for name in names if not is_inside(name)]
    if leaving:
        raise DataError(
            f"{source}: {len(leaving)} file names lead out of {root}: {some(leaving)}; use paths inside that folder"
        )
    return [inside(root, name, source) for name in names]


def single_name(name: Any, source: object) -> str:
    """A name as one folder or file, not a path.

    Raises:
        DataError: It is a path, or cannot be the name of a folder.
    """
    text = str(name)
    if not is_inside(text) or "/" in text or "\\" in text or len(os.fsencode(text)) > 255:
        raise DataError(f"{source} {text!r:.80} cannot be the name of a folder; rename it and run again")
    return text


def file_in(folder: Path, name: str) -> Path:
    """A file of a run folder: there, a real file, and not a link to one elsewhere.

    Raises:
        FileNotFoundError: There is none.
        DataError: It is a folder, a pipe, a device, or a link that leads out of the folder.
    """
    path = folder / name
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise DataError(f"{path} is not a file but {_kind(mode)}; take it away, or give another folder")
    if path.is_symlink():
        inside(folder, name, folder)
    return path


def small_file(path: Path, most: int = 2**16) -> tuple[bytes, os.stat_result]:
    """The content of a file that holds a few words, up to a limit, and what the system knows of it.

    Raises:
        OSError: There is none, or it is a link, a pipe or a device, which is not waited for.
    """
    with open(path, "rb", opener=_no_waiting) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, f"it is {_kind(about.st_mode)}, not a file", str(path))
        return file.read(most), about


def _no_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | NO_LINK | getattr(os, "O_NONBLOCK", 0))


def no_links_out(folder: Path) -> None:
    """Refuses a tree that holds links out of it, pipes or devices.

    Raises:
        DataError: It holds one.
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place) / name
            if path.is_symlink():
                inside(folder, path.relative_to(folder).as_posix(), folder)
            elif not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISDIR(mode):
                raise DataError(f"{path} is not a file but {_kind(mode)}; take it away, or give another folder")


def _kind(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((words for is_kind, words in kinds.items() if is_kind(mode)), "a device")


def listing_of(root: Path, names: Iterable[str]) -> str:
    """A checksum of the names and sizes of files in a folder: tells whether it is still the same one."""
    digest = hashlib.sha256()
    for name in names:
        try:
            size = os.stat(root / name).st_size
        except (OSError, ValueError):
            size = -1
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def files_of(root: Path) -> list[str]:
    """The files of a tree, sorted, as paths below it; links to folders are not followed."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def check_header(file: IO[bytes], size: int, name: str, *, objects: bool = False) -> None:
    """Reads the header of an .npy file, and compares what it claims with the size of the file.

    Args:
        file: At its beginning.
        size: The bytes of the whole file.
        name: For the message.
        objects: Whether an array of Python objects may stand there, which nobody reads.

    Raises:
        ValueError: It is no array, one of objects, or one that is larger or smaller than the file.
    """
    why = None
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except NO_HEADER as error:  # a parser may call too deep a header a lack of memory, which it is not
        why = " ".join(str(error).split())[:100]
    if why is not None:
        raise ValueError(f"{name} is not an array ({why})")
    if dtype.hasobject and objects:
        return
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which are never unpickled (allow_pickle=False)")
    if any(length < 0 for length in shape):
        raise ValueError(f"{name} has a negative length")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != size - file.tell():
        raise ValueError(f"{name} claims {claimed} bytes of values, but the file holds {size - file.tell()}")


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turns what a library raises for lack of memory into a MemoryError, which nobody takes for a damaged file."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(str(error)) from None
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(str(error)) from None


def load_array(path: Path, *, mapped: bool = False) -> NDArray:
    """The array of an .npy file; if `mapped`, read when it is looked at.

    Raises:
        ValueError: It is damaged, or claims more than it holds.
    """
    with memory_errors(), path.open("rb") as file:
        check_header(file, os.fstat(file.fileno()).st_size, path.name)
        file.seek(0)
        return np.load(path if mapped else file, mmap_mode="r" if mapped else None, allow_pickle=False)


class TooLarge(ValueError):
    """A few bytes would become very many."""


def check_growth(size: int, total: int) -> None:
    """Refuses what becomes larger, once it is unpacked, than any data would.

    Raises:
        TooLarge: A few bytes would become very many.
    """
    if total > _most(size):
        raise TooLarge(f"its {size} bytes would become {total} or more; if you trust it, save it uncompressed")


def _most(size: int) -> int:
    return max(SUSPICIOUS, MOST_GROWTH * size)


def check_parquet(path: Path, about: Any) -> None:
    """Refuses a Parquet file that would grow as no data does: a few megabytes can name billions of equal values.

    Args:
        path: The file.
        about: Its metadata.

    Raises:
        TooLarge: It would.
    """
    import pyarrow.parquet as pq  # slow to import

    size = path.stat().st_size
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    claimed = max(sum(group.total_byte_size for group in groups), 8 * about.num_rows * about.num_columns)
    check_growth(size, claimed)
    columns = map(about.schema.column, range(about.num_columns))  # those of a group may be damaged, and end the process
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    if texts and sum(group.num_rows * group.total_byte_size for group in groups) > _most(size):
        with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:  # a long text may be repeated
            check_growth(size, sum(map(_written_out, file.read(use_threads=False).itercolumns())))


def _written_out(values: Any) -> int:
    """The bytes of texts, each as often as it is repeated; of lists of texts too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        return sum(map(_written_out, values.chunks))
    if pa.types.is_dictionary(values.type):
        lengths = pc.binary_length(values.dictionary).cast(pa.int64())
        return pc.sum(lengths.take(values.indices.drop_null())).as_py() or 0
    return _written_out(values.flatten()) if pa.types.is_list(values.type) else int(values.nbytes)


def check_archive(archive: zipfile.ZipFile, size: int, *, compressed: bool = True) -> None:
    """Checks the arrays of an .npz file.

    Args:
        archive: The file, open.
        size: Its bytes.
        compressed: Whether its arrays may be compressed.

    Raises:
        ValueError: A name or a header is wrong, or it would grow as no data does.
    """
    listed = archive.infolist()
    if len({info.filename for info in listed}) < len(listed):
        raise ValueError("two arrays have the same name")
    total = sum(info.file_size for info in listed)
    if not compressed and (total > size or any(info.compress_type != zipfile.ZIP_STORED for info in listed)):
        raise ValueError(f"it claims {total} bytes of arrays, but has {size}")
    check_growth(size, total)
    for info in listed:
        if info.flag_bits & 1 or info.compress_type not in COMPRESSIONS:
            raise ValueError(f"{info.filename} is encrypted, or compressed as no array is")
        if info.filename.endswith(".npy"):
            with archive.open(info) as member:
                check_header(member, info.file_size, info.filename, objects=compressed)


def load_arrays(path: Path) -> dict[str, NDArray]:
    """The arrays of an .npz file that we wrote, by name.

    Raises:
        ValueError: It is damaged, compressed, or claims more than it holds.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.stat().st_size, compressed=False)
        with memory_errors(), np.load(path, allow_pickle=False) as file:
            found: dict[str, Any] = dict(file)
    except NO_ARCHIVE as error:
        raise ValueError(str(error)) from None
    if not all(isinstance(values, np.ndarray) for values in found.values()):
        raise ValueError("it holds something that is not an array")
    return found

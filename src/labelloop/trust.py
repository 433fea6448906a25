"""The trust boundary: a stored file may name what is on our lists. Code that it names runs only if the user says so."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelloop.errors import DataError

PRETRAINED = "labelloop.encoders.network:pretrained"  # the one network of this form that is built in: an exact match
WORDS = "words"
LIBRARIES = ("sentence-transformers", "transformers", "timm")

_CODE = (".py", ".pyc", ".so", ".pkl", ".pickle", ".joblib", ".bin", ".pt", ".pth", ".ckpt", ".npy", ".npz")
_LARGEST = 2**26  # bytes of a JSON file that is looked through; a vocabulary has a few million
_OWN_PARTS = "sentence_transformers."


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
        library, _, place = encoder.partition(":")
        if encoder == WORDS:
            return
        if library not in LIBRARIES:
            self._import(encoder, field)
        else:
            try:
                folder = Path(place.removeprefix("local-dir:")).expanduser()
                is_folder = folder.is_dir()
            except (RuntimeError, ValueError, OSError):  # no such user, or no path at all
                raise DataError(f"{self.file}: {field} must be the name of an encoder, not {encoder!r:.80}") from None
            if is_folder:
                self.check_folder(folder, field)

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
        if path.suffix.lower() in _CODE:
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
    if path.name == "modules.json":
        parts = content if isinstance(content, list) else []
        kinds = [str(part.get("type")) for part in parts if isinstance(part, dict)]
        yield from (kind for kind in kinds if not kind.startswith(_OWN_PARTS))
    elif isinstance(content, dict):
        yield from (f"{key} {content[key]!r:.60}" for key in ("auto_map", "custom_pipelines") if content.get(key))

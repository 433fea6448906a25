"""The two kinds of error a user can cause. Both carry a message that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path


class UsageError(ValueError):
    """A flag, key or value that does not exist or does not fit. The command line exits with 2."""


class DataError(ValueError):
    """Data or a run folder that cannot be used as it is. The command line exits with 1."""


class ElsewhereError(DataError):
    """What another process of the same run refuses, and says. This one only ends."""


ARGUMENTS = (  # that messages name, and that have a flag of the same name
    "label_column clean_column id_column feature_columns embedding_column split_column category_columns trust_columns"
    " leave_out extra_columns file_name_column clean_file clean_folder image_size max_unreadable max_memory"
    " allow_overlap train_encoder trust_code"
)
FLAGS = {name: f"--{name.replace('_', '-')}" for name in ARGUMENTS.split()}
FLAGS |= {"labels_path": "--labels", "text_columns": "--text"}
NAMED = re.compile(rf"(?<![\w-])({'|'.join(FLAGS)})(?!\w)")


def with_flags(message: object) -> str:
    """A message with arguments written as flags: --label-column, not label_column."""
    return NAMED.sub(lambda found: FLAGS[found[1]], str(message))


def check_output(path: Path, *endings: str, overwrite: bool, inputs: Iterable[Path | str | None] = ()) -> None:
    """Refuses to write a file of another kind, or in place of one that may not be replaced, such as an input."""
    if path.suffix not in endings:
        ending = path.suffix or "a name without an ending"
        raise UsageError(f"{path}: cannot write {ending!r}; give a name that ends in {' or '.join(endings)}")
    if path.exists() and not overwrite:
        raise DataError(f"{path} exists; give another name, or --overwrite")
    if path.exists() and any(one is not None and Path(one).exists() and path.samefile(one) for one in inputs):
        raise DataError(f"{path} is what is read here, and is never replaced; give another name")


def nearest(name: str, known: Iterable[str]) -> str:
    """Ends a message about an unknown name: the nearest known name, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "known: " + ", ".join(known)


def some(values: Iterable[object], limit: int = 5) -> str:
    """The first few values of a list, for a message, and how many more there are."""
    values = list(values)
    shown = ", ".join(str(v) for v in values[:limit])
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"

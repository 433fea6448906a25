"""Errors and warnings as the command line shows them: one line each, with flags instead of argument names."""

from __future__ import annotations

import errno
import re
import sys

COLUMNS = ("label_column", "clean_column", "id_column", "feature_columns", "embedding_column", "split_column")
FLAGS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *COLUMNS,
        "extra_columns",
        "allow_overlap",
        "file_name_column",
        "image_size",
        "max_unreadable",
        "clean_file",
        "clean_folder",
        "max_memory",
        "trust_code",
    )
} | {
    "labels_path": "--labels",
    "text_column": "--text",
    "train_encoder": "--train-encoder",
}


def with_flags(message: object) -> str:
    """A message with arguments written as flags: --label-column, not label_column."""
    text = str(message)
    for name, flag in FLAGS.items():
        text = re.sub(rf"(?<![\w-]){name}(?!\w)", flag, text)
    return text


def is_full(error: OSError) -> bool:
    """Whether the disk has no room left, or the user's part of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def of_the_system(error: OSError) -> str:
    """An error of the operating system: the file, the reason and what to check."""
    if error.filename is None or error.strerror is None:
        return str(error)
    reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
    if is_full(error):
        return f"{error.filename}: {reason}; free some space, or choose another folder"
    return f"{error.filename}: {reason}; check the path, and that you may read and write there"


def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Replaces `warnings.showwarning`: prints our warnings, one per line, and drops those of libraries."""
    if issubclass(category, UserWarning):
        print(f"labelloop: warning: {with_flags(message)}", file=sys.stderr)

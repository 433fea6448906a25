"""An export that is killed leaves a mark, so that the same command can take away what it left, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from labelloop.errors import DataError
from labelloop.runs.lock import hold, release


@contextmanager
def marked(output: Path, beside: Sequence[Path], what: str) -> Iterator[bool]:
    """Keeps a mark next to the output while an export is written.

    What stands beside an output that does not exist, and has a mark, is of an export that was killed: nothing had these
    names when the mark was made. It is deleted.

    Args:
        output: What is written last.
        beside: What is written before.
        what: The export in words; the same words mean the same files.

    Yields:
        Whether the killed export was the same one, and had written everything.

    Raises:
        DataError: A file or folder has one of these names, and is not of a killed export.
    """
    mark = output.parent.resolve() / f".{output.name}.export"
    if not mark.exists():
        _refuse_existing(output, *beside)
    output.parent.mkdir(parents=True, exist_ok=True)
    left = hold(mark, what)
    try:
        if left is not None and not output.exists():
            for path in beside:
                path.unlink(missing_ok=True)
        done = left == what and output.exists()
        if not done:
            _refuse_existing(output, *beside)
        yield done
    finally:
        release(mark)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists() or path.is_symlink():
            raise DataError(f"{path} exists and is not overwritten; give another name with --output, or move it away")

"""runs/lock.py: what is left when taking a lock fails half way."""

from __future__ import annotations

import errno

import pytest

from labelloop.runs import lock as locks


def test_a_full_disk_is_the_error_even_if_the_lock_has_already_gone(tmp_path, monkeypatch):
    def full(_: object, file) -> None:
        (tmp_path / locks.LOCK).unlink()  # by somebody who cleans up
        raise OSError(errno.ENOSPC, "No space left on device", file.name)

    monkeypatch.setattr(locks.json, "dump", full)
    with pytest.raises(OSError, match="No space left on device"):
        locks.lock(tmp_path)
    assert list(tmp_path.iterdir()) == []

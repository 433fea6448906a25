"""The command line inside the test process."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from labelloop.cli import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command and gives its exit code, what it printed and what it said on stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with warnings.catch_warnings():  # also puts back warnings.showwarning, which the command line replaces
            code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run

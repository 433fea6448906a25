"""The command line inside the test process, as a user's shell would run it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
from cli_tools import Ran

from labelloop.cli import main


@pytest.fixture
def labelloop(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command and says how it ended. Any exception that gets out of it fails the test."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        with warnings.catch_warnings():  # also puts back warnings.showwarning, which the command line replaces
            warnings.simplefilter("error")
            warnings.filterwarnings("always", category=UserWarning)  # those it shows
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as end:  # argparse
                code = int(end.code or 0)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Ran(code, said.out, said.err)

    return run

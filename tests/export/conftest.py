"""The command line inside the test process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_runs import Ran

from labelloop.cli import main


@pytest.fixture
def labelloop(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command and says how it ended."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run

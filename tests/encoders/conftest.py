"""Encoders are saved once for all tests of this folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from stand_ins import stand_in_libraries as stand_in_libraries  # a fixture
from tiny_encoders import pictures_of, sentences_of, words_of

from labelloop.cli import main


def _saved(make: Callable[[Path], Path], folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the libraries warn while they are imported and while they save; that is theirs
        return make(folder)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks a server whether it is there."""
    monkeypatch.setattr("labelloop.encoders.library_encoders.why_unreachable", lambda: None)


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(words_of, tmp_path_factory.mktemp("encoder") / "tiny-bert")


@pytest.fixture(scope="session")
def sentence_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(sentences_of, tmp_path_factory.mktemp("encoder") / "tiny-sentences")


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(pictures_of, tmp_path_factory.mktemp("encoder") / "tiny-vit")


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def labelloop(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command as a user's shell would. Any exception that gets out of it fails the test."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("always", category=UserWarning)
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = int(end.code or 0)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run

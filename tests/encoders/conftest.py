"""Encoders are saved once for all tests of this folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_encoders import pictures_of, sentences_of, words_of


def _saved(make: Callable[[Path], Path], folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the libraries warn while they are imported and while they save; that is theirs
        return make(folder)


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(words_of, tmp_path_factory.mktemp("encoder") / "tiny-bert")


@pytest.fixture(scope="session")
def sentence_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(sentences_of, tmp_path_factory.mktemp("encoder") / "tiny-sentences")


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _saved(pictures_of, tmp_path_factory.mktemp("encoder") / "tiny-vit")

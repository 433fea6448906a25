"""An encoder of the user's own: batches, what may come back, and what a wrong module is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelloop.encoders.encode import Encoded, encode_rows
from labelloop.encoders.encoder import raw_inputs
from labelloop.encoders.inputs import ROWS, open_encoder
from labelloop.errors import DataError, UsageError

MODULE = """
import numpy as np
import scipy.sparse

calls = []

def lengths():
    def embed(texts):
        calls.append(len(texts))
        return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float64)
    return embed

def sparse():
    return lambda texts: scipy.sparse.csr_matrix([[len(text), 1] for text in texts])

def lists():
    return lambda texts: [[len(text)] for text in texts]

def tensors():
    import torch
    return lambda texts: torch.nn.Parameter(torch.tensor([[float(len(text))] for text in texts]))

def embed_itself(texts):
    return [[0.0] for _ in texts]

def returns_nothing():
    return None

def breaks():
    raise RuntimeError("no weights here")

def flat():
    return lambda texts: np.zeros(len(texts))

def one_short():
    return lambda texts: np.zeros((len(texts) - 1, 2))

def widths():
    return lambda texts: np.zeros((len(texts), 2 if len(texts) == 256 else 3))

def nan():
    return lambda texts: [[float("nan") if text == "bad" else 1.0] for text in texts]

def nan_for_bad():
    return lambda texts: [[float("nan") if text.strip() == "bad" else 1.0] for text in texts]

def words():
    return lambda texts: [[text] for text in texts]

def fails():
    def embed(texts):
        raise KeyError("oov")
    return embed

def bare_module():
    import torch
    return torch.nn.Linear(2, 3)

class Box:
    @staticmethod
    def make():
        return lambda texts: [[1.0] for _ in texts]

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current folder, which is on no path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    (tmp_path / "own_texts.py").write_text(MODULE)
    yield "own_texts"
    sys.modules.pop("own_texts", None)


def encoded(texts: list[str], name: str, **options: Any) -> Encoded:
    return encode_rows(raw_inputs(texts), open_encoder(name, "text"), "reviews.csv", **options)


def test_batches_keep_the_order_of_rows(module):
    texts = [f"{'a' * (i % 7)}b{i}" for i in range(ROWS + 10)]
    found = encoded(texts, f"{module}:lengths")
    assert found.features.tolist() == [[len(text), text.count("a")] for text in texts]
    assert found.features.dtype == np.float32
    assert sys.modules[module].calls == [2, ROWS, 10]  # two samples for the version, then the rows


@pytest.mark.parametrize(("factory", "width"), [("sparse", 2), ("lists", 1), ("tensors", 1), ("Box.make", 1)])
def test_many_forms_of_numbers(module, factory, width):
    assert encoded(["a", "bb"], f"{module}:{factory}").features.shape == (2, width)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("flat", "returned an array of shape (2,) for 2 rows; expected (2, D)"),
        ("one_short", "returned an array of shape (1, 2) for 2 rows; expected (2, D)"),
        ("nan", "reviews.csv: encoder 'own_texts:nan', batch of 2 rows, lowest row 0: returned NaN"),
        ("nan", "in row 1 (the first row is 0)"),
        ("words", ", not numbers"),
        ("fails", "failed (KeyError: 'oov')"),
    ],
)
def test_what_comes_back_is_checked(module, factory, words):
    with pytest.raises(DataError) as caught:
        encoded(["good", "bad"], f"{module}:{factory}")
    assert words in str(caught.value)


def test_bad_rows_are_named_in_order(module):
    with pytest.raises(DataError, match=r"in row 0, 2, 3 \(the first row is 0\)"):
        encoded(["bad", "a longer text", "bad  ", " bad"], f"{module}:nan_for_bad")


def test_another_width_than_before_is_refused_and_what_was_encoded_is_kept(module):
    texts = [f"text {i:03d}" for i in range(ROWS + 3)]
    with pytest.raises(DataError, match="3 numbers per row, but 2 before"):
        encoded(texts, f"{module}:widths")
    assert encoded(texts[:ROWS], f"{module}:widths").from_cache == ROWS
    with pytest.raises(DataError, match="returns 2 numbers per row, but the model expects 7"):
        encoded(texts[:ROWS], f"{module}:widths", width=7)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_texts:lenghts", "did you mean 'lengths'"),
        ("own_texts:number", "is a int, not a function"),
        ("own_texts:returns_nothing", "returned a NoneType; it must return a function that turns a list of texts"),
        ("own_texts:breaks", "failed (RuntimeError: no weights here)"),
        ("own_texts:embed_itself", "it takes no arguments"),
        ("own_texts:bare_module", "is a torch module without `preprocess`"),
        ("no_such_module:make", "cannot import 'no_such_module'"),
        ("own_texts", "is not of the form sentence-transformers:NAME"),
        ("transformer", "did you mean"),
        (":make", "is not of the form"),
        ("", "is not of the form"),
    ],
)
def test_a_wrong_name_says_what_to_do(module, name, words):
    with pytest.raises(UsageError) as caught:
        open_encoder(name, "text")
    assert words in str(caught.value)


def test_another_source_or_other_weights_make_another_version(module, tmp_path):
    before = open_encoder(f"{module}:lengths", "text").version
    assert open_encoder(f"{module}:lengths", "text").version == before
    assert open_encoder(f"{module}:sparse", "text").version != before
    Path(tmp_path, "scale.txt").write_text("1")
    Path(tmp_path, "own_scale.py").write_text(
        "from pathlib import Path\ndef make():\n    scale = float(Path('scale.txt').read_text())\n"
        "    return lambda texts: [[len(t) + scale, len(t) * scale] for t in texts]\n"
    )
    first = open_encoder("own_scale:make", "text").version
    Path(tmp_path, "scale.txt").write_text("3")  # the source is the same, what it makes of a text is not
    assert open_encoder("own_scale:make", "text").version != first
    sys.modules.pop("own_scale")


def test_rows_must_be_texts_or_images():
    with pytest.raises(UsageError, match=r"row 1 is of type int; an encoder takes texts"):
        raw_inputs([b"", 3])
    with pytest.raises(UsageError, match=r"row 0 is an array of float64, shape \(4,\)"):
        raw_inputs(np.zeros((2, 4)))
    with pytest.raises(DataError, match="no rows to encode"):
        raw_inputs([])
    assert raw_inputs(["a.png"], "timm:tiny").kind == "image"
    assert raw_inputs(np.zeros((2, 4, 4, 3), np.uint8)).kind == "image"
    assert raw_inputs(np.array(["a", "b"])).items == ["a", "b"]

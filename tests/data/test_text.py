"""Texts through a function of the user's: batches, what may come back, and what a wrong module is told."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.texts import BATCH, TextForm, embed_texts
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

def words():
    return lambda texts: [[text] for text in texts]

def fails():
    def embed(texts):
        raise KeyError("oov")
    return embed

class Box:
    @staticmethod
    def make():
        return lambda texts: [[1.0] for _ in texts]

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, which is on no path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    (tmp_path / "own_texts.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "own_texts", raising=False)
    yield "own_texts"
    sys.modules.pop("own_texts", None)


def test_texts_go_in_batches_and_come_back_in_order(module):
    texts = ["a" * (i % 7) + "b" for i in range(2 * BATCH + 10)]
    found = embed_texts(texts, TextForm("text", f"{module}:lengths"), "t.csv")
    assert found.dtype == np.float32
    assert found.tolist() == [[i % 7 + 1, i % 7] for i in range(len(texts))]
    assert sys.modules[module].calls == [BATCH, BATCH, 10]


@pytest.mark.parametrize(
    ("factory", "expected"),
    [("sparse", [[2, 1], [0, 1]]), ("lists", [[2], [0]]), ("tensors", [[2], [0]]), ("Box.make", [[1], [1]])],
)
def test_other_kinds_of_arrays(module, factory, expected):
    assert embed_texts(["ab", ""], TextForm("text", f"{module}:{factory}"), "t.csv").tolist() == expected


@pytest.mark.parametrize(
    ("embedder", "said"),
    [
        ("own_texts", "not of the form 'module:factory'"),
        ("no_such_module_here:make", "cannot import 'no_such_module_here'"),
        ("own_texts:lenghts", "has no 'lenghts'; did you mean 'lengths'"),
        ("own_texts:number", "'number' is a int, not a function"),
        ("own_texts:embed_itself", "embed_itself() failed"),
        ("own_texts:breaks", "no weights here"),
        ("own_texts:returns_nothing", "returned a NoneType"),
    ],
)
def test_a_wrong_factory_is_refused(module, embedder, said):
    with pytest.raises(UsageError) as error:
        embed_texts(["a"], TextForm("text", embedder), "t.csv")
    assert said in str(error.value)
    assert repr(embedder) in str(error.value)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("flat", "rows 0 to 255 of t.csv: 256 texts gave an array of shape (256,); expected (256, D)"),
        ("one_short", "gave an array of shape (255, 2)"),
        ("widths", "rows 256 to 299 of t.csv: 3 numbers a text, and 2 in the rows before"),
        ("nan", "in row 280 (the first row is 0)"),
        ("words", "and not numbers"),
        ("fails", "rows 0 to 255 of t.csv: failed (KeyError: 'oov')"),
    ],
)
def test_a_wrong_answer_is_refused(module, factory, said):
    texts = ["good"] * 280 + ["bad"] + ["good"] * 19
    with pytest.raises(DataError) as error:
        embed_texts(texts, TextForm("text", f"{module}:{factory}"), "t.csv")
    assert said in str(error.value)
    assert f"'{module}:{factory}'" in str(error.value)


def test_a_text_is_taken_as_it_is_written(module, tmp_path):
    (tmp_path / "t.csv").write_text('target,other,label\n007,1,x\n,2,y\n"NA, a",3,x\n')
    table = read_table(tmp_path / "t.csv", ReadOptions(text_column="target", embedder=f"{module}:lengths"))
    assert table.inputs.tolist() == [[3, 0], [0, 0], [5, 1]]  # by its name it could be the label, and by sight a number
    assert table.column_names == ("target[0]", "target[1]")
    assert table.labels.tolist() == ["x", "y", "x"]
    assert table.text_form == TextForm("target", f"{module}:lengths")
    assert table.origin["options"]["embedder"] == f"{module}:lengths"


def test_null_in_json_lines_is_an_empty_text(module, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": null, "label": "x"}\n{"text": "ab", "label": "y"}\n{"label": "y"}\n')
    table = read_table(tmp_path / "t.jsonl", ReadOptions(text_column="text", embedder=f"{module}:lengths"))
    assert table.inputs[:, 0].tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("no column 'txt'; did you mean 'text'", {"text_column": "txt"}),
        ("'label' is the text and has another use", {"text_column": "label", "label_column": "label"}),
        ("column 'size' is of type int64, not text", {"text_column": "size"}),
        ("leave other features out", {"text_column": "text", "feature_columns": ["size"]}),
        ("give both", {"text_column": "text", "embedder": None}),
        ("give both", {"text_column": None}),
    ],
)
def test_wrong_columns_are_refused(module, tmp_path, said, options):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "size": 1, "label": "x"}\n')
    with pytest.raises((DataError, UsageError)) as error:
        read_table(tmp_path / "t.jsonl", ReadOptions(**{"embedder": f"{module}:lengths", **options}))
    assert said in str(error.value)


def test_arrays_and_folders_have_no_texts(module, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))
    for path in (tmp_path / "x.npy", tmp_path):
        with pytest.raises(UsageError, match="a column of a table"):
            read_table(path, ReadOptions(text_column="text", embedder=f"{module}:lengths"))

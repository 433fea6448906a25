"""Texts through fit, predict and correct: the run knows how they were embedded."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_tools import QUICK, labels_of, run_json, settings, small, write_csv

DATA = small()
WORDS = ("hill honey queen", "flower wing sting", "purr milk paw")
MODULE = """
def make():
    words = "hill honey queen flower wing sting purr milk paw".split()
    return lambda texts: [[float(text.count(word)) for word in words] for text in texts]

def wider():
    return lambda texts: [[0.0] * 12 for _ in texts]
"""


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A table of texts whose words tell the true class, and the module that embeds them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    (tmp_path / "cli_texts.py").write_text(MODULE)
    rng = np.random.default_rng(1)
    lines = [" ".join(rng.permutation(WORDS[k].split())[:2]) if i % 10 else "" for i, k in enumerate(DATA.true)]
    labels = {"label": DATA.names(DATA.y), "clean_label": DATA.names(DATA.y_clean)}
    yield write_csv(tmp_path / "texts.csv", {"id": DATA.ids, "review": lines, "stars": range(120), **labels})
    sys.modules.pop("cli_texts", None)


def test_predict_embeds_as_fit_did(labelloop, texts, tmp_path):
    run = tmp_path / "run"
    held_out = {"review": list(WORDS), "label": ["ant", "bee", "cat"], "stars": [1, 2, 3]}
    held_out = write_csv(tmp_path / "test.csv", held_out)
    done = labelloop(
        *("fit", texts, "--text", "review", "--encoder", "cli_texts:make", "--output-dir", run, "--test", held_out),
        *(*settings(QUICK), "--set", "learning_rate=0.1"),
    )
    assert done.code == 0, done.err
    about = json.loads((run / "model.json").read_text())
    form = about["encoder_form"]
    assert (form["name"], form["kind"], form["column"], form["width"]) == ("cli_texts:make", "text", "review", 9)
    assert about["input_shape"] == [10]  # and the stars beside the text
    assert run_json(run)["source"]["options"] == {"text_columns": ["review"], "encoder": "cli_texts:make"}
    assert "texts are empty" in done.err

    assert labelloop("predict", run, texts, "--output", tmp_path / "p.csv", "--trust-code").code == 0
    with (tmp_path / "p.csv").open() as file:
        predicted = [row["predicted_label"] for row in csv.DictReader(file)]
    assert predicted == labels_of(run)["predicted_label"]

    # Another name of the column, and no label: the run's function all the same.
    new = write_csv(tmp_path / "new.csv", {"comment": ["purr milk", "honey queen"], "stars": [1, 2]})
    told = labelloop("predict", run, new, "--trust-code")
    assert told.code == 1
    assert "no column 'review'; " in told.err
    assert labelloop("predict", run, new, "--text", "comment", "--trust-code").code == 0
    told = labelloop("predict", run, new, "--text", "comment", "--encoder", "cli_texts:wider", "--trust-code")
    assert told.code == 1
    assert "12 numbers per row, but 9 before" in told.err


@pytest.mark.real_relabelling
def test_correct_takes_texts(labelloop, texts, tmp_path):
    done = labelloop(
        "correct", texts, "--text", "review", "--encoder", "cli_texts:make", "--output", tmp_path / "l.parquet"
    )
    assert done.code == 0, done.err
    corrected = pq.read_table(tmp_path / "l.parquet")["corrected_label"].to_pylist()
    told = np.arange(120) % 10 != 0  # the others have no text
    right = np.array(corrected) == np.array(DATA.names(DATA.true))
    assert right[told].mean() > 0.95


def test_messages_speak_of_flags(labelloop, texts, tmp_path):
    done = labelloop("fit", texts, "--text", "review", "--encoder", "cli_texts:mke", "--output-dir", tmp_path / "run")
    assert (done.code, "encoder 'cli_texts:mke'" in done.err, "did you mean 'make'" in done.err) == (2, True, True)
    both = ("--text", "review,stars", "--encoder", "cli_texts:make")
    done = labelloop("fit", texts, "--output-dir", tmp_path / "run", *both)
    assert (done.code, "an encoder reads one column of texts; name one" in done.err) == (2, True)
    assert not (tmp_path / "run").exists()

"""Every method through the command line: what it cannot train on is refused in words, before anything is written."""

from __future__ import annotations

import pytest
from cli_tools import QUICK_BASELINE, contents, named_csv, settings
from test_bad_input import (
    DATA,
    fewer_labels_than_rows,
    infinite_array,
    label_outside_the_classes,
    no_clean_rows,
    no_noisy_rows,
    one_class_only,
    one_clean_row,
)

from labelloop.methods import METHODS

OTHERS = [name for name, method in METHODS.items() if name != "labelloop" and not method.is_oracle]
MORE = {
    "labelloop": ["rounds=1", "learners=networks"],
    "closed-loop": ["warm_up=1", "correct_every=1", "corrector.max_epochs=3"],
    "l2b": ["warm_up=1"],
    "dividemix": ["warm_up=1"],
    "logistic-corrector": ["warm_up=1"],
    "dmlp": ["purify_epochs=2"],
    "dmlp-nossl": ["purify_epochs=2", "warm_up=1"],
    "co-teaching": ["noise_rate=0.3"],
}
DATA_CASES = [
    *(no_clean_rows, one_clean_row, one_class_only, no_noisy_rows, label_outside_the_classes, infinite_array),
    fewer_labels_than_rows,
]


def quick(method: str, *more: str) -> list[str]:
    return ["--method", method, *settings([*QUICK_BASELINE, *MORE.get(method, []), *more])]


def without_a_class(folder, *names):
    clean = ["" if name in names else name for name in DATA.names(DATA.y_clean)]
    return named_csv(folder / "rows.csv", DATA, clean_label=clean)


@pytest.mark.parametrize("write", DATA_CASES, ids=lambda case: case.__name__)
def test_all_methods_refuse_bad_rows_in_the_words_of_the_default(write, labelloop, tmp_path):
    arguments = write(tmp_path)
    before = contents(tmp_path)
    expected = labelloop("fit", *arguments, "--output-dir", tmp_path / "run")
    assert expected.code == 1
    for method in OTHERS:
        assert labelloop("fit", *arguments, "--output-dir", tmp_path / "run", *quick(method)) == expected, method
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("method", "missing", "code", "words"),
    [
        ("glc", ("cat",), 1, "no clean row of class 'cat'"),
        ("fasten", ("bee", "cat"), 1, "no clean row of class 'bee', 'cat'"),
        ("logistic-corrector", ("bee", "cat"), 1, "clean rows of at least two classes"),
        ("co-teaching", (), 2, "set noise_rate"),
    ],
)
def test_what_a_method_cannot_use_is_refused_before_an_old_run_is_replaced(
    method, missing, code, words, labelloop, tmp_path
):
    data = without_a_class(tmp_path, *missing)
    if method == "co-teaching":  # no clean row has a given label, so nobody can count the wrong ones
        data = named_csv(tmp_path / "rows.csv", DATA, label=[""] * 24 + DATA.names(DATA.y)[24:])
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "metrics.jsonl", "labels.parquet", "model.json"):
        (run / name).write_text("{}")
    before = contents(tmp_path)
    flags = ["--method", method, *settings(["epochs=3", *(["warm_up=1"] if method == "logistic-corrector" else [])])]
    for place, more in ((run, ["--overwrite"]), (tmp_path / "new", [])):
        ended = labelloop("fit", data, "--output-dir", place, *flags, *more)
        assert ended.code == code
        assert words in ended.err.splitlines()[-1]
        assert ("rows.csv: " in ended.err.splitlines()[-1]) is (code == 1)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("method", [*OTHERS, "labelloop"])
def test_a_training_that_breaks_down_says_so(method, labelloop, tmp_path):
    data = named_csv(tmp_path / "rows.csv", DATA)
    flags = quick(method, "learning_rate=1e30")
    ended = labelloop("fit", data, "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 1
    assert "training broke down" in ended.err
    assert "lower learning_rate" in ended.err


@pytest.mark.parametrize("method", [*OTHERS, "labelloop"])
def test_a_single_noisy_row_is_enough_to_run(method, labelloop, tmp_path):
    labels = [""] * 24 + ["ant"] + [""] * 95
    data = named_csv(tmp_path / "rows.csv", DATA, label=labels)
    assert labelloop("fit", data, "--output-dir", tmp_path / "run", *quick(method)).code == 0

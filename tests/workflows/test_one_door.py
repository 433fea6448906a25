"""One door: the command line, a path, a data frame and the estimator read the same rows and give the same result."""

from __future__ import annotations

import doctest
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import labelloop
from labelloop import DataError, LabelLoopClassifier, UsageError
from labelloop.cli import main

CONFIG = {"epochs": 3, "rounds": 1}
SETTINGS = ["--set", "epochs=3", "--set", "rounds=1"]
WORDS = (("fast", "red", "small"), ("slow", "blue", "large"))


def columns(count=120):
    """Numbers with gaps, categories, dates, money and texts that tell the class."""
    rng = np.random.default_rng(0)
    true = np.arange(count) % 2
    given = np.where(rng.random(count) < 0.2, 1 - true, true)
    size = (true + rng.normal(size=count)).round(3).tolist()
    size[5] = None
    return true, {
        "size": size,
        "kind": [f"k{(k * 7 + i) % 9}" for i, k in enumerate(true)],
        "when": [f"2024-0{1 + i % 9}-1{i % 9}" for i in range(count)],
        "price": [f"${1000 + 10 * k + i:,}.50" for i, k in enumerate(true)],
        "note": [f"a {rng.choice(WORDS[k])} and {rng.choice(WORDS[k])} thing {i}" for i, k in enumerate(true)],
        "label": [("cat", "dog")[k] for k in given],
        "clean_label": [("cat", "dog")[k] if i % 3 == 0 else None for i, k in enumerate(true)],
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("door") / "rows.csv"
    pa.csv.write_csv(pa.table(columns()[1]), path)
    return path


def frames():
    """The rows in every type of frame that is installed."""
    table = pa.table(columns()[1])
    found = {"arrow": table}
    for name in ("pandas", "polars"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        found[name] = table.to_pandas() if name == "pandas" else module.from_arrow(table)
    return found


def test_correct_gives_the_same_bits_through_every_door(file, tmp_path):
    assert main(["correct", str(file), "--output-dir", str(tmp_path / "run"), "--quiet"]) == 0
    expected = np.load(tmp_path / "run" / "targets.npy").tobytes()
    assert labelloop.correct(file).corrected_proba.tobytes() == expected
    assert labelloop.correct(str(file), label="label", clean="clean_label").corrected_proba.tobytes() == expected
    for name, frame in frames().items():
        result = labelloop.correct(frame, label="label", clean="clean_label")
        assert result.corrected_proba.tobytes() == expected, name
        assert type(result.frame) is type(frame)
        found = result.frame["corrected_label"]
        found = found.to_pylist() if name == "arrow" else found.to_list()
        assert found == result.corrected_labels.tolist()
    inputs = pa.table({k: v for k, v in columns()[1].items() if "label" not in k})
    labels = columns()[1]
    apart = labelloop.correct(labels["label"], labels["clean_label"], embeddings=inputs)
    assert apart.corrected_proba.tobytes() == expected


def test_fit_gives_the_same_bits_through_every_door(file, tmp_path):
    assert main(["fit", str(file), "--output-dir", str(tmp_path / "run"), "--quiet", *SETTINGS]) == 0
    expected = np.load(tmp_path / "run" / "targets.npy").tobytes()
    by_path = labelloop.fit(file, config=CONFIG, progress=False)
    assert by_path.corrected_proba.tobytes() == expected
    for name, frame in frames().items():
        result = labelloop.fit(frame, label="label", clean="clean_label", config=CONFIG, progress=False)
        assert result.corrected_proba.tobytes() == expected, name
        assert result.predicted_proba.tobytes() == by_path.predicted_proba.tobytes()
        assert type(result.frame) is type(frame)
    made = columns()[1]
    inputs = pa.table({k: v for k, v in made.items() if "label" not in k})
    model = LabelLoopClassifier(config=CONFIG, random_state=0).fit(inputs, made["label"], y_clean=made["clean_label"])
    assert model.corrected_proba_.tobytes() == expected
    stored = labelloop.load_model(tmp_path / "run")
    np.testing.assert_array_equal(stored.predict_proba(inputs), by_path.predicted_proba)
    np.testing.assert_array_equal(model.predict_proba(inputs), by_path.predicted_proba)
    assert main(["predict", str(tmp_path / "run"), str(file), "--output", str(tmp_path / "p.csv")]) == 0
    predicted = pa.csv.read_csv(tmp_path / "p.csv")["predicted_label"].to_pylist()
    assert predicted == stored.predict(inputs).tolist()


def test_a_frame_of_numbers_with_gaps_and_one_of_texts():
    true, made = columns()
    gaps = pa.table({"size": made["size"], "two": [float(i % 7) for i in range(len(true))]})
    result = labelloop.fit(gaps, made["label"], made["clean_label"], config=CONFIG, progress=False)
    assert result.model.column_names == ("size", "size=(missing)", "two")
    texts = labelloop.fit(made["note"], made["label"], made["clean_label"], config=CONFIG, progress=False)
    assert texts.model.encoding[0].kind == "text"
    assert texts.model.predict(["a fast red thing", "a slow blue thing"]).shape == (2,)


def test_results_keep_the_index_and_the_columns():
    pandas = pytest.importorskip("pandas")
    frame = pa.table(columns()[1]).to_pandas()
    frame["changed"] = 1
    frame.index = pandas.Index([f"r{i}" for i in range(len(frame))], name="row")
    result = labelloop.correct(frame, label="label", clean="clean_label", columns={"leave_out": "changed"})
    assert result.frame.index.equals(frame.index)
    assert list(result.frame.columns[: frame.shape[1]]) == list(frame.columns)
    assert (result.frame["changed"] == 1).all()  # the user's own
    assert result.frame["labelloop_changed"].dtype == bool
    series = labelloop.correct(frame["label"], frame["clean_label"], embeddings=frame[["size", "kind"]])
    assert series.frame.index.equals(frame.index)


def test_indexes_that_disagree_are_an_error():
    pytest.importorskip("pandas")
    frame = pa.table(columns()[1]).to_pandas()
    inputs, turned = frame[["size", "kind"]], frame["clean_label"].iloc[::-1]
    message = r"different indexes: row 0 is 0 in X and 119 in y_clean .* y_clean.loc\[X.index\]"
    with pytest.raises(DataError, match=message):
        labelloop.fit(inputs, frame["label"], turned)
    with pytest.raises(DataError, match=message):
        LabelLoopClassifier().fit(inputs, frame["label"], turned)
    with pytest.raises(DataError, match="row 0 is 0 in y and 119 in y_clean"):
        labelloop.correct(frame["label"], turned, embeddings=inputs)


def test_a_repr_is_one_line_and_a_notebook_gets_a_page():
    result = labelloop.correct(pa.table(columns()[1]))
    assert repr(result).startswith("<CorrectionResult: 120 rows, 2 classes, ")
    assert len(repr(result)) < 120
    assert "<" in result._repr_html_()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f: labelloop.correct(f, columns={"lable_column": "x"}), UsageError, "did you mean 'label_column'"),
        (lambda f: labelloop.correct(f, label="lable"), DataError, "no column 'lable'; did you mean 'label'"),
        (lambda f: labelloop.correct(f, [1, 2]), UsageError, "all rows are in the data frame or file"),
        (lambda f: labelloop.correct(f["label"], label="x"), UsageError, "are about a data frame or a file"),
        (lambda f: labelloop.correct(f["label"]), UsageError, "no clean labels"),
        (lambda f: labelloop.fit(f, None, [1]), UsageError, "name their columns with label and clean"),
        (lambda f: labelloop.fit(f, f["label"], f["clean_label"], label="label"), UsageError, "that holds the labels"),
        (lambda f: labelloop.fit(np.zeros((3, 2))), UsageError, "no labels: give y and y_clean"),
        (lambda f: labelloop.fit("nowhere.csv"), DataError, "nowhere.csv: no such file"),
    ],
)
def test_what_contradicts_itself_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call(pa.table(columns()[1]))


@pytest.mark.real_relabelling
def test_the_examples_in_the_help_run():
    from labelloop.workflows import correct, fit

    for module in (correct, fit):
        found = doctest.testmod(module)
        assert found.attempted >= 7
        assert found.failed == 0


def test_torch_is_imported_when_a_network_is_trained_and_not_before():
    code = (
        "import sys, numpy as np, labelloop\n"
        "labelloop.LabelLoopClassifier()\n"
        "y = np.arange(60) % 2; X = y[:, None] + np.random.default_rng(0).normal(size=(60, 2))\n"
        "labelloop.correct(y, np.where(np.arange(60) < 30, y, -1), embeddings=X)\n"
        "print('torch' in sys.modules)\n"
        "labelloop.fit(X, y, np.where(np.arange(60) < 3, y, -1), config={'epochs': 1, 'learners': 'networks'})\n"
        "print('torch' in sys.modules, 'torch._dynamo' in sys.modules)\n"  # the compiler takes two seconds to import
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True", "False"], done.stderr

"""`labelloop fit` from file to run folder."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tools import (
    COLUMNS,
    NAMES,
    QUICK,
    QUICK_BASELINE,
    QUICK_LOOP,
    contents,
    labels_of,
    metrics_of,
    named_csv,
    numbers,
    run_json,
    settings,
    small,
    write_csv,
)

from labelloop.methods import METHODS
from labelloop.methods.closed_loop import CorrectorConfig
from labelloop.runs.run_json import SCHEMA_VERSION

pytestmark = pytest.mark.slow

DATA = small()
FILES = (
    "run.json",
    "manifest.json",
    "metrics.jsonl",
    "labels.parquet",
    "targets.npy",
    "features.npz",
    "preview.parquet",
    "report.html",
    "model.safetensors",
    "model.json",
    "checkpoint",
)


def lists(X: np.ndarray) -> pa.Array:
    return pa.array(X.tolist(), pa.list_(pa.float32()))


def csv_names(folder: Path) -> list[object]:
    return [named_csv(folder / "rows.csv", DATA)]


def csv_ints(folder: Path) -> list[object]:
    labels = [["" if v < 0 else str(v) for v in values] for values in (DATA.y, DATA.y_clean)]
    return [write_csv(folder / "rows.csv", {**numbers(DATA), "label": labels[0], "clean_label": labels[1]})]


def tsv_names(folder: Path) -> list[object]:
    text = named_csv(folder / "rows.csv", DATA).read_text()
    (folder / "rows.tsv").write_text(text.replace(",", "\t"))
    return [folder / "rows.tsv"]


def parquet_names(folder: Path) -> list[object]:
    labels = {
        "label": pa.array([v or None for v in DATA.names(DATA.y)]).dictionary_encode(),
        "clean_label": pa.array([v or None for v in DATA.names(DATA.y_clean)]),
    }
    pq.write_table(pa.table({"id": DATA.ids, **numbers(DATA), **labels}), folder / "rows.parquet")
    return [folder / "rows.parquet"]


def parquet_ints(folder: Path) -> list[object]:
    labels = {key: pa.array(v, mask=v < 0) for key, v in (("label", DATA.y), ("clean_label", DATA.y_clean))}
    pq.write_table(pa.table({**numbers(DATA), **labels}), folder / "rows.parquet")
    return [folder / "rows.parquet"]


def parquet_embedding(folder: Path) -> list[object]:
    columns = {"vector": lists(DATA.X), "given": DATA.names(DATA.y), "checked": DATA.names(DATA.y_clean)}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    flags = ["--embedding-column", "vector", "--label-column", "given", "--clean-column", "checked"]
    return [folder / "rows.parquet", *flags]


def npz_ints(folder: Path) -> list[object]:
    np.savez(folder / "rows.npz", X=DATA.X, y=DATA.y, y_clean=DATA.y_clean)
    return [folder / "rows.npz"]


def npz_names(folder: Path) -> list[object]:
    labels: dict[str, Any] = {"y": np.array(DATA.names(DATA.y)), "y_clean": np.array(DATA.names(DATA.y_clean))}
    np.savez(folder / "rows.npz", X=DATA.X, ids=np.array(DATA.ids), **labels)
    return [folder / "rows.npz"]


def npy_ints(folder: Path) -> list[object]:
    np.save(folder / "X.npy", DATA.X)
    np.save(folder / "y.npy", np.where(DATA.y < 0, np.nan, DATA.y))
    np.save(folder / "checked.npy", DATA.y_clean)
    return [folder / "X.npy", "--labels", folder / "y.npy", "--clean-file", folder / "checked.npy"]


# Of arrays all columns are scaled alike and of named columns each by itself, so there are two results.
NAMED_COLUMNS = (csv_names, csv_ints, tsv_names, parquet_names, parquet_ints)
ARRAYS = (parquet_embedding, npz_ints, npz_names, npy_ints)


@pytest.fixture(scope="module")
def targets_by_scaling() -> dict[str, np.ndarray]:
    return {}


@pytest.mark.parametrize("write", NAMED_COLUMNS + ARRAYS, ids=lambda write: write.__name__)
def test_every_format_gives_the_whole_run_folder_and_the_same_labels(write, labelloop, tmp_path, targets_by_scaling):
    run = tmp_path / "run"
    ended = labelloop("fit", *write(tmp_path), "--output-dir", run, *settings(QUICK))
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert "120 rows, 3 classes, 2 corrections" in ended.out
    assert str(run) in ended.out
    assert sorted(path.name for path in run.iterdir()) == sorted(FILES)

    classes = [0, 1, 2] if write.__name__.endswith("ints") else list(NAMES)
    name = [*classes, None]  # name[-1] is the missing one
    labels = labels_of(run)
    with_ids = write in (csv_names, tsv_names, parquet_names, npz_names)
    assert labels["id"] == (DATA.ids if with_ids else [str(i) for i in range(120)])
    assert labels["given_label"] == [name[label] for label in DATA.y]
    assert labels["corrected_label"][:24] == [name[label] for label in DATA.y_clean[:24]]
    assert set(labels["predicted_label"]) <= set(classes)
    assert None not in labels["corrected_label"]
    assert json.loads((run / "model.json").read_text())["classes"] == classes
    assert run_json(run)["data"]["classes"] == [str(c) for c in classes]

    predicted = labelloop("predict", run, write(tmp_path)[0])
    assert predicted.code == 0, predicted.err
    assert [line.split(",")[1].strip('"') for line in predicted.out.splitlines()[1:]] == [
        str(label) for label in labels["predicted_label"]
    ]

    targets = np.load(run / "targets.npy")
    np.testing.assert_allclose(targets.sum(axis=1), 1, atol=1e-5)
    seen = targets_by_scaling.setdefault("columns" if write in NAMED_COLUMNS else "whole", targets)
    np.testing.assert_array_equal(seen, targets)


def test_labels_parquet_says_what_its_columns_mean(labelloop, tmp_path):
    run, longer = tmp_path / "run", settings(("epochs=12", "round_share=1.0"))
    assert labelloop("fit", *csv_names(tmp_path), "--output-dir", run, *settings(QUICK), *longer).code == 0
    labels, targets = labels_of(run), np.load(run / "targets.npy")
    assert list(labels) == [
        "id",
        "given_label",
        "corrected_label",
        "corrected_confidence",
        "changed",
        "verified",
        "predicted_label",
        "is_label_issue",
        "label_score",
    ]
    assert targets.shape == (120, 3)
    for i in range(120):
        given, clean = DATA.y[i], DATA.y_clean[i]
        best = clean if clean >= 0 else targets[i].argmax()
        assert labels["corrected_label"][i] == NAMES[best]
        assert labels["corrected_confidence"][i] == pytest.approx(targets[i].max())
        assert labels["verified"][i] == (clean >= 0)
        assert labels["is_label_issue"][i] == (given >= 0 and given != best)
        assert labels["changed"][i] == (labels["is_label_issue"][i] and clean < 0)
        if given < 0:
            assert labels["label_score"][i] is None
        else:
            assert labels["label_score"][i] == pytest.approx(targets[i, given])
    assert labels["is_label_issue"][12]  # a clean row whose given label is wrong: known, not corrected
    assert not labels["is_label_issue"][13]
    assert labels["label_score"][12] == 0
    assert labels["corrected_confidence"][12] == 1
    assert 0 < sum(labels["changed"]) < 98
    assert sum(score is not None for score in labels["label_score"]) == 86 + 12  # noisy, and clean paired


def test_run_json_says_what_was_run_and_metrics_has_a_row_an_epoch(labelloop, tmp_path):
    run = tmp_path / "run"
    ended = labelloop("fit", *csv_names(tmp_path), "--output-dir", run, *settings(QUICK), "--seed", 7)
    assert ended.code == 0
    about = run_json(run)
    assert about["schema_version"] == SCHEMA_VERSION
    assert (about["method"], about["seed"], about["state"]) == ("labelloop", 7, "finished")
    assert (about["stop_reason"], about["labels_from"]) == ("epoch limit", "labelloop")
    assert [(r["round"], r["epoch"], len(r["weights"])) for r in about["rounds"]] == [(1, 0, 2), (2, 0, 3)]
    config = about["config"]
    assert (config["network"], config["augment"], config["normalise"]) == ("mlp", "none", "columns")  # no "auto" left
    assert (config["epochs"], config["network_options"]) == (5, {"hidden": [8]})
    assert (config["rounds"], config["learners"]) == (1, "networks")
    data = about["data"]
    assert data["source"] == str(tmp_path / "rows.csv")
    assert [data[k] for k in ("rows", "noisy", "unlabelled", "clean_paired", "clean_unpaired")] == [120, 86, 10, 12, 12]
    assert data["classes"] == list(NAMES)
    assert len(data["sha256"]) == 64
    assert data["test"] is None
    assert {"python", "labelloop", "torch", "numpy"} <= about["versions"].keys()

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert np.isfinite(row["loss"])
        assert ("rounds" in row["seconds"]) == (row["epoch"] == 1)
        assert all(seconds >= 0 for seconds in row["seconds"].values())
        assert "test_accuracy" not in row


def test_run_json_says_what_the_papers_loop_corrected(labelloop, tmp_path):
    run = tmp_path / "run"
    flags = ("--method", "closed-loop", *settings(QUICK_LOOP))
    assert labelloop("fit", *csv_names(tmp_path), "--output-dir", run, *flags).code == 0
    about = run_json(run)
    assert (about["method"], about["labels_from"]) == ("closed-loop", "closed-loop")
    assert [r["epoch"] for r in about["rounds"]] == [2, 3, 4]
    assert [len(r["weights"]) for r in about["rounds"]] == [2, 3, 4]
    corrector = about["config"]["corrector"]
    assert (corrector["hidden"], corrector["inputs"]) == (8, ["features"])
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows if "corrector" in row["seconds"]] == [2, 3, 4]


def test_a_recipe_of_the_paper_means_its_method(labelloop, tmp_path):
    run = tmp_path / "run"
    flags = ("--recipe", "paper", "--set", "network=mlp", *settings(QUICK_LOOP))
    assert labelloop("fit", *csv_names(tmp_path), "--output-dir", run, *flags).code == 0
    assert run_json(run)["method"] == "closed-loop"


def test_class_names_of_an_npz_file_keep_their_order(labelloop, tmp_path):
    np.savez(tmp_path / "d.npz", X=DATA.X, y=DATA.y, y_clean=DATA.y_clean, class_names=np.array(["zoo", "yak", "emu"]))
    assert labelloop("fit", tmp_path / "d.npz", "--output-dir", tmp_path / "run", *settings(QUICK)).code == 0
    assert json.loads((tmp_path / "run/model.json").read_text())["classes"] == ["zoo", "yak", "emu"]
    assert labels_of(tmp_path / "run")["corrected_label"][:3] == ["zoo", "yak", "emu"]


def test_whole_numbers_are_ordered_by_value(labelloop, tmp_path):
    y, y_clean = (np.where(v < 0, -1, np.array([2, 10, 100])[v]) for v in (DATA.y, DATA.y_clean))
    data = write_csv(tmp_path / "d.csv", {**numbers(DATA), "label": y, "clean_label": y_clean})
    assert labelloop("fit", data, "--output-dir", tmp_path / "run", "--missing", "-1", *settings(QUICK)).code == 0
    assert json.loads((tmp_path / "run/model.json").read_text())["classes"] == [2, 10, 100]


# --- test rows -------------------------------------------------------------------------------------------------------


def test_a_test_file_is_reported_on_and_changes_nothing_else(labelloop, tmp_path):
    data, other = csv_names(tmp_path), small(60, seed=5)
    # Columns in another order, and none of the clean labels that the training file has.
    test = write_csv(
        tmp_path / "test.csv", {"label": other.names(other.true), **dict(reversed(numbers(other).items()))}
    )
    with_test = labelloop("fit", *data, "--output-dir", tmp_path / "a", *settings(QUICK), "--test", test)
    without = labelloop("fit", *data, "--output-dir", tmp_path / "b", *settings(QUICK))
    assert (with_test.code, without.code) == (0, 0), with_test.err
    rows = metrics_of(tmp_path / "a")
    assert len(rows) == 5
    assert all(0 <= row["test_accuracy"] <= 1 for row in rows)
    assert f"test accuracy after the last epoch: {100 * rows[-1]['test_accuracy']:.1f}%" in with_test.out
    assert "test accuracy" not in without.out
    for name in ("targets.npy", "labels.parquet", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    predicted = labelloop("predict", tmp_path / "a", test).out.splitlines()[1:]
    right = [
        line.split(",")[1].strip('"') == name for line, name in zip(predicted, other.names(other.true), strict=True)
    ]
    assert rows[-1]["test_accuracy"] == pytest.approx(np.mean(right))
    assert run_json(tmp_path / "a")["data"]["test"]["rows"] == 60


def test_test_rows_of_a_split_column_are_not_trained_on_or_corrected(labelloop, tmp_path):
    split = ["test" if 90 <= i < 110 else "train" for i in range(120)]
    data = named_csv(tmp_path / "d.csv", DATA, split=split)
    assert labelloop("fit", data, "--output-dir", tmp_path / "run", *settings(QUICK)).code == 0
    labels, about = labels_of(tmp_path / "run"), run_json(tmp_path / "run")["data"]
    assert len(labels["id"]) == 120
    assert [label is None for label in labels["corrected_label"]] == [s == "test" for s in split]
    assert labels["label_score"][90:110] == [None] * 20
    assert not any(labels["changed"][90:110])
    assert None not in labels["predicted_label"]
    assert (about["noisy"], about["unlabelled"], about["test"]["rows"]) == (66, 10, 20)
    targets = np.load(tmp_path / "run/targets.npy")
    assert np.isnan(targets).all(axis=1).tolist() == [s == "test" for s in split]
    assert "test_accuracy" in metrics_of(tmp_path / "run")[-1]


# --- columns ---------------------------------------------------------------------------------------------------------


def test_named_columns_are_the_features_and_the_rest_is_left_out(labelloop, tmp_path):
    data = named_csv(tmp_path / "d.csv", DATA, note=["text"] * 120)
    ended = labelloop("fit", data, "--output-dir", tmp_path / "run", *settings(QUICK), "--feature-columns", "d, b")
    assert ended.code == 0
    assert json.loads((tmp_path / "run/model.json").read_text())["column_names"] == ["d", "b"]
    guessed = labelloop("fit", data, "--output-dir", tmp_path / "all", *settings(QUICK))
    assert json.loads((tmp_path / "all/model.json").read_text())["column_names"] == list(COLUMNS)
    assert "labelloop: warning:" in guessed.err
    assert "note" in guessed.err


def test_extra_columns_reach_the_correction_network_only(labelloop, tmp_path):
    other = small(60, seed=5)
    data = named_csv(tmp_path / "d.csv", DATA, hint=DATA.true.astype(float))
    test = write_csv(tmp_path / "test.csv", {**numbers(other), "label": other.names(other.true)})  # has no hint
    loop = ("--method", "closed-loop", *settings(QUICK_LOOP), "--set", "corrector.inputs=features+extra")
    flags = ("--extra-columns", "hint", "--test", test, *loop)
    ended = labelloop("fit", data, "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "run/model.json").read_text())["column_names"] == list(COLUMNS)
    assert run_json(tmp_path / "run")["rounds"][0]["corrector"]["inputs"] == "features+extra"
    data = named_csv(tmp_path / "d.csv", DATA, hint=np.zeros(120))
    assert labelloop("fit", data, "--output-dir", tmp_path / "blind", *flags).code == 0
    assert not np.array_equal(np.load(tmp_path / "run/targets.npy"), np.load(tmp_path / "blind/targets.npy"))


def test_an_embedding_beside_named_columns_is_found_again(labelloop, tmp_path):
    def write(name: str, data, order: list[str]) -> Path:
        columns = {"e": lists(data.X[:, :2]), "c": data.X[:, 2], "d": data.X[:, 3]}
        labels = {"label": data.names(data.y), "clean_label": data.names(data.y_clean)}
        pq.write_table(pa.table({key: (columns | labels)[key] for key in order}), tmp_path / name)
        return tmp_path / name

    data = write("rows.parquet", DATA, ["e", "c", "d", "label", "clean_label"])
    test = write("test.parquet", small(60, seed=5), ["label", "d", "c", "e"])
    flags = ("--embedding-column", "e", "--feature-columns", "c,d", "--test", test)
    ended = labelloop("fit", data, "--output-dir", tmp_path / "run", *settings(QUICK), *flags)
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "run/model.json").read_text())["column_names"] == ["e[0]", "e[1]", "c", "d"]
    predicted = labelloop("predict", tmp_path / "run", test)
    assert predicted.code == 0, predicted.err
    assert len(predicted.out.splitlines()) == 61


# --- settings --------------------------------------------------------------------------------------------------------


def test_the_command_line_wins_over_the_file_and_the_file_over_the_recipe(labelloop, tmp_path):
    (tmp_path / "c.toml").write_text(
        "epochs = 9\nwarm_up = 2\ncorrect_every = 1\n[network_options]\nhidden = [8]\n"
        "[corrector]\nhidden = 5\nmax_epochs = 6\npatience = 4\n"
    )
    flags = ("--config", tmp_path / "c.toml", "--set", "epochs=4", "--set", "corrector.max_epochs=3")
    flags += ("--recipe", "paper-clothing1m", "--set", "network=mlp")
    assert labelloop("fit", *csv_names(tmp_path), "--output-dir", tmp_path / "run", *flags).code == 0
    config = run_json(tmp_path / "run")["config"]
    assert config["epochs"] == 4
    assert config["learning_rate"] == 0.01  # the recipe
    assert config["momentum"] == 0.9  # the default
    corrector = config["corrector"]
    assert (corrector["hidden"], corrector["max_epochs"], corrector["patience"]) == (5, 3, 4)
    assert corrector["optimizer"] == CorrectorConfig().optimizer  # the file's table of the same name has no such key
    assert len(metrics_of(tmp_path / "run")) == 4


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set", "epoch=5"], ["unknown key epoch", "'epochs'"]),
        (["--set", "rounds=-1"], ["rounds must not be negative"]),
        (["--set", "learners=trees"], ["learners must be one of all, networks"]),
        (["--set", "warm_up=2"], ["unknown key warm_up"]),  # of the paper's method
        (["--set", "epochs=many"], ["epochs must be a whole number", "'many'"]),
        (["--set", "epochs=2.5"], ["epochs must be a whole number", "2.5"]),
        (["--set", "epochs=true"], ["epochs must be a whole number"]),
        (["--set", "epochs=0"], ["epochs must be at least 1"]),
        (["--set", "learning_rate=fast"], ["learning_rate must be a number", "'fast'"]),
        (["--set", "epochs"], ["'epochs'", "key=value"]),
        (["--set", "network=resnet19"], ["unknown network 'resnet19'", "'resnet18'"]),
        (["--set", "network=resnet18"], ["needs images", "mlp"]),
        (["--set", "network_options.hiden=[8]"], ["'hiden'", "'hidden'"]),
        (["--set", "network_options.hidden=8"], ["hidden must be a list"]),
        (["--set", "network=nowhere:factory"], ["nowhere", "PYTHONPATH"]),
        (["--set", "momentum=-1"], ["momentum"]),
        (["--device", "gpu"], ["device 'gpu'", "'cpu'"]),
        (["--method", "closed-lop"], ["unknown method 'closed-lop'", "'closed-loop'"]),
        (["--recipe", "papr"], ["unknown recipe 'papr'", "'paper'"]),
        (["--seed", "-1"], ["seed must not be negative"]),
        (["--config", "nowhere.toml"], ["nowhere.toml", "no such configuration file"]),
    ],
    ids=lambda value: "=".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_wrong_usage_exits_2_and_leaves_nothing_behind(flags, words, labelloop, tmp_path):
    refused(labelloop, tmp_path, [*settings(QUICK), *flags], words)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("corrector.hiden=5", ["unknown key corrector.hiden", "'hidden'"]),
        ("corrector.standardise=1", ["corrector.standardise must be true or false"]),
        ("corrector=5", ["corrector is a group of settings", "corrector.inputs"]),
        ("combination=convx", ["combination", "'convex'"]),
        ("corrector.inputs=feature", ["corrector.inputs", "'features'"]),
        ("corrector.inputs=extra", ["'extra'", "no extra columns"]),
        ("warm_up=5", ["no label would ever be corrected", "warm_up"]),
        ("final_labels=loop", ["unknown key final_labels"]),
    ],
)
def test_a_wrong_setting_of_the_papers_loop_exits_2_and_leaves_nothing_behind(value, words, labelloop, tmp_path):
    refused(labelloop, tmp_path, ["--method", "closed-loop", *settings([*QUICK_LOOP, value])], words)


def refused(labelloop, tmp_path, flags, words):
    data = csv_names(tmp_path)
    before = contents(tmp_path)
    ended = labelloop("fit", *data, "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("labelloop: ")
    assert ended.err.count("\n") == 1
    for word in words:
        assert word in ended.err
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch = 3\n", ["unknown key epoch", "'epochs'"]),
        ("[corrector]\nhiden = 3\n", ["corrector.hiden", "'hidden'"]),
        ("epochs = \n", ["c.toml", "not valid TOML", "line 1"]),
        ("epochs = '3'\n", ["epochs must be a whole number"]),
    ],
)
def test_a_wrong_config_file_exits_2(text, words, labelloop, tmp_path):
    (tmp_path / "c.toml").write_text(text)
    data = csv_names(tmp_path)
    flags = ("--method", "closed-loop", "--config", tmp_path / "c.toml")
    ended = labelloop("fit", *data, "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 2
    for word in words:
        assert word in ended.err
    assert not (tmp_path / "run").exists()


def test_a_key_of_another_method_is_unknown(labelloop, tmp_path):
    flags = ("--method", "cross-entropy", "--set", "warm_up=3")
    ended = labelloop("fit", *csv_names(tmp_path), "--output-dir", tmp_path / "run", *flags)
    assert ended.code == 2
    assert "warm_up" in ended.err


# Those that train for more than the 3 epochs of QUICK_BASELINE, and those that return labels of their own.
EPOCHS = {"fine-tune": 5, "logistic-corrector": 5, "glc": 6, "dmlp-nossl": 5}
CORRECTS = ("logistic-corrector", "fasten", "dmlp", "dmlp-nossl", "dividemix", "l2b", "emlc")


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("labelloop", "closed-loop", "oracle")])
def test_a_baseline_hands_labels_back(method, labelloop, tmp_path):
    run = tmp_path / "run"
    flags = ["--method", method, *settings(QUICK_BASELINE)]
    for key, value in (("fine_tune_epochs", 2), ("warm_up", 2)):
        flags += ["--set", f"{key}={value}"] if hasattr(METHODS[method].config, key) else []
    ended = labelloop("fit", *csv_names(tmp_path), "--output-dir", run, *flags)
    assert ended.code == 0, ended.err
    assert run_json(run)["method"] == method
    labels = labels_of(run)
    verified = np.flatnonzero(DATA.y_clean >= 0)
    assert [labels["corrected_label"][i] for i in verified] == [NAMES[DATA.y_clean[i]] for i in verified]
    assert None not in labels["predicted_label"]
    assert len(metrics_of(run)) == EPOCHS.get(method, 3)
    if method not in CORRECTS:
        # Unlabelled rows have no label, and no made-up one either.
        expected = np.where(DATA.y_clean >= 0, DATA.y_clean, DATA.y)
        assert labels["corrected_label"] == [None if label < 0 else NAMES[label] for label in expected]
        assert labels["corrected_confidence"][110:] == [None] * 10


@pytest.mark.parametrize(
    "method",
    [
        "cross-entropy",
        "closed-loop",
        "labelloop",
    ],
)
def test_a_training_that_breaks_down_is_an_error_and_not_a_result(method, labelloop, tmp_path):
    quick = {"labelloop": QUICK, "closed-loop": QUICK_LOOP}.get(method, QUICK_BASELINE)
    flags = (*settings(quick), "--set", "learning_rate=1e20")
    ended = labelloop("fit", *csv_names(tmp_path), "--output-dir", tmp_path / "run", "--method", method, *flags)
    assert ended.code == 1
    assert "broke down" in ended.err
    assert "learning_rate" in ended.err
    assert run_json(tmp_path / "run")["state"] == "failed"
    assert not (tmp_path / "run/labels.parquet").exists()


# --- what is printed, and what is overwritten ------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_in_a_terminal_only(labelloop, tmp_path, monkeypatch):
    data, flags = csv_names(tmp_path), settings(QUICK)
    plain = labelloop("fit", *data, "--output-dir", tmp_path / "a", *flags)
    assert plain.err == ""
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    assert labelloop("fit", *data, "--output-dir", tmp_path / "b", *flags).code == 0
    assert "0/5" in screen.getvalue()
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    assert labelloop("fit", *data, "--output-dir", tmp_path / "c", *flags, "--quiet").code == 0
    assert screen.getvalue() == ""


def test_quiet_prints_nothing(labelloop, tmp_path):
    ended = labelloop("fit", *csv_names(tmp_path), "--output-dir", tmp_path / "run", *settings(QUICK), "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_a_run_is_replaced_only_when_asked_and_other_files_never_are(labelloop, tmp_path):
    data, run = csv_names(tmp_path), tmp_path / "run"
    run.mkdir()
    (run / "notes.txt").write_text("mine")
    assert labelloop("fit", *data, "--output-dir", run, *settings(QUICK)).code == 0
    before = contents(run)
    again = labelloop("fit", *data, "--output-dir", run, *settings(QUICK), "--seed", 1)
    assert again.code == 1
    assert "--resume" in again.err
    assert "--overwrite" in again.err
    assert str(run) in again.err
    assert contents(run) == before
    for wrong in (["--set", "network=resnet19"], ["--device", "gpu"], ["--seed", "-1"], ["--test", "nowhere.csv"]):
        assert labelloop("fit", *data, "--output-dir", run, *settings(QUICK), "--overwrite", *wrong).code in (1, 2)
        assert contents(run) == before
    assert labelloop("fit", *data, "--output-dir", run, *settings(QUICK), "--seed", 1, "--overwrite").code == 0
    assert run_json(run)["seed"] == 1
    assert (run / "notes.txt").read_text() == "mine"
    assert (run / "targets.npy").read_bytes() != before["targets.npy"]


def test_resume_and_overwrite_exclude_each_other(labelloop, tmp_path):
    ended = labelloop("fit", *csv_names(tmp_path), "--output-dir", tmp_path / "run", "--resume", "--overwrite")
    assert ended.code == 2
    assert "--resume" in ended.err


# --- where the rows came from ----------------------------------------------------------------------------------------


def test_run_json_says_where_the_rows_came_from(labelloop, tmp_path):
    data = named_csv(tmp_path / "d.csv", DATA)
    flags = ("--output-dir", tmp_path / "run", *settings(QUICK), "--feature-columns", "b,a")
    assert labelloop("fit", data, *flags).code == 0
    assert run_json(tmp_path / "run")["source"] == {
        "kind": "csv",
        "path": str(data),
        "sha256": hashlib.sha256(data.read_bytes()).hexdigest(),
        "label_column": "label",
        "clean_column": "clean_label",
        "id_column": "id",
        "file_name_column": None,
        "listing": None,
        "options": {"feature_columns": ["b", "a"]},
        "class_names": list(NAMES),
    }


def test_run_json_names_the_arrays_of_an_npz(labelloop, tmp_path):
    np.savez(tmp_path / "d.npz", features=DATA.X, labels=DATA.y, expert=DATA.y_clean)
    flags = ("--output-dir", tmp_path / "run", *settings(QUICK), "--clean-column", "expert")
    assert labelloop("fit", tmp_path / "d.npz", *flags).code == 0
    source = run_json(tmp_path / "run")["source"]
    assert (source["kind"], source["label_column"], source["clean_column"]) == ("npz", "labels", "expert")
    assert source["options"] == {"embedding_column": "features"}
    assert source["class_names"] == ["0", "1", "2"]

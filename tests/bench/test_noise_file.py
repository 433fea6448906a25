"""Files of noisy labels: made by `labelloop noise`, used by `labelloop fit` and by experiments."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from benches import FORKING
from tiny_runs import tiny, without_clocks

from labelloop.bench import pool
from labelloop.bench.experiment import run_experiment
from labelloop.bench.pool import run_bench
from labelloop.data.datasets import load_dataset
from labelloop.errors import DataError, UsageError
from labelloop.workflows.compose import noisy_problem
from labelloop.workflows.noise import Corruption, make_noise_file, read_noise_file

NAMES = ("ant", "bee", "cat")


def write_table(path, labels, seed=0):
    """A CSV of 90 rows with ids, two features and a label."""
    rng = np.random.default_rng(seed)
    columns = {"id": [f"r{n}" for n in range(len(labels))], "label": labels, "a": rng.normal(size=len(labels))}
    columns["b"] = np.array([NAMES.index(label) if label else 0 for label in labels]) + 0.1 * columns["a"]
    pa.csv.write_csv(pa.table(columns), path)
    return path


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path / "rows.csv", [NAMES[n % 3] for n in range(90)])


def test_a_table_there_and_back(command, table, tmp_path):
    output = tmp_path / "noise.parquet"
    flags = ("--noise", "symmetric", "--rate", 0.6, "--clean", 30, "--seed", 3)
    code, out, err = command("noise", table, "--output", output, *flags)
    assert code == 0, err
    file = read_noise_file(output)
    assert file.ids.tolist() == [f"r{n}" for n in range(90)]
    assert file.labels.tolist() == [NAMES[n % 3] for n in range(90)]
    clean = file.clean_labels != ""
    assert clean.sum() == 30
    assert (file.noisy_labels[clean] == "").all()  # unpaired
    assert (file.clean_labels[clean] == file.labels[clean]).all()
    noisy = file.noisy_labels[~clean]
    assert set(noisy) <= set(NAMES)
    assert 0.15 < (noisy != file.labels[~clean]).mean() < 0.65
    assert file.about["nominal_rate"] == 0.6
    assert f"realised {file.about['realised_rate']:.4f}" in out
    assert file.about["sha256"][:16] in out

    run = tmp_path / "run"
    quick = ("--set", "epochs=3", "--set", "rounds=0", "--set", "network_options.hidden=[8]", "--quiet")
    code, _, err = command("fit", table, "--noisy-labels", output, "--output-dir", run, *quick)
    assert code == 0, err
    labels = pq.read_table(run / "labels.parquet").to_pydict()
    assert labels["id"] == file.ids.tolist()
    assert [given or "" for given in labels["given_label"]] == file.noisy_labels.tolist()
    assert labels["verified"] == clean.tolist()
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["given_label_accuracy"] == pytest.approx((noisy == file.labels[~clean]).mean())


def test_the_same_seed_gives_the_same_labels_and_another_others(table, tmp_path):
    found = []
    for number, seed in enumerate((0, 0, 1)):
        make_noise_file(str(table), tmp_path / f"{number}.parquet", Corruption(noise="symmetric", rate=0.5, seed=seed))
        found.append(read_noise_file(tmp_path / f"{number}.parquet"))
    assert (found[0].noisy_labels == found[1].noisy_labels).all()
    assert found[0].about["sha256"] == found[1].about["sha256"] != found[2].about["sha256"]


def test_a_noise_that_brings_its_rate_says_so(table, tmp_path):
    options = {"matrix": [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]}
    said = make_noise_file(str(table), tmp_path / "n.parquet", Corruption(noise="matrix", rate=0.4, options=options))
    assert "nominal rate 0.1667" in said
    assert read_noise_file(tmp_path / "n.parquet").about["nominal_rate"] == pytest.approx(1 / 6)


@pytest.mark.filterwarnings("ignore:.*not among the features")
def test_the_columns_that_a_noise_does_not_look_at_are_named(table, command, tmp_path):
    rows = pa.csv.read_csv(table)
    rows = rows.append_column("clean_label", rows["label"])
    rows = rows.append_column("note", pa.array([f"n{n}" for n in range(90)]))
    pa.csv.write_csv(rows, table)
    asked = ("noise", table, "--overwrite", "--output", tmp_path / "n.parquet", "--noise")
    said = command(*asked, "symmetric")[1]
    assert "columns that symmetric noise does not use: 'clean_label', 'note', 'a', 'b'\n" in said
    assert "columns that instance noise does not use: 'clean_label', 'note'\n" in command(*asked, "instance")[1]
    arrays = tmp_path / "rows.npz"
    x, labels = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    np.savez(arrays, x=x, label=labels, class_names=["a", "b"], junk=x)
    asked_npz = ("noise", arrays, "--overwrite", "--output", tmp_path / "n.parquet", "--noise")
    assert "columns that symmetric noise does not use: 'x', 'junk'\n" in command(*asked_npz, "symmetric")[1]
    for number in range(6):
        rows = rows.append_column(f"x{number}", rows["a"])
    pa.csv.write_csv(rows, table)
    assert "'clean_label', 'note', 'a', 'b', 'x0' and 5 more\n" in command(*asked, "pair")[1]
    pa.csv.write_csv(rows.select(["id", "label", "a"]), table)
    assert "does not use" not in command(*asked, "instance")[1]


def test_missing_labels_stay_missing(tmp_path):
    table = write_table(tmp_path / "rows.csv", ["" if n < 10 else NAMES[n % 3] for n in range(90)])
    make_noise_file(str(table), tmp_path / "n.parquet", Corruption(noise="symmetric", rate=1.0))
    file = read_noise_file(tmp_path / "n.parquet")
    assert (file.noisy_labels[:10] == "").all()
    assert (file.noisy_labels[10:] != "").all()


@pytest.mark.parametrize(
    ("flags", "exit_code", "message"),
    [
        (("--noise", "symetric"), 2, "did you mean 'symmetric'"),
        (("--noise", "symmetric", "--rate", "1.5"), 2, "noise rate is 1.5"),
        (("--noise", "symmetric", "--set", "a=1"), 2, "noise 'symmetric' has no option 'a'"),
        (("--noise", "symmetric", "--seed", "-1"), 2, "seed must not be negative"),
        (("--noise", "symmetric", "--clean", "90"), 2, "num_clean is 90"),
        (("--noise", "asymmetric-cifar10"), 2, "made for the 10 classes"),
        (("--noise", "symmetric", "--label-column", "kind"), 1, "kind"),
    ],
)
def test_what_cannot_be_made_leaves_no_file(flags, exit_code, message, command, table, tmp_path):
    code, _, err = command("noise", table, "--output", tmp_path / "n.parquet", *flags)
    assert message in err
    assert code == exit_code
    assert not (tmp_path / "n.parquet").exists()


def test_a_file_is_not_replaced_unless_one_says_so(command, table, tmp_path):
    asked = ("noise", table, "--output", tmp_path / "n.parquet", "--noise", "pair")
    assert command(*asked)[0] == 0
    before = (tmp_path / "n.parquet").read_bytes()
    code, _, err = command(*asked, "--seed", 1)
    assert code == 1
    assert "--overwrite" in err
    assert (tmp_path / "n.parquet").read_bytes() == before
    assert command(*asked, "--seed", 1, "--overwrite")[0] == 0
    assert (tmp_path / "n.parquet").read_bytes() != before
    with pytest.raises(UsageError, match=r"cannot write '\.csv'; give a name that ends in .parquet"):
        make_noise_file(str(table), tmp_path / "n.csv", Corruption(noise="pair", rate=0.1))


def test_a_changed_label_does_not_fit_the_checksum(table, tmp_path):
    path = tmp_path / "n.parquet"
    make_noise_file(str(table), path, Corruption(noise="pair", rate=0.3))
    whole = pq.read_table(path)
    labels = whole["noisy_label"].to_pylist()
    labels[5] = "cat" if labels[5] != "cat" else "ant"
    place = whole.column_names.index("noisy_label")
    changed = whole.set_column(place, "noisy_label", pa.array(labels)).replace_schema_metadata(whole.schema.metadata)
    pq.write_table(changed, path)
    with pytest.raises(DataError, match="the labels do not match their checksum"):
        read_noise_file(path)


def test_a_damaged_file_is_an_error_or_harmless(table, tmp_path):
    path = tmp_path / "n.parquet"
    make_noise_file(str(table), path, Corruption(noise="pair", rate=0.3))
    whole, good = path.read_bytes(), read_noise_file(path)
    refused = 0
    for position in np.linspace(0, len(whole) - 1, 150).astype(int):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = read_noise_file(path)
        except DataError:
            refused += 1
        else:
            for column in ("ids", "labels", "noisy_labels", "clean_labels"):
                assert (getattr(found, column) == getattr(good, column)).all()
    assert refused > 40
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="is not a noise file, or is damaged"):
            read_noise_file(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DataError, match="is not a noise file"):
        read_noise_file(path)
    with pytest.raises(DataError, match="no such noise file"):
        read_noise_file(tmp_path / "other.parquet")


def test_labels_of_other_rows_are_refused(command, table, tmp_path):
    path = tmp_path / "n.parquet"
    make_noise_file(str(table), path, Corruption(noise="pair", rate=0.3, clean=20))
    other = write_table(tmp_path / "other.csv", [NAMES[(n + (n == 7)) % 3] for n in range(90)])
    short = write_table(tmp_path / "short.csv", [NAMES[n % 3] for n in range(60)])
    for rows, message in ((other, "differs in row 7"), (short, "was made from 90 rows, but"), (short, "has 60")):
        code, _, err = command("fit", rows, "--noisy-labels", path, "--output-dir", tmp_path / "run")
        assert code == 1
        assert message in err
        assert not (tmp_path / "run").exists()


def test_a_file_from_a_data_set_gives_what_an_experiment_draws_itself(command, tmp_path):
    path = tmp_path / "digits.parquet"
    assert command("noise", "digits", "--output", path, "--noise", "instance", "--rate", 0.3, "--seed", 5)[0] == 0
    data = load_dataset("digits")
    drawn = tiny(dataset_options={}, noise="instance", seed=5)
    filed = tiny(dataset_options={}, noise="file", noise_options={"path": str(path)}, seed=5)
    (first, _, _), (second, _, noisy) = noisy_problem(drawn, data), noisy_problem(filed, data)
    assert (first.train.labels == second.train.labels).all()
    assert noisy.rate == 0.3


def test_a_bench_from_a_noise_file(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "subprocess", FORKING)
    path = tmp_path / "digits.parquet"
    make_noise_file("digits", path, Corruption(noise="symmetric", rate=0.3))
    options = {"dataset_options": {}, "noise": "file", "noise_options": {"path": str(path)}}
    experiment = tiny(**options)
    outcome = run_bench([experiment], tmp_path / "bench", progress=False)
    assert outcome.failures == {}
    alone = without_clocks(run_experiment(experiment, progress=False))
    assert without_clocks(outcome.records[0]) == json.loads(json.dumps(alone))
    drawn = run_experiment(tiny(dataset_options={}), progress=False)
    assert outcome.records[0]["noisy_labels_sha256"] == drawn["noisy_labels_sha256"]
    assert outcome.records[0]["nominal_rate"] == 0.3
    assert outcome.records[0]["history"][-1]["test_accuracy"] == drawn["history"][-1]["test_accuracy"]

    # What stands in the file decides, not where it lies.
    moved = path.rename(tmp_path / "moved.parquet")
    again = tiny(**options | {"noise_options": {"path": str(moved)}})
    assert again.key == experiment.key
    make_noise_file("digits", path, Corruption(noise="symmetric", rate=0.3, seed=1))
    assert tiny(**options).key != again.key


def test_a_file_with_clean_rows_of_its_own_is_not_for_experiments(tmp_path):
    path = tmp_path / "digits.parquet"
    make_noise_file("digits", path, Corruption(noise="symmetric", rate=0.3, clean=50))
    experiment = tiny(dataset_options={}, noise="file", noise_options={"path": str(path)})
    with pytest.raises(DataError, match="sets 50 rows aside as clean"):
        run_bench([experiment], tmp_path / "bench", progress=False)


def test_classes_are_matched_by_name_not_by_order(tmp_path):
    """A file written from rows whose classes stood in another order gives the same labels."""
    labels = np.array([0, 1, 2] * 20)
    inputs = np.zeros((60, 2))
    paths = {}
    for name, order in (("abc", [0, 1, 2]), ("cba", [2, 1, 0])):
        names = np.array(NAMES)[order]
        numbers = np.array(order)[labels]  # the same names in the same rows
        paths[name] = tmp_path / f"{name}.npz"
        np.savez(paths[name], x_train=inputs, y_train=numbers, x_test=inputs, y_test=numbers, class_names=names)
    first, second = (load_dataset("embeddings", root=path) for path in paths.values())
    assert first.class_names == second.class_names[::-1]
    from labelloop.workflows.noise import labels_from_file, write_noise_file

    noisy = np.roll(first.labels, 1)
    nothing = np.full(60, -1)
    about = {"classes": list(first.class_names), "clean": 0, "paired": False, "nominal_rate": 1.0}
    path, ids = tmp_path / "n.parquet", np.arange(60).astype(str)
    write_noise_file(path, ids, first.labels, noisy, nothing, first.class_names, about)
    assert (labels_from_file(path, first).labels == noisy).all()
    assert (labels_from_file(path, second).labels == 2 - noisy).all()

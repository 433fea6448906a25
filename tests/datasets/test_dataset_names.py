"""All data sets: their names and options, where they are looked for, digits, embeddings, fingerprints."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest
from cifar_files import write_folder

from labelloop.data.datasets import DATASETS, load_dataset
from labelloop.data.datasets.digits import digits
from labelloop.data.datasets.labelled import fingerprint_of, labelled
from labelloop.errors import DataError, UsageError

BOTH = pytest.mark.parametrize("name", ["embeddings", "cifar10-embeddings"])


def test_importing_the_data_sets_loads_nothing_heavy():
    heavy = "{'torch', 'scipy', 'sklearn', 'pyarrow', 'PIL', 'datasets'}"
    code = f"import sys, labelloop.data.datasets as d; print(len(d.DATASETS), sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"{len(DATASETS)} []"


def test_an_unknown_name_or_option_gets_the_nearest():
    with pytest.raises(UsageError, match="unknown data set 'cifar-10'; did you mean 'cifar10'"):
        load_dataset("cifar-10")
    with pytest.raises(UsageError, match="data set 'cifar10' has no option 'limits'; did you mean 'limit'"):
        load_dataset("cifar10", limits=3)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("limit", [0, -5, 2.5, "10", True])
def test_every_data_set_checks_its_limit_first(name, limit, tmp_path):
    with pytest.raises(UsageError, match=r"limit is .*: give the number of training rows"):
        load_dataset(name, tmp_path, limit=limit)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_has_a_root_and_named_options(name):
    first, *others = inspect.signature(DATASETS[name]).parameters.values()
    assert (first.name, first.default) == ("root", None)
    assert "limit" in {option.name for option in others}
    assert all(option.kind is option.KEYWORD_ONLY and option.default is not option.empty for option in others)


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("digits", "embeddings")])
def test_where_there_is_none_the_places_are_said(name, tmp_path, monkeypatch):
    options = {"file": "rows.csv", "label": "kind"} if name == "table" else {}
    with pytest.raises(
        DataError, match=rf"{name}: not found in {tmp_path}/none \(does not exist\); put .* there, or .*root="
    ):
        load_dataset(name, tmp_path / "none", **options)
    monkeypatch.setenv("LABELLOOP_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"{name}: not found in {tmp_path}; put .* there, or .*LABELLOOP_DATA"):
        load_dataset(name, **options)


def test_only_the_variable_and_the_argument_say_where(tmp_path, monkeypatch):
    monkeypatch.delenv("LABELLOOP_DATA", raising=False)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    folder = write_folder(tmp_path / "shared" / "data", "cifar10")
    write_folder(project / "data", "cifar10")
    with pytest.raises(DataError, match="cifar10: no folder of data sets is set; set LABELLOOP_DATA to the folder"):
        load_dataset("cifar10")
    elsewhere = write_folder(tmp_path / "elsewhere", "cifar10")
    monkeypatch.setenv("LABELLOOP_DATA", str(elsewhere.parent))
    assert load_dataset("cifar10").source == str(elsewhere)
    assert load_dataset("cifar10", folder.parent).source == str(folder)
    assert load_dataset("cifar10", str(folder)).source == str(folder)


@pytest.mark.parametrize("flag", ["verify", "hub"])
def test_flags_are_true_or_false(flag):
    with pytest.raises(UsageError, match=f"{flag} is 'false': give True or False"):
        load_dataset("cifar10", **{flag: "false"})


def test_digits():
    x_train, y_train, x_test, y_test = digits()
    data = load_dataset("digits")
    np.testing.assert_array_equal(data.inputs, x_train)
    np.testing.assert_array_equal(data.labels, y_train)
    np.testing.assert_array_equal(data.test_inputs, x_test)
    np.testing.assert_array_equal(data.test_labels, y_test)
    assert (data.name, data.class_names, len(data)) == ("digits", tuple("0123456789"), 1200)
    assert len(load_dataset("digits", limit=100)) == 100
    with pytest.raises(UsageError, match="limit is 1201, but there are 1200"):
        load_dataset("digits", limit=1201)


def arrays(**changes):
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.normal(size=(20, 4)).astype(np.float16),
        "y_train": rng.permutation(20) % 10,
        "x_test": rng.normal(size=(6, 4)).astype(np.float16),
        "y_test": np.arange(6),
        "class_names": np.array([f"class_{i}" for i in range(10)]),
        **changes,
    }


def save(root, **changes):
    path = root / "embeddings" / "cifar10_efficientnet_lite0_pca256.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **{key: value for key, value in arrays(**changes).items() if value is not None})
    return path


@BOTH
def test_embeddings(tmp_path, name):
    data = load_dataset(name, save(tmp_path))
    np.testing.assert_array_equal(data.inputs, arrays()["x_train"].astype(np.float32))
    np.testing.assert_array_equal(data.test_inputs, arrays()["x_test"].astype(np.float32))
    assert data.labels.tolist() == arrays()["y_train"].tolist()
    assert data.class_names == tuple(arrays()["class_names"])
    assert (data.name, data.inputs.dtype) == (name, np.float32)
    assert len(load_dataset(name, save(tmp_path), limit=5).inputs) == 5


def test_embeddings_without_names_and_pixels(tmp_path):
    data = load_dataset("embeddings", save(tmp_path, class_names=None))
    assert data.class_names == tuple("0123456789")
    assert data.noise_inputs is None
    with pytest.raises(UsageError, match="embeddings: no file given"):
        load_dataset("embeddings")


@pytest.mark.parametrize("limit", [None, 5])
def test_noise_may_look_at_the_pixels_behind_the_embeddings(tmp_path, limit):
    write_folder(tmp_path, "cifar10")
    images = load_dataset("cifar10", tmp_path, limit=limit)
    path = save(tmp_path, y_train=load_dataset("cifar10", tmp_path).labels)
    for root in (tmp_path, path):
        data = load_dataset("cifar10-embeddings", root, limit=limit)
        np.testing.assert_array_equal(data.noise_inputs(), images.inputs)


def test_pixels_in_another_order_or_absent_are_refused_only_when_asked_for(tmp_path):
    save(tmp_path)
    data = load_dataset("cifar10-embeddings", tmp_path)
    with pytest.raises(DataError, match="cifar10: not found"):
        data.noise_inputs()
    write_folder(tmp_path, "cifar10")
    with pytest.raises(DataError, match="not in the order of the embeddings"):
        data.noise_inputs()


@BOTH
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "has no x_test"),
        ({"x_train": np.zeros((19, 4))}, "labels of type int64 and shape .* for 19 rows"),
        ({"x_train": np.zeros((20, 2, 2))}, "x_train: has shape"),
        ({"x_train": np.full((20, 4), np.nan)}, "x_train: features that are blank, NaN"),
        ({"y_train": np.full(20, 10)}, "label 10 of row 0 is not a class"),
        ({"y_test": np.array(list("abcdef"))}, "test labels of type <U1"),
        ({"y_train": np.array([None] * 20, dtype=object)}, "cannot be read as .npz"),
    ],
)
def test_wrong_embeddings_are_refused(tmp_path, name, changes, message):
    with pytest.raises(DataError, match=message):
        load_dataset(name, save(tmp_path, **changes))


@BOTH
def test_damaged_embeddings_are_refused(tmp_path, name):
    path = save(tmp_path)
    for content in (b"", b"text", path.read_bytes()[:-40], path.read_bytes()[:300]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cannot be read as \.npz"):
            load_dataset(name, path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    path.with_suffix(".npy").rename(path)
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        load_dataset(name, path)


def test_a_fingerprint_tells_other_rows():
    x, y = np.arange(40, dtype=np.float32).reshape(10, 4), np.arange(10)
    same = fingerprint_of(x, y)
    assert same == fingerprint_of(np.asfortranarray(x.copy()), y.astype(">i8"))
    others = [fingerprint_of(x[:9], y[:9]), fingerprint_of(x, y[::-1]), fingerprint_of(x + 1, y)]
    others += [fingerprint_of(x.reshape(10, 2, 2), y), fingerprint_of(x, y, y)]
    assert len({same, *others}) == 6


def test_labels_may_be_missing_only_where_noisy_ones_are_given():
    parts = ("a", "a", (np.zeros((2, 1)), [-1, 0]), (np.zeros((1, 1)), [0]), ["a", "b"])
    assert labelled(*parts, given_labels=[1, -1]).labels.tolist() == [-1, 0]
    with pytest.raises(DataError, match="label -1 of row 0 is not a class"):
        labelled(*parts)

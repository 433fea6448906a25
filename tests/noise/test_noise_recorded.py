"""Recorded human noise: both published forms, the real files, and files that try to do more than hold labels."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

from labelloop.errors import DataError, UsageError
from labelloop.noise import realised_rate
from labelloop.noise.recorded_labels import read_label_file, recorded
from labelloop.seeds import stream

TRUE = np.array([0, 1, 2, 3, 4, 0, 1, 2])
HUMAN = np.array([0, 1, 2, 0, 4, 1, 1, 2])  # two of eight are wrong
WORSE = np.array([1, 2, 2, 0, 4, 1, 1, 2])
ORDER = np.array([3, 0, 7, 1, 2, 6, 5, 4])  # row i of the ordered file is row ORDER[i] of the data


def columns(**more):
    return {"clean_label": TRUE, "aggre_label": HUMAN, **more}


def save_npy(path, content):
    np.save(path, content, allow_pickle=True)
    return path


def save_pt(path, content, **options):
    torch = pytest.importorskip("torch")
    torch.save(content, path, **options)
    return path


def save_zip(path, pickled):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("human/data.pkl", pickled)
    return path


def read(path, labels=TRUE, rate=1, **options):
    return recorded(labels, 5, rate, None, path=path, **options)


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "before torch 1.6"])
def test_pt_files_are_read(tmp_path, options):
    noisy = read(save_pt(tmp_path / "human.pt", columns(), **options))
    np.testing.assert_array_equal(noisy.labels, HUMAN)
    assert noisy.rate == realised_rate(TRUE, noisy.labels) == 0.25
    assert noisy.matrix is None
    assert noisy.probabilities is None


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_npy_files_are_read(tmp_path, protocol):
    path = save_npy(tmp_path / "human.npy", columns())
    with path.open("rb") as file:  # the header stays, the pickle behind it comes in every protocol numpy has used
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        header = path.read_bytes()[: file.tell()]
    path.write_bytes(header + pickle.dumps(np.array(columns(), dtype=object), protocol=protocol))
    np.testing.assert_array_equal(read(path).labels, HUMAN)


def test_files_of_numpy_1_are_read(tmp_path):
    pickled = pickle.dumps(columns(), protocol=2)
    assert b"numpy._core.multiarray" in pickled or b"numpy.core.multiarray" in pickled
    for module in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        renamed = pickled.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
        renamed = renamed.replace(b"numpy.core.multiarray", module)
        np.testing.assert_array_equal(read(save_zip(tmp_path / "human.pt", renamed)).labels, HUMAN)


@pytest.mark.parametrize("dtype", ["<i8", ">i4", "u1", "<i2"])
def test_any_whole_numbers_are_labels(tmp_path, dtype):
    content = {name: values.astype(dtype) for name, values in columns().items()}
    content["scalars"] = list(HUMAN.astype(dtype))
    found = read_label_file(save_zip(tmp_path / "human.pt", pickle.dumps(content, protocol=2)))
    assert list(found) == ["clean_label", "aggre_label", "scalars"]
    assert all(column.dtype == np.int64 for column in found.values())
    np.testing.assert_array_equal(found["aggre_label"], HUMAN)
    np.testing.assert_array_equal(found["scalars"], HUMAN)


def test_what_is_not_a_column_of_labels_is_left_out(tmp_path):
    more = {"seconds": TRUE / 2, "workers": np.array(["a", "b"]), "objects": np.array(["a", None], dtype=object)}
    more |= {"table": np.eye(8, dtype=int), "note": "by hand", "n": 8, "names": ["a"], "word": np.str_("a")}
    path = save_npy(tmp_path / "human.npy", columns(**more))
    assert list(read_label_file(path)) == ["clean_label", "aggre_label"]


def test_an_ordered_file_is_put_in_the_order_of_the_data(tmp_path):
    ordered = {name: values[ORDER] for name, values in columns().items()}
    path = save_npy(tmp_path / "human_ordered.npy", ordered)
    order = save_npy(tmp_path / "image_order.npy", ORDER)
    np.testing.assert_array_equal(read(path, order=order).labels, HUMAN)
    with pytest.raises(DataError, match=r"row 0 has true label 3, but the data say 0 .*needs order="):
        read(path)


def test_a_part_of_the_rows_and_missing_labels(tmp_path):
    path = save_npy(tmp_path / "human.npy", columns())
    noisy = read(path, labels=[TRUE[0], -1, TRUE[2], TRUE[3]])
    assert noisy.labels.tolist() == [HUMAN[0], -1, HUMAN[2], HUMAN[3]]
    assert noisy.rate == 0.25  # of the whole file


def test_the_column_is_chosen_by_key(tmp_path):
    path = save_npy(tmp_path / "human.npy", columns(worse_label=WORSE, noisy_coarse_label=TRUE))
    np.testing.assert_array_equal(read(path, key="worse_label").labels, WORSE)
    with pytest.raises(UsageError, match="choose one with key=: aggre_label, worse_label"):
        read(path)
    with pytest.raises(UsageError, match="no human labels 'worst_label': did you mean 'worse_label'"):
        read(path, key="worst_label")
    with pytest.raises(UsageError, match="no human labels 'noisy_coarse_label'"):
        read(path, key="noisy_coarse_label")


def test_the_record_sets_the_rate(tmp_path):
    path = save_npy(tmp_path / "human.npy", columns())
    np.testing.assert_array_equal(read(path, rate=None).labels, HUMAN)
    np.testing.assert_array_equal(read(path, rate=0).labels, TRUE)
    with pytest.raises(UsageError, match="the record sets the rate"):
        read(path, rate=0.4)


class Command:
    """Leaves a trace when it is unpickled the ordinary way."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("suffix", [".pt", ".npy", "legacy.pt"])
def test_a_file_that_runs_code_is_refused_and_does_not_run(tmp_path, suffix):
    trace, path = tmp_path / "trace", tmp_path / f"human{suffix}"
    content = columns(extra=Command(trace))
    if suffix == ".npy":
        save_npy(path, content)
    elif suffix == ".pt":
        save_zip(path, pickle.dumps(content, protocol=2))
    else:
        path.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in (1, 2, {}, content)))
    with pytest.raises(DataError, match=r"asks for (posix|nt)\.mkdir"):
        read(path)
    assert not trace.exists()
    if suffix == ".npy":
        np.load(path, allow_pickle=True)  # the trap is real
        assert trace.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OrderedDict(columns()), "asks for collections.OrderedDict"),
        (columns(clean_label=np.array(["cat", "dog"])), "has no 'clean_label'"),
        ([TRUE, HUMAN], "holds no dictionary"),
        ({"aggre_label": HUMAN}, "has no 'clean_label'"),
        ({"clean_label": TRUE}, "no column of human labels"),
        (columns(aggre_label=HUMAN[:-1]), "8 true labels but 7"),
        (columns(aggre_label=HUMAN + 2), "row 4: recorded label 6 is outside 0..4"),
    ],
)
def test_other_contents_are_refused(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read(save_zip(tmp_path / "human.pt", pickle.dumps(content, protocol=2)))


def test_a_foreign_codec_is_refused(tmp_path):
    pickled = pickle.dumps(columns(), protocol=2).replace(b"latin1", b"utf-16"[:6])
    with pytest.raises(DataError, match="asks for the codec 'utf-16'"):
        read(save_zip(tmp_path / "human.pt", pickled))


def test_tensors_are_refused_with_advice(tmp_path):
    torch = pytest.importorskip("torch")
    path = save_pt(tmp_path / "human.pt", {"clean_label": torch.tensor(TRUE)})
    with pytest.raises(DataError, match=r"is not a dictionary of label arrays .*: download it again"):
        read(path)


@pytest.mark.parametrize("suffix", [".pt", ".npy"])
def test_damaged_files_are_refused(tmp_path, suffix):
    path = tmp_path / f"human{suffix}"
    whole = (save_pt if suffix == ".pt" else save_npy)(path, columns()).read_bytes()
    rng = stream(0, "damage")
    lengths = {0, 1, 10, *rng.integers(0, len(whole) - 60, 20).tolist()}
    for length in lengths:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=f"human{suffix}: "):
            read(path)


def test_random_bytes_never_escape_as_another_error(tmp_path):
    path, rng = tmp_path / "human.pt", stream(0, "fuzz")
    pickled = bytearray(pickle.dumps(columns(), protocol=2))
    outcomes = {"read": 0, "refused": 0}
    for _ in range(300):
        broken = bytearray(pickled)
        for place in rng.integers(0, len(broken), 3):
            broken[place] = rng.integers(0, 256)
        try:
            read(save_zip(path, bytes(broken)))
            outcomes["read"] += 1
        except (DataError, UsageError):
            outcomes["refused"] += 1
    assert outcomes["refused"] > 100
    assert sum(outcomes.values()) == 300


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("human.csv", {}, UsageError, "from .pt or .npy files, not '.csv'"),
        ("absent.pt", {}, DataError, "there is no such file"),
        ("human.npy", {"labels": [*TRUE, 0]}, DataError, "holds 8 rows, but there are 9 labels: wrong data set?"),
        ("human.npy", {"order": "absent.npy"}, DataError, "cannot be read as an array of row numbers"),
        ("plain.npy", {}, DataError, "holds no dictionary"),
        ("human.npy", {"order": "plain.npy"}, DataError, "does not name each of the rows 0..7 once"),
    ],
)
def test_bad_requests_are_refused(tmp_path, monkeypatch, name, options, error, message):
    monkeypatch.chdir(tmp_path)
    save_npy(tmp_path / "human.npy", columns())
    save_npy(tmp_path / "plain.npy", HUMAN)
    with pytest.raises(error, match=message):
        read(name, **options)


def test_a_path_is_needed():
    with pytest.raises(UsageError, match="give path="):
        recorded(TRUE, 5, 1, None)


def test_the_stand_ins_give_what_torch_gives(tmp_path):
    torch = pytest.importorskip("torch")
    path = save_pt(tmp_path / "human.pt", columns())
    trusted = torch.load(io.BytesIO(path.read_bytes()), weights_only=False)
    found = read_label_file(path)
    assert list(found) == list(trusted)
    for name, values in trusted.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(
    ("file", "key", "classes", "rate"),
    [
        ("CIFAR-10_human.pt", "aggre_label", 10, 0.0903),
        ("CIFAR-10_human.pt", "random_label1", 10, 0.1723),
        ("CIFAR-100_human.pt", None, 100, 0.4020),
    ],
)
def test_the_published_files(shared_data, file, key, classes, rate):
    path = shared_data / "cifar-n" / file
    if not path.is_file():
        pytest.skip(f"no CIFAR-N here: {path}")
    true = read_label_file(path)["clean_label"]
    assert np.bincount(true).tolist() == [50_000 // classes] * classes
    noisy = recorded(true, classes, 1, None, path=path, key=key)
    assert realised_rate(true, noisy.labels) == pytest.approx(rate, abs=2e-3)
    part = recorded(true[:45_000], classes, 1, None, path=path, key=key)
    np.testing.assert_array_equal(part.labels, noisy.labels[:45_000])

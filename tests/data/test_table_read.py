"""Files in: a round trip for each format, and a message that names file, column and row for each broken one."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from labelloop.data.problem import check, make_problem
from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError

X = np.array([[1.5, 2], [3, 4], [5, 6], [7, 8]], dtype=np.float32)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def raises(message, path=None):
    """The error has the message (plain text) and begins with the file."""
    start = "^" + re.escape(str(path)) + ".*" if path is not None else ""
    return pytest.raises(DataError, match=start + re.escape(message))


LABELS = {
    "text": (["cat", "", "dog", "cat"], ["", "dog", "", ""], ["cat", "dog"], [0, -1, 1, 0], [-1, 1, -1, -1]),
    "whole numbers": ([3, None, 10, 3], [None, 10, None, None], [3, 10], [0, -1, 1, 0], [-1, 1, -1, -1]),
    "minus one": ([3, -1, 10, 3], [-1, 10, -1, -1], [3, 10], [0, -1, 1, 0], [-1, 1, -1, -1]),
    "true and false": ([True, None, False, True], [None, False, None, None], None, [1, -1, 0, 1], [-1, 0, -1, -1]),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npz"])
def test_round_trip_of_every_format_and_type_of_label(tmp_path, suffix, kind):
    labels, clean, classes, expected, expected_clean = LABELS[kind]
    path = tmp_path / f"data{suffix}"
    if suffix == ".npz":
        spelled = {
            "true and false": lambda v: np.array([-1 if x is None else int(x) for x in v]),
            "whole numbers": lambda v: np.array([np.nan if x is None else x for x in v], dtype=float),
        }.get(kind, np.array)
        np.savez(path, X=X, y=spelled(labels), y_clean=spelled(clean), ids=np.array(["a", "b", "c", "d"]))
    else:
        columns = {
            "id": ["a", "b", "c", "d"],
            "width": X[:, 0],
            "height": X[:, 1],
            "label": labels,
            "clean_label": clean,
        }
        if suffix == ".parquet":
            pq.write_table(pa.table(columns), path)
        else:
            options = pa_csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",")
            pa_csv.write_csv(pa.table(columns), path, options)
    table = read_table(path, ReadOptions(missing=("-1",)))
    assert np.array_equal(table.inputs, X)
    assert table.inputs.dtype == np.float32
    assert table.ids.tolist() == ["a", "b", "c", "d"]
    assert table.ids_given
    assert table.column_names == (("X[0]", "X[1]") if suffix == ".npz" else ("width", "height"))
    assert table.source == str(path)
    made = make_problem(table)
    problem, found, train, clean_rows = made.problem, made.classes, made.train, made.clean
    assert train.tolist() == [0, 2, 3]
    assert clean_rows.tolist() == [1]
    assert problem.train.labels.tolist() == [expected[i] for i in train]
    assert problem.clean.clean_labels.tolist() == [expected_clean[1]]
    assert problem.clean.labels.tolist() == [-1]
    if classes is not None:
        assert found.tolist() == classes
        assert problem.class_names == tuple(map(str, classes))
    else:
        assert [str(name).lower() for name in found] in (["false", "true"], ["0", "1"])


def test_npy_with_labels_in_files_of_their_own(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", np.array([0, 1, 0, 1]))
    np.save(tmp_path / "clean.npy", np.array([-1, -1, -1, 1]))
    table = read_table(
        tmp_path / "x.npy", ReadOptions(labels_path=tmp_path / "y.npy", clean_file=tmp_path / "clean.npy")
    )
    assert np.array_equal(table.inputs, X)
    assert table.labels.tolist() == [0, 1, 0, 1]
    assert table.clean_labels.tolist() == [-1, -1, -1, 1]
    assert table.ids.tolist() == ["0", "1", "2", "3"]
    assert not table.ids_given
    assert read_table(tmp_path / "x.npy", ReadOptions(labels_required=False)).labels is None
    with raises("give them as labels_path", tmp_path / "x.npy"):
        read_table(tmp_path / "x.npy")
    np.save(tmp_path / "short.npy", np.array([0, 1, 0]))
    with raises("4 rows of inputs, but 3 labels", tmp_path / "x.npy"):
        read_table(tmp_path / "x.npy", ReadOptions(labels_path=tmp_path / "short.npy"))
    with raises("no such file", tmp_path / "none.npy"):
        read_table(tmp_path / "x.npy", ReadOptions(labels_path=tmp_path / "none.npy"))


def test_labels_path_goes_only_with_npy(tmp_path):
    path = write(tmp_path / "a.csv", "a,label\n1,2\n")
    with pytest.raises(UsageError, match=r"is only for \.npy files"):
        read_table(path, ReadOptions(labels_path="y.npy"))


def test_whole_numbers_beside_blanks_stay_whole_in_csv(tmp_path):
    path = write(tmp_path / "a.csv", "f,label,clean_label\n1,3,\n2,,10\n3,10,\n")
    table = read_table(path)
    assert table.labels.tolist() == [3, -1, 10]
    assert table.clean_labels.tolist() == [-1, 10, -1]
    assert make_problem(table).problem.class_names == ("3", "10")


def test_text_labels_keep_their_spelling_in_csv(tmp_path):
    path = write(tmp_path / "a.csv", 'f,label\n1,007\n2,012\n3,"a, b"\n')
    assert read_table(path).labels.tolist() == ["007", "012", "a, b"]


def test_a_byte_order_mark_and_lines_within_quotes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,f,label\n"a\nb",1,x\n\nc,2,y\n', encoding="utf-8-sig")
    table = read_table(path)
    assert table.ids.tolist() == ["a\nb", "c"]
    assert table.labels.tolist() == ["x", "y"]


def test_blank_lines_and_windows_line_ends_are_no_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\r\nid,f,label\r\na,1,x\r\n\r\nb,2,y\r\n\r\n")
    table = read_table(path)
    assert table.ids.tolist() == ["a", "b"]
    assert table.labels.tolist() == ["x", "y"]


def test_columns_by_argument(tmp_path):
    path = write(tmp_path / "a.csv", "name,a,b,c,guess,checked,part\nr1,1,2,3,x,,train\nr2,4,5,6,y,x,TEST\n")
    table = read_table(
        path,
        ReadOptions(
            label_column="guess",
            clean_column="checked",
            id_column="name",
            feature_columns=["b", "a"],
            split_column="part",
            extra_columns=["c"],
        ),
    )
    assert table.inputs.tolist() == [[2, 1], [5, 4]]
    assert table.column_names == ("b", "a")
    assert table.labels.tolist() == ["x", "y"]
    assert table.clean_labels.tolist() == ["", "x"]
    assert table.ids.tolist() == ["r1", "r2"]
    assert table.split.tolist() == ["train", "test"]
    assert table.extra.tolist() == [[3], [6]]
    assert table.extra.dtype == np.float32


@pytest.mark.parametrize("name", ["label", "y", "target", "noisy_label", "given_label"])
@pytest.mark.parametrize("clean", ["clean_label", "y_clean", "verified"])
@pytest.mark.parametrize("row", ["id", "row_id"])
def test_columns_guessed_by_name(tmp_path, name, clean, row):
    path = write(tmp_path / "a.csv", f"{row},f,{name},{clean}\n7,1,2,\n8,3,4,4\n")
    table = read_table(path)
    assert table.column_names == ("f",)
    assert table.ids.tolist() == ["7", "8"]
    assert table.labels.tolist() == [2, 4]
    assert table.clean_labels.tolist() == [-1, 4]


def test_y_beside_a_label_is_a_feature(tmp_path):
    assert read_table(write(tmp_path / "a.csv", "x,y,label\n1,2,a\n3,4,b\n")).column_names == ("x", "y")


def test_two_columns_that_could_be_the_label(tmp_path):
    path = write(tmp_path / "a.csv", "f,label,target\n1,2,3\n")
    with raises("'label' and 'target' could both be meant; say which with label_column", path):
        read_table(path)
    with pytest.warns(
        UserWarning, match=r"not among the features: 'target' \(a label, an id or a row number, by its name"
    ):
        assert read_table(path, ReadOptions(label_column="label")).column_names == ("f",)


def test_a_true_label_is_neither_clean_label_nor_feature(tmp_path):
    path = write(tmp_path / "a.csv", "f,label,true_label,note\n1,2,3,hello\n2,3,3,there\n")
    with pytest.warns(
        UserWarning,
        match=r"'true_label' \(a label, an id or a row number, by its name.*'note' \(2 different values in 2 rows",
    ):
        table = read_table(path)
    assert table.clean_labels is None
    assert table.column_names == ("f",)


def test_a_verified_flag_is_not_a_label(tmp_path):
    path = write(tmp_path / "a.csv", "f,label,verified\n1,2,true\n2,3,false\n")
    with pytest.warns(UserWarning, match="'verified' holds false, true, which says that a row was verified"):
        assert read_table(path).clean_labels is None
    with pytest.raises(DataError, match="share no class: given are 2: 1, 3: 1, clean are false: 1, true: 1"):
        read_table(path, ReadOptions(clean_column="verified"))


@pytest.mark.parametrize("fixed", [True, False])
def test_an_embedding_column_of_parquet(tmp_path, fixed):
    kind = pa.list_(pa.float32(), 2) if fixed else pa.list_(pa.float64())
    path = tmp_path / "a.parquet"
    columns = {"vector": pa.array(X.tolist(), kind), "size": [1, 2, 3, 4], "label": ["a", "b", "a", "b"]}
    pq.write_table(pa.table(columns), path)
    for table in (read_table(path), read_table(path, ReadOptions(embedding_column="vector"))):
        assert np.array_equal(table.inputs[:, :2], X)
        assert table.column_names[:2] == ("vector[0]", "vector[1]")
    assert len(table.column_names) == 2  # where it is named, it is all
    both = read_table(path, ReadOptions(embedding_column="vector", feature_columns=["size"]))
    assert np.array_equal(both.inputs, np.column_stack([X, [1, 2, 3, 4]]))
    assert both.column_names == ("vector[0]", "vector[1]", "size")


def test_embedding_columns_that_cannot_be_used(tmp_path):
    path = tmp_path / "a.parquet"
    label = ["a", "b"]

    def save(**columns):
        pq.write_table(pa.table({**columns, "label": label}), path)

    save(e=[[1.0, 2.0], [3.0]])
    with raises("column 'e' has 2 numbers in row 0 and 1 in row 1", path):
        read_table(path)
    save(e=[[1.0, 2.0], None])
    with raises("column 'e' has no embedding in row 1", path):
        read_table(path)
    save(embedding=[["x"], ["y"]])
    with raises("column 'embedding' is of type list<", path):
        read_table(path)
    save(e=[["x"], ["y"]], x=[1.0, 2.0])
    with pytest.warns(UserWarning, match="'e' .of type list<"):
        assert read_table(path).column_names == ("x",)
    save(e=[[1.0], [2.0]], f=[[1.0], [2.0]])
    with raises("'e' and 'f' could both be meant; say which with embedding_column", path):
        read_table(path)
    save(embedding=[[1.0], [2.0]], f=[[1.0], [2.0]])
    with pytest.warns(UserWarning, match="'f' .of type list<"):
        assert read_table(path).column_names == ("embedding[0]",)
    save(t=["[1, 2]", "[3, 4]"])
    with raises("column 't' is of type string, not lists of numbers", path):
        read_table(path, ReadOptions(embedding_column="t"))
    with raises("no column 'embeding'", path):
        read_table(path, ReadOptions(embedding_column="embeding"))


def test_parquet_types(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {
        "flag": [True, False, None],
        "big": pa.array([2**60, 1, 2], pa.int64()),
        "category": pa.array(["b", "a", None]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), path)
    table = read_table(path, ReadOptions(label_column="category"))
    assert table.column_names == ("flag", "flag=(missing)", "big")
    assert table.inputs.tolist() == [[1, 0, 2.0**60], [0, 0, 1], [0.5, 1, 2]]
    assert table.labels.tolist() == ["b", "a", ""]
    with raises("column 'when' is of type timestamp[us], which cannot hold labels", path):
        pq.write_table(pa.table({"f": [1], "when": pa.array([0], pa.timestamp("us"))}), path)
        read_table(path, ReadOptions(label_column="when"))
    dates = read_table(path, ReadOptions(label_column="f", feature_columns=["when"]))
    assert dates.column_names == ("when.year", "when.month", "when.day", "when.weekday", "when.hour")
    assert dates.inputs.tolist() == [[1970, 1, 1, 3, 0]]


def test_whole_numbers_keep_their_type_in_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"f": [1, 2], "label": pa.array([3, 4], pa.int16())}), path)
    assert read_table(path).labels.dtype == np.int16


def test_images_and_class_names_of_npz(tmp_path):
    images = np.arange(4 * 3 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3, 3)
    path = tmp_path / "a.npz"
    names = np.array(["plane", "car"])
    np.savez(
        path,
        images=images,
        labels=[0, 1, 0, 1],
        clean_labels=[-1, -1, 0, 1],
        class_names=names,
        split=["", "test", "train", "train"],
        extra=np.ones((4, 2)),
    )
    table = read_table(path)
    assert table.inputs.dtype == np.uint8
    assert np.array_equal(table.inputs, images)
    assert table.column_names == ()
    assert table.class_names == ("plane", "car")
    assert table.split.tolist() == ["train", "test", "train", "train"]
    assert table.extra.tolist() == [[1, 1]] * 4
    made = make_problem(table)
    problem, train, clean = made.problem, made.train, made.clean
    assert problem.class_names == ("plane", "car")
    assert train.tolist() == [0]
    assert clean.tolist() == [2, 3]
    assert problem.clean.extra.shape == (2, 2)
    np.savez(path, images=images[..., 0] / 255, y=[0, 1, 0, 1])
    assert read_table(path).inputs.shape == (4, 3, 3, 1)
    assert read_table(path).inputs.dtype == np.float32


def test_arrays_of_npz_by_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(
        path,
        deep=X,
        images=X,
        crowd=[0, 1, 0, 1],
        expert=[-1, 1, -1, -1],
        name=list("abcd"),
        part=["train"] * 4,
        a=[1, 2, 3, 4],
        b=X,
    )
    table = read_table(
        path,
        ReadOptions(
            embedding_column="deep",
            label_column="crowd",
            clean_column="expert",
            id_column="name",
            split_column="part",
            extra_columns=["a", "b"],
        ),
    )
    assert table.column_names == ("deep[0]", "deep[1]")
    assert table.labels.tolist() == [0, 1, 0, 1]
    assert table.clean_labels.tolist() == [-1, 1, -1, -1]
    assert table.ids.tolist() == ["a", "b", "c", "d"]
    assert table.extra.shape == (4, 3)


@pytest.mark.parametrize("name", ["X", "features", "embeddings", "embedding"])
def test_npz_inputs_have_the_names_that_correct_takes_too(name, tmp_path):
    np.savez(tmp_path / "a.npz", **{name: X}, label=[0, 1, 0, 1])
    np.testing.assert_array_equal(read_table(tmp_path / "a.npz").inputs, X)


def test_npz_files_that_cannot_be_used(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x_train=X, y_train=[0, 1, 0, 1])
    known = "X, x, features, embeddings, embedding, images"
    with raises(f"no inputs; expected one of {known}, found x_train, y_train", path):
        read_table(path)
    np.savez(path, X=X, target=[0, 1, 0, 1])
    with raises("no labels; expected y, label, labels, y_clean", path):
        read_table(path)
    assert read_table(path, ReadOptions(labels_required=False)).labels is None
    with raises("no array 'targets'; did you mean 'target'?", path):
        read_table(path, ReadOptions(label_column="targets"))
    np.savez(path, X=X, x=X, y=[0, 1, 0, 1])
    with raises("'X' and 'x' could both be meant; say which with embedding_column", path):
        read_table(path)
    np.savez(path, X=X, y=np.array(["a", None, "b", "a"], dtype=object))
    with raises("array 'y' cannot be read", path):
        read_table(path)
    np.savez(path, X=X, y=[0, 1])
    with raises("4 rows of inputs, but 2 labels", path):
        read_table(path)
    np.savez(path, X=np.zeros((0, 3)), y=np.zeros(0))
    with raises("the inputs have no rows", path):
        read_table(path)
    np.savez(path, X=np.zeros(3), y=np.zeros(3))
    with raises("inputs of shape (3,)", path):
        read_table(path)
    np.savez(path, X=X, y=[0, 1, 0, 1])
    path.write_bytes(path.read_bytes()[:200])
    with raises("cannot be read as arrays", path):
        read_table(path)
    np.save(tmp_path / "b.npy", np.array([{"a": 1}], dtype=object))
    with raises("cannot be read as arrays", tmp_path / "b.npy"):
        read_table(tmp_path / "b.npy", ReadOptions(labels_required=False))
    with path.open("wb") as file:
        np.save(file, X)
    with raises("rename it to end in .npy", path):
        read_table(path)
    with (tmp_path / "c.npy").open("wb") as file:
        np.savez(file, X=X)
    with raises("rename it to end in .npz", tmp_path / "c.npy"):
        read_table(tmp_path / "c.npy", ReadOptions(labels_required=False))


def test_a_column_that_is_not_there_shows_the_nearest(tmp_path):
    path = write(tmp_path / "a.csv", "width,height,label\n1,2,x\n")
    for argument in ("label_column", "clean_column", "id_column", "split_column"):
        with raises("no column 'lable'; did you mean 'label'?", path):
            read_table(path, ReadOptions(**{argument: "lable"}))
    with raises("no column 'widht'; did you mean 'width'", path):
        read_table(path, ReadOptions(feature_columns=["widht"]))
    with raises("no column 'hight'; did you mean 'height'", path):
        read_table(path, ReadOptions(extra_columns=["hight"]))
    with raises("column 'width' is named for two uses", path):
        read_table(path, ReadOptions(id_column="width", extra_columns=["width"]))
    with raises("column 'label' is a feature and has another use too", path):
        read_table(path, ReadOptions(label_column="label", extra_columns=["width"], feature_columns=["label"]))
    with raises("no features are named", path):
        read_table(path, ReadOptions(feature_columns=[]))


def test_no_label_column(tmp_path):
    path = write(tmp_path / "a.csv", "width,class\n1,2\n")
    with raises(
        "no label column; looked for label, labels, noisy_label, given_label, target, y and found the columns width",
        path,
    ):
        read_table(path)
    table = read_table(path, ReadOptions(labels_required=False))
    assert table.labels is None
    assert table.column_names == ("width", "class")


def test_a_feature_column_with_text(tmp_path):
    path = write(tmp_path / "a.csv", "a,b,label\n1,2,x\n2,two,y\n3,three,y\n")
    with raises("column 'b' cannot be a feature: 3 different values in 3 rows that share no words, like ids", path):
        read_table(path, ReadOptions(feature_columns=["a", "b"]))
    with pytest.warns(UserWarning, match=r"'b' \(3 different values in 3 rows"):
        assert read_table(path).column_names == ("a",)
    with raises("column 'b' is not numbers: row 1 holds 'two'", path):
        read_table(path, ReadOptions(feature_columns=["a"], extra_columns=["b"]))


def test_a_slip_in_a_column_of_numbers_is_not_left_out_in_silence(tmp_path):
    rows = "".join(f"{i},{'1O' if i == 30 else i},x\n" for i in range(50))
    path = write(tmp_path / "a.csv", "a,b,label\n" + rows)
    with raises("column 'b' is not numbers: row 30 holds '1O'", path):
        read_table(path)


def test_blank_numbers_are_the_median_and_are_marked(tmp_path):
    path = write(tmp_path / "a.csv", "a,b,label,clean_label\n1,2,x,\n2,,y,\n3,None,x,x\n4,NA,y,y\n5,8,x,\n")
    table = read_table(path)
    assert table.column_names == ("a", "b", "b=(missing)")
    assert table.inputs[:, 1:].tolist() == [[2, 0], [5, 1], [5, 1], [5, 1], [8, 0]]
    check(table)
    with raises("in column b, row 1, 2, 3", path):
        check(read_table(path, ReadOptions(feature_columns=["a", "b"], as_they_are=True)))


def test_empty_files(tmp_path):
    for suffix in (".csv", ".tsv", ".parquet", ".npz", ".npy"):
        path = write(tmp_path / f"a{suffix}", "")
        with raises("the file is empty", path):
            read_table(path)
    with raises("the file is empty; the first line must hold the column names"):
        read_table(write(tmp_path / "b.csv", "\n"))
    for text in ("a,label", "a,label\n", "a,label\n\n\n"):
        with raises("column names but no rows"):
            read_table(write(tmp_path / "c.csv", text))
    pq.write_table(
        pa.table({"a": pa.array([], pa.float32()), "label": pa.array([], pa.string())}), tmp_path / "d.parquet"
    )
    with raises("column names but no rows", tmp_path / "d.parquet"):
        read_table(tmp_path / "d.parquet")


def test_a_broken_row_shows_its_line(tmp_path):
    path = write(tmp_path / "a.csv", "a,b,label\n1,2,x\n\n3,4\n5,6,y\n")
    with raises("line 4 has 2 fields, but the header has 3: '3,4'", path):
        read_table(path)
    path = write(tmp_path / "b.csv", 'a,b,label\n1,2,"x\ny"\n3,4,z,w\n')
    with raises("line 4 has 4 fields, but the header has 3", path):
        read_table(path)
    rows = "".join("1,2,x\n" for _ in range(200_000))
    path = write(tmp_path / "c.csv", "a,b,label\n" + rows + "1,x\n" + rows)
    with raises("line 200002 has 2 fields", path):
        read_table(path)


def test_headers_that_cannot_be_used(tmp_path):
    with raises("columns named twice: 'a'"):
        read_table(write(tmp_path / "a.csv", "a,b,a\n1,2,3\n"))
    with raises("the first line holds only numbers (1, 2, 3)"):
        read_table(write(tmp_path / "b.csv", "1,2,3\n1,2,3\n"))
    (tmp_path / "c.csv").write_bytes("größe,label\n1,2\n".encode("latin-1"))
    with raises("save the file as CSV in UTF-8", tmp_path / "c.csv"):
        read_table(tmp_path / "c.csv")
    (tmp_path / "d.csv").write_bytes(("a,label\n" + "1,x\n" * 5000 + "1,groß\n").encode("latin-1"))
    table = read_table(tmp_path / "d.csv")  # a byte far behind the first ones is not UTF-8, so the file is Latin-1
    assert (table.labels[-1], any("Latin-1" in remark for remark in table.schema_summary.remarks)) == ("groß", True)


def test_files_that_are_not_what_they_say(tmp_path):
    with raises("no such file", tmp_path / "none.csv"):
        read_table(tmp_path / "none.csv")
    with raises("cannot read '.docx'; known: .csv, .tsv, .parquet, .jsonl, .json, "):
        read_table(tmp_path / "a.docx")
    path = write(tmp_path / "a.parquet", "a,label\n1,2\n")
    with raises("cannot be read as Parquet", path):
        read_table(path)


def test_ids_and_splits_that_cannot_be_used(tmp_path):
    path = write(tmp_path / "a.csv", "id,f,label\na,1,x\n,2,y\n")
    with raises("column 'id' has no id in row 1", path):
        read_table(path)
    path = write(tmp_path / "b.csv", "split,f,label\ntrain,1,x\nval,2,y\n")
    with raises("the split of row 1 is 'val'", path):
        read_table(path)


def test_no_column_to_learn_from(tmp_path):
    path = write(tmp_path / "a.csv", "name,blank,label\nx,,a\ny,,b\n")
    with raises(
        "no column to train on; left out: 'name' (2 different values in 2 rows that share no words, like ids), 'blank'",
        path,
    ):
        read_table(path)


def test_the_columns_of_an_earlier_table_are_found_again(tmp_path):
    first = read_table(write(tmp_path / "a.csv", "a,b,label\n1,2,x\n3,4,y\n"))
    later = write(tmp_path / "b.csv", "new,b,a\n9,2,1\n9,4,3\n")
    assert np.array_equal(
        read_table(later, ReadOptions(feature_columns=first.column_names, labels_required=False)).inputs, first.inputs
    )
    np.savez(tmp_path / "a.npz", X=X, y=[0, 1, 0, 1])
    pq.write_table(pa.table({"vector": X.tolist()}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"vector": X[:, :1].tolist()}), tmp_path / "c.parquet")
    names = read_table(tmp_path / "a.npz").column_names
    again = read_table(tmp_path / "b.parquet", ReadOptions(feature_columns=names, labels_required=False))
    assert np.array_equal(again.inputs, X)
    with raises("found 1 feature columns, expected 2", tmp_path / "c.parquet"):
        read_table(tmp_path / "c.parquet", ReadOptions(feature_columns=names, labels_required=False))
    with raises("found 2 feature columns, expected 2 (missing: a, b; unknown: X[0], X[1])", tmp_path / "a.npz"):
        read_table(tmp_path / "a.npz", ReadOptions(feature_columns=["a", "b"]))


@pytest.mark.slow
def test_a_csv_of_20_000_rows_and_50_columns_is_read_checked_and_split(tmp_path):
    """Ten megabytes: many blocks of a CSV file."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 20_000)
    columns = {"id": [f"row-{i}" for i in range(20_000)]}
    columns |= {f"f{j}": rng.normal(size=20_000).astype(np.float32) for j in range(50)}
    columns |= {
        "label": [f"class {k}" for k in labels],
        "clean_label": ["" if i % 50 else f"class {k}" for i, k in enumerate(labels)],
        "split": ["test" if i % 10 == 5 else "train" for i in range(20_000)],
    }
    path = tmp_path / "big.csv"
    pa_csv.write_csv(pa.table(columns), path)
    table = read_table(path)
    check(table)
    made = make_problem(table)
    problem, train, clean = made.problem, made.train, made.clean
    assert table.inputs.shape == (20_000, 50)
    assert len(clean) == 400
    assert len(train) == 17_600
    assert problem.num_classes == 10


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ";"), (".csv", "\t"), (".csv", "|"), (".tsv", ",")])
def test_another_separator_is_recognised(tmp_path, suffix, separator):
    rows = [["a", "label", "clean_label"], ["1", "x", ""], ["2", "y", "x"]]
    table = read_table(write(tmp_path / f"data{suffix}", "\n".join(separator.join(row) for row in rows)))
    assert (table.labels.tolist(), table.clean_labels.tolist()) == (["x", "y"], ["", "x"])
    assert table.schema_summary.remarks == (f"fields are separated by {separator!r}",)


def test_names_of_columns_may_be_spelled_with_spaces(tmp_path):
    path = write(tmp_path / "data.csv", "ID,a,Given Label,Clean-Label,Predicted  label\n01,1,x,,x\n02,2,y,y,x\n")
    with pytest.warns(UserWarning, match="'Predicted  label' .a label, an id or a row number, by its name"):
        table = read_table(path)
    assert (table.column_names, table.ids.tolist()) == (("a",), ["01", "02"])
    assert (table.labels.tolist(), table.clean_labels.tolist()) == (["x", "y"], ["", "y"])


def test_a_file_that_is_not_in_utf_8_is_read_as_latin_1_and_says_so(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("a,label\n1,x\n2,é\n".encode("latin-1"))
    table = read_table(path)
    assert table.labels.tolist() == ["x", "é"]
    assert [remark for remark in table.schema_summary.remarks if "Latin-1" in remark]


def test_large_unsigned_numbers_are_classes(tmp_path):
    path = tmp_path / "data.parquet"
    labels = pa.array([2**63 + 5, 7, None], pa.uint64())
    pq.write_table(pa.table({"a": [1.0, 2.0, 3.0], "label": labels, "clean_label": labels}), path)
    assert sorted(make_problem(read_table(path)).classes.tolist()) == ["7", str(2**63 + 5)]


def test_a_table_without_any_label_is_named(tmp_path):
    path = write(tmp_path / "data.csv", "a,label,clean_label\n1,,\n")
    with raises("no row has a label", path):
        check(read_table(path))

"""What a new user brings and would not notice: it is said in words, or refused with one line that names the file."""

from __future__ import annotations

import unicodedata
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError
from labelloop.workflows.summary import schema_text

COUNT = 60


def table(path, *, labels=("cat", "dog"), spell=str, clean=str, **columns):
    """Rows of two classes; `spell(row, label)` and `clean(row, label)` may write a label in another way."""
    lines = [",".join(["x", *columns, "label", "clean_label"])]
    for row in range(COUNT):
        name = labels[row % 2]
        label = name if spell is str else spell(row, name)
        verified = "" if row >= 20 else name if clean is str else clean(row, name)
        lines.append(
            ",".join([f"{row % 2}.{row % 5}", *(str(column(row)) for column in columns.values()), label, verified])
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def said(path, options=None):
    """The summary, and all warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        text = schema_text(read_table(path, options))
    return text + "".join(f"\n{warning.message}" for warning in found)


# --- labels -------------------------------------------------------------------------------------------------------


def test_blanks_around_labels_are_named_with_counts(tmp_path):
    path = table(tmp_path / "a.csv", spell=lambda row, name: f"{name} " if row % 6 == 0 else name)
    text = said(path)
    assert "'cat ' (10 times) and 'cat' (30 times) are read as one class" in text
    assert "2 classes" in text


@pytest.mark.parametrize(
    ("labels", "other"),
    [
        (("café", "thé"), lambda name: unicodedata.normalize("NFD", name)),
        (("cat", "dog"), lambda name: f"{name}\u200b"),
        (("7", "8"), lambda name: f"0{name}"),
        (("a b", "c"), lambda name: name.replace(" ", "\u00a0")),
    ],
)
def test_labels_that_look_alike_are_named(tmp_path, labels, other):
    path = table(tmp_path / "a.csv", labels=labels, spell=lambda row, name: other(name) if row % 6 == 0 else name)
    text = said(path)
    assert f"{labels[0]!a} (" in text or f"{labels[0]!r} (" in text
    assert "count as different classes; if they are one, write them alike" in text
    if unicodedata.normalize("NFKC", other(labels[0])) == labels[0] or "\u200b" in other(labels[0]):
        assert ascii(other(labels[0])) in text, "by their code points, since they look the same"


def test_a_clean_label_that_no_given_label_is(tmp_path):
    path = table(tmp_path / "a.csv", clean=lambda row, name: "unsure" if row < 3 else name)
    assert "clean labels hold 'unsure' (3 times), which never occur as given labels" in said(path)


def test_only_markers_that_occur_are_said_to_mean_missing(tmp_path):
    assert said(table(tmp_path / "a.csv", labels=("1", "2"))).endswith("40 clean labels (blank)")
    marked = table(tmp_path / "b.csv", labels=("1", "2", "3"), spell=lambda row, name: "-1" if row == 50 else name)
    assert "1 given labels and 40 clean labels (blank, '-1')" in said(marked, ReadOptions(missing=("-1",)))


def test_decimals_with_many_values_are_questioned(tmp_path):
    path = table(tmp_path / "a.csv", spell=lambda row, name: f"{row / 7:.2f}", clean=lambda row, name: "")
    with pytest.raises(UsageError, match=r"60 different numbers in 60 rows .* looks like a measurement"):
        read_table(path)


def test_labels_of_the_wrong_form_name_the_file(tmp_path):
    rows = {"x": np.arange(4.0), "label": np.arange(4) + 0.5}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 2)), y=np.eye(4)[:, :2])
    for name, words in (("a.parquet", "row 0 holds 0.5"), ("a.npz", "expected one label per row")):
        with pytest.raises(DataError, match=f"{name}: (label|y): {words}"):
            read_table(tmp_path / name)


def test_minus_one_in_arrays_is_counted_on_both_sides(tmp_path):
    given, clean = np.array([-1, 0, 1] * 4), np.array([-1, 0, 1, *[-1] * 9])
    np.savez(tmp_path / "a.npz", X=np.zeros((12, 2)), y=given, y_clean=clean)
    with pytest.raises(UsageError, match=r"'-1' occurs 4 times among the given labels .* and 10 times among the clean"):
        read_table(tmp_path / "a.npz")


# --- columns ------------------------------------------------------------------------------------------------------


def test_blank_features_are_counted(tmp_path):
    text = said(table(tmp_path / "a.csv", p=lambda row: "" if row % 2 else row, q=lambda row: "ab"[row % 2]))
    assert "blank: 'p' in 30 rows (filled in, and marked in a separate column)" in text


def test_ids_are_no_features(tmp_path):
    text = said(table(tmp_path / "a.csv", customer_id=lambda row: 1000 + 7 * row, shop_id=lambda row: row % 5))
    assert "left out: 'customer_id' (an id by its name, different in every row; to use it anyway, name" in text
    assert "'shop_id' is a code by its name: read as categories; for numbers, use --trust-columns" in text
    text = said(table(tmp_path / "a.csv", buyer_id=lambda row: 1000 + row // 2))
    assert "left out: 'buyer_id' (an id by its name, different in most rows; to use it as a number, name" in text
    assert "'n' holds each number from 3 to 62 once; if it is an id" in said(
        table(tmp_path / "b.csv", n=lambda row: 62 - row)
    )


def test_a_slip_among_dates_is_refused_like_one_among_numbers(tmp_path):
    def date(row):
        return "unknown" if row == 4 else f"2024-01-{1 + row % 28:02d}"

    path = table(tmp_path / "a.csv", when=date)
    with pytest.raises(DataError, match=r"'when' is not dates: row 4 holds 'unknown', .* say --na unknown"):
        read_table(path)
    assert "'when' (date yyyy-mm-dd" in said(path, ReadOptions(na=("unknown",)))


def test_numbers_with_signs_are_numbers_and_said(tmp_path):
    text = said(table(tmp_path / "a.csv", p=lambda row: f"${row}.00"))
    assert "features, number: 2: 'x', 'p'" in text
    assert "'p' is read as numbers: '$10.00' as 10" in text


def test_times_of_day_are_hours(tmp_path):
    path = table(
        tmp_path / "a.csv", t=lambda row: f"{row % 24:02d}:30", p=lambda row: f"{row % 12 + 1}:30 {'ap'[row % 2]}m"
    )
    text = said(path)
    assert "'t' is read as numbers: '00:30:00' as 0.5" in text
    assert "'p' is read as numbers: '10:30 pm' as 22.5" in text
    found = read_table(path)
    np.testing.assert_allclose(found.inputs[:, 1], [row % 24 + 0.5 for row in range(len(found))])
    assert found.inputs[11, 2] == 12.5  # 12:30 pm
    again = read_table(path, ReadOptions(encoding=found.encoding))
    np.testing.assert_array_equal(again.inputs, found.inputs)


def test_dates_with_a_zone_are_said_to_be_in_utc(tmp_path):
    text = said(table(tmp_path / "a.csv", t=lambda row: f"2024-01-{1 + row % 28:02d}T23:00:00-05:00"))
    assert "as year, month, day, weekday, hour, in UTC)" in text


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_na_is_about_numbers_of_every_format(tmp_path, ending):
    path = table(tmp_path / "a.csv", p=lambda row: -999 if row % 3 == 0 else row)
    if ending == "parquet":
        pq.write_table(pa.csv.read_csv(path), tmp_path / "a.parquet")
    text = said(tmp_path / f"a.{ending}", ReadOptions(na=("-999",)))
    assert "blank: 'p' in 20 rows" in text


def test_names_that_occur_twice_are_refused(tmp_path):
    column = pa.array([1.0, 2.0])
    pq.write_table(pa.table([column, column, pa.array(["a", "b"])], names=["x", "x", "label"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: columns named twice: 'x'"):
        read_table(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="'x' is named twice among the features"):
        read_table(table(tmp_path / "a.csv"), ReadOptions(feature_columns=("x", "x")))


def test_flags_about_images_are_refused_where_there_are_none(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 2)), y=np.arange(4) % 2)
    for path in (table(tmp_path / "a.csv"), tmp_path / "a.npz"):
        with pytest.raises(UsageError, match="image_size"):
            read_table(path, ReadOptions(image_size=32))


def test_every_array_is_spoken_of(tmp_path):
    arrays = {"X": np.zeros((12, 3, 8, 8)), "y": np.arange(12) % 2, "y_clean": np.full(12, -1), "weights": np.ones(12)}
    np.savez(tmp_path / "a.npz", **arrays)
    text = said(tmp_path / "a.npz")
    for line in (
        "inputs: 'X' (guessed by its name)",
        "given label: 'y' (guessed by its name)",
        "clean label: 'y_clean' (guessed by its name)",
        "inputs: images of 8 x 8 pixels in 3 channels",
        "left out: 'weights'",
    ):
        assert line in text


# --- images -------------------------------------------------------------------------------------------------------


def test_files_beside_images_and_peculiar_images_are_counted(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("one", "two", "none"):
        (tmp_path / name).mkdir()
    image.new("RGB", (8, 8), (120, 10, 10)).save(tmp_path / "one" / "a.png")
    image.fromarray(np.full((8, 8), 4000, np.uint16)).save(tmp_path / "one" / "b.png")
    image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "two" / "c.png")
    frames = [image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "two" / "d.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "two" / "notes.txt").write_text("no image")
    (tmp_path / "two" / "photo.heic").write_text("an image of another kind")
    (tmp_path / "two" / ".hidden.png").write_text("")
    text = said(tmp_path)
    for line in (
        "1 images have more than 8 bits; in 16 bits, 0 to 65535 is read as black to white; the largest value is 4000",
        "1 images are partly transparent, and are placed on white",
        "1 images have several frames or pages; only the first is used",
        "left out: 2 files without an image extension: two/notes.txt, two/photo.heic",
        "left out: 1 hidden files",
        "no class: 1 folders without an image: 'none'",
    ):
        assert line in text
    found = read_table(tmp_path)
    assert (found.inputs[found.ids.tolist().index("two/c.png")] == 255).all(), "black and transparent is seen as white"


def test_images_that_a_table_does_not_name_are_counted(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in "abc":
        image.new("RGB", (8, 8), (120, 10, 10)).save(tmp_path / f"{name}.png")
    (tmp_path / "metadata.csv").write_text("file_name,label\na.png,one\nb.png,two\n")
    assert "left out: 1 images that metadata.csv does not name: c.png" in said(tmp_path)


def test_dates_in_several_forms_are_said(tmp_path):
    days = [f"{1 + row % 28:02d}/02/2024" if row % 2 else f"2024-02-{1 + row % 28:02d}" for row in range(60)]
    text = said(table(tmp_path / "a.csv", day=lambda row: days[row]))
    assert "'day' holds dates in several forms, so it is not read as dates; write all as yyyy-mm-dd" in text


def test_times_of_which_some_have_a_zone_are_said(tmp_path):
    day = "2024-01-{:02d}T10:00:00{}"
    text = said(table(tmp_path / "a.csv", day=lambda row: day.format(1 + row % 28, "+02:00" if row % 2 else "")))
    assert "hour, in UTC where a zone is written" in text
    assert "in UTC" not in said(table(tmp_path / "b.csv", day=lambda row: day.format(1 + row % 28, "")))


def test_an_interval_is_no_list(tmp_path):
    interval = said(table(tmp_path / "a.csv", p=lambda row: f'"({row % 5}.0, {row % 5 + 1}.0]"'))
    assert "lists of numbers" not in interval
    assert "lists of numbers" in said(table(tmp_path / "b.csv", p=lambda row: f'"[{row % 5}.0, {row % 5 + 1}.0]"'))


def test_no_marker_with_a_comma_is_proposed(tmp_path):
    with pytest.raises(DataError, match=r"row 3 holds '1,5'.*; correct it, or leave the column out") as error:
        read_table(table(tmp_path / "a.csv", p=lambda row: '"1,5"' if row == 3 else row + 0.5))
    assert "--na" not in str(error.value)


def test_names_of_columns_are_known_beside_invisible_signs(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table(path).read_text().replace("clean_label", "\ufeffclean_label\u200b"))
    assert "given labels: 60, clean labels: 20" in said(path)

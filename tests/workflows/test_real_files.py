"""What `fit` understands of files that a new user would bring, without a flag: every column, every class."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
import real_files
from sklearn import datasets

from labelloop.cli import main
from labelloop.data.columns import Feature
from labelloop.data.problem import classes_of, encoded
from labelloop.data.readers import read_table

pytestmark = pytest.mark.slow

DATE = "as year, month, day, weekday"
NAMED = "; to use it anyway, name it with trust_columns"
BY_NAME = f"an id by its name, different in every row{NAMED}"


@dataclass(frozen=True)
class Expected:
    """How a file should be understood.

    Attributes:
        label: The given label, and the clean label.
        rows: How many rows.
        classes: For each class how many given labels it has, and how many clean ones.
        numbers: The columns of numbers.
        others: The other features, and how they are read.
        blank: How many values features lack.
        left_out: The columns left out, and why.
        remarks: Other decisions.
    """

    label: tuple[str, str]
    rows: int
    classes: dict[object, tuple[int, int]]
    numbers: tuple[str, ...]
    others: dict[str, str] = field(default_factory=dict)
    blank: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


USUAL = ("label", "clean_label")
PENGUIN_COUNTS = ((153, 31), (67, 13), (124, 25))
KINDS = (
    "Adelie Penguin (Pygoscelis adeliae)",
    "Chinstrap penguin (Pygoscelis antarctica)",
    "Gentoo penguin (Pygoscelis papua)",
)
BLACK = ("pixel_0_0", "pixel_4_0", "pixel_4_7")  # in every digit
DIGITS = ((182, 42), (181, 28), (177, 26), (184, 48), (176, 38), (177, 39), (180, 30), (187, 26), (173, 36), (180, 47))

EXPECTED = {
    "iris": Expected(
        USUAL,
        150,
        {"setosa": (49, 10), "versicolor": (51, 10), "virginica": (50, 10)},
        tuple(datasets.load_iris().feature_names),
    ),
    "wine": Expected(
        ("Label", "Clean Label"),
        178,
        {"class_0": (59, 12), "class_1": (71, 14), "class_2": (48, 10)},
        tuple(datasets.load_wine().feature_names),
        remarks=("fields are separated by ';' and a comma in numbers",),
    ),
    "cancer": Expected(
        ("target", "clean_label"),
        569,
        {"False": (348, 74), "True": (221, 40)},
        tuple(datasets.load_breast_cancer().feature_names.tolist()),
        left_out={"patient_id": BY_NAME},
    ),
    "digits": Expected(
        ("noisy_label", "clean_label"),
        1797,
        dict(enumerate(DIGITS)),
        tuple(datasets.load_digits().feature_names),
        left_out={"": f"a label, an id or a row number, by its name{NAMED}"},
        remarks=tuple(f"{name!r} holds the same number in every row, which carries no information" for name in BLACK),
    ),
    "diabetes": Expected(
        USUAL,
        442,
        {"high": (127, 30), "low": (147, 23), "middle": (168, 36)},
        ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
    ),
    "linnerud": Expected(USUAL, 20, {"heavy": (10, 3), "light": (10, 1)}, ("Chins", "Situps", "Jumps")),
    "penguins": Expected(
        ("given_label", "verified"),
        344,
        dict(zip(("Adelie", "Chinstrap", "Gentoo"), PENGUIN_COUNTS, strict=True)),
        ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "year"),
        {"island": "category of 3", "sex": "category of 2"},
        {"bill_length_mm": 2, "bill_depth_mm": 2, "flipper_length_mm": 2, "body_mass_g": 2, "sex": 11},
    ),
    "raw_penguins": Expected(
        USUAL,
        344,
        dict(zip(KINDS, PENGUIN_COUNTS, strict=True)),
        (
            *("Sample Number", "Culmen Length (mm)", "Culmen Depth (mm)", "Flipper Length (mm)", "Body Mass (g)"),
            *("Delta 15 N (o/oo)", "Delta 13 C (o/oo)"),
        ),
        {
            **{"studyName": "category of 3", "Island": "category of 3", "Clutch Completion": "category of 2"},
            **{"Date Egg": f"date yyyy-mm-dd, {DATE}", "Sex": "category of 2", "Comments": "category of 6"},
        },
        {
            **{"Culmen Length (mm)": 2, "Culmen Depth (mm)": 2, "Flipper Length (mm)": 2, "Body Mass (g)": 2},
            **{"Sex": 11, "Delta 15 N (o/oo)": 14, "Delta 13 C (o/oo)": 13, "Comments": 290},
        },
        {
            "Region": "the same value in every row",
            "Stage": "the same value in every row",
            "Individual ID": "an id by its name, different in most rows; to use it anyway, name it with trust_columns",
        },
    ),
    "cars": Expected(
        USUAL,
        406,
        {"Europe": (79, 15), "Japan": (77, 20), "USA": (250, 47)},
        ("Miles_per_Gallon", "Cylinders", "Displacement", "Horsepower", "Weight_in_lbs", "Acceleration"),
        {"Name": "text, as 32 numbers from its words", "Year": f"date yyyy-mm-dd, {DATE}"},
        {"Miles_per_Gallon": 8, "Horsepower": 6},
        remarks=("'Year' holds 1970-01-01 more than once; if it means missing, say --na=1970-01-01",),
    ),
    "weather": Expected(
        USUAL,
        1461,
        {"drizzle": (52, 10), "fog": (416, 82), "rain": (264, 50), "snow": (22, 6), "sun": (707, 145)},
        ("precipitation", "temp_max", "temp_min", "wind"),
        {"date": f"date yyyy/mm/dd, {DATE}"},
    ),
    "stocks": Expected(
        USUAL,
        560,
        {"AAPL": (123, 24), "AMZN": (122, 25), "GOOG": (68, 14), "IBM": (124, 24), "MSFT": (123, 25)},
        ("price",),
        {"date": f"date mon dd yyyy, {DATE}"},
    ),
    "election": Expected(
        USUAL,
        944,
        dict(enumerate([(205, 41), (179, 28), (99, 22), (36, 10), (101, 18), (155, 37), (169, 33)])),
        ("popul", "TVnews", "selfLR", "ClinLR", "DoleLR", "age", "educ", "income", "vote"),
    ),
    "travel": Expected(
        USUAL,
        840,
        {0: (629, 126), 1: (211, 42)},
        ("individual", "mode", "ttme", "invc", "invt", "gc", "hinc", "psize"),
        remarks=("fields are separated by ';'",),
    ),
    "tiles": Expected(
        USUAL,
        80,
        {"china": (39, 8), "flower": (41, 8)},
        (),
        {"file_name": "images of 64 x 64 pixels"},
        left_out={"page": "the images are the inputs"},
    ),
}


def counts(table) -> dict[object, tuple[int, int]]:
    """The given and clean labels of each class."""
    classes = classes_of(table)
    given, clean = encoded(table, classes)
    return {name: (int((given == k).sum()), int((clean == k).sum())) for k, name in enumerate(classes.tolist())}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", EXPECTED)
def test_every_column_and_class_is_understood(name, tmp_path, capsys):
    path, expected = getattr(real_files, name)(tmp_path), EXPECTED[name]
    table = read_table(path)
    said = table.schema_summary
    label, clean = expected.label
    assert [(use.what, use.column) for use in said.uses] == [("given label", label), ("clean label", clean)]
    assert all(use.guessed for use in said.uses)
    features = {**dict.fromkeys(expected.numbers, "number"), **expected.others}
    wanted = {Feature(column, how, expected.blank.get(column, 0)) for column, how in features.items()}
    assert set(said.features) == wanted
    assert {out.column: out.why for out in said.left_out} == expected.left_out
    assert said.remarks == expected.remarks
    assert (len(table), counts(table)) == (expected.rows, expected.classes)
    before = sorted(tmp_path.rglob("*"))
    assert main(["fit", str(path), "--dry-run"]) == 0
    assert f"{path}: {expected.rows} rows\n  given label: {label!r} (guessed by its name)" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


def test_a_class_called_na_is_pointed_out(tmp_path, capsys):
    path = real_files.airports(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = read_table(path)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["fit", str(path), "--dry-run"]) == 0
    said = table.schema_summary
    assert {feature.column: feature.how for feature in said.features} == {
        "country": "category of 2",
        "latitude": "number",
        "longitude": "number",
    }
    assert [out.column for out in said.left_out] == ["iata", "name", "city"]
    assert said.left_out[1].why.startswith("as a text it does not help to predict the given label")
    written = real_files.columns_of(path)
    expected = {name: (written["label"].count(name), written["clean_label"].count(name)) for name in written["label"]}
    assert counts(table) == expected
    assert "NA" in expected
    assert (
        "NA is used as a class name; if it means that the label is missing, leave it blank" in capsys.readouterr().err
    )


def test_a_measurement_is_not_taken_for_classes(tmp_path, capsys):
    assert main(["fit", str(real_files.diabetes_numbers(tmp_path)), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "column 'target' holds 214 different numbers in 442 rows (from 25 to 346)" in said
    assert "if it is the label, say so with --label-column" in said


def test_images_in_class_folders_need_clean_rows(tmp_path, capsys):
    folder = real_files.digit_images(tmp_path)
    table = read_table(folder)
    given = np.bincount(real_files.spoilt(datasets.load_digits().target[:200].tolist()))
    assert counts(table) == {str(digit): (count, 0) for digit, count in enumerate(given.tolist())}
    assert (table.image_form.height, table.image_form.width) == (8, 8)
    assert main(["fit", str(folder), "--dry-run"]) == 1
    assert "no clean rows: no row has a clean_label; verify the labels of some rows" in capsys.readouterr().err

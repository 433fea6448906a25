"""Fifteen public tables and image sets, from packages: without a flag the summary is right, or it asks."""

from __future__ import annotations

import warnings
from importlib import import_module, resources

import numpy as np
import pytest

from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError
from labelloop.workflows.summary import schema_text

pytestmark = pytest.mark.slow

pandas = pytest.importorskip("pandas")


def of_sklearn(name):
    def load():
        found = getattr(import_module("sklearn.datasets"), f"load_{name}")(as_frame=True)
        frame = found.frame
        if name != "diabetes" and hasattr(found, "target_names"):
            frame = frame.assign(target=[str(found.target_names[k]) for k in frame["target"]])
        return frame

    return load


def of_package(package, path, label=None):
    """A CSV file inside a package; `label` is renamed to what is guessed."""

    def load():
        pytest.importorskip(package, reason=f"{package} is not installed")
        with resources.as_file(resources.files(package).joinpath(path)) as file:
            if not file.is_file():
                pytest.skip(f"{package} has no {path}")
            frame = pandas.read_json(file) if path.endswith(".json") else pandas.read_csv(file)
        return frame if label is None else frame.rename(columns={label: "label"})

    return load


def of_statsmodels(name, label):
    def load():
        found = pytest.importorskip(f"statsmodels.datasets.{name}", reason="statsmodels is not installed")
        return found.load_pandas().data.rename(columns={label: "label"})

    return load


# name: (how to load it, label column when right, what it asks for)
SETS = {
    "iris": (of_sklearn("iris"), "target", None),
    "wine": (of_sklearn("wine"), "target", None),
    "breast cancer": (of_sklearn("breast_cancer"), "target", None),
    "digits": (of_sklearn("digits"), "target", None),
    "diabetes": (of_sklearn("diabetes"), None, "like a measurement"),
    "penguins": (of_package("palmerpenguins", "data/penguins.csv"), None, "no label column"),
    "penguins by species": (of_package("palmerpenguins", "data/penguins.csv", "species"), "label", None),
    "raw penguins": (of_package("palmerpenguins", "data/penguins-raw.csv", "Species"), "label", None),
    "iris of vega": (of_package("vega_datasets", "_data/iris.json", "species"), "label", None),
    "seattle weather": (of_package("vega_datasets", "_data/seattle-weather.csv", "weather"), "label", None),
    "cars": (of_package("vega_datasets", "_data/cars.json", "Origin"), "label", None),
    "barley": (of_package("vega_datasets", "_data/barley.json", "site"), "label", None),
    "spector": (of_statsmodels("spector", "GRADE"), "label", None),
    "fair": (of_statsmodels("fair", "religious"), "label", None),
    "anes96": (of_statsmodels("anes96", "PID"), "label", None),
    "heart": (of_statsmodels("heart", "censors"), "label", None),
}


@pytest.mark.parametrize("name", SETS)
def test_the_summary_is_right_or_it_asks(name, tmp_path):
    load, label, asks = SETS[name]
    frame = load()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if asks is not None:
            with pytest.raises((DataError, UsageError), match=asks):
                read_table(tmp_path / "rows.csv")
            return
        table = read_table(tmp_path / "rows.csv", ReadOptions())
        text = schema_text(table)
    assert f"given label: {label!r} (guessed by its name)" in text
    spoken = [*table.schema_summary.uses, *table.schema_summary.features, *table.schema_summary.left_out]
    assert sorted(part.column for part in spoken) == sorted(map(str, frame.columns))
    written = frame[label].dropna()
    assert len(np.unique(written.astype(str))) == sum(1 for _ in set(written.astype(str)))
    assert f"{written.nunique()} classes; given labels: {len(written)}" in text


def test_images_of_digits(tmp_path):
    image = pytest.importorskip("PIL.Image")
    from sklearn.datasets import load_digits

    found = load_digits()
    for row in range(60):
        folder = tmp_path / "images" / f"digit {found.target[row]}"
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray((found.images[row] * 15).astype(np.uint8)).save(folder / f"{row}.png")
    text = schema_text(read_table(tmp_path / "images"))
    assert "inputs: images of 8 x 8 pixels" in text
    assert "10 classes; given labels: 60, clean labels: 0" in text

"""Files that a new user would bring: public data as tables or images, with some wrong and a few clean labels."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn import datasets

Columns = dict[str, list[Any]]
WRONG, AWAY, CLEAN = 7, 50, 5  # every 7th row has the label of the row 50 below it, every 5th row is clean


def spoilt(truth: list[Any]) -> list[Any]:
    """The given labels: some of them wrong."""
    return [truth[(row + AWAY) % len(truth)] if row % WRONG == 0 else value for row, value in enumerate(truth)]


def known(truth: list[Any]) -> list[Any]:
    """The clean labels: blank but for a few."""
    return [value if row % CLEAN == 0 else None for row, value in enumerate(truth)]


def with_labels(columns: Columns, truth: str, label: str = "label", clean: str = "clean_label") -> Columns:
    """The columns without the one of the truth, and two of labels in its place."""
    values = columns[truth]
    others = {name: column for name, column in columns.items() if name != truth}
    return {**others, label: spoilt(values), clean: known(values)}


def write_csv(path: Path, columns: Columns, delimiter: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def packaged(package: str, name: str) -> Path:
    """A file inside an installed package."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(found.submodule_search_locations[0]) / name


def columns_of(path: Path, delimiter: str = ",") -> Columns:
    """A CSV or JSON file as it is."""
    if path.suffix == ".json":
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {name: [row.get(name) for row in rows] for name in rows[0]}
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file, delimiter=delimiter, quotechar="'" if delimiter != "," else '"')
    return {name: [row[j] for row in rows] for j, name in enumerate(head)}


def of_scikit_learn(load: Callable[[], Any]) -> Columns:
    """The features under their own names, and the truth, by name where classes have one."""
    found = load()
    names = getattr(found, "target_names", None)
    columns = {name: found.data[:, j].tolist() for j, name in enumerate(found.feature_names)}
    return {**columns, "truth": [str(names[k]) for k in found.target] if names is not None else found.target.tolist()}


def iris(folder: Path) -> Path:
    return write_csv(folder / "iris.csv", with_labels(of_scikit_learn(datasets.load_iris), "truth"))


def wine(folder: Path) -> Path:
    """Semicolons and decimal commas, as a German Excel writes them."""
    columns = with_labels(of_scikit_learn(datasets.load_wine), "truth", "Label", "Clean Label")
    columns = {
        name: [str(value).replace(".", ",") if isinstance(value, float) else value for value in values]
        for name, values in columns.items()
    }
    return write_csv(folder / "wine.csv", columns, ";", "utf-8-sig")


def cancer(folder: Path) -> Path:
    """With an id and classes called True and False."""
    columns = of_scikit_learn(datasets.load_breast_cancer)
    columns["truth"] = [value == "malignant" for value in columns["truth"]]
    columns = {"patient_id": [842301 + 7 * n for n in range(569)], **columns}
    return write_csv(folder / "cancer.csv", with_labels(columns, "truth", "target"))


def digits(folder: Path) -> Path:
    """Classes 0 to 9; pandas wrote the clean ones as 3.0, and its index as a column without a name."""
    columns = with_labels(of_scikit_learn(datasets.load_digits), "truth", "noisy_label")
    columns["clean_label"] = [None if value is None else float(value) for value in columns["clean_label"]]
    return write_csv(folder / "digits.csv", {"": list(range(1797)), **columns})


def diabetes(folder: Path) -> Path:
    found = datasets.load_diabetes(scaled=False)
    columns = {name: found.data[:, j].tolist() for j, name in enumerate(found.feature_names)}
    columns["truth"] = np.array(["low", "middle", "high"])[np.digitize(found.target, [100, 200])].tolist()
    return write_csv(folder / "diabetes.csv", with_labels(columns, "truth"))


def diabetes_numbers(folder: Path) -> Path:
    """A measurement as the label."""
    found = datasets.load_diabetes(scaled=False)
    columns = {name: found.data[:, j].tolist() for j, name in enumerate(found.feature_names)}
    return write_csv(folder / "diabetes.csv", {**columns, "target": found.target.tolist()})


def linnerud(folder: Path) -> Path:
    """Twenty rows."""
    found = datasets.load_linnerud()
    columns = {name: found.data[:, j].tolist() for j, name in enumerate(found.feature_names)}
    columns["truth"] = ["heavy" if weight > 175 else "light" for weight in found.target[:, 0]]
    return write_csv(folder / "linnerud.csv", with_labels(columns, "truth"))


def penguins(folder: Path) -> Path:
    columns = columns_of(packaged("palmerpenguins", "data/penguins.csv"))
    return write_csv(folder / "penguins.csv", with_labels(columns, "species", "given_label", "verified"))


def raw_penguins(folder: Path) -> Path:
    columns = columns_of(packaged("palmerpenguins", "data/penguins-raw.csv"))
    return write_csv(folder / "penguins-raw.csv", with_labels(columns, "Species"))


def cars(folder: Path) -> Path:
    """JSON with null where a number is missing."""
    columns = with_labels(columns_of(packaged("vega_datasets", "_data/cars.json")), "Origin")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (folder / "cars.json").write_text(json.dumps(rows))
    return folder / "cars.json"


def weather(folder: Path) -> Path:
    columns = columns_of(packaged("vega_datasets", "_data/seattle-weather.csv"))
    return write_csv(folder / "weather.tsv", with_labels(columns, "weather"), "\t")


def stocks(folder: Path) -> Path:
    columns = columns_of(packaged("vega_datasets", "_data/stocks.csv"))
    return write_csv(folder / "stocks.csv", with_labels(columns, "symbol"))


def airports(folder: Path) -> Path:
    columns = columns_of(packaged("vega_datasets", "_data/airports.csv"))
    return write_csv(folder / "airports.csv", with_labels(columns, "state"))


def election(folder: Path) -> Path:
    """Parquet: whole numbers, the label too."""
    columns = columns_of(packaged("statsmodels", "datasets/anes96/anes96.csv"), "\t")
    numbers = {name: [float(value) for value in values] for name, values in columns.items()}
    numbers = {name: [int(v) for v in values] if name != "popul" else values for name, values in numbers.items()}
    pq.write_table(pa.table(with_labels(numbers, "PID")), folder / "election.parquet")
    return folder / "election.parquet"


def travel(folder: Path) -> Path:
    columns = columns_of(packaged("statsmodels", "datasets/modechoice/modechoice.csv"), ";")
    return write_csv(folder / "travel.csv", with_labels(columns, "choice"), ";")


def digit_images(folder: Path) -> Path:
    """A folder for every class."""
    found = datasets.load_digits()
    for row, (image, digit) in enumerate(zip(found.images[:200], spoilt(found.target[:200].tolist()), strict=True)):
        place = folder / "digits" / str(digit) / f"{row:03d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9).astype(np.uint8)).save(place)
    return folder / "digits"


def tiles(folder: Path) -> Path:
    """Tiles of two photographs, named by a table."""
    folder = folder / "tiles"
    folder.mkdir()
    columns: Columns = {"file_name": [], "page": [], "truth": []}
    for name in ("china", "flower"):
        photo = datasets.load_sample_image(f"{name}.jpg")
        for row in range(40):
            top, left = 64 * (row // 8), 64 * (row % 8)
            columns["file_name"].append(f"{name}-{row}.jpg")
            columns["page"].append(row)
            columns["truth"].append(name)
            Image.fromarray(photo[top : top + 64, left : left + 64]).save(folder / columns["file_name"][-1])
    return write_csv(folder / "tiles.csv", with_labels(columns, "truth"))

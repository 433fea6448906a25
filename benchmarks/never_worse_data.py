"""Public data for `never_worse.py`: tables that come inside packages, stored probabilities, embeddings, weak labels.

A set whose package or file is absent is left out, and the benchmark says so.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("LABELLOOP_DATA", Path(__file__).resolve().parents[1] / "../shared/data"))


@dataclass(frozen=True)
class Rows:
    """Rows with their true labels.

    Attributes:
        true: True labels [n].
        inputs: Features [n, D], or None.
        probabilities: Out-of-sample probabilities [n, C], or None.
        given: Given labels that come with the data [n], or None where noise is drawn.
        named: Whether the features are columns of a table.
    """

    true: np.ndarray
    inputs: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    given: np.ndarray | None = None
    named: bool = False


def _frame(frame, label: str, drop: tuple[str, ...] = ()) -> Rows:
    import pandas as pd

    frame = frame.dropna()
    true = np.unique(frame[label].astype(str).to_numpy(), return_inverse=True)[1]
    inputs = pd.get_dummies(frame.drop(columns=[label, *drop]), dtype=float).to_numpy(np.float32)
    return Rows(true, inputs, named=True)


def _scikit(name: str) -> Rows:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return Rows(found.target.astype(np.int64), found.data.astype(np.float32), named=True)


def _made(rows: int, columns: int, seed: int, **law) -> Rows:
    from sklearn.datasets import make_classification

    x, y = make_classification(rows, columns, flip_y=0, random_state=seed, **law)
    return Rows(y.astype(np.int64), x.astype(np.float32), named=True)


def _vega(name: str):
    import pandas as pd
    import vega_datasets

    path = Path(vega_datasets.__file__).parent / "_data" / name
    return pd.read_json(path) if name.endswith("json") else pd.read_csv(path)


def _penguins() -> Rows:
    from palmerpenguins import load_penguins

    return _frame(load_penguins(), "species", ("island", "year"))


def _weather() -> Rows:
    import pandas as pd

    frame = _vega("seattle-weather.csv")
    frame["month"] = pd.to_datetime(frame["date"]).dt.month
    return _frame(frame, "weather", ("date",))


def _cars() -> Rows:
    columns = ["Miles_per_Gallon", "Cylinders", "Displacement", "Horsepower", "Weight_in_lbs", "Acceleration", "Origin"]
    return _frame(_vega("cars.json")[columns], "Origin")


def _airports() -> Rows:
    frame = _vega("airports.csv")
    common = frame["state"].value_counts().index[:50]
    return _frame(frame[frame["state"].isin(common)][["latitude", "longitude", "state"]], "state")


def _votes() -> Rows:
    import statsmodels.api as sm

    return _frame(sm.datasets.anes96.load_pandas().data, "vote")


def _health() -> Rows:
    import statsmodels.api as sm

    return _frame(sm.datasets.randhie.load_pandas().data.sample(6000, random_state=0), "hlthp")


def _affairs() -> Rows:
    import statsmodels.api as sm

    frame = sm.datasets.fair.load_pandas().data.sample(3000, random_state=0)
    frame["any"] = (frame["affairs"] > 0).astype(int)
    return _frame(frame, "any", ("affairs",))


def _eights() -> Rows:
    digits = _scikit("digits")
    rows = np.concatenate([np.flatnonzero(digits.true == 8)[:16], np.flatnonzero(digits.true != 8)])
    assert digits.inputs is not None
    return Rows((digits.true[rows] == 8).astype(np.int64), digits.inputs[rows], named=True)


def _stored(name: str) -> Rows:
    with np.load(FOLDER / "pred_probs" / f"{name}.npz") as file:
        rows = np.random.default_rng(5).permutation(len(file["true_label"]))[:8000]
        p, given, true = (file[key][rows] for key in ("pred_probs", "given_label", "true_label"))
    return Rows(true.astype(np.int64), probabilities=p.astype(np.float32), given=given.astype(np.int64))


def _embeddings(key: str | None) -> Rows:
    with np.load(FOLDER / "embeddings" / "cifar10_efficientnet_lite0_pca256.npz") as file:
        x, y = file["x_train"][:5000].astype(np.float32), file["y_train"][:5000].astype(np.int64)
    if key is None:
        return Rows(y, x)
    from labelloop.noise.recorded_labels import read_label_file

    return Rows(y, x, given=read_label_file(FOLDER / "cifar-n" / "CIFAR-10_human.pt")[key][:5000])


def _weak_text(name: str) -> Rows:
    with np.load(FOLDER / "weak-text" / f"{name}.npz") as file:
        votes, x, y = file["votes_train"], file["x_train"].astype(np.float32), file["y_train"].astype(np.int64)
    ones, zeros = (votes == 1).sum(axis=1), (votes == 0).sum(axis=1)
    return Rows(y, x, given=np.where(ones > zeros, 1, np.where(zeros > ones, 0, -1)))


def _confident_errors() -> Rows:
    """Labels that are nearly all right, and probabilities that are wrong in one row of twenty, with certainty."""
    rng = np.random.default_rng(6)
    true = rng.integers(3, size=1500)
    wrong, noisy = rng.random(1500) < 0.05, rng.random(1500) < 0.02
    p = 0.999 * np.eye(3)[np.where(wrong, (true + 1) % 3, true)] + 0.001 / 3
    given = np.where(noisy, (true + rng.integers(1, 3, size=1500)) % 3, true)
    return Rows(true, probabilities=p.astype(np.float32), given=given)


SETS = {
    "iris": lambda: _scikit("iris"),
    "wine": lambda: _scikit("wine"),
    "breast cancer": lambda: _scikit("breast_cancer"),
    "digits": lambda: _scikit("digits"),
    "eights, 1%": _eights,
    "penguins": _penguins,
    "weather": _weather,
    "cars": _cars,
    "airports": _airports,
    "votes": _votes,
    "affairs": _affairs,
    "poor health, 1.4%": _health,
    "made, wide": lambda: _made(252, 751, 0, n_informative=12, n_redundant=40, n_classes=3, class_sep=1.5),
    "made, 1%": lambda: _made(4000, 20, 1, n_informative=6, weights=[0.99], class_sep=1.5),
    "made, 7 classes": lambda: _made(
        10000, 30, 2, n_informative=12, n_classes=7, weights=[0.36, 0.48, 0.06, 0.02, 0.03, 0.02, 0.03], class_sep=1.2
    ),
    "CIFAR-10N, ResNet-18": lambda: _stored("cifar10n_aggre_resnet18"),
    "class noise, ResNet-50": lambda: _stored("cifar10_classcond20_resnet50"),
    "CIFAR-10 embeddings": lambda: _embeddings(None),
    "CIFAR-10 embeddings, human": lambda: _embeddings("random_label1"),
    "youtube": lambda: _weak_text("youtube"),
    "sms": lambda: _weak_text("sms"),
    "made, confident errors": _confident_errors,
}
CHOSEN_ON = {"breast cancer", "digits", "penguins", "votes", "affairs", "eights, 1%", "made, wide", "made, 1%",
             "CIFAR-10N, ResNet-18", "class noise, ResNet-50", "CIFAR-10 embeddings, human", "youtube",
             "sms", "made, confident errors"}  # fmt: skip


def noisy(rows: Rows, noise: str, rng: np.random.Generator) -> np.ndarray:
    """Given labels: the data's own, or drawn as "symmetric 0.3", "asymmetric 0.3" or "instance 0.3" says."""
    if rows.given is not None:
        return rows.given
    kind, rate, true = noise.split()[0], float(noise.split()[1]), rows.true
    classes, count = int(true.max()) + 1, len(true)
    if kind == "symmetric":
        return np.where(rng.random(count) < rate, (true + rng.integers(1, classes, count)) % classes, true)
    if kind == "asymmetric":
        return np.where(rng.random(count) < rate, (true + 1) % classes, true)
    assert rows.inputs is not None
    x = (rows.inputs - rows.inputs.mean(axis=0)) / (rows.inputs.std(axis=0) + 1e-6)
    lures = x @ rng.normal(size=(x.shape[1], classes)) / np.sqrt(x.shape[1])
    lures[np.arange(count), true] = -np.inf
    rank = np.argsort(np.argsort(lures.max(axis=1))) / count  # rows that look most like another class go wrong most
    return np.where(rng.random(count) < np.minimum(2 * rate * rank, 0.95), lures.argmax(axis=1), true)


def stream(*names: object) -> np.random.Generator:
    """Random numbers that depend on nothing but their name."""
    return np.random.default_rng([zlib.crc32(str(name).encode()) for name in names])

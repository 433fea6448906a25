"""Texts without a pretrained encoder: `labelloop.correct(texts)` beside TF-IDF, a logistic regression and cleanlab.

    python benchmarks/new_user_texts.py [--seeds 0 1 2] [--clean 100] [--store FILE]

The first two sets carry the votes of labelling functions, whose majority is the given label; rows without a vote have
none and are not compared. The third is the names of cars, with 25% wrong labels. Rivals get the clean label of every
clean row in place of its given label. The sets are those of benchmarks/new_user_tables.py and of LABELLOOP_DATA.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # seconds are those of one core

import new_user_tables
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from labelloop.runs.run_json import versions

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "evidence" / "new_user" / "texts.jsonl"
OURS, TFIDF, CLEANLAB = "labelloop correct", "TF-IDF and logistic regression", "TF-IDF and cleanlab"
SETS = ("youtube", "sms", "car names")


def load(name: str, seed: int, clean_rows: int) -> new_user_tables.Case:
    """The texts of a set with given labels and clean rows."""
    if name == "car names":
        case = new_user_tables.make_case("cars", seed, clean_rows, paired=True)
        return new_user_tables.Case(name, case.frame[["Name"]], case.classes, case.true, case.given, case.clean, seed)
    import pandas

    folder = Path(os.environ.get("LABELLOOP_DATA", ROOT.parent / "shared" / "data"))
    data = np.load(folder / "weak-text" / f"{name}.npz", allow_pickle=False)
    votes, true = data["votes_train"], data["y_train"].astype(np.int64)
    counts = np.stack([(votes == k).sum(axis=1) for k in range(len(data["class_names"]))], axis=1)
    given = np.where(counts.sum(axis=1) > 0, counts.argmax(axis=1), -1)
    rng = np.random.default_rng(seed)
    clean = np.full(len(true), -1)
    rows = rng.permutation(len(true))[:clean_rows]
    clean[rows] = true[rows]
    frame = pandas.DataFrame({"text": data["text_train"].astype(str)})
    return new_user_tables.Case(name, frame, np.array(data["class_names"]).astype(str), true, given, clean, seed)


def rivals(case: new_user_tables.Case) -> dict[str, np.ndarray]:
    """Labels of a cross-validated model of words, and what cleanlab makes of its probabilities."""
    rows = np.flatnonzero(case.known >= 0)
    texts = case.frame.iloc[rows, 0].to_numpy().astype(object)
    part = new_user_tables.Case(
        case.name, None, case.classes, case.true[rows], case.given[rows], case.clean[rows], case.seed
    )

    def make(_: int) -> Any:
        words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
        return make_pipeline(words, LogisticRegression(max_iter=1000))

    p = new_user_tables.cross_validated(part, make, texts)
    found = {TFIDF: p.argmax(axis=1), CLEANLAB: new_user_tables.relabelled_by_cleanlab(part, p)}
    return {name: _everywhere(labels, rows, len(case.true)) for name, labels in found.items()}


def _everywhere(labels: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    found = np.full(count, -1)
    found[rows] = labels
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--clean", nargs="+", type=int, default=[100])
    parser.add_argument("--store", type=Path, default=STORE)
    options = parser.parse_args()
    about = {"versions": versions()}
    for name in SETS:
        for seed in options.seeds:
            for clean_rows in options.clean:
                key = {"table": name, "seed": seed, "clean": clean_rows, "paired": True}
                if any(key.items() <= line.items() for line in new_user_tables.stored(options.store)):
                    continue
                case = load(name, seed, clean_rows)
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ours = new_user_tables.ours(case)[0]
                spent = time.process_time() - start
                for method, labels in {OURS: ours, **rivals(case)}.items():
                    line = new_user_tables.result_line(case, key, method, labels, spent if method == OURS else 0.0)
                    new_user_tables.write(options.store, {**line, **about})


if __name__ == "__main__":
    main()

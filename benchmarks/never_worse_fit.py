"""`fit` without any flag on tables: are its labels worse than the given ones, and its classifier than simple things?

    python benchmarks/never_worse_fit.py --sets wine penguins --clean 5 100 --seeds 1 2 3

Three tenths of the rows are test rows. Beside the classifier stand a forest of the clean rows alone and a forest of the
given labels. One JSON line a cell in evidence/never_worse/fit.jsonl; cells that are stored are skipped; `--summary`
prints what is stored.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from never_worse import measure
from never_worse_data import SETS, Rows, noisy, stream
from recipe_page import FIT_ON_TABLES, fit_on_tables
from sklearn.ensemble import RandomForestClassifier

import labelloop


def forest(inputs: np.ndarray, labels: np.ndarray, test: np.ndarray, true: np.ndarray, seed: int) -> float | None:
    """The test accuracy of a forest; None where there is one class only."""
    if len(np.unique(labels)) < 2:
        return None
    model = RandomForestClassifier(200, random_state=seed).fit(inputs, labels)
    return float((model.predict(test) == true).mean())


def _as_read(inputs: np.ndarray, named: bool) -> np.ndarray | pd.DataFrame:
    """Columns with names where the data has them, as a CSV file would."""
    return pd.DataFrame(inputs, columns=[f"column {k}" for k in range(inputs.shape[1])]) if named else inputs


def cell(name: str, rows: Rows, noise: str, clean_rows: int, paired: bool, seed: int) -> dict:
    """One cell."""
    rng = stream(name, noise, seed)
    assert rows.inputs is not None
    given, order = noisy(rows, noise, rng), rng.permutation(len(rows.true))
    cut = int(0.7 * len(order))
    train, test = order[:cut], order[cut:]
    x, true, given = rows.inputs[train], rows.true[train], given[train]
    clean = np.full(cut, -1)
    clean[:clean_rows] = true[:clean_rows]
    shown = given if paired else np.where(clean >= 0, -1, given)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classes = list(range(int(rows.true.max()) + 1))
        x, tests = (_as_read(part, rows.named) for part in (x, rows.inputs[test]))
        found = labelloop.fit(x, shown, clean, seed=seed, class_names=classes, progress=False, report=False)
        predicted = np.asarray(found.model.predict(tests))
    seconds = time.process_time() - start
    judged, known, labelled = (shown >= 0) & (clean < 0), clean >= 0, shown >= 0
    plain, true_test = rows.inputs[train], rows.true[test]
    return {
        "data": name, "noise": noise, "clean": clean_rows, "paired": paired, "seed": seed, "rows": int(judged.sum()),
        "given": measure(shown, shown, true, judged), "ours": measure(found.corrected_labels, shown, true, judged),
        "test": float((predicted == true_test).mean()),
        "forest_clean": forest(plain[known], clean[known], rows.inputs[test], true_test, seed),
        "forest_given": forest(plain[labelled], shown[labelled], rows.inputs[test], true_test, seed),
        "guard": found.record.about.get("guard", {}).get("line"), "seconds": seconds,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", choices=list(SETS), default=["wine", "penguins", "breast cancer"])
    parser.add_argument("--noises", nargs="*", default=["symmetric 0.3"])
    parser.add_argument("--clean", nargs="*", type=int, default=[5, 100])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    parser.add_argument("--store", type=Path, default=FIT_ON_TABLES)
    parser.add_argument("--summary", action="store_true", help="print what is stored and run nothing")
    options = parser.parse_args()
    stored = [json.loads(line) for line in options.store.read_text().splitlines()] if options.store.exists() else []
    done = {(one["data"], one["noise"], one["clean"], one["paired"], one["seed"]) for one in stored}
    wanted = [
        (s, name, noise, count, paired)
        for s in options.seeds
        for name in options.sets
        for noise in options.noises
        for count in options.clean
        for paired in (True, False)
    ]
    for seed, name, noise, count, paired in [] if options.summary else wanted:
        rows = SETS[name]()
        if count > len(rows.true) / 2 or (name, noise, count, paired, seed) in done:
            continue
        stored.append(cell(name, rows, noise, count, paired, seed))
        with options.store.open("a") as file:
            file.write(json.dumps(stored[-1]) + "\n")
    print(fit_on_tables(stored))


if __name__ == "__main__":
    main()

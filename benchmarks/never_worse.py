"""Are corrected labels ever worse than the given ones? Cells of data, noise, clean rows and seeds; one JSON line each.

    python benchmarks/never_worse.py --clean 5 30 100 300 --seeds 1 2 3

Cells that are stored already are skipped, so that it can be stopped and continued. Measured on rows with a given label
and without a clean one: right labels, good labels broken (also of the rarest class), calibration error; and whether the
interval of the estimate holds the truth. Beside it: the given labels, cleanlab on the same probabilities, and a forest
or logistic regression that knows only the clean rows. `--summary` prints what is stored, and in how many cells ours are
first, tied and behind.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from never_worse_data import CHOSEN_ON, SETS, Rows, noisy, stream
from recipe_page import correct_tally
from scipy.special import softmax

from labelloop.data.table import from_arrays
from labelloop.relabel import suit_trees
from labelloop.workflows.correct import correct_table

STORE = Path(__file__).resolve().parents[1] / "evidence" / "never_worse" / "runs.jsonl"
HEADS = ("cells", "number", "given", "ours", "worse than counting noise", "cleanlab", "clean rows only", "broken",
         "rarest class, given", "rarest class, ours", "calibration error", "intervals hold")  # fmt: skip
NOISES = ("symmetric 0.3", "asymmetric 0.3", "instance 0.3", "symmetric 0.05", "instance 0.05")


def measure(labels: np.ndarray, given: np.ndarray, true: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """Right labels, good labels broken, and the same of the rarest class."""
    counts = np.bincount(true)
    rare = rows & (true == np.where(counts > 0, counts, counts.max() + 1).argmin())
    good, good_rare = rows & (given == true), rare & (given == true)
    right = labels == true
    return {
        "right": float(right[rows].mean()),
        "broken": float((~right)[good].mean()) if good.any() else 0.0,
        "rare_right": float(right[rare].mean()) if rare.any() else 0.0,
        "rare_broken": float((~right)[good_rare].mean()) if good_rare.any() else 0.0,
    }


def calibration_error(p: np.ndarray, true: np.ndarray) -> float:
    """Mean gap between confidence and accuracy over ten ranges of confidence."""
    confidence, right = p.max(axis=1), p.argmax(axis=1) == true
    place = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(confidence[place == k].mean() - right[place == k].mean()) * (place == k).mean() for k in set(place)]
    return float(sum(gaps))


def cleanlab_labels(p: np.ndarray, given: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """Labels that cleanlab flags, replaced by the likeliest class; None where it refuses or is absent."""
    try:
        from cleanlab.filter import find_label_issues

        known = given >= 0
        flags = np.zeros(len(given), bool)
        flags[known] = find_label_issues(given[known], p[known].astype(np.float64), n_jobs=1)
    except Exception:  # a class that no row has
        return None
    return np.where(flags, p.argmax(axis=1), given)


def clean_only(inputs: np.ndarray, clean: np.ndarray, named: bool, seed: int) -> np.ndarray | None:
    """A forest on a table, else logistic regression, of the clean rows alone."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known = clean >= 0
    if len(np.unique(clean[known])) < 2:
        return None
    model = RandomForestClassifier(200, random_state=seed) if named else LogisticRegression(max_iter=500)
    return make_pipeline(StandardScaler(), model).fit(inputs[known], clean[known]).predict(inputs)


def cell(name: str, rows: Rows, noise: str, clean_rows: int, paired: bool, seed: int) -> dict:
    """One cell."""
    rng = stream(name, noise, seed)
    true, given = rows.true, noisy(rows, noise, rng)
    chosen = rng.permutation(len(true))[:clean_rows]
    clean = np.full(len(true), -1)
    clean[chosen] = true[chosen]
    shown = given if paired else np.where(clean >= 0, -1, given)
    judged = (shown >= 0) & (clean < 0)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = rows.inputs if rows.probabilities is None else rows.probabilities
        table = from_arrays(inputs, shown, clean, class_names=[str(k) for k in range(int(true.max()) + 1)])
        found = correct_table(table, rows.probabilities, rows.inputs, seed, named=rows.named)
    seconds = time.process_time() - start
    ours = {
        **measure(found.corrected_labels, shown, true, judged),
        "calibration_error": calibration_error(found.corrected_proba[judged], true[judged]),
        "seconds": seconds,
    }
    number = found.estimate["corrected_label_accuracy"]
    assert found.rows is not None
    scores, classes = found.rows.said["scores"].astype(np.float64), found.corrected_proba.shape[1]
    sources = [softmax(scores[:, k : k + classes], axis=1) for k in range(0, scores.shape[1], classes)]
    others = {"given": measure(shown, shown, true, judged)}
    fixed = cleanlab_labels(np.mean(sources, axis=0), shown, judged)
    if fixed is not None:
        others["cleanlab"] = measure(fixed, shown, true, judged)
    if rows.inputs is not None:
        alone = clean_only(rows.inputs, clean, suit_trees(rows.inputs.shape[1], rows.named), seed)
        if alone is not None:
            others["clean rows only"] = measure(alone, shown, true, judged)
    return {
        "data": name, "noise": noise, "clean": clean_rows, "paired": paired, "seed": seed,
        "chosen_on": name in CHOSEN_ON, "rows": int(judged.sum()), "ours": ours, **others,
        "estimate": number, "guard": found.guard,
    }  # fmt: skip


def summary(stored: list[dict]) -> str:
    """A line for every group of cells."""
    groups = defaultdict(list)
    for one in stored:
        how = "paired" if one["paired"] else "unpaired"
        for group in (
            "all",
            how,
            f"{how}, {one['clean']} clean rows",
            f"data: {one['data']}",
            f"noise: {one['noise']}",
        ):
            groups[group].append(one)
    lines = ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
    for group, cells in groups.items():
        lines.append(f"| {group} | {len(cells)} | " + " | ".join(_columns(cells)) + " |")
    return "\n".join(lines)


def _columns(cells: list[dict]) -> list[str]:
    def mean(of: str, key: str) -> str:
        known = [one[of][key] for one in cells if of in one]
        return f"{100 * np.mean(known):.1f}" if known else ""

    worse = 0
    for one in cells:
        right = one["given"]["right"]
        worse += one["ours"]["right"] < right - 1.645 * np.sqrt(right * (1 - right) / one["rows"])
    held = sum(one["estimate"]["low"] <= one["ours"]["right"] <= one["estimate"]["high"] for one in cells)
    return [
        mean("given", "right"), mean("ours", "right"), str(worse), mean("cleanlab", "right"),
        mean("clean rows only", "right"), mean("ours", "broken"), mean("given", "rare_right"),
        mean("ours", "rare_right"), mean("ours", "calibration_error"), f"{held} of {len(cells)}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", choices=list(SETS), help="default: all but sms")
    parser.add_argument("--noises", nargs="*", default=NOISES)
    parser.add_argument("--clean", nargs="*", type=int, default=[5, 30, 100, 300])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--summary", action="store_true", help="print what is stored and run nothing")
    options = parser.parse_args()
    stored = [json.loads(line) for line in options.store.read_text().splitlines()] if options.store.exists() else []
    done = {(one["data"], one["noise"], one["clean"], one["paired"], one["seed"]) for one in stored}
    for name in () if options.summary else options.sets or [name for name in SETS if name != "sms"]:
        try:
            rows = SETS[name]()
        except (ImportError, OSError) as error:
            print(f"{name} is left out: {error}")
            continue
        for noise in ["its own"] if rows.given is not None else options.noises:
            for seed, count, paired in [(s, c, p) for s in options.seeds for c in options.clean for p in (True, False)]:
                if count > len(rows.true) / 2 or (name, noise, count, paired, seed) in done:
                    continue
                stored.append(cell(name, rows, noise, count, paired, seed))
                with options.store.open("a") as file:
                    file.write(json.dumps(stored[-1]) + "\n")
    print(summary(stored), correct_tally(stored), sep="\n\n")


if __name__ == "__main__":
    main()

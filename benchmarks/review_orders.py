"""A person's time: how many decisions make labels how good, by the order in which rows are reviewed.

    python benchmarks/review_orders.py [--seeds 0 1 2] [--store evidence/review_orders.json]

A run of `labelloop.correct` starts from a few clean rows. A simulated reviewer, right 95% of the time, answers rows in
the order of `labelloop plan`, at random, or in cleanlab's order (lowest label quality first); `labelloop refit` takes
the answers, in the way the review page keeps them, and the labels of all rows are compared with the true ones. It needs
cleanlab and the data of LABELLOOP_DATA. What is stored already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import pyarrow.parquet as pq
from cleanlab.rank import get_label_quality_scores
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from labelloop.cli import main as main_command
from labelloop.noise.recorded_labels import read_label_file
from labelloop.runs.reviews import Answer, append_answers
from labelloop.runs.run_json import versions
from labelloop.seeds import stream
from labelloop.workflows.plan import rows_to_verify
from labelloop.workflows.refit import read_stored_run, refit_run

COUNTS = (50, 100, 200, 300, 500, 1000)
SHOWN = (100, 300, 1000)  # in the first table
GONE = (0.25, 0.5)  # of the errors at the start, for the second table
RIGHT = 0.95
ORDERS = ("plan", "random", "cleanlab")
Case = tuple[NDArray, NDArray, NDArray | None, NDArray | None]  # given, true, pred_probs, embeddings


def data_folder() -> Path:
    return Path(os.environ.get("LABELLOOP_DATA", "../shared/data"))


def from_probabilities(name: str) -> Case:
    file = np.load(data_folder() / "pred_probs" / f"{name}.npz")
    return file["given_label"].astype(int), file["true_label"].astype(int), file["pred_probs"].astype(np.float32), None


def human_embeddings() -> Case:
    file = np.load(data_folder() / "embeddings" / "cifar10_efficientnet_lite0_pca256.npz")
    given = read_label_file(data_folder() / "cifar-n" / "CIFAR-10_human.pt")["random_label1"]
    return given, file["y_train"].astype(int), None, file["x_train"].astype(np.float32)


def comments() -> Case:
    file = np.load(data_folder() / "weak-text" / "youtube.npz")
    votes = file["votes_train"]
    counts = np.stack([(votes == k).sum(axis=1) for k in range(2)], axis=1)
    voted = counts.sum(axis=1) > 0
    return (
        counts.argmax(axis=1)[voted],
        file["y_train"].astype(int)[voted],
        None,
        file["x_train"][voted].astype(np.float32),
    )


def digits() -> Case:
    inputs, true = load_digits(return_X_y=True)
    rng = stream(0, "review-orders-digits")
    other = (true + rng.integers(1, 10, size=len(true))) % 10
    return np.where(rng.random(len(true)) < 0.3, other, true), true, None, inputs.astype(np.float32)


DATA: dict[str, tuple[Callable[[], Case], int, int]] = {  # how to load, rows, clean rows
    "CIFAR-10N aggregate (9% human), probabilities": (
        lambda: from_probabilities("cifar10n_aggre_resnet18"),
        8_000,
        200,
    ),
    "CIFAR-10N random 1 (17% human), embeddings": (human_embeddings, 6_000, 200),
    "YouTube comments (majority vote), embeddings": (comments, 1_500, 100),
    "digits (30% symmetric), pixels": (digits, 1_797, 100),
    "CIFAR-10 class-conditional 20%, probabilities": (
        lambda: from_probabilities("cifar10_classcond20_resnet50"),
        20_000,
        200,
    ),
}


def cleanlab_order(case: Case, open_rows: NDArray, seed: int) -> NDArray:
    """The open rows, the worst given label first. Where there are no probabilities, they are cross-validated."""
    given, _, probabilities, embeddings = case
    if probabilities is None:
        model = LogisticRegression(C=0.01, max_iter=300)
        probabilities = cross_val_predict(model, embeddings, given, cv=5, method="predict_proba")
    exact = probabilities.astype(np.float64) / probabilities.astype(np.float64).sum(axis=1, keepdims=True)
    quality = get_label_quality_scores(given, exact)
    return open_rows[np.argsort(quality[open_rows], kind="stable")]


def review(case: Case, order: NDArray, count: int, seed: int) -> list[Answer]:
    """What a reviewer who is right 95% of the time says of the first rows of an order."""
    true, classes = case[1], int(case[1].max()) + 1
    rng = stream(seed, "simulated-reviewer")  # the same luck for every order
    wrong, other = rng.random(len(true)) > RIGHT, rng.integers(1, classes, size=len(true))
    answers = []
    for row in order[:count].tolist():
        said = (true[row] + other[row]) % classes if wrong[row] else true[row]
        answers.append(Answer(f"key-{row}", row, str(row), "simulated", "label", str(said), "2026-01-01T00:00:00"))
    return answers


def run_case(name: str, seed: int, place: Path) -> list[dict]:
    load, rows, clean_rows = DATA[name]
    case = load()
    rng = stream(seed, "review-orders")
    chosen = np.sort(rng.permutation(len(case[0]))[:rows])
    case = tuple(None if part is None else part[chosen] for part in case)  # type: ignore[assignment]
    given, true, probabilities, embeddings = case
    clean = np.full(len(given), -1)
    teachers = rng.permutation(len(given))[:clean_rows]
    clean[teachers] = true[teachers]
    arrays = {"label": given, "clean_label": clean}
    arrays |= {"pred_probs": probabilities} if probabilities is not None else {"embeddings": embeddings}
    np.savez(place / "data.npz", **arrays)
    command = ["correct", str(place / "data.npz"), "--output-dir", str(place / "run"), "--seed", str(seed), "--quiet"]
    assert main_command(command) == 0
    open_rows = np.flatnonzero(clean == -1)
    orders = {
        "plan": rows_to_verify(read_stored_run(place / "run"), max(COUNTS)),
        "random": rng.permutation(open_rows),
        "cleanlab": cleanlab_order(case, open_rows, seed),
    }
    start = accuracy(place / "run", true)
    lines = []
    for count in COUNTS:
        for order in ORDERS:
            answers = review(case, orders[order], count, seed)
            run = place / "reviewed"
            shutil.copytree(place / "run", run)
            append_answers(run, answers)
            refit_run(run, None, place / "refit")
            lines.append(
                {
                    "data": name, "seed": seed, "rows": len(given), "clean_rows": clean_rows, "order": order,
                    "decisions": len(answers), "given_label_accuracy": float((given == true).mean()),
                    "start": start, "label_accuracy": accuracy(place / "refit", true),
                    "found_wrong": found_wrong(place / "run", answers, true),
                }
            )  # fmt: skip
            print(json.dumps(lines[-1]), flush=True)
            shutil.rmtree(run)
            shutil.rmtree(place / "refit")
    return lines


def accuracy(folder: Path, true: NDArray) -> float:
    """Of the labels of all rows."""
    labels = pq.read_table(folder / "labels.parquet")["corrected_label"].to_numpy(zero_copy_only=False)
    return float((labels.astype(int) == true).mean())


def found_wrong(folder: Path, answers: list[Answer], true: NDArray) -> float:
    """The share of the reviewed rows whose label was wrong before."""
    labels = pq.read_table(folder / "labels.parquet")["corrected_label"].to_numpy(zero_copy_only=False).astype(int)
    rows = [answer.row for answer in answers]
    return float((labels[rows] != true[rows]).mean())


def table(runs: list[dict]) -> str:
    """Label accuracy in %, by data, order and number of decisions; the mean over seeds."""
    lines = ["| data | seeds | given | start | order | 100 | 300 | 1,000 |", "|---|---|---|---|---|---|---|---|"]
    for data in dict.fromkeys(line["data"] for line in runs):
        mine = [line for line in runs if line["data"] == data]
        seeds = len({line["seed"] for line in mine})
        given, start = (
            f"{100 * np.mean([line[key] for line in mine]):.1f}" for key in ("given_label_accuracy", "start")
        )
        for order in ORDERS:
            found = {
                n: [x["label_accuracy"] for x in mine if (x["order"], x["decisions"]) == (order, n)] for n in SHOWN
            }
            cells = [f"{100 * np.mean(values):.1f}" for values in found.values()]
            lines.append(f"| {data} | {seeds} | {given} | {start} | {order} | {' | '.join(cells)} |")
    return "\n".join(lines)


def needed(runs: list[dict], share: float) -> float | None:
    """The decisions after which a share of the errors at the start is gone, between two counts by a straight line.

    Args:
        runs: The lines of one data set and order; label accuracies are averaged over seeds.
        share: Of the errors at the start.

    Returns:
        None if they are not gone after the most decisions that were tried.
    """
    start = float(np.mean([line["start"] for line in runs]))
    goal = 1 - (1 - start) * (1 - share)
    before = (0.0, start)
    for count in sorted({line["decisions"] for line in runs}):
        now = (count, float(np.mean([line["label_accuracy"] for line in runs if line["decisions"] == count])))
        if now[1] >= goal:
            return before[0] + (now[0] - before[0]) * (goal - before[1]) / max(now[1] - before[1], 1e-12)
        before = now
    return None


def needed_table(runs: list[dict]) -> str:
    """Decisions until a quarter and half of the errors are gone, by data and order."""
    heads = [f"{100 * share:.0f}% of the errors gone" for share in GONE]
    lines = [f"| data | errors at the start | order | {' | '.join(heads)} |", "|---" * (3 + len(GONE)) + "|"]
    for data in dict.fromkeys(line["data"] for line in runs):
        mine = [line for line in runs if line["data"] == data]
        errors = f"{100 * (1 - np.mean([line['start'] for line in mine])):.1f}%"
        for order in ORDERS:
            found = [needed([line for line in mine if line["order"] == order], share) for share in GONE]
            cells = [f"not within {max(COUNTS):,}" if count is None else f"{count:,.0f}" for count in found]
            lines.append(f"| {data} | {errors} | {order} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--store", type=Path, default=Path("evidence/review_orders.json"))
    options = parser.parse_args()
    stored = json.loads(options.store.read_text()) if options.store.exists() else {"runs": []}
    known = {(line["data"], line["seed"]) for line in stored["runs"]}
    for name in options.data:
        for seed in options.seeds:
            if (name, seed) in known:
                continue
            with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stored["runs"] += run_case(name, seed, Path(place))
            stored |= {"reviewer_right": RIGHT, "versions": versions() | {"cleanlab": version("cleanlab")}}
            options.store.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

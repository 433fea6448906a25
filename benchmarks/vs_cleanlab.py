"""cleanlab beside `labelloop.correct` and the closed loop: same model, folds, noisy labels and clean rows.

    python benchmarks/vs_cleanlab.py [--data digits cifar10-embeddings] [--seeds 0 1 2] [--store FILE]

Some rows keep their given label and have a verified one too. Clean labels replace given ones before anything is
cross-validated or searched, clean rows are never flagged, and two of cleanlab's rows also choose their settings on
them. What is stored already is not run again. It needs cleanlab: pip install 'labelloop[cleanlab]'.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # seconds are those of one core
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from instant_correction import FILTERS, recalibrated
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from labelloop import correct, fit
from labelloop.data.datasets import load_dataset
from labelloop.noise import NOISES
from labelloop.runs.labels import accuracy, label_metrics
from labelloop.runs.run_json import versions
from labelloop.seeds import stream
from labelloop.splits import clean_split, one_hot
from labelloop.types import MISSING, Floats, Labels

try:
    from cleanlab.classification import CleanLearning
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    CleanLearning = None

ROOT = Path(__file__).resolve().parents[1]
HUMAN = Path("cifar-n") / "CIFAR-10_human.pt"
FOLDS = 5
SETTINGS: dict[str, dict[str, Any]] = {
    # C of the logistic regression is what makes held-out *given* labels likeliest, looked for on the rows of seed 0.
    "digits": {
        "rows": 1200,
        "clean": 120,
        "C": 0.1,
        "loop": {},
        "noises": {"symmetric 20%": ["symmetric", 0.2], "instance 40%": ["instance", 0.4]},
    },
    "cifar10-embeddings": {
        "rows": 10000,
        "clean": 1000,
        "C": 0.01,
        "loop": {"epochs": 20},
        "noises": {
            "human 17%": ["recorded", 1],
            "symmetric 20%": ["symmetric", 0.2],
            "instance 40%": ["instance", 0.4],
        },
    },
}


@dataclass(frozen=True)
class Case:
    """What every method is given. Shape letters: n rows, C classes."""

    inputs: Floats  # [n, D]
    given: Labels  # [n]
    clean: Labels  # clean labels, -1 elsewhere [n]
    probabilities: Floats  # out of sample [n, C]
    seed: int
    loop: dict[str, Any]

    @property
    def known(self) -> Labels:
        """The best labels that are known before anything is corrected [n]."""
        return np.where(self.clean != MISSING, self.clean, self.given)

    @property
    def verified(self) -> Labels:
        return np.flatnonzero(self.clean != MISSING)


@dataclass(frozen=True)
class Found:
    """What a method says of every row."""

    labels: Labels  # corrected [n]
    quality: Floats  # of the given label; low is bad [n]
    flagged: np.ndarray  # whether it is an issue [n]
    learner: Any = None  # a CleanLearning that has found the issues, to fit the rest with its weights
    model: Any = None  # the method's own classifier
    chosen: dict[str, Any] | None = None  # settings that were chosen on the clean rows


# --- methods ---------------------------------------------------------------------------------------------------------


def cleanlab(
    case: Case, options: dict[str, Any], score: dict[str, Any] | None = None, p: Floats | None = None
) -> Found:
    """CleanLearning on probabilities that are there already; issues get the predicted label."""
    p = case.probabilities if p is None else p
    learner = CleanLearning(  # a new one each time: a used one keeps the confident joint of what it saw before
        LogisticRegression(),
        find_label_issues_kwargs={**options, "n_jobs": 1},
        label_quality_scores_kwargs=score or {},
    )
    issues = learner.find_label_issues(labels=case.known, pred_probs=p)
    flagged = issues["is_label_issue"].to_numpy() & (case.clean == MISSING)
    labels = np.where(flagged, p.argmax(axis=1), case.known)
    return Found(labels, issues["label_quality"].to_numpy(), flagged, learner)


PRUNING = ("prune_by_noise_rate", "prune_by_class", "both")  # those that can be told to find only the worst issues
OPTIONS: tuple[dict[str, Any], ...] = (
    *({"filter_by": name} for name in FILTERS),
    *({"filter_by": name, "frac_noise": share} for name in PRUNING for share in (0.75, 0.5, 0.25, 0.1)),
)
SCORES: tuple[dict[str, Any], ...] = (
    {"method": "self_confidence"},
    {"method": "self_confidence", "adjust_pred_probs": True},
    {"method": "normalized_margin"},
    {"method": "normalized_margin", "adjust_pred_probs": True},
    {"method": "confidence_weighted_entropy"},
)


def cleanlab_chosen(case: Case, p: Floats | None = None) -> Found:
    """Settings by the clean rows with the labels they were first given, for each use those that serve it best.

    Flags by F1, the score by AUROC, relabelling by the labels that are right afterwards: it may be to relabel nothing.
    """
    p, rows = case.probabilities if p is None else p, case.verified
    given, true, predicted = case.given[rows], case.clean[rows], p.argmax(axis=1)[rows]
    issues = [find_label_issues(case.given, p, **options, n_jobs=1)[rows] for options in OPTIONS]
    f1 = [f1_score(given != true, found, zero_division=0) for found in issues]
    right = [accuracy(np.where(found, predicted, given), true) for found in issues]
    ranking = [
        roc_auc_score(given != true, -get_label_quality_scores(case.given, p, **score)[rows]) for score in SCORES
    ]
    flags, score, relabel = OPTIONS[np.argmax(f1)], SCORES[np.argmax(ranking)], OPTIONS[np.argmax(right)]
    found = cleanlab(case, flags, score, p)
    worth = max(right) > accuracy(given, true)
    labels = cleanlab(case, relabel, score, p).labels if worth else case.known
    chosen = {"flags": flags, "score": score, "relabel": relabel if worth else None}
    return replace(found, labels=labels, chosen=chosen)


def cleanlab_recalibrated(case: Case) -> Found:
    return cleanlab_chosen(case, recalibrated(case.probabilities, case.verified, case.clean[case.verified]))


def corrected(case: Case, **further: Any) -> Found:
    found = correct(case.given, case.clean, pred_probs=case.probabilities, seed=case.seed, **further)
    return Found(found.corrected_labels, found.label_score, found.labels["is_label_issue"].to_numpy())


def fitted(case: Case) -> Found:
    found = fit(case.inputs, case.given, case.clean, config=case.loop, seed=case.seed, progress=False)
    flagged = found.corrected_labels != case.given
    return Found(found.corrected_labels, found.label_score, flagged, model=found.model)


METHODS: dict[str, Callable[[Case], Found]] = {
    "cleanlab": lambda case: cleanlab(case, {"filter_by": "prune_by_noise_rate"}),
    "cleanlab, both": lambda case: cleanlab(case, {"filter_by": "both"}),
    "cleanlab, confident_learning": lambda case: cleanlab(case, {"filter_by": "confident_learning"}),
    "cleanlab, chosen": cleanlab_chosen,
    "cleanlab, recalibrated, chosen": cleanlab_recalibrated,
    "labelloop.correct": corrected,
    "labelloop.correct, embeddings too": lambda case: corrected(case, embeddings=case.inputs),
    "labelloop.fit": fitted,
}
NEED_PROBABILITIES = [name for name in METHODS if name != "labelloop.fit"]


# --- measurements ----------------------------------------------------------------------------------------------------


def detection(quality: Floats, flagged: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """How well errors are found: by the ranking, low quality first, and by the flags."""
    return {
        "auroc": float(roc_auc_score(wrong, -quality)),
        "auprc": float(average_precision_score(wrong, -quality)),
        "f1": float(f1_score(wrong, flagged)),
    }


def correction(labels: Labels, given: Labels, true: Labels, num_classes: int) -> dict[str, float]:
    """How good the corrected labels are, and what became of right and of wrong ones."""
    found = label_metrics(one_hot(labels, num_classes), given, true)
    wrong = given != true
    return {
        "label_accuracy": found["corrected_label_accuracy"],
        "good_broken": found["good_labels_broken"],
        "wrong_fixed": accuracy(labels[wrong], true[wrong]),
    }


class Bench:
    """One data set with one noise and one seed: makes the case, and measures what the methods find."""

    def __init__(self, name: str, noise: str, seed: int, root: Path | None, settings: dict[str, Any]) -> None:
        count = settings["rows"]
        rows = np.arange(count)
        if name == "digits":
            data = load_dataset(name, limit=count)
        else:  # every seed its own rows
            rows += seed * count
            data = load_dataset(name, root, limit=(seed + 1) * count)
        x = data.inputs[rows]
        mean, deviation = x.mean(axis=0), x.std()  # one deviation, which keeps the weight of each column
        self.inputs, self.test_inputs = (x - mean) / deviation, (data.test_inputs - mean) / deviation
        self.test_labels, self.true, self.num_classes = data.test_labels, data.labels[rows], data.num_classes
        kind, rate = settings["noises"][noise]
        further: dict[str, Any] = {}
        if kind == "instance":
            further["images"] = x if data.noise_inputs is None else data.noise_inputs()[rows]
        if kind == "recorded":
            further = {"path": Path(data.source).parents[1] / HUMAN, "key": "random_label1", "index": rows}
        given = NOISES[kind](self.true, self.num_classes, rate, stream(seed, "noise", kind), **further).labels
        clean = np.full(count, MISSING)
        verified = clean_split(self.true, settings["clean"], stream(seed, "clean-split"))[1]
        clean[verified] = self.true[verified]
        self.rest = clean == MISSING
        self.C = settings["C"]
        known = np.where(self.rest, given, clean)
        probabilities, self.cross_validation = timed(lambda: self.out_of_sample(known, seed))
        self.case = Case(self.inputs, given, clean, probabilities, seed, settings["loop"])

    def classifier(self) -> LogisticRegression:
        return LogisticRegression(C=self.C, max_iter=500)

    def out_of_sample(self, labels: Labels, seed: int) -> Floats:
        p = np.zeros((len(labels), self.num_classes))
        for learn, ask in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(self.inputs, labels):
            p[ask] = self.classifier().fit(self.inputs[learn], labels[learn]).predict_proba(self.inputs[ask])
        return p / p.sum(axis=1, keepdims=True)

    def tested(self, labels: Labels, keep: np.ndarray | slice = slice(None)) -> float:
        return self.score(self.classifier().fit(self.inputs[keep], labels[keep]))

    def score(self, model: Any) -> float:
        return accuracy(model.predict(self.test_inputs), self.test_labels)

    def references(self) -> dict[str, dict[str, float]]:
        """What the same classifier reaches without any method."""
        case = self.case
        of_given = correction(case.given[self.rest], case.given[self.rest], self.true[self.rest], self.num_classes)
        return {
            "given labels": of_given | {"test_relabelled": self.tested(case.given)},
            "clean rows only": {"test_relabelled": self.tested(case.clean, case.verified)},
            "noisy + clean": {"test_relabelled": self.tested(case.known)},
            "all true labels": {"test_relabelled": self.tested(self.true)},
        }

    def measure(self, method: str) -> dict[str, Any]:
        case, rest = self.case, self.rest
        found, cost = timed(lambda: METHODS[method](case))
        if method in NEED_PROBABILITIES:  # from features to corrected labels, for all alike
            cost = {key: cost[key] + self.cross_validation[key] for key in cost}
        row: dict[str, Any] = detection(found.quality[rest], found.flagged[rest], (case.given != self.true)[rest])
        row |= correction(found.labels[rest], case.given[rest], self.true[rest], self.num_classes)
        row["test_relabelled"] = self.tested(found.labels)
        flagged = found.flagged & rest
        if found.learner is None:
            row["test_dropped"] = self.tested(case.known, ~flagged)
        else:
            found.learner.clf = self.classifier()
            row["test_dropped"] = self.score(found.learner.fit(self.inputs, case.known, label_issues=flagged))
        if found.model is not None:
            row["test_own_model"] = self.score(found.model)
        return row | cost | ({"chosen": found.chosen} if found.chosen else {})


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, {"wall_seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


# --- storing ---------------------------------------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return round(value, 5) if isinstance(value, float) else value


def write(path: Path, record: dict[str, Any]) -> None:
    """Whole or not at all: a run that is stopped loses nothing that is stored."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--root", type=Path, help="folder of the data sets; without it, the usual places")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--store", type=Path, default=ROOT / "evidence" / "vs_cleanlab.json")
    options = parser.parse_args()
    if CleanLearning is None:
        print("cleanlab is not installed: pip install 'labelloop[cleanlab]'", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    record: dict[str, Any] = {"settings": {}, "runs": []}
    if options.store.exists():
        record = json.loads(options.store.read_text(encoding="utf-8"))
    for name in options.data:
        if record["settings"].setdefault(name, SETTINGS[name]) != SETTINGS[name]:
            print(f"{options.store} was made with other settings of {name}: give another --store", file=sys.stderr)
            return 1
    made_with = versions() | {"cleanlab": version("cleanlab")}
    todo = [(d, noise, seed) for seed in options.seeds for d in options.data for noise in SETTINGS[d]["noises"]]
    stored = {(run["data"], run["noise"], run["seed"]) for run in record["runs"]}
    for number, (name, noise, seed) in enumerate(todo, 1):
        said = f"{number}/{len(todo)} {name}, {noise}, seed {seed}"
        if (name, noise, seed) in stored:
            print(f"{said}: stored", flush=True)
            continue
        bench = Bench(name, noise, seed, options.root, SETTINGS[name])
        realised = 1 - accuracy(bench.case.given, bench.true)
        rows: dict[str, Any] = bench.references()
        for method in METHODS:
            rows[method] = bench.measure(method)
            seconds = rows[method]["cpu_seconds"]
            print(f"{said}: {method} {rows[method]['label_accuracy']:.4f}, {seconds:.1f} s of processor", flush=True)
        run = {"data": name, "noise": noise, "seed": seed, "realised_rate": realised}
        run |= {"versions": made_with, "cross_validation": bench.cross_validation, "rows": rows}
        record["runs"].append(rounded(run))
        write(options.store, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())

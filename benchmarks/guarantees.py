"""Do intervals, `sure` and certificates hold? Resamplings of the clean rows on many sets; one JSON line for each.

    python benchmarks/guarantees.py --draws 100 --store draws.jsonl
    python benchmarks/guarantees.py --take draws.jsonl

A draw deals clean rows at random from a set whose scores (out-of-fold predictions of the given labels) are made once
for every noise, then relabels with the whole pipeline of `correct`. Measured on noisy rows: right labels as given and
as returned, the recall of every class, whether the printed intervals and the certificates hold, and rivals of the
certificate: confidences as they stand, certificates without given labels, and clean rows alone; and of the interval:
prediction-powered inference. Draws that are stored are skipped. With PYTHONPATH set to an older version, what it lacks
is left out. `--take` puts the draws of some files in the place of those in evidence/.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from never_worse_data import SETS, Rows, noisy, stream
from scipy.stats import t

from labelloop.relabel.calibration import Inputs, side_by_side
from labelloop.relabel.estimate import estimate
from labelloop.relabel.learners import column_scores
from labelloop.relabel.relabel import correct_scores
from labelloop.relabel.sample import MIN_PAIRS
from labelloop.runs.run_json import versions

try:
    from labelloop.relabel.certificate import HeldOut, certify_classes, certify_rows
    from labelloop.relabel.estimate import inputs_alone
except ImportError:  # an older version
    certify_rows = None

STORE = Path(__file__).resolve().parents[1] / "evidence" / "guarantees"
CLEAN = (5, 30, 100, 300, 1000)
WITH_INPUTS = ("iris", "wine")  # small enough to teach learners of the inputs again in every draw
MOST_ROWS = {5: 1500, 10: 600, 100: 1000}  # of a set, by classes: more take time and tell nothing new about intervals
MOST_CLASSES = 10  # that are certified by themselves
MOST_CLEAN = 0.7  # of the rows
PAIRED = {"both": (True, False), "all": (True,), "none": (False,)}
ERRORS = (0.02, 0.05, 0.1)


def _made(rows: int, classes: int, seed: int, **law) -> Rows:
    from sklearn.datasets import make_classification

    x, y = make_classification(rows, n_classes=classes, flip_y=0, random_state=seed, **law)
    return Rows(y.astype(np.int64), x.astype(np.float32), named=True)


MADE = {
    "made, 20 classes": lambda: _made(4000, 20, 3, n_features=30, n_informative=20, class_sep=2.0),
    "made, 100 classes": lambda: _made(6000, 100, 4, n_features=40, n_informative=30, class_sep=3.0),
    "made, 5 classes": lambda: _made(3000, 5, 5, n_features=20, n_informative=10, class_sep=1.0),
}
# A set and its noise: 27 of them, 21 sets, 2 to 100 classes.
CELLS = (
    ("penguins", "instance 0.3"), ("weather", "symmetric 0.3"), ("cars", "asymmetric 0.3"),
    ("iris", "symmetric 0.3"), ("wine", "instance 0.3"), ("wine", "symmetric 0.05"), ("breast cancer", "instance 0.3"),
    ("breast cancer", "symmetric 0.05"), ("digits", "instance 0.3"), ("digits", "asymmetric 0.3"),
    ("eights, 1%", "symmetric 0.05"), ("made, wide", "instance 0.3"), ("made, 1%", "symmetric 0.05"),
    ("made, 7 classes", "instance 0.3"), ("made, 20 classes", "symmetric 0.3"), ("made, 100 classes", "symmetric 0.3"),
    ("made, 5 classes", "asymmetric 0.3"), ("made, 5 classes", "instance 0.3"), ("made, confident errors", "its own"),
    ("CIFAR-10N, ResNet-18", "its own"), ("class noise, ResNet-50", "its own"), ("youtube", "its own"),
    ("sms", "its own"), ("CIFAR-10 embeddings", "symmetric 0.3"), ("CIFAR-10 embeddings", "instance 0.3"),
    ("CIFAR-10 embeddings, human", "its own"), ("CIFAR-10 embeddings", "instance 0.5"),
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A set with its noise and scores."""

    rows: Rows
    given: np.ndarray
    scores: np.ndarray
    inputs: Inputs | None

    @classmethod
    def of(cls, name: str, noise: str) -> Cell:
        """Makes the noise and the scores."""
        rows = some_of({**SETS, **MADE}[name]())
        given, classes = noisy(rows, noise, stream(name, noise, "guarantees")), int(rows.true.max()) + 1
        known = given >= 0
        if rows.given is not None and not known.all():  # weak labels may be missing
            rows = Rows(rows.true[known], rows.inputs[known], given=given[known])
            given = given[known]
        if rows.probabilities is not None:
            scores = side_by_side([np.log(np.maximum(rows.probabilities, 1e-7))], np.float32)
            return cls(rows, given, scores, None)
        table = rows.named and rows.inputs.shape[1] < 128
        scores = side_by_side(column_scores(rows.inputs, given, classes, table, 0), np.float32)
        return cls(rows, given, scores, Inputs(rows.inputs, table) if name in WITH_INPUTS else None)


def some_of(rows: Rows) -> Rows:
    """At most MOST_ROWS rows, drawn at random once."""
    most = next(count for classes, count in MOST_ROWS.items() if rows.true.max() < classes)
    if len(rows.true) <= most:
        return rows
    chosen = np.random.default_rng(7).permutation(len(rows.true))[:most]
    kept = {name: part if part is None or isinstance(part, bool) else part[chosen] for name, part in vars(rows).items()}
    return Rows(**kept)


def recalls(labels: np.ndarray, true: np.ndarray, classes: int) -> np.ndarray:
    """The share of right labels of every true class."""
    return np.bincount(true, labels == true, classes) / np.maximum(np.bincount(true, minlength=classes), 1)


def draw(cell: Cell, count: int, paired: bool, seed: int) -> dict:
    """One resampling."""
    rng = np.random.default_rng([seed, count, paired])
    true, classes = cell.rows.true, int(cell.rows.true.max()) + 1
    clean = np.full(len(true), -1)
    chosen = np.sort(rng.permutation(len(true))[:count])
    clean[chosen] = true[chosen]
    given = cell.given if paired else np.where(clean >= 0, -1, cell.given)
    rest = np.flatnonzero(clean < 0)
    found = correct_scores(cell.scores, given, clean, classes, seed, inputs=cell.inputs)
    returned = found.targets.argmax(axis=1)
    before, after = (recalls(labels[rest], true[rest], classes) for labels in (given, returned))
    sizes, checked = np.bincount(true[rest], minlength=classes), np.bincount(clean[chosen], minlength=classes)
    lost = np.where(sizes >= 5, before - after, 0.0)
    good = np.bincount(true[rest], given[rest] == true[rest], classes)
    kept = np.bincount(true[rest], (given[rest] == true[rest]) & (returned[rest] == true[rest]), classes)
    unchecked = (checked == 0) & (good >= 5)
    out = {
        "given": float((given[rest] == true[rest]).mean()), "ours": float((returned[rest] == true[rest]).mean()),
        "changed": int((given[rest] != returned[rest]).sum()), "rows": len(rest), "sure": found.guard["sure"],
        "how": found.guard.get("how"), "notes": len(getattr(found, "notes", ())), "worst_class": float(lost.max()),
        "worst_unchecked": float((1 - kept / np.maximum(good, 1))[unchecked].max()) if unchecked.any() else None,
    }  # fmt: skip
    more = {} if certify_rows is None else {"alone": inputs_alone(found, given, clean, found.counted(chosen))}
    judges = chosen if certify_rows is None else found.counted(chosen)
    says = estimate(
        found.cross_fitted[judges], given[judges], clean[judges], expected=found.expected_right[judges], **more
    )
    for key, truth in (("given_label_accuracy", out["given"]), ("corrected_label_accuracy", out["ours"])):
        if share := says.get(key):
            out[key] = [share["low"], share["high"], truth, share.get("how")]
    if paired and count >= MIN_PAIRS:
        right = found.cross_fitted[judges].argmax(axis=1) == clean[judges]
        out["prediction_powered"] = [
            *prediction_powered(right, found.judged[judges, 1], found.judged[rest, 1]),
            out["ours"],
        ]
    if certify_rows is not None:
        out["recall"] = of_classes(says, "recall", after, sizes)
        right = returned[rest] == true[rest]
        of_label = np.bincount(returned[rest], right, classes) / np.maximum(
            np.bincount(returned[rest], minlength=classes), 1
        )
        out["precision"] = of_classes(says, "precision", of_label, np.bincount(returned[rest], minlength=classes))
        out["certified"] = certificates(cell, found, given, clean, chosen, rest, classes)
    return out


def prediction_powered(hits: np.ndarray, confidence: np.ndarray, noisy: np.ndarray) -> list[float]:
    """The interval of prediction-powered inference (PPI++, arXiv 2311.01453), for the share of hits among noisy rows.

    Args:
        hits: Whether the labels of the clean rows are right, made without them [M].
        confidence: The probabilities of these labels [M].
        noisy: The probabilities of the labels of the noisy rows [N].
    """
    rows, others = len(hits), len(noisy)
    slope = np.cov(hits, confidence)[0, 1] / max(confidence.var(ddof=1), 1e-9)
    slope = float(np.clip(slope, 0, 1)) * rows / (rows + 2)  # the fitted slope flatters the residuals of a few rows
    residual = hits - slope * confidence
    centre = slope * noisy.mean() + residual.mean()
    half = t.ppf(0.975, rows - 1) * np.sqrt(residual.var(ddof=1) * (1 / rows + 1 / others))
    return [float(max(centre - half, 0)), float(min(centre + half, 1))]


def of_classes(says: dict, key: str, truth: np.ndarray, sizes: np.ndarray) -> list[int]:
    """How many intervals of classes hold, and how many there are."""
    known = [(one[key], truth[k]) for k, one in enumerate(says["by_class"]) if one[key] and sizes[k] >= 1]
    return [int(sum(share["low"] <= value <= share["high"] for share, value in known)), len(known)]


def certificates(cell: Cell, found, given, clean, chosen, rest, classes: int) -> dict:
    """Certified rows and the true share of wrong labels among them: ours, by class, and the rivals."""
    true, judges = cell.rows.true, np.isin(np.arange(len(clean)), chosen)
    held_out = HeldOut.of(found.judged, given, clean, judges, MIN_PAIRS)
    alone = found.judged[:, 2].astype(int)
    without = HeldOut(
        alone[rest], found.judged[rest, 3], alone[chosen], found.judged[chosen, 3], alone[chosen] != clean[chosen]
    )
    ours, alone_wrong = found.targets[rest].argmax(axis=1) != true[rest], alone[rest] != true[rest]
    only, only_wrong = clean_only(cell, clean, chosen, rest)
    out = {}
    for error in ERRORS:
        by_class = [] if classes > MOST_CLASSES else certify_classes(held_out, classes, error, forecast=False)
        held = [(int(one.rows.sum()), float(ours[one.rows].mean())) for one in by_class if one.rows.any()]
        score = held_out.score if held_out.paired else found.judged[rest, 1]
        order = np.argsort(-score, kind="stable")
        doubt = (1 - score[order].astype(np.float64)).cumsum() / np.arange(1, len(order) + 1)
        naive = order[: int((doubt <= error).sum())]
        out[str(error)] = {
            "ours": _measured(certify_rows(held_out, error, forecast=False).rows, ours),
            "without given labels": _measured(certify_rows(without, error, forecast=False).rows, alone_wrong),
            "clean rows alone": None
            if only is None
            else _measured(certify_rows(only, error, forecast=False).rows, only_wrong),
            "confidence as it stands": [len(naive) / len(rest), float(ours[naive].mean()) if len(naive) else 0.0],
            "by class": [sum(n for n, _ in held) / len(rest), sum(e <= error for _, e in held), len(held)],
        }
    return out


def _measured(rows: np.ndarray, wrong: np.ndarray) -> list[float]:
    return [float(rows.mean()), float(wrong[rows].mean()) if rows.any() else 0.0]


def clean_only(cell: Cell, clean, chosen, rest):
    """Logistic regression of the clean rows alone, cross-validated on them."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = cell.scores if cell.rows.inputs is None else cell.rows.inputs
    labels = clean[chosen]
    if len(chosen) < 30 or len(np.unique(labels)) < 2:
        return None, None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, C=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folds = np.random.default_rng(0).permutation(len(chosen)) % 5
        oof, sure = np.zeros(len(chosen), int), np.zeros(len(chosen))
        for k in range(5):
            if len(np.unique(labels[folds != k])) < 2:
                return None, None
            p = model.fit(x[chosen[folds != k]], labels[folds != k]).predict_proba(x[chosen[folds == k]])
            oof[folds == k], sure[folds == k] = model.classes_[p.argmax(axis=1)], p.max(axis=1)
        p = model.fit(x[chosen], labels).predict_proba(x[rest])
    predicted = model.classes_[p.argmax(axis=1)]
    return HeldOut(predicted, p.max(axis=1), oof, sure, oof != labels), predicted != cell.rows.true[rest]


def take(files: list[Path]) -> None:
    """Stores the draws of some files, each once, with six decimals."""
    draws = {}
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        one = json.loads(line, parse_float=lambda text: round(float(text), 6))
        draws[one["data"], one["noise"], one["clean"], one["paired"], one["draw"]] = one
    lines = [json.dumps(draws[key], separators=(",", ":")) for key in sorted(draws)]
    packed = gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)  # the same bytes whenever it is made
    (STORE / "runs.jsonl.gz").write_bytes(packed)
    print(f"{len(draws)} draws stored")


def speed() -> dict:
    """The processor time of a certificate of a million rows."""
    rng = np.random.default_rng(0)
    score, wrong = rng.beta(5, 0.5, 1_001_000), rng.random(1_001_000)
    labels, wrong = np.zeros(len(score), int), wrong > score
    held_out = HeldOut(labels[:-1000], score[:-1000], labels[-1000:], score[-1000:], wrong[-1000:])
    start = time.process_time()
    found = certify_rows(held_out, 0.05)
    seconds = time.process_time() - start
    return {"rows": 1_000_000, "clean_rows": 1000, "certified": int(found.rows.sum()), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--draws", type=int, default=20, help="of every cell; they take turns at the kinds of clean rows"
    )
    parser.add_argument("--first", type=int, default=0, help="the number of the first draw")
    parser.add_argument("--clean", nargs="*", type=int, default=CLEAN)
    parser.add_argument("--pairs", choices=tuple(PAIRED), default="both", help="whether clean rows keep a given label")
    parser.add_argument("--sets", nargs="*", help="default: all")
    parser.add_argument("--store", type=Path, default=Path("build/guarantees.jsonl"))
    parser.add_argument("--take", nargs="+", type=Path, metavar="FILE", help="only store the draws of these files")
    parser.add_argument("--speed", action="store_true", help="only measure the time of a certificate, and store it")
    options = parser.parse_args()
    if options.speed:
        (STORE / "speed.json").write_text(json.dumps(speed()) + "\n")
        return
    if options.take:
        take(options.take)
        return
    options.store.parent.mkdir(parents=True, exist_ok=True)
    stored = [json.loads(line) for line in options.store.read_text().splitlines()] if options.store.exists() else []
    done = {(one["data"], one["noise"], one["clean"], one["paired"], one["draw"]) for one in stored}
    cells = {}
    for name, noise in CELLS:
        if not options.sets or name in options.sets:
            try:
                cells[name, noise] = Cell.of(name, noise)
            except (ImportError, OSError) as error:
                print(f"{name} is left out: {error}")
    commit = versions().get("commit")
    numbers = range(options.first, options.first + options.draws)
    for seed, (name, noise) in product(numbers, cells):
        counts = [count for count in options.clean if count <= len(cells[name, noise].given) * MOST_CLEAN]
        if not counts:  # the set is too small
            continue
        kinds = list(product(counts, PAIRED[options.pairs]))
        count, paired = kinds[seed % len(kinds)]
        if (name, noise, count, paired, seed) in done:
            continue
        about = {"data": name, "noise": noise, "clean": count, "paired": paired, "draw": seed, "commit": commit}
        line = json.dumps(about | draw(cells[name, noise], count, paired, seed))
        with options.store.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()

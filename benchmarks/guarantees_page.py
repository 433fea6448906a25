# ruff: noqa: E501 (the lines of the page are as long as those of other pages)
"""docs/guarantees.md, written from evidence/guarantees: what is assumed, what is guaranteed, and how often it held."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scipy.special import betaincinv

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "evidence" / "guarantees"
PAGE = ROOT / "docs" / "guarantees.md"
SLACK = 1e-9
FEWEST = 100  # claims of a set that may be the worst

INTRODUCTION = """# Guarantees

What LabelLoop says about its own labels, what that rests on, and how often it held in stored runs. The numbers are written by
`benchmarks/guarantees_page.py` from `evidence/guarantees`.

## Certified labels

```python
import csv
import numpy as np
from sklearn.datasets import load_breast_cancer

import labelloop

X, truth = load_breast_cancer(return_X_y=True)
rng = np.random.default_rng(0)
y = np.where(rng.random(len(truth)) < 0.2, 1 - truth, truth)  # a fifth of the labels are wrong
y_clean = np.where(rng.permutation(len(truth)) < 150, truth, -1)  # 150 random rows are verified

result = labelloop.correct(y, y_clean, embeddings=X)
certified = labelloop.certify(result, max_error=0.05, certainty=0.95)
print(certified)
assert (result.corrected_labels != truth)[certified.rows].mean() <= 0.05

with open("cells.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow([*(f"c{k}" for k in range(30)), "label", "clean_label"])
    for row, given, clean in zip(X, y, y_clean):
        writer.writerow([*row, given, "" if clean < 0 else clean])
```

```sh
labelloop correct cells.csv --output-dir runs/cells
labelloop export runs/cells --to csv --output good.csv --max-error 5%
labelloop plan runs/cells --max-error 2%
```

`export --max-error 5%` writes the largest set of labels that are, with 95% certainty, at most 5% wrong. The rest goes to a file to review
(`--rest review`), is dropped (`drop`) or keeps its given labels (`keep-given`). `--certainty` and `--by-class` change the statement.
`plan --max-error 2%` draws the rows to verify next, at random, and says how many more labels they would probably certify; after
`refit --random-sample` they judge too.

**The statement.** Over repeated draws of the clean rows, in at least 95% of the runs the share of wrong labels among the certified rows is at most what was asked for.
It is about the rows of your file, not about a population, and it holds although the same clean rows chose the threshold.

**How.** Rows are ranked by the probability of their label. Each clean row is judged by a label that was made without its clean label. Sets of rows above
a threshold are tested one after another, in an order fixed before any clean label is looked at, until one fails (learn then test, arXiv 2110.01052).
Each test is exact: it compares the wrong labels among the clean rows of the set with drawing them at random from clean and noisy rows together.

**More clean rows, another look.** `--look 1`, `--look 2`, ... share the error probability: the k-th look spends 1 / (k (k + 1)) of it. All certificates of
such a sequence hold together with the stated certainty, however often you look.

**Clean rows that are no random sample.** `--clean-weight COLUMN` takes 1 / the probability with which each clean row was chosen. The test is then by
betting: each row pays weight × (wrong − allowed), and the wealth of a bettor against the hypothesis is its e-value. This variant takes the noisy rows as
very many, and the largest weight of the design as seen.

## What is assumed

- The clean rows are a random sample of all rows, or their weights are given. A run says so if a classifier can tell clean rows from the others, and
  counts copies of a row once. Rows picked from `labelloop review` or `labelloop plan` (without --max-error) are learnt from but do not judge.
- The clean labels are right.
- A row's label made without its own clean label is as often right as one made with all of them. It is slightly less often right, which errs on the
  safe side. After further rounds of `fit`, clean rows reach the networks that predict them second-hand; a note in the run says that the estimate
  may then be a few points too high.

## With and without pairs

A *pair* is a clean row that keeps its given label. With 20 pairs or more, everything is measured on them.

Without pairs nobody can see how given and true labels go together. What is known is how often the labels agree with a prediction from the inputs
alone, and how often that prediction is wrong. The accuracy of the labels then lies between two bounds, whatever the noise: it is at least the share
that agrees with the prediction, minus the share where the prediction is wrong; and it is at most 1 minus the share that disagrees, plus the same. A run
prints these bounds with their sampling error ("95% bounds without pairs"). What the noise model says stands beside them as an assumption. Only labels
that the prediction confirms can be certified. Ten pairs say more than a hundred unpaired rows about the labels you were given.

## The guard

A label is changed only where clean rows show that changes fix more labels than they break. The margin is chosen without each fold of clean rows and
tested on it, so the test is fair although the rows choose.

- With 20 pairs or more: a sign test at 10%. If changes do no good, they are made in at most one run of ten.
- With fewer: a test at 10% of the gains that are expected with simulated given labels, under two estimates of the noise. The simulated labels are
  right as often as the noise estimate says, or as a second estimate says if that is more: the noise matrix then only tells where labels go, and one
  number how many. That number is found on rows that the matrix has not seen, and clean rows correct it where predictions are off. How uncertain it is
  counts in the test. The assumption: noise depends on the class, and labels are right at least as often where predictions are right as where they are
  wrong.
  With 1 to 19 pairs, changes must not break more of the real labels than they fix, either.
  And predictions must tell the clean rows apart better than class frequencies do (a t-test of Brier scores at 0.1%): where they hardly know anything,
  nor does an estimate of the noise that rests on them.
- Where that does not pass, a bound that needs neither pairs nor a noise model may: if predictions differ from the given labels in a share c of the rows
  with a confidence above some value, and are wrong with such confidence in a share e, changing these labels gains at least c − 2e. The test of e is exact
  for the noisy rows that there are, at 10%, if clean and noisy rows are alike; their confidences are compared by rank, since models are surer of rows
  that they learnt from.
- `how` in `run.json` names the test that passed: "measured" on pairs, "bounded" or "assumed". `sure` is 1 − its p-value for the first two.
- **No probability is given for "assumed".** No clean row has shown that such changes fix more labels than they break: they rest on the noise as
  estimated from the noisy rows. Every screen says so. Ten random clean rows that keep their given label would show it roughly, and with 20 it is measured.
- A class without a clean row keeps its labels. A rare one loses none on balance unless its own clean rows show that fewer than a fifth of its good labels
  are broken; one that is not rare but has few clean rows borrows from the other classes for this. A class that is held may shrink only to the size
  that the clean rows allow at 90%, its likeliest labels last, or if the given labels alone show that it is another spelling of a class.
- If changes broke more labels of a class than they fixed, by more than one in twenty of its clean rows, its labels are changed only with a larger margin,
  with which they would not have.

**Not guaranteed.** Nothing is promised for clean rows chosen by looks, for classes without clean rows beyond their number of labels, or for the share
of wrong labels of a class that has no certificate of its own. The accuracy of a class is measured on few rows; its interval says how few.
"""


def read(name: str) -> list[dict[str, Any]]:
    """The stored draws of a file."""
    path = STORE / name
    opened = gzip.open if path.suffix == ".gz" else open
    if not path.exists():
        return []
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def holds(one: dict[str, Any], key: str) -> bool:
    """Whether a printed interval holds the truth."""
    low, high, truth, _ = one[key]
    return low - SLACK <= truth <= high + SLACK


def percent(values: Iterable[float], digits: int = 1) -> str:
    """The mean in percent."""
    known = [float(value) for value in values]
    return f"{100 * sum(known) / len(known):.{digits}f}" if known else "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines])


def kinds(runs: Sequence[dict[str, Any]]) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    """Draws by pairs and number of clean rows."""
    for paired in (True, False):
        for count in sorted({one["clean"] for one in runs}):
            mine = [one for one in runs if one["paired"] == paired and one["clean"] == count]
            if mine:
                yield f"{count} clean rows, {'paired' if paired else 'not paired'}", mine


def intervals(runs: Sequence[dict[str, Any]]) -> str:
    """How often printed intervals hold, and how wide they are."""
    rows = []
    for name, mine in kinds(runs):
        row: list[object] = [name, len(mine)]
        for key in ("given_label_accuracy", "corrected_label_accuracy"):
            row += [percent(holds(one, key) for one in mine), percent(one[key][1] - one[key][0] for one in mine)]
        row.append(exact(sum(holds(one, "corrected_label_accuracy") for one in mine), len(mine)))
        for key in ("recall", "precision"):
            held, total = (sum(one[key][k] for one in mine) for k in (0, 1))
            row.append(f"{100 * held / total:.1f}" if total else "–")
        rows.append(row)
    head = ("", "draws", "given labels: holds", "width", "corrected labels: holds", "width", "of these, 95% interval",
            "recall of a class: holds", "precision: holds")  # fmt: skip
    return table(head, rows)


def prediction_powered(runs: Sequence[dict[str, Any]]) -> str:
    """Our interval of corrected labels beside that of prediction-powered inference."""
    rows = []
    for name, mine in kinds([one for one in runs if "prediction_powered" in one]):
        pairs = [one["prediction_powered"] for one in mine]
        rows.append(
            [
                name,
                len(mine),
                percent(holds(one, "corrected_label_accuracy") for one in mine),
                percent(one["corrected_label_accuracy"][1] - one["corrected_label_accuracy"][0] for one in mine),
                percent(low - SLACK <= truth <= high + SLACK for low, high, truth in pairs),
                percent(high - low for low, high, _ in pairs),
            ]
        )
    return table(("", "draws", "ours: holds", "width", "prediction-powered: holds", "width"), rows)


def certificates(runs: Sequence[dict[str, Any]]) -> str:
    """Certified rows and how often certificates hold, beside the rivals."""
    rows = []
    ways = ("ours", "without given labels", "clean rows alone", "confidence as it stands")
    for name, mine in kinds([one for one in runs if one["clean"] >= 100]):
        for error in mine[0]["certified"]:
            row: list[object] = [name, f"{100 * float(error):g}%"]
            for way in ways:
                known = [one["certified"][error][way] for one in mine if one["certified"][error][way]]
                kept = [wrong <= float(error) + SLACK for share, wrong in known if share > 0]
                row.append(f"{percent(share for share, _ in known)} ({percent(kept)})" if known else "–")
            of_classes = [one["certified"][error]["by class"] for one in mine]
            held, total = sum(one[1] for one in of_classes), sum(one[2] for one in of_classes)
            row.append(f"{100 * held / total:.1f} of {total}" if total else "–")
            rows.append(row)
    head = ("", "at most wrong", *ways, "by class: hold")
    return table(head, rows)


def sureness(runs: Sequence[dict[str, Any]]) -> str:
    """Of runs that say how sure they are, how many gained."""
    rows = []
    for how in ("measured", "bounded"):
        for low, high in ((0.9, 0.95), (0.95, 0.99), (0.99, 1.01)):
            mine = [one for one in runs if one["sure"] is not None and one["how"] == how and low <= one["sure"] < high]
            if mine:
                gained = [one["ours"] > one["given"] - SLACK for one in mine]
                rows.append(
                    [
                        how,
                        f"{100 * low:.0f} to {min(100 * high, 100):.0f}%",
                        len(mine),
                        percent(gained),
                        percent(one["ours"] - one["given"] for one in mine),
                    ]
                )
    if mine := [one for one in runs if one["how"] == "assumed" and one["changed"]]:
        gained = percent(one["ours"] > one["given"] - SLACK for one in mine)
        rows.append(["assumed", "no number", len(mine), gained, percent(one["ours"] - one["given"] for one in mine)])
    return table(("how", "it says", "runs", "no worse than given", "points gained"), rows)


def guard(runs: Sequence[dict[str, Any]]) -> str:
    """Harm and timidity."""
    rows = [
        [
            name,
            len(mine),
            percent(one["given"] for one in mine),
            percent(one["ours"] for one in mine),
            percent((one["changed"] > 0 for one in mine), 0),
            sum(one["ours"] < one["given"] - SLACK for one in mine),
            sum(one["ours"] < one["given"] - 0.005 for one in mine),
            sum(one["worst_class"] > 0.1 for one in mine),
        ]
        for name, mine in kinds(runs)
    ]
    head = ("", "draws", "given right", "returned right", "changed any", "worse", "by more than ½", "a class lost 10")
    return table(head, rows)


def last_step(blocks: Sequence[dict[str, Any]]) -> str:
    """What was claimed and what held, over all sets together and in the worst of them."""
    total: Counter[str] = Counter()
    for one in blocks:
        total.update(one["counts"])
    rows = []
    for name in sorted(key.removesuffix(": claimed") for key in total if key.endswith(": claimed")):
        claimed, held = total[f"{name}: claimed"], total[f"{name}: held"]
        by_set: dict[str, Counter[str]] = {}
        for one in blocks:
            by_set.setdefault(f"{one['data']}, {one['noise']}", Counter()).update(one["counts"])
        shares = [(c[f"{name}: held"] / c[f"{name}: claimed"], c[f"{name}: claimed"], where)
                  for where, c in by_set.items() if c[f"{name}: claimed"] >= FEWEST]  # fmt: skip
        worst = "{:.1%} of {} ({})".format(*min(shares)) if shares else "–"
        rows.append([name, claimed, f"{held / claimed:.2%}", exact(held, claimed), worst])
    return table(("", "claims", "held", "95% interval of that", f"worst set with {FEWEST} claims or more"), rows)


def exact(hits: int, rows: int) -> str:
    """Clopper and Pearson's interval in percent."""
    low = betaincinv(hits, rows - hits + 1, 0.025) if hits else 0.0
    high = betaincinv(hits + 1, rows - hits, 0.975) if hits < rows else 1.0
    return f"{100 * low:.1f} to {100 * high:.1f}"


def unchecked(runs: Sequence[dict[str, Any]]) -> str:
    """The share of good labels that classes without a clean row lose."""
    known = [one["worst_unchecked"] for one in runs if one["worst_unchecked"] is not None]
    worse = sum(value > 0.2 for value in known)
    return (
        f"In {len(known):,} draws some class with five good labels or more had no clean row. In {worse} of them such a class lost more than a fifth of"
        " its good labels."
    )


def page(runs: Sequence[dict[str, Any]], blocks: Sequence[dict[str, Any]], speed: dict[str, Any]) -> str:
    """The page as text."""
    sets, cells = len({one["data"] for one in runs}), len({(one["data"], one["noise"]) for one in runs})
    alone = [
        "### The last step alone",
        f"{sum(one['draws'] for one in blocks):,} further draws on {len({one['data'] for one in blocks})} sets repeat only the last step. Labels and scores are made"
        " once for every set. Of rows that taught nothing, held-out clean rows are drawn again and again, and the labels of the others are certified and bounded."
        " Here the theory applies exactly; the table above also tries what leads to the labels. *Looks* are three certificates of growing samples, which must all hold.",
        last_step(blocks),
    ] if blocks else []  # fmt: skip
    parts = [
        INTRODUCTION,
        "## How often it held",
        f"{len(runs):,} resamplings of the clean rows on {sets} sets with {cells} kinds of noise: tables, embeddings, texts, probabilities of image networks and"
        " made data with 2 to 100 classes, some nearly clean with confident wrong predictions. Each is the whole pipeline of `correct` on predictions that are"
        " made once for a set and its noise. *Truth* is that of the noisy rows. Draws name"
        " the commit that made them; those that a later change of the guard touches were made anew.",
        "### Intervals of 95%, in %",
        intervals(runs),
        "A class with a handful of clean rows has an interval from its handful: it may be as wide as 0 to 100%.",
        "Prediction-powered inference (PPI++, arXiv 2311.01453) takes the confidences of all rows into account. Its intervals are shorter, and in"
        " these draws they never hold more often than ours, mostly less: a clean row's confidence comes from a fit with fewer clean rows than that of a noisy row, and a few rows"
        " are not normal. Where there are few draws, the interval of the share says how little they show.",
        prediction_powered(runs),
        "### Certificates of 95%: certified rows in %, and in brackets how many in a hundred certificates hold",
        certificates(runs),
        "*Without given labels* certifies predictions from the inputs alone in the same way, *clean rows alone* those of a logistic regression of the clean"
        " rows, and *confidence as it stands* takes all labels whose mean confidence allows it, without a test. A draw without a certificate counts as 0% certified rows."
        " The comparison favours the clean rows alone: they are taught on the rows themselves, ours (but on iris and wine) only on predictions that the given"
        " labels taught, so that a draw takes a second. `correct` on a table or on embeddings has both.",
        "### How sure the guard says it is",
        sureness(runs),
        "For changes that are assumed to help no probability is printed; their line counts how often they did, on these sets.",
        "### Harm and timidity",
        "*Worse* counts runs that ended below the given labels, *by more than ½* those that lost more than half a point, *a class"
        " lost 10* those where the recall of some class with five rows or more fell by more than ten points.",
        guard(runs),
        unchecked(runs),
        *alone,
        "### Time",
        f"The certificate of {speed['rows']:,} rows with {speed['clean_rows']:,} clean rows takes {speed['seconds']:.2f} seconds of processor.",
    ]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    speed = json.loads((STORE / "speed.json").read_text(encoding="utf-8"))
    PAGE.write_text(page(read("runs.jsonl.gz"), read("certificates.jsonl"), speed), encoding="utf-8")


if __name__ == "__main__":
    main()

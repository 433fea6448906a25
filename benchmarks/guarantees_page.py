# ruff: noqa: E501 (the lines of the page are as long as those of other pages)
"""Writes docs/guarantees.md from evidence/guarantees: what is assumed, what is guaranteed, and how often it held."""

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

What LabelLoop claims about its labels, what the claims rest on, and how often they held in stored runs. `benchmarks/guarantees_page.py` writes this
page from `evidence/guarantees`.

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
(`--rest review`), is dropped (`drop`) or keeps its given labels (`keep-given`). `--certainty` changes the 95%, and `--by-class` certifies each class
separately. `plan --max-error 2%` draws random rows to verify next, and forecasts how many more labels they would certify. After
`refit --random-sample` these rows count as part of the random sample.

**The statement.** Over repeated draws of the clean rows, the share of wrong labels among the certified rows is at most what you asked for in at least
95% of the runs. The statement is about the rows of your file, not about a population. It holds even though the same clean rows chose the threshold.

**How it works.** Rows are ranked by the probability of their label. Each clean row is tested on a label that was made without its own clean label. The
sets of rows above a threshold are tested one after another until one fails, in an order fixed before any clean label is looked at (learn then test,
arXiv 2110.01052). Each test is exact: it compares the wrong labels among the set's clean rows with a random draw from clean and noisy rows together.

**More clean rows, another look.** `--look 1`, `--look 2`, ... share the error probability: the k-th look spends 1 / (k (k + 1)) of it. All certificates
of such a sequence hold jointly with the stated certainty, however often you look.

**Clean rows that are no random sample.** `--clean-weight COLUMN` takes 1 / the probability with which each clean row was chosen. The test then becomes
a bet: each row pays weight × (wrong − allowed), and the wealth of a bettor against the hypothesis is its e-value. This variant assumes that there are
very many noisy rows, and that the largest weight of the design has been seen.

## What is assumed

- The clean rows are a random sample of all rows, or their weights are given. A run warns you if a classifier can tell clean rows from the others, and
  counts copies of a row once. Rows picked by `labelloop review` or `labelloop plan` (without --max-error) improve the correction but are left out of
  estimates and certificates.
- The clean labels are right.
- A label made without the row's own clean label is right as often as one made with all clean labels. In fact it is right slightly less often, which
  errs on the safe side. After further rounds of `fit`, clean rows reach the networks that predict them second-hand; a note in the run says that the
  estimate may then be a few points too high.

## With and without pairs

A *pair* is a clean row that keeps its given label. With 20 pairs or more, everything is measured on them. Ten pairs say more about the given labels
than a hundred unpaired rows.

Without pairs, the relation between given and true labels cannot be observed. What is known is how often the labels agree with a prediction from the
inputs alone, and how often that prediction is wrong. This bounds the accuracy of the labels, whatever the noise: it is at least the share of labels
that agree with the prediction minus the prediction's error rate, and at most 1 minus the share that disagree plus that error rate. A run prints these
bounds with their sampling error ("95% bounds without pairs"). The noise model's own estimate is printed next to them, as an assumption. Only labels that the
prediction confirms can be certified.

## The guard

A label is changed only where clean rows show that changes fix more labels than they break. With fewer than 20 pairs, the estimated noise may show it
instead ("assumed", below). The clean rows are split into folds; the margin for each
fold is chosen without that fold and tested on it, so the test stays valid although the same rows choose the margin.

The tests, by the number of pairs:

- **20 pairs or more:** a sign test at 10%. If changes do no good, they are made in at most one run of ten.
- **Fewer:** a test at 10% of the gain expected from simulated given labels, under two estimates of the noise. The simulated labels are as accurate as
  the first noise estimate says, or as the second one says if that is higher. In the second, the noise matrix only says where wrong labels go, and a
  single number says how many there are. That number is fitted on rows that the matrix has not seen, clean rows correct it where predictions are off,
  and its uncertainty enters the test. This assumes that noise depends on the class, and that labels are right at least as often where predictions are
  right as where they are wrong. Two more conditions hold here. With 1 to 19 pairs, changes must not break more of the real given labels than they fix.
  And predictions must beat class frequencies on the clean rows (a t-test of Brier scores at 0.1%), because a noise estimate is no better than the
  predictions it rests on.
- **If that fails,** a bound that needs neither pairs nor a noise model may still pass. Suppose that predictions differ from the given labels, with a
  confidence above some value, in a share c of the rows, and are wrong with such confidence in a share e. Then changing these labels gains at least
  c − 2e. The test of e, at 10%, is exact for the noisy rows in the file if clean and noisy rows are alike; it is not made where a classifier tells them apart, or where the few pairs
  would change much more or less often than noisy rows. Confidences are compared by rank, because
  models are more confident on rows that they were trained on.

`how` in `run.json` names the test that passed: "measured" on pairs, "bounded" or "assumed". `sure` is 1 − its p-value for the first two.
**"assumed" comes without a probability.** No clean row has shown that such changes fix more labels than they break; they rest on the noise as
estimated from the noisy rows, and every screen says so. Ten random pairs would give a rough measurement, and 20 a full one.

Classes have rules of their own:

- A class without a clean row keeps its labels, or the likeliest of them: as many as it may have rows, at 95%, if none of the clean rows is of it. With
  20 pairs or more, it keeps them all unless its label is about as frequent among the pairs as among the noisy rows; otherwise nobody looked at it.
  Without pairs that cannot be checked, so clean rows that were chosen by class may cost an unchecked class labels.
- A rare class has no net loss of labels unless its own clean rows show that fewer than a fifth of its
  good labels are broken; a class that is not rare but has few clean rows may borrow this evidence from the other classes.
- A class held in this way may shrink only to the size that the clean rows allow at 90% (at 95% without a clean row), giving up its least likely labels first, or if the given
  labels alone show that it is another spelling of some class.
- If changes broke more labels of a class than they fixed, by more than one in twenty of its clean rows, that class gets a larger margin, with which
  they would not have.

**Not guaranteed.** Nothing is promised for clean rows chosen by looks, for classes without clean rows beyond their number of labels, or for the share
of wrong labels in a class that has no certificate of its own. The accuracy of a class is measured on few rows; its interval shows how few.
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
    """How many runs gained, by the certainty that they report."""
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
    return table(("how", "reported certainty", "runs", "no worse than given", "points gained"), rows)


def guard(runs: Sequence[dict[str, Any]]) -> str:
    """How often labels ended up worse, and how often none was changed."""
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
        f"In {len(known):,} draws, some class with at least five good labels had no clean row. In {worse} of them, such a class lost more than a fifth of"
        " its good labels."
    )


def page(runs: Sequence[dict[str, Any]], blocks: Sequence[dict[str, Any]], speed: dict[str, Any]) -> str:
    """The page as text."""
    sets, cells = len({one["data"] for one in runs}), len({(one["data"], one["noise"]) for one in runs})
    alone = [
        "### The last step alone",
        f"{sum(one['draws'] for one in blocks):,} further draws on {len({one['data'] for one in blocks})} sets repeat only the last step. Labels and scores are made"
        " once per set. Held-out clean rows are then drawn again and again from rows that nothing was trained on, and the labels of the others are certified and"
        " bounded. Here the theory applies exactly; the tables above also test the steps before. *Looks* are three certificates of growing samples, which must all hold.",
        last_step(blocks),
    ] if blocks else []  # fmt: skip
    parts = [
        INTRODUCTION,
        "## How often it held",
        f"{len(runs):,} resamplings of the clean rows on {sets} sets with {cells} kinds of noise: tables, embeddings, texts, probabilities of image networks and"
        " synthetic data with 2 to 100 classes, some nearly clean with confident wrong predictions. Each draw runs the whole pipeline of `correct` on predictions"
        " that are made once per set and noise. The truth is that of the noisy rows. Stored draws name the commit that made them; draws affected by a later change"
        " of the guard were repeated.",
        "### Intervals of 95%, in %",
        intervals(runs),
        "An interval *holds* if it contains the truth. *Of these, 95% interval* shows how little few draws can prove. The interval of a class rests on its own clean rows: with only a handful, it may be as wide as 0 to 100%.",
        "Prediction-powered inference (PPI++, arXiv 2311.01453) also uses the confidences of all rows. Its intervals are shorter, but in these draws they never hold"
        " more often than ours, and mostly less: a clean row's confidence comes from a fit with fewer clean rows than a noisy row's, and the normal approximation is"
        " poor for few rows.",
        prediction_powered(runs),
        "### Certificates of 95%: certified rows in %, and in brackets the share of certificates that hold, in %",
        certificates(runs),
        "*Without given labels* certifies predictions from the inputs alone in the same way, *clean rows alone* those of a logistic regression trained on the clean"
        " rows. *Confidence as it stands* takes all labels whose mean confidence allows it, without a test. A draw without a certificate counts as 0% certified rows."
        " The comparison favours *clean rows alone*, which is trained on the inputs themselves. So that a draw takes only a second, ours (except on iris and wine) has"
        " only predictions that were trained on the given labels; `correct` on a table or on embeddings has both.",
        "### The certainty that the guard reports",
        sureness(runs),
        "\"Assumed\" changes are reported without a probability; their line counts how often they helped on these sets.",
        "### Harm and caution",
        "*Worse* counts runs whose labels ended up worse than given, *by more than ½* those that lost more than half a point, and *a class"
        " lost 10* those where the recall of some class with at least five rows fell by more than ten points.",
        guard(runs),
        unchecked(runs),
        *alone,
        "### Time",
        f"The certificate of {speed['rows']:,} rows with {speed['clean_rows']:,} clean rows takes {speed['seconds']:.2f} seconds of processor time.",
    ]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> None:
    speed = json.loads((STORE / "speed.json").read_text(encoding="utf-8"))
    PAGE.write_text(page(read("runs.jsonl.gz"), read("certificates.jsonl"), speed), encoding="utf-8")


if __name__ == "__main__":
    main()

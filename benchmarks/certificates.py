"""Do certificates hold? 1,000 draws of the held-out clean rows on each of many sets, after one relabelling of each.

    python benchmarks/certificates.py

Unlike `guarantees.py`, this tries the last step alone: labels and their scores are made once for every set, with clean
rows that are then left out. Of the other rows, held-out rows are drawn at random again and again, and the labels of the
rest are certified, bounded and counted. A line of JSON is stored for every block of draws; stored blocks are skipped.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
from guarantees import CELLS, ERRORS, MOST_CLASSES, STORE, Cell

from labelloop.relabel.bounds import InputsAlone, finite_interval
from labelloop.relabel.certificate import HeldOut, certify_classes, certify_rows
from labelloop.relabel.relabel import correct_scores
from labelloop.runs.run_json import versions

BLOCK, BLOCKS = 250, 4  # draws
TAUGHT = 100  # clean rows that teach, or a quarter of the rows where that is less
MOST_HELD_OUT = 300  # or a third of the other rows
LOOKS = 3


class Relabelled:
    """Labels, scores and truth of the rows that taught nothing."""

    def __init__(self, name: str, noise: str) -> None:
        cell = Cell.of(name, noise)
        true, self.classes = cell.rows.true, int(cell.rows.true.max()) + 1
        order = np.random.default_rng(11).permutation(len(true))
        taught = order[: min(TAUGHT, len(true) // 4)]
        clean = np.full(len(true), -1)
        clean[taught] = true[taught]
        found = correct_scores(cell.scores, cell.given, clean, self.classes, 0, inputs=cell.inputs)
        self.rows = np.sort(order[len(taught) :])
        self.true, self.given, self.kept = true[self.rows], cell.given[self.rows], found.judged[self.rows]
        self.held_out = min(MOST_HELD_OUT, len(self.rows) // 3)

    def draw(self, rng: np.random.Generator) -> Counter[str]:
        """What is claimed and what holds in one draw."""
        counts: Counter[str] = Counter()

        def claim(name: str, holds: bool) -> None:
            counts.update({f"{name}: claimed": 1, f"{name}: held": int(holds)})

        mixed = rng.permutation(len(self.rows))
        chosen, rest = mixed[: self.held_out], mixed[self.held_out :]
        label, alone = self.kept[:, 0].astype(int), self.kept[:, 2].astype(int)
        wrong = label != self.true
        clean = np.full(len(self.rows), -1)
        clean[chosen] = self.true[chosen]
        noisy = np.flatnonzero(clean < 0)
        verified = np.isin(np.arange(len(clean)), chosen)
        for paired in (True, False):
            here = HeldOut.of(self.kept, self.given, clean, verified, 0 if paired else len(clean))
            for error in ERRORS:
                rows = noisy[certify_rows(here, error, forecast=False).rows]
                counts[f"{'paired' if paired else 'not paired'}, {error}: rows"] += len(rows)
                if len(rows):
                    claim(f"{'paired' if paired else 'not paired'}, {error}", wrong[rows].mean() <= error)
            if paired and self.classes <= MOST_CLASSES:
                for one in certify_classes(here, self.classes, 0.1, forecast=False):
                    if one.rows.any():
                        claim("by class, 0.1", wrong[noisy[one.rows]].mean() <= 0.1)
        looked = []
        for look in range(1, LOOKS + 1):
            some = chosen[: self.held_out * look // LOOKS]
            seen = HeldOut(label[rest], self.kept[rest, 1], label[some], self.kept[some, 1], wrong[some])
            rows = rest[certify_rows(seen, 0.1, look=look, forecast=False).rows]
            looked += [wrong[rows].mean() <= 0.1] if len(rows) else []
        if looked:
            claim(f"{LOOKS} looks, 0.1", all(looked))
        low, high = finite_interval(int((~wrong[chosen]).sum()), len(chosen), len(rest))
        claim("interval, paired", low <= (~wrong[rest]).mean() <= high)
        sure = self.kept[:, 3]
        inputs = InputsAlone(alone[rest], sure[rest], alone[chosen], sure[chosen], self.given[rest], label[rest])
        for name, labels in (("given", self.given), ("corrected", label)):
            low, high = inputs.accuracy(labels[rest], self.true[chosen])
            claim(f"bounds of {name} labels, not paired", low <= (labels == self.true)[rest].mean() <= high)
        return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=STORE / "certificates.jsonl")
    options = parser.parse_args()
    stored = [json.loads(line) for line in options.store.read_text().splitlines()] if options.store.exists() else []
    done = {(one["data"], one["noise"], one["block"]) for one in stored}
    commit, made = versions().get("commit"), {}
    for block, (name, noise) in product(range(BLOCKS), CELLS):
        if (name, noise, block) in done:
            continue
        if (name, noise) not in made:
            made[name, noise] = Relabelled(name, noise)
        here, counts = made[name, noise], Counter()
        for number in range(BLOCK):
            counts += here.draw(np.random.default_rng([block, number]))
        about = {"data": name, "noise": noise, "block": block, "commit": commit, "draws": BLOCK}
        sizes = {"held_out": here.held_out, "noisy": len(here.rows) - here.held_out}
        with options.store.open("a") as file:
            file.write(json.dumps(about | sizes | {"counts": dict(counts)}) + "\n")


if __name__ == "__main__":
    main()

"""What a run says of its labels beside the truth: labels right, confidences, intervals, and what `refit` adds.

    python benchmarks/believe.py [--root FOLDER] [--seeds 0 1] [--store FILE]

Every case is one `labelloop.fit`. "loop" are the labels of the loop alone, "run" those that the run returns: with
enough rows that have both labels, they are made after the loop. What is stored already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

from labelloop import fit
from labelloop.data.datasets import load_dataset
from labelloop.noise import NOISES
from labelloop.relabel.estimate import reliability
from labelloop.runs.run_json import versions
from labelloop.seeds import stream
from labelloop.training.checkpoint import read_checkpoint
from labelloop.types import MISSING, Floats, Labels
from labelloop.workflows.plan import rows_to_verify
from labelloop.workflows.refit import read_stored_run, refit_run

ROOT = Path(__file__).resolve().parents[1]
HUMAN = Path("cifar-n") / "CIFAR-10_human.pt"
PLANNED = 100  # rows that are verified after the run
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"rows": 1200, "clean": [100], "noises": [["symmetric", 0.1], ["symmetric", 0.2], ["symmetric", 0.4]]},
    "cifar10-embeddings": {
        "rows": 3000,
        "clean": [300, 1000],
        "noises": [["symmetric", 0.1], ["symmetric", 0.2], ["symmetric", 0.4], ["recorded", 1]],
    },
}


def measured(targets: Floats, given: Labels, true: Labels) -> dict[str, float]:
    """Of rows that nobody verified: labels right, good ones broken, wrong ones fixed, and how good confidences are."""
    right, good = targets.argmax(axis=1) == true, given == true
    bins = reliability(targets, true)
    return {
        "right": float(right.mean()),
        "good_broken": float((~right)[good].mean()),
        "wrong_fixed": float(right[~good].mean()),
        "confidence": float(targets.max(axis=1).mean()),
        "calibration_error": sum(abs(b["confidence"] - b["value"]) * b["rows"] for b in bins) / len(true),
    }


def case(
    data: str, noise: str, rate: float, clean_rows: int, paired: bool, seed: int, root: Path | None
) -> dict[str, Any]:
    count = SETTINGS[data]["rows"]
    rows = np.arange(count) + (seed * count if data != "digits" else 0)
    found = load_dataset(data, root, limit=int(rows[-1]) + 1)
    x, true = found.inputs[rows], found.labels[rows]
    further: dict[str, Any] = {}
    if noise == "recorded":
        further = {"path": Path(found.source).parents[1] / HUMAN, "key": "random_label1", "index": rows}
    given = np.array(NOISES[noise](true, found.num_classes, rate, stream(seed, "noise", noise), **further).labels)
    clean = np.full(count, MISSING)
    verified = stream(seed, "clean-split").permutation(count)[:clean_rows]
    clean[verified] = true[verified]
    rest = clean == MISSING
    shown = given if paired else np.where(rest, given, MISSING)
    with tempfile.TemporaryDirectory() as folder:
        run, new, file = Path(folder) / "run", Path(folder) / "new", Path(folder) / "verified.csv"
        result = fit(x, shown, clean, seed=seed, output_dir=run, progress=False)
        loop = read_checkpoint(run / "checkpoint")
        assert loop is not None
        planned = rows_to_verify(read_stored_run(run), PLANNED)
        lines = [f"{row},{shown[row]},{true[row]}\n" for row in planned]
        file.write_text("row,given_label,clean_label\n" + "".join(lines), encoding="utf-8")
        refit_run(run, file, new)
        refitted = np.load(new / "targets.npy")
    left = rest.copy()
    left[planned] = False  # rows that are verified in neither
    estimates = {"run": result.estimate["corrected_label_accuracy"]}
    estimates["loop"] = result.estimate.get("loop_label_accuracy", estimates["run"])
    return {
        "given_right": float((given == true)[rest].mean()),
        "labels_from": result.labels_from,
        "loop": measured(loop.arrays["targets"], given[rest], true[rest]) | {"estimate": estimates["loop"]},
        "run": measured(result.corrected_proba[rest], given[rest], true[rest]) | {"estimate": estimates["run"]},
        "before_refit": float((result.corrected_proba.argmax(axis=1) == true)[left].mean()),
        "after_refit": float((refitted.argmax(axis=1) == true)[left].mean()),
    }


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return round(value, 5) if isinstance(value, float) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder of the data sets; without it, the usual places")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--store", type=Path, default=ROOT / "evidence" / "believe.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    record: dict[str, Any] = {"settings": SETTINGS, "versions": versions(), "runs": []}
    if options.store.exists():
        record = json.loads(options.store.read_text(encoding="utf-8"))
    if record["settings"] != SETTINGS:
        print(f"{options.store} was made with other settings: give another --store", file=sys.stderr)
        return 1
    todo = [
        {"data": data, "noise": noise, "rate": rate, "clean_rows": clean, "paired": paired, "seed": seed}
        for seed in options.seeds
        for paired in (True, False)
        for data, settings in SETTINGS.items()
        for noise, rate in settings["noises"]
        for clean in settings["clean"][: 2 if paired else 1]
    ]
    for about in todo:
        if any(about.items() <= run.items() for run in record["runs"]):
            continue
        record["runs"].append(rounded(about | case(**about, root=options.root)))
        part = options.store.with_suffix(".part")
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        part.replace(options.store)
        last = record["runs"][-1]
        print(*about.values(), last["labels_from"], *(last[who]["right"] for who in ("loop", "run")), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

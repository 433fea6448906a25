"""What encoders bring, in words and tables, from evidence/encoders.json."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

STORE = Path(__file__).resolve().parents[1] / "evidence" / "encoders.json"
WAYS = {
    "texts": {"none": "none: hashed words", "frozen": "MiniLM, frozen"},
    "images": {"none": "none: a small network", "frozen": "EfficientNet-Lite0, frozen", "trained": "the same, trained"},
}
NAMES = {
    "texts": "YouTube comments, the majority of keyword rules as label",
    "images": "CIFAR-10, labelled by one person",
    "images-40": "CIFAR-10, 40% symmetric noise",
}


def _stored() -> dict[str, Any]:
    return json.loads(STORE.read_text(encoding="utf-8"))


def labels(kind: str) -> str:
    """The table of corrected labels with and without an encoder: "texts" or "images"."""
    stored = _stored()["labels"]
    lines = [
        "Labels that are right, in %, of rows that have a given label and no clean one, and seconds of one core for the"
        " whole run, encoding included; the default settings, means over the seeds named:",
        "",
        "| data | rows, clean | encoder | given | corrected | CPU s | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for data in (name for name in NAMES if name.startswith(kind)):
        for way, title in WAYS[kind].items():
            runs = [one for one in stored if (one["data"], one["way"]) == (data, way)]
            if not runs:
                continue
            given, corrected = (
                100 * mean(one[f"{which}_label_accuracy"] for one in runs) for which in ("given", "corrected")
            )
            rows = f"{runs[0]['rows']:,}, {runs[0]['clean_rows']}"
            lines.append(
                f"| {NAMES[data]} | {rows} | {title} | {given:.1f} | {corrected:.1f} |"
                f" {mean(one['cpu_seconds'] for one in runs):.0f} | {len(runs)} |"
            )
    return "\n".join(lines)


def throughput() -> str:
    """How fast rows go through an encoder, beside the library alone."""
    parts = [f"{one['cpu_ratio']:.2f} ({name})" for name, one in _stored()["throughput"].items()]
    return f"Rows a second of CPU time beside the bare call of the library on the same batches: {', '.join(parts)}."

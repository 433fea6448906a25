"""Tables for the pages from the runs of encoders.py: labels and time with and without an encoder, speed, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = {
    "page-texts": "the {rows} reviews above",
    "page-images": "the {rows} images above",
    "texts": "{rows} comments, labels from keyword rules",
    "images": "{rows} photographs (CIFAR-10), labels by one person",
    "images-40": "{rows} photographs (CIFAR-10), symmetric noise of 40%",
}
WAYS = {"none": "none", "frozen": "frozen", "trained": "fine-tuned"}


def labels(record: dict[str, Any], datas: tuple[str, ...]) -> str:
    """A line for each data set and use of the encoder, over the stored seeds."""
    lines = [
        "Right labels on rows that are not clean, in %, mean ± deviation over seeds, and processor seconds of the whole"
        " run with one thread, without imports.",
        "",
        "| data | encoder | seeds | given right | corrected right | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for data in datas:
        for way, title in WAYS.items():
            runs = [run for run in record.get("labels", ()) if (run["data"], run["way"]) == (data, way)]
            if runs:
                given, right = ([100 * run[f"{key}_label_accuracy"] for run in runs] for key in ("given", "corrected"))
                seconds = np.median([run["cpu_seconds"] for run in runs])
                spread = f" ± {np.std(right, ddof=1):.1f}" if len(runs) > 1 else ""
                cells = [NAMES[data].format(rows=f"{runs[0]['rows']:,}"), title, len(runs), f"{np.mean(given):.1f}"]
                cells += [f"{np.mean(right):.1f}{spread}", f"{seconds:.0f}"]
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def speed(record: dict[str, Any]) -> str:
    """Encoding compared with the library alone, and the memory it takes."""
    found = record["throughput"]
    repeats = {len(one["cpu_seconds"]["ours"]) for one in found.values()}
    load = max(value for one in found.values() for value in one["load"])
    lines = [
        f"Encoding compared with the library alone on the same batches: medians of {min(repeats)} repeats each, taken"
        f" in turns. Times are processor times, because the machine was busy (up to {load:.0f} processes on 2 cores).",
        "",
        "| encoder | rows per second | library alone | ratio |",
        "|---|---|---|---|",
    ]
    for name, one in found.items():
        speeds = f"{one['rows_per_cpu_second']:.0f} | {one['bare_rows_per_cpu_second']:.0f}"
        lines.append(f"| {name} | {speeds} | {one['cpu_ratio']:.2f} |")
    return "\n".join([*lines, "", _memory(record["memory"])])


def _memory(found: dict[str, dict[str, int]]) -> str:
    found = dict(sorted(found.items(), key=lambda item: item[1]["features_mib"]))
    parts = [
        f"{one['anonymous_mib']} MiB for {one['features_mib']} MiB of features {name.split(', ')[1]}"
        for name, one in found.items()
    ]
    return f"Memory of the process after encoding, without mapped files: {'; '.join(parts)}."

# ruff: noqa: E501 (the lines of the page are as long as those of other pages)
"""Writes docs/performance.md from evidence/performance.json: measurements, and estimates for larger sizes."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clocks import HEADER, line

from labelloop.large_arrays import parse_bytes

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "evidence" / "performance.json"
STREAMING = ROOT / "evidence" / "streaming.json"
PAGE = ROOT / "docs" / "performance.md"
TITLES = {
    "throughput": "The loop compared with a bare training loop",
    "corrections": "What a correction costs",
    "growth": "How the cost grows with classes and clean rows",
    "fit": "How the cost of `fit` grows with rows: 256 features, 100 classes, one row in a hundred clean",
    "larger": "A folder of Parquet parts larger than the memory limit",
    "correct": "`correct` on a stream",
    "small": "Whole commands on tables of about 400 rows, compared with cleanlab",
    "processes": "Two processes, each with one thread",
    "decoding": "Decoding",
    "settings": "Settings that are off by default",
}
GIB, TIB = 2**30, 2**40


@dataclass(frozen=True)
class Assumed:
    """What is not measured here but assumed in the estimates. Replace it with the values of your machine."""

    gpu_flops: float = 60e12  # sustained in bfloat16, half of what data sheets of such cards promise
    resnet50_flops: float = 4.1e9  # forward, an image of 224 pixels
    backward: float = 2.0  # times forward
    parameters: float = 25.6e6
    images: float = 1e6
    features: int = 2048
    classes: int = 14
    epochs: int = 15
    rounds: int = 4
    feeders: int = 16  # processors for each GPU
    link: float = 100e9  # bytes per second between GPUs
    disk: float = 2e9  # bytes per second
    nodes: int = 16
    cores: int = 64  # of a node
    network: float = 10e9  # bytes per second, of a node


ASSUMED = Assumed()


def page(stored: Mapping[str, Any], streaming: Mapping[str, Any], assumed: Assumed = ASSUMED) -> str:
    """The whole page."""
    parts = [
        "# Speed and memory",
        "<!-- written by `python benchmarks/performance_page.py` from evidence/performance.json; a test compares -->",
        INTRODUCTION,
        MEMORY,
        "## Measured",
        *(_part(name, stored[name]) for name in TITLES if name in stored),
        _estimates(stored, streaming, assumed),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


INTRODUCTION = """`make bench` measures all of this on your machine: it prints a table, stores JSON, and marks each target as met or missed.
Times are in processor seconds, and "a by b" is the ratio of a to b. Compared programs take turns, and the tables show the median of the repeats.
The benchmark waits up to a minute for the machine to become quiet; if it does not, the load is shown with the results."""

MEMORY = """## Memory limit

`labelloop fit` and `labelloop correct` aim to stay within `--max-memory 4G`; by default the limit is half of the machine's memory (`max_memory=` in
Python). Arrays with one entry per data row are mapped from files if they take more than 1/32 of the limit: features, soft labels, the corrections of
past rounds, log-probabilities and the network's outputs. These files are in the run folder, have no name, and vanish with the process. All of these
arrays are processed in chunks, and none has the size rows x classes x rounds. Results are the same in memory and in files. If the disk is full, a
message names the place and the size needed before anything is lost.

- The data may be a **folder of Parquet parts**: `labelloop fit parts/ --output-dir run`. The parts are read one by one, sorted by name.
  Large embeddings (a column of lists) and other large columns go through a mapped file. A table with many *named* columns of numbers is held
  in memory once while it is encoded.
- `--half-labels` stores soft labels in half precision: they take half the space and differ in the third digit.
- A checkpoint writes each large array once, to its own file. During a long epoch, the position is saved every five minutes, so a run that is
  killed and resumed loses only minutes and ends with the same bytes. With several processes, only whole epochs are saved.
- `--workers 4` reads images in four separate processes, each two batches ahead."""


def _part(name: str, part: Mapping[str, Any]) -> str:
    quiet = "on a quiet machine" if part["quiet"] else (
        f"while other programs took {part['load_of_others']:g} of {part['processors']} processors, so these numbers are rough"
    )  # fmt: skip
    said = f"Size `{part['size']}`, {part['made'][:10]}, {quiet}."
    notes = "\n".join(_notes(part["lines"]))
    return "\n\n".join(
        filter(None, [f"### {TITLES[name]}", said, HEADER + "\n" + "\n".join(map(line, part["lines"])), notes])
    )


def _notes(lines: list[Mapping[str, Any]]) -> list[str]:
    """Remarks on some of the numbers."""
    found = []
    for entry in lines:
        about = entry["about"]
        if "wall" in about:
            low, high = min(about["wall"]), max(about["wall"])
            found.append(
                f"- In wall time, two processes took {low:.2f} to {high:.2f} times as long as one. The ideal is 0.5, on a quiet machine with a"
                " processor for each."
            )
        if "by_table" in about:
            each = ", ".join(f"{name} {statistics.median(taken):.1f}" for name, taken in about["by_table"].items())
            found.append(f"- {entry['name'].partition(', the slowest')[0]}: {each} s.")
        if "anonymous_mib" in about:
            over = entry["value"] - parse_bytes(about["limit"]) / 2**20
            found.append(
                f"- {entry['name']}: the limit is {about['limit']}{f', exceeded by {over:.0f} MiB' if over > 0 else ''}. Of the peak,"
                f" {about['anonymous_mib']:.0f} MiB are memory that the system cannot reclaim; the rest is mapped from files."
            )
    return found


def per_row(stored: Mapping[str, Any]) -> dict[str, float]:
    """Processor seconds per row of embeddings, for an epoch of training and for a correction."""
    trained = stored["throughput"]["lines"][0]["about"]
    corrected = stored["corrections"]["lines"][0]["about"]
    seconds = [sum(run[name] for name in ("extract", "update")) / 3 for run in corrected["seconds"]]
    return {
        "epoch": statistics.median(trained["seconds"]["ours"]) / trained["rows"],
        "correction": statistics.median(seconds) / corrected["rows"],
    }


def _estimates(stored: Mapping[str, Any], streaming: Mapping[str, Any], a: Assumed) -> str:
    if not {"throughput", "corrections"} <= set(stored):
        return ""
    return "\n\n".join([ESTIMATE, _clothing1m(streaming, a), _billion(per_row(stored), a)])


ESTIMATE = """## Estimates for larger sizes

**Nothing below was run.** These numbers are calculated from the measurements above and from the stated assumptions. Replace the
assumptions with the values of your machine (`Assumed` in `benchmarks/performance_page.py`)."""


def _clothing1m(streaming: Mapping[str, Any], a: Assumed) -> str:
    views = streaming["runs"]["views"][0]["processor"] / streaming["settings"]["count"]  # of 64 x 64 pixels
    decode = views * (224 / 64) ** 2
    forward = a.images * a.resnet50_flops / a.gpu_flops
    epoch = forward * (1 + a.backward)
    lines = []
    for gpus in (1, 8):
        steps = a.images / 256
        moved = 2 * (gpus - 1) / gpus * 4 * a.parameters * steps  # ring all-reduce
        waiting = moved / a.link
        total = a.epochs * (epoch / gpus + waiting) + a.rounds * forward / gpus
        workers = decode * a.images / (epoch / gpus)
        slow = a.epochs * max(epoch / gpus + waiting, decode * a.images / (a.feeders * gpus)) + a.rounds * max(
            forward / gpus, decode * a.images / (a.feeders * gpus)
        )
        lines.append(
            f"| {gpus} | {epoch / gpus / 60:.1f} | {moved / GIB:.0f} | {waiting:.0f} | {forward / gpus:.0f} | {total / 3600:.2f} |"
            f" {workers:.0f} | {slow / 3600:.2f} |"
        )
    soft = 4 * a.images * a.classes
    seen = 4 * a.images * a.features
    return "\n".join([
        "### Clothing1M: a million images, ResNet-50, 15 epochs, 4 rounds",
        "",
        f"Assumed: {a.gpu_flops / 1e12:.0f} TFLOP/s sustained in bfloat16, {a.resnet50_flops / 1e9:.1f} GFLOP per image for the forward pass and"
        f" twice that for the backward pass, {a.link / 1e9:.0f} GB/s between GPUs. A view of 224 pixels takes {1000 * decode:.1f} ms of processor"
        " time, scaled up from a measurement at 64 pixels.",
        "",
        "| GPUs | minutes per epoch | GiB of gradients sent per epoch | seconds to send them | seconds per round (extraction) | hours in total |"
        f" processors needed to feed the GPUs | hours with {a.feeders} processors per GPU |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        "Most of the time goes into decoding and augmenting, unless that many processors feed the GPUs or smaller images are stored on disk;"
        f" then the network takes most of it. Storage: {soft / 2**20:.0f} MiB of soft labels per round,"
        f" {(a.rounds + 3) * soft / 2**20:.0f} MiB for all components of the combination, and {seen / GIB:.1f} GiB of features during a round."
        f" Besides gradients, each process receives {soft / 2**20:.0f} MiB of new labels per round.",
    ])  # fmt: skip


def _billion(row: Mapping[str, float], a: Assumed) -> str:
    rows, width, classes, epochs, rounds = 1e9, 256, 100, 10, 4
    cores = a.nodes * a.cores
    epoch, correction = row["epoch"] * rows / cores, row["correction"] * rows / cores
    features, soft = 2 * rows * width, 2 * rows * classes  # half precision
    components = rounds + 2
    read = features / (a.nodes * a.disk)
    combine = (components + 1) * soft / (a.nodes * a.disk)
    spread = soft / (a.nodes * a.network)
    total = epochs * max(epoch, read) + rounds * (max(correction, read) + combine + spread)
    return "\n".join([
        "### A billion rows of 256 features, 100 classes, on a cluster of processors",
        "",
        f"Assumed: {a.nodes} nodes of {a.cores} processors as fast as the one measured, {a.disk / 1e9:.0f} GB/s of disk and"
        f" {a.network / 1e9:.0f} GB/s of network per node, {epochs} epochs, {rounds} rounds, half precision. Measured:"
        f" {1e6 * row['epoch']:.1f} µs of processor time per row for an epoch, and {1e6 * row['correction']:.1f} µs for a correction (with"
        " 10 classes; 100 classes take longer). Gradients are small, and every processor has its own batch in each step. It is also assumed"
        " that such large batches train as well.",
        "",
        "| what | bytes | time |",
        "|---|---|---|",
        f"| features, read once per epoch | {features / TIB:.2f} TiB | {read / 60:.1f} min to read, {epoch / 60:.1f} min to compute |",
        f"| soft labels of one component | {soft / TIB:.2f} TiB | {spread:.0f} s to send new ones to their nodes |",
        f"| all {components} components of a round, read, and one written | {(components + 1) * soft / TIB:.2f} TiB | {combine:.0f} s |",
        f"| a correction of all rows | – | {correction / 60:.1f} min |",
        "| clean rows, correction network, weights | under 1 GiB | seconds, on one processor |",
        f"| **in total** | {(features + (components + 1) * soft) / TIB:.1f} TiB stored | **{total / 3600:.1f} hours** |",
        "",
        "The components are read row by row in order, so every node keeps the labels of its own rows, and only the correction network, the"
        " weights and the gradients are sent. This is not implemented yet: today, several processes share training and extraction, but one"
        " process corrects and combines, and `fit` keeps whole columns of labels in the first process.",
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit with 1 if the page is not up to date")
    options = parser.parse_args()
    text = page(*(json.loads(path.read_text(encoding="utf-8")) for path in (STORE, STREAMING)))
    if options.check:
        return int(text != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

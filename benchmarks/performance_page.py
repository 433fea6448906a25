# ruff: noqa: E501 (the lines of the page are as long as those of other pages)
"""docs/performance.md, written from evidence/performance.json: what was measured, and arithmetic to larger sizes."""

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
    "throughput": "The loop beside a bare one",
    "corrections": "What a correction costs",
    "growth": "How cost grows with classes and clean rows",
    "fit": "How `fit` grows with rows: 256 features, 100 classes, one row in a hundred clean",
    "larger": "A folder of Parquet parts that is larger than the limit",
    "correct": "`correct` on a stream",
    "processes": "Two processes, each with one thread",
    "decoding": "Decoding",
    "settings": "Settings that are off by default",
}
GIB, TIB = 2**30, 2**40


@dataclass(frozen=True)
class Assumed:
    """What is not measured here, and stands in the arithmetic below. Change it to your machine's."""

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
    link: float = 100e9  # bytes a second between GPUs
    disk: float = 2e9  # bytes a second
    nodes: int = 16
    cores: int = 64  # of a node
    network: float = 10e9  # bytes a second, of a node


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


INTRODUCTION = """`make bench` measures all of this in one go on your machine: a table, JSON, each target met or missed. Times are
processor seconds; what is compared takes turns, and the median of the repeats counts. It waits a minute for the machine to be quiet
and says when it was not; below that stands with every part."""

MEMORY = """## Memory has a limit

`labelloop fit` and `labelloop correct` keep to `--max-memory 4G`, or to half of the machine's memory without it (`max_memory=` in Python).
An array with a row for every row of the data that is larger than a 32nd part of the limit is kept in a file that memory is mapped to: in
the folder of the run, without a name, gone with the process. Features, soft labels, the corrections of past rounds, log-probabilities and
what the network says are such arrays; all of them are worked on in chunks, and nothing holds rows x classes x rounds. The numbers are the
same in memory and in files. A disk that is full is said before anything is lost, with the place and the size.

- Data may be a **folder of Parquet parts**: `labelloop fit parts/ --output-dir run`. Parts are read one after the other, in the order of
  their names. Embeddings (a column of lists) and all other columns go through a mapped file where they are large. A table of many *named*
  columns of numbers is held once in memory while it is encoded.
- `--half-labels` keeps soft labels in half precision: half of the bytes, and labels that differ in the third digit.
- A checkpoint writes a large array once, as a file of its own. Within a long epoch the place is kept every five minutes, so a run that is
  killed loses minutes and ends in the same bytes; several processes keep whole epochs only.
- `--workers 4` reads images in processes of their own, two batches ahead each."""


def _part(name: str, part: Mapping[str, Any]) -> str:
    quiet = "on a quiet machine" if part["quiet"] else (
        f"while other programs took {part['load_of_others']:g} of {part['processors']} processors, so take it with care"
    )  # fmt: skip
    said = f"Size `{part['size']}`, {part['made'][:10]}, {quiet}."
    notes = "\n".join(_notes(part["lines"]))
    return "\n\n".join(
        filter(None, [f"### {TITLES[name]}", said, HEADER + "\n" + "\n".join(map(line, part["lines"])), notes])
    )


def _notes(lines: list[Mapping[str, Any]]) -> list[str]:
    """What is worth a sentence beside the number."""
    found = []
    for entry in lines:
        about = entry["about"]
        if "wall" in about:
            low, high = min(about["wall"]), max(about["wall"])
            found.append(
                f"- On the wall two processes took {low:.2f} to {high:.2f} of the time of one: at best 0.5, on a quiet machine with a processor for"
                " each."
            )
        if "anonymous_mib" in about:
            over = entry["value"] - parse_bytes(about["limit"]) / 2**20
            found.append(
                f"- {entry['name']}: limit {about['limit']}; of the peak {about['anonymous_mib']:.0f} MiB cannot be given back to"
                f" the system, the rest is mapped from files{f': {over:.0f} MiB over the limit' if over > 0 else ''}."
            )
    return found


def per_row(stored: Mapping[str, Any]) -> dict[str, float]:
    """Processor seconds a row: a training pass, and a correction, of embeddings."""
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

**Nothing below was run.** It is arithmetic from the measurements above and from the assumptions that are named; replace these by
your machine's (`Assumed` in `benchmarks/performance_page.py`)."""


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
        f"Assumed: {a.gpu_flops / 1e12:.0f} TFLOP/s sustained in bfloat16, {a.resnet50_flops / 1e9:.1f} GFLOP an image forward and twice that"
        f" backward, {a.link / 1e9:.0f} GB/s between GPUs. Views of 224 pixels cost {1000 * decode:.1f} ms of a processor each: measured at 64"
        " pixels, times the pixels.",
        "",
        "| GPUs | minutes an epoch | GiB of gradients moved an epoch | seconds for that | seconds a round (extraction) | hours in all |"
        f" processors that feed it | hours with {a.feeders} processors a GPU |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        "Where the time goes: into decoding and augmenting, unless that many processors feed the GPUs or the images are kept smaller on disk;"
        f" only then into the network. Stored: {soft / 2**20:.0f} MiB of soft labels a round,"
        f" {(a.rounds + 3) * soft / 2**20:.0f} MiB for all that is combined, and {seen / GIB:.1f} GiB of features while a round lasts. Moved"
        f" beside gradients: each process gets {soft / 2**20:.0f} MiB of new labels a round.",
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
        f" {a.network / 1e9:.0f} GB/s of network a node, {epochs} epochs, {rounds} rounds, half precision. Measured:"
        f" {1e6 * row['epoch']:.1f} µs of a processor for a row in an epoch, {1e6 * row['correction']:.1f} µs in a correction (10 classes;"
        " 100 classes add to both). Gradients are small, and steps as many as in one process with a batch for each processor: that such"
        " large batches train as well is assumed, too.",
        "",
        "| what | bytes | time |",
        "|---|---|---|",
        f"| features, read once an epoch | {features / TIB:.2f} TiB | {read / 60:.1f} min to read, {epoch / 60:.1f} min to compute |",
        f"| soft labels of one component | {soft / TIB:.2f} TiB | {spread:.0f} s to send new ones to their nodes |",
        f"| all {components} components of a round, read, and one written | {(components + 1) * soft / TIB:.2f} TiB | {combine:.0f} s |",
        f"| a correction of all rows | – | {correction / 60:.1f} min |",
        "| clean rows, correction network, weights | under 1 GiB | seconds, on one processor |",
        f"| **in all** | {(features + (components + 1) * soft) / TIB:.1f} TiB stored | **{total / 3600:.1f} hours** |",
        "",
        "What is combined is read row by row in order, so every node keeps the labels of its own rows and only the correction network, the"
        " weights and gradients travel. Today one process corrects and combines for all (several share training and extraction), and"
        " `fit` keeps whole columns of labels in the first process: a billion rows need that to be parted too.",
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit code 1 if the page is another")
    options = parser.parse_args()
    text = page(*(json.loads(path.read_text(encoding="utf-8")) for path in (STORE, STREAMING)))
    if options.check:
        return int(text != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

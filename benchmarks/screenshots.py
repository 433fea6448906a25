"""The pictures of the report and the review page in the README and in docs/design.md, made from real runs.

    python benchmarks/screenshots.py [--output docs/figures] [--only design|readme]

The README shows CIFAR-10 with its human labels, corrected from embeddings, which needs the data of LABELLOOP_DATA. The
design page shows the runs of the browser tests: a table, texts and pictures, each on a desktop and a phone, light and
dark. Needs chromium, chromedriver and Pillow (`make browser`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from labelloop.cli import main as labelloop
from labelloop.data.datasets import load_dataset
from labelloop.data.table import from_arrays
from labelloop.noise.recorded_labels import read_label_file
from labelloop.report.html import write_report
from labelloop.runs.manifest import read_manifest, write_manifest
from labelloop.runs.result_files import write_preview
from labelloop.runs.reviews import Answer, append_answers
from labelloop.workflows.ending import make_preview
from labelloop.workflows.review import open_review

ROOT = Path(__file__).resolve().parents[1]
ROWS, CLEAN = 5_000, 750
OTHER = {  # the key of a view, its name, and when it is there
    "table": [("g", "grid", "document.querySelectorAll('.tile-row').length > 0")],
    "text": [("d", "disputes", "document.querySelector('#disputes section')")],
    "images": [("e", "estimate", "document.getElementById('verdict').textContent.includes('hidden')")],
}


def made_run(place: Path) -> Path:
    """The first rows of CIFAR-10 with labels by people, corrected from embeddings, with the images as thumbnails."""
    data = Path(os.environ.get("LABELLOOP_DATA", ROOT.parent / "shared" / "data"))
    embeddings = np.load(data / "embeddings" / "cifar10_efficientnet_lite0_pca256.npz")
    names, true = embeddings["class_names"].astype(str), embeddings["y_train"][:ROWS]
    given = read_label_file(data / "cifar-n" / "CIFAR-10_human.pt")["random_label1"][:ROWS]
    clean = np.where(np.random.default_rng(0).random(ROWS) < CLEAN / ROWS, names[true], "")
    features = embeddings["x_train"][:ROWS].astype(np.float32)
    os.chdir(place)  # for short names on the pages
    np.savez("cifar10.npz", embeddings=features, label=names[given], clean_label=clean)
    run = Path("cifar10-human-labels")
    assert labelloop(["correct", "cifar10.npz", "--output-dir", str(run), "--quiet", "--no-report"]) == 0
    images = load_dataset("cifar10", root=data, limit=ROWS, test_limit=10, verify=False).inputs
    preview = make_preview(from_arrays(images, given), pq.read_table(run / "labels.parquet"))
    assert preview is not None
    write_preview(run, preview)
    write_manifest(run, read_manifest(run) or {})  # the preview is another one now
    write_report([run])
    return run


def readme(output: Path, place: Path) -> None:
    """The report and the review page of CIFAR-10 with its human labels."""
    from chromium import Browser

    run = made_run(place)
    with Browser(place / "report-browser", 1200, 1000) as browser:
        browser.open((run / "report.html").resolve().as_uri())
        browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'", 300)
        take(browser, output / "report.png")
        browser.run("document.getElementById('rows').scrollIntoView()")
        browser.wait("[...document.querySelectorAll('#row-table img')].every((each) => each.complete)")
        take(browser, output / "report-rows.png")
    with reviewed(run) as address, Browser(place / "review-browser", 1200, 820) as browser:
        browser.open(address)
        browser.wait("document.body.dataset.row !== undefined", 300)
        take(browser, output / "review.png")
        browser.press("g")
        browser.wait("document.querySelectorAll('.tile-row img').length > 0", 300)
        take(browser, output / "review-grid.png")


def take(browser: Any, path: Path) -> None:
    """A screenshot with 256 colours, which is half as large and looks the same."""
    from PIL import Image

    browser.screenshot(path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            path, optimize=True
        )


@contextmanager
def reviewed(run: Path) -> Iterator[str]:
    """The address of a review that is open meanwhile."""
    server = open_review(run, reviewer="ann")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.address
    server.shutdown()
    server.server_close()


def two_reviewers() -> list[Answer]:
    """Answers of two people to the same rows, who disagree on two of them."""
    said = {"ann": ("billing", "praise", "account", "billing"), "bob": ("billing", "delivery", "account", "praise")}
    return [
        Answer(f"{name}-{k}", k + 1, f"letter-{k + 1}", name, "label", label, f"2026-01-01T10:00:{12 * k:02d}+00:00")
        for name, labels in said.items()
        for k, label in enumerate(labels)
    ]


def design(output: Path, place: Path) -> None:
    """The review page of a table, texts and pictures in every size and colour scheme, and its other states."""
    from chromium import Browser
    from layout import SCHEMES, SIZES
    from page_runs import KINDS, made

    output = output / "design"
    output.mkdir(exist_ok=True)
    for kind in KINDS:
        os.chdir(place)
        run = made(kind, Path())
        if kind == "text":
            append_answers(run, two_reviewers())
        with reviewed(run) as address, Browser(place / f"{kind}-browser") as browser:
            browser.open(address)
            browser.wait("document.body.dataset.row !== undefined", 300)
            for size, (width, height) in SIZES.items():
                for scheme in SCHEMES:
                    browser.resize(width, height)
                    browser.colours(scheme)
                    take(browser, output / f"review-{kind}-{size}-{scheme}.png")
            browser.colours("light")
            browser.resize(*SIZES["desktop"])
            for key, name, ready in OTHER[kind]:
                browser.press(key)
                browser.wait(f"document.body.dataset.view === '{name}' && {ready}")
                take(browser, output / f"review-{name}.png")
            browser.open((run / "report.html").resolve().as_uri())
            browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'", 300)
            browser.resize(*SIZES["desktop" if kind != "text" else "phone"])
            browser.colours("dark" if kind == "images" else "light")
            take(browser, output / f"report-{kind}.png")
            if kind == "table":
                browser.run("document.getElementById('pictures').scrollIntoView()")
                take(browser, output / "report-map.png")


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from chromium import missing

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--only", choices=("design", "readme"))
    options = parser.parse_args()
    if why := missing():
        sys.exit(why)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("design", design), ("readme", readme)):
            if options.only in (None, name):
                make(options.output.resolve(), Path(folder))


if __name__ == "__main__":
    main()

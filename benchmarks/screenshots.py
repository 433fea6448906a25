"""The pictures of the report and the review page in the README, made from a real run.

    python benchmarks/screenshots.py [--output docs/figures] [--run RUN]

CIFAR-10 with its human labels, corrected from embeddings; needs the data of LABELLOOP_DATA, chromium, chromedriver and
Pillow (`make browser`). `--run` shows a run of yours instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from labelloop.cli import main as labelloop
from labelloop.data.datasets import load_dataset
from labelloop.data.table import from_arrays
from labelloop.noise.recorded_labels import read_label_file
from labelloop.report.html import write_report
from labelloop.runs.result_files import write_preview
from labelloop.workflows.ending import make_preview
from labelloop.workflows.review import open_review

ROOT = Path(__file__).resolve().parents[1]
ROWS, CLEAN = 2_000, 300


def made_run(place: Path) -> Path:
    """The first rows of CIFAR-10 with labels by people, corrected from embeddings, with the images as thumbnails."""
    data = Path(os.environ.get("LABELLOOP_DATA", ROOT.parent / "shared" / "data"))
    embeddings = np.load(data / "embeddings" / "cifar10_efficientnet_lite0_pca256.npz")
    names, true = embeddings["class_names"].astype(str), embeddings["y_train"][:ROWS]
    given = read_label_file(data / "cifar-n" / "CIFAR-10_human.pt")["random_label1"][:ROWS]
    clean = np.where(np.random.default_rng(0).random(ROWS) < CLEAN / ROWS, names[true], "")
    features = embeddings["x_train"][:ROWS].astype(np.float32)
    np.savez(place / "cifar10.npz", embeddings=features, label=names[given], clean_label=clean)
    run = place / "cifar10-human-labels"
    assert labelloop(["correct", str(place / "cifar10.npz"), "--output-dir", str(run), "--quiet", "--no-report"]) == 0
    images = load_dataset("cifar10", root=data, limit=ROWS, test_limit=10, verify=False).inputs
    preview = make_preview(from_arrays(images, given), pq.read_table(run / "labels.parquet"))
    assert preview is not None
    write_preview(run, preview)
    write_report([run])
    return run


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from chromium import Browser, missing

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--run", type=Path, help="a run folder to show, instead of making one")
    options = parser.parse_args()
    if why := missing():
        sys.exit(why)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run = options.run or made_run(place)
        for name, dark in (("report", False), ("report-dark", True)):
            with Browser(place / name, 1200, 1000, dark) as browser:
                browser.open((run / "report.html").as_uri())
                browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'", 300)
                browser.screenshot(options.output / f"{name}.png")
                if not dark:
                    browser.run("document.getElementById('rows').scrollIntoView()")
                    browser.wait("[...document.querySelectorAll('#row-table img')].every((each) => each.complete)")
                    browser.screenshot(options.output / "report-rows.png")
        server = open_review(run, reviewer="ann")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Browser(place / "review", 1200, 700) as browser:
            browser.open(server.address)
            browser.wait("document.body.dataset.row !== undefined", 300)
            browser.screenshot(options.output / "review.png")
            browser.press("2")
            browser.wait("document.querySelectorAll('.tile-row img').length > 0", 300)
            browser.screenshot(options.output / "review-grid.png")
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()

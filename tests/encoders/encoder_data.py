"""A file of reviews and a folder of pictures whose content tells the class, with some labels wrong and some clean."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

CLASSES = ("bad", "good")
KINDS = {"bad": ["bad", "broken", "late", "refund"], "good": ["good", "great", "love", "solid"]}
# Two corrections in a moment.
QUICK = ["epochs=5", "rounds=1", "learners=networks", "batch_size=16"]
SMALL = [*QUICK, "network_options.hidden=[8]"]


def settings(values: list[str]) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def labels(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The true classes, and the given ones, a fifth of which are wrong."""
    rng = np.random.default_rng(seed)
    truth = np.arange(count) % 2
    return truth, np.where(rng.random(count) < 0.2, 1 - truth, truth)


def texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    truth, _ = labels(count, seed)
    return [" ".join([*rng.choice(KINDS[CLASSES[k]], 3), *rng.choice(["the", "it", "box"], 2)]) for k in truth]


def write_reviews(path: Path, count: int = 60, clean: int = 24) -> Path:
    truth, given = labels(count)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review", "label", "clean_label"])
        for i, text in enumerate(texts(count)):
            writer.writerow([f"r{i}", text, CLASSES[given[i]], CLASSES[truth[i]] if i < clean else ""])
    return path


def write_pictures(root: Path, count: int = 48, clean: int = 20) -> Path:
    """Images in class folders, dark ones bad and bright ones good; returns the file of clean labels beside them."""
    from PIL import Image

    truth, given = labels(count, 1)
    rng = np.random.default_rng(2)
    lines = ["file_name,clean_label"]
    for i in range(count):
        pixels = rng.integers(0, 100, (20, 24 + i % 3, 3)) + 120 * truth[i]
        path = root / CLASSES[given[i]] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        if i < clean:
            lines.append(f"{CLASSES[given[i]]}/{i}.png,{CLASSES[truth[i]]}")
    clean_file = root.with_name(f"{root.name}-clean.csv")
    clean_file.write_text("\n".join(lines) + "\n")
    return clean_file

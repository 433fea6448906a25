"""Three runs to look at: a table with categories, texts, and pictures in folders. Small, made from a seed, and real."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

from labelloop.cli import main

KINDS = ("table", "text", "images")

PURPOSES = ("car", "furniture", "education", "business", "home improvement")
EMPLOYMENT = ("unemployed", "under one year", "one to four years", "four to seven years", "over seven years")
SUBJECTS = {
    "billing": ("invoice", "refund", "card charged twice", "payment method", "receipt"),
    "delivery": ("parcel", "courier", "tracking number", "delivery date", "empty box"),
    "account": ("password", "sign-in code", "e-mail address", "profile", "two-step verification"),
    "product fault": ("screen", "battery", "charger", "loud noise", "broken hinge"),
    "praise": ("friendly help", "quick answer", "lovely design", "five stars", "best purchase"),
}
OPENINGS = ("Hello,", "Good morning,", "To whom it may concern,", "Hi there,", "I write for the second time.")
ENDINGS = (
    "Could somebody look into this soon? I have waited for more than a week and nobody has called me back.",
    "Please tell me what to do next, and whether I have to send anything back to you.",
    "Thank you in advance.",
    "My order number is at the top of the attached letter; the rest should be in your records.",
)


def made(kind: str, place: Path) -> Path:
    """A finished run of one of KINDS, with its report."""
    place.mkdir(parents=True, exist_ok=True)
    run = place / f"{kind}-run"
    data = {"table": table_file, "text": text_file, "images": image_folder}[kind](place)
    if kind == "images":
        command = ["correct", str(data), "--clean-file", str(place / "clean.csv"), "--encoder", "page_runs:shades"]
    else:
        command = ["correct", str(data)]
    assert main([*command, "--output-dir", str(run), "--quiet"]) == 0
    return run


def shades() -> Callable[[list], np.ndarray]:
    """An encoder: the grey values of an image at 8 x 8 pixels."""

    def encode(images: list) -> np.ndarray:
        return np.stack([np.asarray(image.convert("L").resize((8, 8)), np.float32).ravel() for image in images])

    encode.kind = "image"  # type: ignore[attr-defined]
    return encode


def noisy(true: np.ndarray, classes: int, rng: np.random.Generator, rate: float = 0.25) -> np.ndarray:
    """Labels of which a share is replaced by another class."""
    other = (true + rng.integers(1, classes, len(true))) % classes
    return np.where(rng.random(len(true)) < rate, other, true)


def table_file(place: Path, rows: int = 900) -> Path:
    """A table of applications with numbers and categories, and a decision as label."""
    rng = np.random.default_rng(4)
    income, debt = rng.lognormal(10.3, 0.4, rows), rng.lognormal(8.6, 0.8, rows)
    age, late = rng.integers(19, 75, rows), rng.poisson(0.8, rows)
    work = rng.integers(0, 5, rows)
    score = np.log(income) - 0.7 * np.log(debt) - 0.9 * late + 0.35 * work + rng.normal(0, 0.15, rows)
    low, high = np.quantile(score, (0.35, 0.6))
    true = np.where(score > high, 0, np.where(score < low, 2, 1))
    names = np.array(["approve", "decline", "ask for documents"])[[0, 2, 1]]
    given = noisy(true, 3, rng, 0.2)
    path = place / "applications.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["id", "age", "yearly_income_eur", "existing_debt_eur", "late_payments_last_24_months", "employed_since",
             "purpose", "months", "dependants", "own_home", "postal_region", "label", "clean_label"]
        )  # fmt: skip
        for k in range(rows):
            values = [age[k], round(income[k]), round(debt[k], 2), late[k], EMPLOYMENT[work[k]]]
            values += [PURPOSES[rng.integers(5)], 6 * rng.integers(1, 11), rng.integers(0, 4)]
            values += ["yes" if rng.random() < 0.5 else "no", f"region {rng.integers(1, 12)}"]
            writer.writerow([f"A-{k:05d}", *values, names[given[k]], names[true[k]] if k % 5 == 0 else ""])
    return path


def text_file(place: Path, rows: int = 700) -> Path:
    """Letters to a shop with an embedding each, and what they are about as label."""
    rng = np.random.default_rng(5)
    names = list(SUBJECTS)
    true = rng.integers(0, 5, rows)
    given = noisy(true, 5, rng)
    centres = rng.normal(0, 1, (5, 16))
    texts = []
    for k in range(rows):
        words = [*rng.permutation(SUBJECTS[names[true[k]]])[:3], SUBJECTS[names[rng.integers(5)]][rng.integers(5)]]
        middle = f"this is about the {words[0]}. On Monday I noticed the {words[1]}, and since then the {words[2]}"
        last = f" has not been what I expected; my neighbour, by the way, spoke of the {words[3]}."
        tail = " ".join(ENDINGS[j] for j in rng.permutation(4)[: rng.integers(1, 5)])
        texts.append(f"{OPENINGS[rng.integers(5)]} {middle}{last}\n\n{tail}")
    features = (centres[true] + rng.normal(0, 1.1, (rows, 16))).astype(np.float32)
    clean = [names[true[k]] if k % 5 == 0 else None for k in range(rows)]
    columns = {"id": [f"letter-{k}" for k in range(rows)], "text": texts, "embedding": list(features)}
    path = place / "letters.parquet"
    pq.write_table(pa.table({**columns, "label": [names[k] for k in given], "clean_label": clean}), path)
    return path


def image_folder(place: Path, rows: int = 500) -> Path:
    """Digits as PNG files in a folder per given label, and a file of clean labels."""
    from PIL import Image

    pixels, true = load_digits(return_X_y=True)
    pixels, true = pixels[true < 5][:rows], true[true < 5][:rows]
    rng = np.random.default_rng(6)
    names = ["zero", "one", "two", "three", "four"]
    given = noisy(true, 5, rng)
    folder = place / "digits"
    lines = ["file_name,clean_label"]
    for k, image in enumerate(pixels):
        target = folder / names[given[k]]
        target.mkdir(parents=True, exist_ok=True)
        shades = (255 - image.reshape(8, 8) * 15).astype(np.uint8)
        Image.fromarray(shades).resize((160, 160), Image.Resampling.BICUBIC).save(target / f"{k:04d}.png")
        if k % 5 == 0:
            lines.append(f"{names[given[k]]}/{k:04d}.png,{names[true[k]]}")
    (place / "clean.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder

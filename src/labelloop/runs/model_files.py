"""model.safetensors and model.json: the weights of a trained network, and what is needed to build it again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from labelloop.errors import DataError, some
from labelloop.runs.files import read_json, write_atomically, write_json

WEIGHTS, ABOUT = "model.safetensors", "model.json"
MODEL_FILES = (WEIGHTS, ABOUT)
ENCODER = "trained_encoder"  # a folder: a fine-tuned pretrained encoder, in the format of its library


def write_model(folder: Path, weights: Mapping[str, NDArray], about: Mapping[str, Any]) -> None:
    """Writes both files."""
    write_atomically(folder / WEIGHTS, lambda path: save_file(dict(weights), path))
    write_json(folder / ABOUT, about)


def read_model(folder: Path, needed: set[str]) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Reads both files: the weights, and what model.json says.

    Args:
        folder: Where they are.
        needed: The keys that model.json must have.

    Raises:
        DataError: They are missing, damaged or not those of a model.
    """
    if (folder / "labels.parquet").exists() and not (folder / ABOUT).exists():
        raise DataError(f"{folder} is a run without a model: `labelloop correct` trains none, `labelloop fit` does")
    about = read_json(folder / ABOUT)
    lacking = needed - set(about)
    if lacking:
        raise DataError(f"{folder / ABOUT} does not describe a LabelLoop model: no {some(sorted(lacking))}")
    try:
        return load_file(folder / WEIGHTS), about
    except FileNotFoundError:
        raise DataError(f"{folder / WEIGHTS} is missing; is {folder} the folder of a finished run?") from None
    except SafetensorError as error:
        raise DataError(f"{folder / WEIGHTS} is damaged or not of the network in {ABOUT}: {error}") from None


def copy_model(source: Path, folder: Path) -> None:
    """Copies the model of a run, if it has one."""
    for name in MODEL_FILES:
        if (source / name).exists():
            write_atomically(folder / name, lambda path, name=name: path.write_bytes((source / name).read_bytes()))  # type: ignore[misc]
    copy_encoder(source, folder)


def copy_encoder(source: Path, folder: Path) -> None:
    """Copies the encoder that was trained with a model, if there is one."""
    if (source / ENCODER).is_dir():
        shutil.copytree(source / ENCODER, folder / ENCODER, dirs_exist_ok=True)

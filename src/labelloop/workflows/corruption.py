"""Labels of a whole data set -> noisy labels, by the name of the noise; the same for experiments and noise files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.data.datasets.places import places
from labelloop.errors import UsageError, nearest
from labelloop.noise import NOISES, Noisy
from labelloop.seeds import stream
from labelloop.types import Labels

OWN_RATE = ("recorded", "matrix")  # the record or the matrix sets the rate
OURS = ("labels", "num_classes", "rate", "rng", "images", "index")  # arguments of every noise, never options


def check_noise_options(noise: str, options: Mapping[str, Any]) -> None:
    """Refuses options that the noise does not have."""
    if not options:
        return
    known = [name for name in inspect.signature(NOISES[noise]).parameters if name not in OURS]
    for name in options:
        if name not in known:
            raise UsageError(
                f"noise {noise!r} has no option {name!r}; {nearest(name, known) if known else 'it has none'}"
            )


def _find(path: Any) -> Any:
    """A label file, found here or in the folder of the data sets, so that grids need not name that folder."""
    candidates = [place / str(path) for place in places(None)] if path and not Path(str(path)).exists() else []
    return next((candidate for candidate in candidates if candidate.exists()), path)


def corrupt(
    labels: Labels,
    num_classes: int,
    noise: str,
    rate: float,
    options: Mapping[str, Any],
    seed: int,
    inputs: Callable[[], Any],
) -> Noisy:
    """Noisy labels for every row.

    Args:
        labels: The true labels [N] of the first rows of a data set, or of all.
        num_classes: How many classes there are.
        noise: A name in NOISES.
        rate: The nominal rate, if the noise has one.
        options: Further options of the noise.
        seed: The same seed gives the same labels.
        inputs: Returns the inputs of instance-dependent noise [N, ...].
    """
    check_noise_options(noise, options)
    arguments = dict(options)
    if noise == "instance" and rate > 0:
        arguments["images"] = inputs()
    if noise == "recorded":
        arguments["index"] = np.arange(len(labels))  # so that a record of the whole data set also fits its first rows
        arguments["path"] = _find(options.get("path"))
    own_rate: Any = None if noise in OWN_RATE else rate
    return NOISES[noise](labels, num_classes, own_rate, stream(seed, "noise", noise), **arguments)

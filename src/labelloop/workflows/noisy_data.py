"""A data set by name, with corrupted labels: the same for experiments and for the demo."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from labelloop.data.datasets import DATASETS, LabelledData, load_dataset
from labelloop.errors import UsageError, nearest
from labelloop.noise import NOISES, Noisy, realised_rate
from labelloop.seeds import stream
from labelloop.splits import clean_split
from labelloop.types import MISSING, Problem, Rows, Truth
from labelloop.workflows.noise import OWN_RATE, check_noise_options, corrupt, labels_from_file, path_in, stored_checksum


@dataclass(frozen=True)
class NoisySetting:
    """Everything that determines the rows and their labels, and nothing about the method.

    Attributes:
        dataset: A name in DATASETS.
        dataset_options: Its options, such as {"limit": 20000}.
        clean: How many clean rows are drawn, stratified by class, before any label is corrupted. 0 uses the clean rows
            that the data set defines.
        paired: Whether the clean rows also have a noisy label.
        noise: A name in NOISES, "none", or "file".
        rate: The nominal rate, if the noise does not set its own.
        noise_options: Options of the noise; the path of a noise file.
        seed: Names every random stream.
    """

    dataset: str = "digits"
    dataset_options: dict[str, Any] = field(default_factory=dict)
    clean: int = 200
    paired: bool = False
    noise: str = "symmetric"
    rate: float = 0.4
    noise_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise UsageError(f"unknown data set {self.dataset!r}; {nearest(self.dataset, DATASETS)}")
        if self.noise not in (*NOISES, "none", "file"):
            raise UsageError(f"unknown noise {self.noise!r}; {nearest(self.noise, (*NOISES, 'none', 'file'))}")
        if not 0 <= self.rate <= 1:
            raise UsageError(f"rate must lie between 0 and 1, not {self.rate}")
        if self.clean < 0 or self.seed < 0:
            raise UsageError(f"clean and seed must not be negative, but are {self.clean} and {self.seed}")
        if self.noise == "file":
            path_in(self.noise_options)
        elif self.noise == "none" and self.noise_options:
            raise UsageError("noise 'none' has no options; leave noise_options out")
        elif self.noise != "none":
            check_noise_options(self.noise, self.noise_options)

    def deciding(self) -> dict[str, Any]:
        """What distinguishes settings: not the rate if the noise sets its own, nor the path of a noise file."""
        decides = asdict(self)
        if self.noise in (*OWN_RATE, "none", "file"):
            decides["rate"] = None
        if self.noise == "file":
            decides["noise_options"] = {"sha256": stored_checksum(path_in(self.noise_options))}
        return decides


def load_data(setting: NoisySetting) -> LabelledData:
    """The data set of a setting. One that draws rows itself, as Clothing1M draws its clean share, uses the seed."""
    options = dict(setting.dataset_options)
    if "seed" in inspect.signature(DATASETS[setting.dataset]).parameters:
        options.setdefault("seed", setting.seed)
    return load_dataset(setting.dataset, **options)


def noisy_problem(setting: NoisySetting, data: LabelledData) -> tuple[Problem, Truth, Noisy]:
    """Draws the clean rows, then corrupts the labels, independently of the method: all methods get the same labels."""
    if data.given_labels is not None and (setting.noise != "none" or setting.clean):
        raise UsageError(
            f'data set {data.name!r} brings its own noise and clean rows: set noise = "none" and clean = 0'
        )
    if setting.clean:
        train_index, clean_index = clean_split(data.labels, setting.clean, stream(setting.seed, "clean-split"))
    elif data.clean_index is not None:
        clean_index = data.clean_index
        train_index = np.setdiff1d(np.arange(len(data)), clean_index)
    else:
        raise UsageError(f"data set {data.name!r} names no clean rows of its own; say how many to draw with clean")
    noisy = _corrupted(setting, data)
    unknown = np.full(len(data), MISSING)
    train = Rows(data.inputs, train_index, noisy.labels[train_index], unknown[train_index])
    clean_given = noisy.labels if setting.paired else unknown
    clean = Rows(data.inputs, clean_index, clean_given[clean_index], data.labels[clean_index])
    test_index = np.arange(len(data.test_labels))
    test = Rows(data.test_inputs, test_index, np.full(len(test_index), MISSING), data.test_labels)
    return Problem(train, clean, data.class_names), Truth(data.labels[train_index], test), noisy


def _corrupted(setting: NoisySetting, data: LabelledData) -> Noisy:
    """Noisy labels for every row of the data set: a row's label does not depend on which rows are clean."""
    if setting.noise == "none":
        given = data.labels if data.given_labels is None else data.given_labels
        return Noisy(given, None, None, realised_rate(data.labels, given))
    if setting.noise == "file":
        return labels_from_file(path_in(setting.noise_options), data)
    return corrupt(
        data.labels,
        data.num_classes,
        setting.noise,
        setting.rate,
        setting.noise_options,
        setting.seed,
        data.noise_inputs or (lambda: data.inputs),
    )

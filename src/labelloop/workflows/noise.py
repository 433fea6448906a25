"""Labels of a whole data set -> noisy labels, by the name of the noise; for experiments, the demo and noise files."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.data.classes import decode, encode, text_of
from labelloop.data.columns import SchemaSummary
from labelloop.data.datasets import DATASETS, LabelledData, load_dataset
from labelloop.data.datasets.labelled import places
from labelloop.data.problem import classes_of
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.table import Table, from_arrays
from labelloop.errors import DataError, UsageError, check_output, nearest, some
from labelloop.noise import NOISES, Noisy, realised_rate
from labelloop.runs.files import read_parquet, write_atomically
from labelloop.seeds import stream, whole_seed
from labelloop.splits import clean_split
from labelloop.types import MISSING, Labels, Problem, Rows, Truth

OWN_RATE = ("recorded", "matrix")  # the record or the matrix sets the rate
OURS = ("labels", "num_classes", "rate", "rng", "images")  # arguments of every noise, never options

NO_NOISES = ("none", "file")  # what an experiment may name instead of a noise

KEY = b"labelloop"


def check_noise(noise: str, options: Mapping[str, Any]) -> None:
    """Refuses a noise that does not exist, and options that it does not have."""
    if noise not in NOISES:
        raise UsageError(f"unknown noise {noise!r}; {nearest(noise, (*NOISES, *NO_NOISES))}")
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
    arguments = dict(options)
    if noise == "instance" and rate > 0:
        arguments["images"] = inputs()
    if noise == "recorded":
        arguments["path"] = _find(options.get("path"))
    own_rate: Any = None if noise in OWN_RATE else rate
    return NOISES[noise](labels, num_classes, own_rate, stream(seed, "noise", noise), **arguments)


@dataclass(frozen=True)
class NoiseFile:
    """What a noise file holds. Labels are text; a missing one is empty."""

    ids: NDArray  # [n]
    labels: NDArray  # [n]
    noisy_labels: NDArray  # [n]
    clean_labels: NDArray  # [n]
    about: dict[str, Any]


@dataclass(frozen=True)
class Corruption:
    """How labels are corrupted, and which rows are clean.

    Attributes:
        noise: A name in NOISES.
        rate: The nominal rate.
        options: Options of the noise.
        seed: The same seed gives the same labels.
        clean: How many rows keep their label as clean label.
        paired: Whether those rows get a noisy label too.
    """

    noise: str
    rate: float
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    clean: int = 0
    paired: bool = False

    def __post_init__(self) -> None:
        check_noise(self.noise, self.options)
        object.__setattr__(self, "seed", whole_seed(self.seed))


def make_noise_file(
    source: str, output: Path, how: Corruption, columns: ReadOptions | None = None, overwrite: bool = False
) -> str:
    """Corrupts the labels of a table or of a named data set, writes the file, and returns a summary.

    Args:
        source: The path of a table, or a name in DATASETS.
        output: A .parquet file.
        how: How labels are corrupted.
        columns: How to read the table.
        overwrite: Whether to replace `output`.
    """
    check_output(output, ".parquet", overwrite=overwrite, inputs=[source])
    table, inputs = _source(source, columns or ReadOptions())
    if table.labels is None:
        raise DataError(f"{source} has no labels to corrupt; name their column with label_column")
    classes = classes_of(table)
    true = encode(table.labels, classes)
    noisy = corrupt(true, len(classes), how.noise, how.rate, how.options, how.seed, inputs)
    clean_index = np.zeros(0, np.int64)
    if how.clean:
        clean_index = clean_split(true, how.clean, stream(how.seed, "clean-split"))[1]
    verified = np.full(len(true), MISSING)
    verified[clean_index] = true[clean_index]
    given = noisy.labels.copy()
    if not how.paired:
        given[clean_index] = MISSING
    realised = realised_rate(true, noisy.labels)
    about = {
        "source": Path(source).name,
        "noise": how.noise,
        "noise_options": dict(how.options),
        "nominal_rate": noisy.rate,
        "realised_rate": realised,
        "seed": how.seed,
        "clean": how.clean,
        "paired": how.paired,
        "classes": list(text_of(classes)),
        "matrix": None if noisy.matrix is None else noisy.matrix.tolist(),
    }
    checksum = write_noise_file(output, table.ids, true, given, verified, text_of(classes), about)
    return (
        f"{len(true)} labels, {how.noise} noise: nominal rate {noisy.rate:.4g}, realised {realised:.4f}\n"
        f"{_ignored(table, how.noise)}"
        f"written to {output} (sha256 of the labels {checksum[:16]}…)\n"
    )


def _ignored(table: Table, noise: str) -> str:
    """A line with the columns that the noise does not look at, if there are any."""
    schema = table.schema_summary or SchemaSummary()
    looked_at = ("given label", "id", "names of the classes", *(["inputs"] if noise == "instance" else []))
    names = [use.column for use in schema.uses if use.what not in looked_at]
    names += [out.column for out in schema.left_out]
    names += [] if noise == "instance" else [feature.column for feature in schema.features]
    return f"columns that {noise} noise does not use: {some(map(repr, names))}\n" if names else ""


def write_noise_file(
    path: Path,
    ids: NDArray,
    labels: Labels,
    noisy_labels: Labels,
    clean_labels: Labels,
    class_names: tuple[str, ...],
    about: Mapping[str, Any],
) -> str:
    """Writes the file and returns the checksum of its labels."""
    classes = np.array(class_names)
    columns = {"id": ids.astype(str)} | {
        name: decode(values, classes)
        for name, values in (("label", labels), ("noisy_label", noisy_labels), ("clean_label", clean_labels))
    }
    about = {**about, "sha256": _checksum(columns)}
    table = pa.table({name: pa.array(values.tolist(), pa.string()) for name, values in columns.items()})
    table = table.replace_schema_metadata({KEY: json.dumps(about).encode()})
    write_atomically(path, lambda place: pq.write_table(table, place))
    return about["sha256"]


def read_noise_file(path: Path) -> NoiseFile:
    """Reads the file and checks it against its checksum."""
    with _readable(path):
        table = read_parquet(path)
        about = json.loads((table.schema.metadata or {})[KEY])
        columns = {name: np.array(table[name].to_pylist(), str) for name in table.column_names}
        stored, _ = about["sha256"], (about["clean"], about["paired"], float(about["nominal_rate"]))
        found = NoiseFile(columns["id"], columns["label"], columns["noisy_label"], columns["clean_label"], about)
    if _checksum(columns) != stored:
        raise DataError(
            f"{path}: the labels do not match their checksum: the file was changed or damaged; make it again"
        )
    return found


def stored_checksum(path: Path) -> str:
    """The checksum stored in the file, without reading its labels."""
    with _readable(path):
        return str(json.loads((pq.read_schema(path).metadata or {})[KEY])["sha256"])


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns any read error into a message for the user."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise DataError(f"{path} is not a file; make a noise file with `labelloop noise`")
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such noise file; make it with `labelloop noise`") from None
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not a noise file, or is damaged ({error}); make it with `labelloop noise`"
        ) from None


def with_noisy_labels(table: Table, path: Path) -> tuple[Table, NDArray]:
    """The table with given and clean labels from a noise file, and its own labels, which are the true ones.

    If the file has no clean rows, the clean labels of the table stay.
    """
    if table.labels is None:
        raise DataError(f"{table.source} has no labels to compare with those that {path} was made from")
    file = read_noise_file(path)
    classes = classes_of(table)
    true = encode(table.labels, classes)
    _check_same_rows(file, table.ids, true, text_of(classes), path, table.source)
    names = np.array(text_of(classes))
    given, verified = encode(file.noisy_labels, names, str(path)), encode(file.clean_labels, names, str(path))
    like = table.labels.dtype
    clean_labels = decode(verified, classes, like) if file.about["clean"] else table.clean_labels
    return replace(table, labels=decode(given, classes, like), clean_labels=clean_labels), table.labels


def path_in(options: Mapping[str, Any]) -> Path:
    """The noise file that the options of an experiment name."""
    if set(options) != {"path"} or not isinstance(options["path"], str | Path):
        raise UsageError("noise 'file' has one option, noise_options.path: the noise file")
    return Path(options["path"])


def labels_from_file(path: Path, data: LabelledData) -> Noisy:
    """The noisy labels of a data set from a noise file, for an experiment that draws its clean rows itself."""
    file = read_noise_file(path)
    _check_same_rows(file, np.arange(len(data)).astype(str), data.labels, data.class_names, path, data.name)
    given = encode(file.noisy_labels, np.array(data.class_names), str(path))
    if file.about["clean"] and not file.about["paired"]:
        raise DataError(f"{path} sets {file.about['clean']} rows aside as clean; an experiment draws its own: make it "
                        "without clean rows")  # fmt: skip
    return Noisy(given, None, None, float(file.about["nominal_rate"]))


def _source(source: str, columns: ReadOptions) -> tuple[Table, Any]:
    """The rows to corrupt, and a function that returns the inputs of instance-dependent noise."""
    if source in DATASETS and not Path(source).exists():
        data = load_dataset(source)
        table = from_arrays(data.inputs, data.labels, source=source, class_names=data.class_names)
        return table, data.noise_inputs or (lambda: data.inputs)
    table = read_table(source, columns)
    return table, lambda: table.inputs


def _check_same_rows(
    file: NoiseFile, ids: NDArray, labels: Labels, class_names: tuple[str, ...], path: Path, source: str
) -> None:
    text = decode(labels, np.array(class_names))
    if len(file.ids) != len(ids):
        raise DataError(f"{path} was made from {len(file.ids)} rows, but {source} has {len(ids)}: another data set")
    other = np.flatnonzero((file.ids != ids.astype(str)) | (file.labels != text))
    if len(other):
        raise DataError(
            f"{path} was made from another data set than {source}: id or label differs in row {some(other)} "
            "(the first row is 0); make it again from these rows"
        )


def _checksum(columns: Mapping[str, NDArray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(columns):
        digest.update("\0".join([name, *columns[name].astype(str).tolist()]).encode())
    return digest.hexdigest()


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
        if not 0 <= self.rate <= 1:
            raise UsageError(f"rate must lie between 0 and 1, not {self.rate}")
        if self.clean < 0 or self.seed < 0:
            raise UsageError(f"clean and seed must not be negative, but are {self.clean} and {self.seed}")
        if self.noise == "file":
            path_in(self.noise_options)
        elif self.noise == "none" and self.noise_options:
            raise UsageError("noise 'none' has no options; leave noise_options out")
        elif self.noise != "none":
            check_noise(self.noise, self.noise_options)

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

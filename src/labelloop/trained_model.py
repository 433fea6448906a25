"""A trained classifier on its own: predicts from inputs, and is saved to and loaded from a folder without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from labelloop.data.checks import check_columns, check_finite
from labelloop.data.encoding import Column, from_json, to_json
from labelloop.data.images.store import ImageForm
from labelloop.data.table import Table, from_arrays
from labelloop.data.texts import TextForm
from labelloop.errors import DataError
from labelloop.models import Normalise, TwoHeadClassifier, build_encoder
from labelloop.runs.model_files import read_model, write_model
from labelloop.training.batches import input_shape
from labelloop.training.extract import extract
from labelloop.training.runtime import Runtime
from labelloop.types import Extracted, Floats, Rows

NEEDED = {"network", "network_options", "input_shape", "classes", "column_names"}  # of model.json


@dataclass(frozen=True)
class TrainedModel:
    """A network with the names of its classes and columns.

    Attributes:
        network: The classifier with its two heads.
        classes: The classes in the user's type [C]; column k of a probability belongs to classes[k].
        architecture: What `build_encoder` needs to make the network again: name, options, input shape.
        column_names: The features it was trained on, in order; empty for images and datasets.
        encoding: How named columns of a file become these features; empty for arrays.
        image_form: How image files become inputs; None where it was trained on something else.
        text_form: The same of texts.
    """

    network: TwoHeadClassifier
    classes: NDArray
    architecture: Mapping[str, Any]
    column_names: tuple[str, ...] = ()
    encoding: tuple[Column, ...] = ()
    image_form: ImageForm | None = None
    text_form: TextForm | None = None

    def predict(self, inputs: Any) -> NDArray:
        """The most probable class of every row, in the type of the labels it was trained with."""
        return self.classes[self.predict_proba(inputs).argmax(axis=1)]

    def predict_proba(self, inputs: Any, workers: int = 0) -> Floats:
        """A probability for every class, [n, C]; `workers` is the number of processes that load a dataset."""
        return softmax(self.extract(inputs, workers).logits, axis=1)

    def transform(self, inputs: Any) -> Floats:
        """The features that the heads see, [n, D]."""
        return self.extract(inputs).features

    def extract(self, inputs: Any, workers: int = 0) -> Extracted:
        """Features, logits and noisy posterior of an array, a data frame, a dataset or the usable rows of a table."""
        table = inputs if isinstance(inputs, Table) else from_arrays(inputs, encoding=self.encoding)
        if not len(table):
            raise DataError(f"{table.source}: there is no row to predict")
        usable = np.flatnonzero(table.usable)
        if not len(usable):
            raise DataError(f"{table.source}: no image can be read, such as {table.unreadable[0].path}")
        rows = Rows(table.inputs, usable, *[np.full(len(usable), -1)] * 2)
        shape, expected = input_shape(rows), tuple(self.architecture["input_shape"])
        if shape != expected:
            raise DataError(f"{table.source}: inputs of shape {shape}, but the model was trained on {expected}")
        if table.column_names and self.column_names and not table.column_names[0].startswith("x["):
            check_columns(self.column_names, table.column_names, table.source)
        check_finite(table.inputs, table.column_names, table.source)
        runtime = Runtime(progress=False, workers=workers)
        return extract(runtime.prepare(self.network), rows, runtime)

    def save(self, folder: Path) -> None:
        """Writes model.safetensors and model.json."""
        weights = {name: value.detach().cpu().contiguous().numpy() for name, value in self.network.state_dict().items()}
        about = {
            **self.architecture,
            "classes": self.classes.tolist(),
            "column_names": list(self.column_names),
            "encoding": to_json(self.encoding),
            "image_form": None if self.image_form is None else self.image_form.to_json(),
            "text_form": None if self.text_form is None else self.text_form.to_json(),
        }
        write_model(folder, weights, about)


def load_model(folder: str | Path) -> TrainedModel:
    """Loads what `TrainedModel.save` wrote: the model of a run folder."""
    folder = Path(folder)
    weights, about = read_model(folder, NEEDED)
    shape = tuple(about["input_shape"])
    with torch.random.fork_rng(devices=[]):
        encoder = build_encoder(about["network"], shape, about["network_options"])
        network = TwoHeadClassifier(encoder, len(about["classes"]), Normalise.identity(shape[0]))
    try:
        network.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
    except RuntimeError as error:
        raise DataError(f"{folder}: the weights are not of the network in model.json: {error}") from None
    network.eval()
    architecture = {key: about[key] for key in ("network", "network_options", "input_shape")}
    encoding = from_json(about.get("encoding", ()), str(folder / "model.json"))  # models of earlier versions have none
    form = ImageForm(**about["image_form"]) if about.get("image_form") else None
    text = TextForm(**about["text_form"]) if about.get("text_form") else None
    columns = tuple(about["column_names"])
    return TrainedModel(network, np.array(about["classes"]), architecture, columns, encoding, form, text)

"""A trained classifier: predicts from inputs, and is saved to and loaded from a folder without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from labelloop.data.checks import check_columns, check_finite
from labelloop.data.encoding import Column, from_json, to_json
from labelloop.data.image_files import ImageForm
from labelloop.data.table import Table, from_arrays
from labelloop.encoders.encoder import raw_inputs
from labelloop.encoders.inputs import encoded_inputs, save_trained, trained_place
from labelloop.errors import DataError
from labelloop.models import NETWORKS, Normalise, TwoHeadClassifier, build_encoder
from labelloop.runs.result_files import ABOUT, ENCODER, read_model, write_model
from labelloop.training.batches import input_shape
from labelloop.training.epoch import extract
from labelloop.training.runtime import Runtime
from labelloop.trust import PRETRAINED, Stored
from labelloop.types import EncoderForm, Extracted, Floats, Rows

NEEDED = {"network", "network_options", "input_shape", "classes", "column_names"}  # of model.json


@dataclass(frozen=True)
class TrainedModel:
    """A trained network with its classes and columns, and its encoder if it has one.

    Attributes:
        network: The classifier with its two heads.
        classes: The classes in the user's type [C]; column k of a probability belongs to classes[k].
        architecture: What `build_encoder` needs to rebuild the network: name, options, input shape.
        column_names: The features it was trained on, in order; empty for images and datasets.
        encoding: How named columns of a file become these features; empty for arrays.
        image_form: How image files become inputs; None if it was trained on something else.
        encoder_form: How an encoder turns texts or images into inputs; None if it was trained on something else.
        encoder_place: Where that encoder is now, if it was trained and saved with the model.
    """

    network: TwoHeadClassifier
    classes: NDArray
    architecture: Mapping[str, Any]
    column_names: tuple[str, ...] = ()
    encoding: tuple[Column, ...] = ()
    image_form: ImageForm | None = None
    encoder_form: EncoderForm | None = None
    encoder_place: str | None = None

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
        """Features, logits and noisy posterior of an array, a data frame, a dataset or the usable rows of a table.

        A model with an encoder also takes texts, or images as paths, bytes, Pillow images or uint8 arrays.
        """
        table = inputs if isinstance(inputs, Table) else from_arrays(self._encoded(inputs), encoding=self.encoding)
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

    def _encoded(self, inputs: Any) -> Any:
        """What the model's encoder makes of texts or images; numbers are taken for its features."""
        if self.encoder_form is None or (
            isinstance(inputs, np.ndarray) and inputs.ndim == 2 and inputs.dtype.kind == "f"
        ):
            return inputs
        raw = raw_inputs(inputs, self.encoder_form.name, kind=self.encoder_form.kind)
        if raw.kind != self.encoder_form.kind:
            raise DataError(f"these are {raw.kind}s, but the model was trained on {self.encoder_form.kind}s")
        shape = self.architecture["input_shape"]
        found = encoded_inputs(
            raw, self.encoder_form, "the given rows", place=self.encoder_place, shape=shape, progress=False
        )
        if found.unreadable:
            row, name, reason = found.unreadable[0]
            raise DataError(
                f"{len(found.unreadable)} of {len(raw)} images cannot be read, such as row {row}, {name} ({reason});"
                " leave them out"
            )
        return found.values

    def save(self, folder: Path) -> None:
        """Writes model.safetensors and model.json; beside them an encoder that was trained, in its library's format."""
        weights = {name: value.detach().cpu().contiguous().numpy() for name, value in self.network.state_dict().items()}
        about = {
            **self.architecture,
            "classes": self.classes.tolist(),
            "column_names": list(self.column_names),
            "encoding": to_json(self.encoding),
            "image_form": None if self.image_form is None else self.image_form.to_json(),
            "encoder_form": None if self.encoder_form is None else asdict(self.encoder_form),
        }
        if self.encoder_form is not None and self.encoder_form.trained:
            state = self.network.encoder.state_dict()
            save_trained(self.encoder_form, self.encoder_place, state, folder / ENCODER)
        write_model(folder, weights, about)


def load_model(folder: str | Path, *, trust_code: bool = False, encoder: str | None = None) -> TrainedModel:
    """Loads the model of a run folder, as written by `TrainedModel.save`.

    Args:
        folder: The folder of a run or a model. It may come from a stranger: nothing that it names is imported.
        trust_code: Allow it to name Python code, such as your `module:factory`, which is then imported and run.
        encoder: The encoder to use instead of the one that the model names.
    """
    folder = Path(folder)
    weights, about = read_model(folder, NEEDED)
    shape = tuple(about["input_shape"])
    text = _encoder_form(about)
    place = None if text is None else encoder or trained_place(text, folder / ENCODER)
    options = about["network_options"]
    _check_names(Stored(folder / ABOUT, trust_code), about["network"], options, text, place)
    if place is not None and about["network"] == PRETRAINED:
        options = {**options, "encoder": place, "with_weights": False}
    if about["network"] in NETWORKS:
        _check_size(folder / ABOUT, about, shape, weights)
    with torch.random.fork_rng(devices=[]):
        made = build_encoder(about["network"], shape, options)
        network = TwoHeadClassifier(made, len(about["classes"]), Normalise.identity(shape[0]))
    try:
        network.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
    except (RuntimeError, TypeError) as error:
        raise DataError(f"{folder}: the weights are not of the network in model.json: {error}") from None
    network.eval()
    architecture = {key: about[key] for key in ("network", "network_options", "input_shape")}
    encoding = from_json(about.get("encoding", ()), str(folder / "model.json"))  # models of earlier versions have none
    form = _known(ImageForm, about["image_form"]) if about.get("image_form") else None
    classes, columns = np.array(about["classes"]), tuple(about["column_names"])
    if classes.dtype == object or len(np.unique(classes)) < len(classes):
        raise DataError(f"{folder / ABOUT}: classes {about['classes']!r:.60} cannot be those of a model")
    return TrainedModel(network, classes, architecture, columns, encoding, form, text, place)


def _known(kind: Any, stored: Mapping[str, Any]) -> Any:
    """A record of the fields that this version knows."""
    return kind(**{field.name: stored[field.name] for field in fields(kind) if field.name in stored})


def _check_names(stored: Stored, network: Any, options: Any, text: EncoderForm | None, place: str | None) -> None:
    """Refuses a model that names code, apart from an encoder that is replaced by the one at `place`."""
    if not (network == PRETRAINED and place is not None):
        stored.check_network(network, options)
    if text is not None and place is None:
        stored.check_encoder(text.name, "encoder_form.name")
    stored.check_folder(stored.file.parent / ENCODER, ENCODER)


def _check_size(path: Path, about: Mapping[str, Any], shape: tuple[int, ...], weights: Mapping[str, NDArray]) -> None:
    """Refuses a network that is larger than the stored weights, before any memory is taken for it."""
    if not 1 <= len(shape) <= 3 or any(side < 1 for side in shape) or not about["classes"]:
        raise DataError(f"{path}: input_shape {list(shape)!r:.60} or classes cannot be those of a model")
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            made = build_encoder(about["network"], shape, about["network_options"])
            network = TwoHeadClassifier(made, len(about["classes"]), Normalise.identity(shape[0]))
        wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    except (RuntimeError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DataError(f"{path}: network_options do not make a network ({error!s:.100})") from None
    if wanted != {name: values.shape for name, values in weights.items()}:
        raise DataError(f"{path.parent}: the weights are not of the network in model.json")


def _encoder_form(about: Mapping[str, Any]) -> EncoderForm | None:
    if about.get("encoder_form"):
        form: EncoderForm = _known(EncoderForm, about["encoder_form"])
        return form
    if before := about.get("text_form"):  # models of earlier versions
        return EncoderForm(before["embedder"], "text", "", column=before["column"])
    return None

"""What `LabelLoopClassifier` needs: fits arrays, with a plain classifier if no row has a clean label."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelloop.config.base import TrainingConfig, method_of
from labelloop.data.classes import decode, encode, typed
from labelloop.data.frames import are_plain_numbers, are_texts, arrow_of, check_parts, is_frame
from labelloop.data.problem import classes_of
from labelloop.data.questions import compare_labels
from labelloop.data.readers import ReadOptions
from labelloop.methods import METHODS, recipe_config
from labelloop.runs.labels import label_counts, noise_matrix
from labelloop.types import MISSING
from labelloop.workflows.compose import RunOptions
from labelloop.workflows.encode import raw_or_not, trained_config
from labelloop.workflows.fit import Result, fit_plain, fit_table, table_of

__all__ = ["RunOptions", "check_rows", "fit_estimator", "holds_more_than_numbers", "in_columns", "typed"]


def fit_estimator(
    inputs: Any,
    given: NDArray,
    clean: NDArray | None,
    recipe: str,
    layers: Sequence[Mapping[str, Any]],
    options: RunOptions,
    encoder: tuple[str | None, bool] = (None, False),
) -> tuple[Result, NDArray, NDArray[np.float64]]:
    """Fits the closed loop, or cross-entropy with a warning if no row has a clean label.

    Args:
        inputs: The inputs [n, ...].
        given: The given labels [n], missing where a row has none.
        clean: The clean labels [n], missing where a row has none, or None.
        recipe: A name in RECIPES to start from.
        layers: Settings that override it; the last one wins.
        options: The options of the run.
        encoder: The encoder of texts or images, and whether to train it.

    Returns:
        What `fit` returned; the classes in the type of the given labels [C]; and T[true, noisy] [C, C], with NaN where
        nothing was corrected, and the row of the identity for a class that no corrected label names.
    """
    clean = np.full(len(given), MISSING) if clean is None else clean
    table, _ = table_of(inputs, given, clean, ReadOptions(), *encoder, options.device, options.progress)
    compare_labels(table.labels, table.clean_labels, table.source, table.markers)
    classes = classes_of(table)
    in_their_type = decode(np.arange(len(classes)), classes, given.dtype)
    encode(in_their_type, classes, "y_clean, in the type of y")  # refuses a class that this type cannot hold
    if typed(clean, "y_clean")[1].all():
        warnings.warn(
            "no row has a clean label, so there is nothing to correct with, and a plain classifier is trained on "
            "the labels as given; verify the labels of some rows, a few of each class, and pass them as y_clean"
            + ("; nothing is written to output_dir" if options.folder is not None else ""),
            UserWarning,
            stacklevel=3,
        )
        config = trained_config(_config("cross-entropy", recipe, layers), table, "cross-entropy")
        result = fit_plain(table, config, options)
    else:
        method = method_of(None, recipe)
        config = trained_config(_config(method, recipe, layers), table, method)
        result = fit_table(table, config, options, method=method)
    matrix = np.full((len(classes), len(classes)), np.nan)
    if result.rounds:
        matrix = noise_matrix(label_counts(encode(given, classes), result.corrected_proba, len(classes)))
        matrix = np.where(np.isnan(matrix), np.eye(len(classes)), matrix)
    return result, in_their_type, matrix


def in_columns(inputs: Any, checked: Any, names: Sequence[str]) -> Any:
    """A data frame as it is, and an array as one with the names of the columns that were trained on."""
    if is_frame(inputs):
        return inputs
    checked = checked if isinstance(checked, np.ndarray) else checked.toarray()
    return pa.table(dict(zip(names, checked.T, strict=True)))


def holds_more_than_numbers(inputs: Any) -> bool:
    """Whether these are texts, or a data frame with texts, categories, dates or gaps."""
    if not is_frame(inputs):
        return are_texts(inputs)
    return not are_plain_numbers(arrow_of(inputs, "X"))


def check_rows(X: Any, y: Any, y_clean: Any, encoder: str | None, train_encoder: bool) -> None:
    """Refuses indexes that disagree, and an encoder to train that is not named."""
    check_parts(X=X, y=y, y_clean=y_clean)
    if encoder is None:
        raw_or_not(None, None, train_encoder)


def _config(method: str, recipe: str, layers: Sequence[Mapping[str, Any]]) -> TrainingConfig:
    """The settings of a method. Keys of the loop are ignored if a plain classifier is trained."""
    usual = method_of(None, recipe)
    known, concerned = ({one.name for one in fields(METHODS[name].config)} for name in (usual, method))
    kept = [{k: v for k, v in layer.items() if k in concerned or k not in known} for layer in layers]
    return recipe_config(method, recipe, *kept)

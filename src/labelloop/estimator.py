"""`LabelLoopClassifier`: scikit-learn's interface, with pipelines, grid search, cross-validation, pickle and clone."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data

from labelloop.config.base import DEFAULT_RECIPE
from labelloop.errors import DataError
from labelloop.types import MISSING, Floats

OWN_PARAMETERS = ("network", "epochs", "warm_up", "batch_size", "learning_rate", "noisy_loss_weight")
DENSE_VALUES = 2**30  # 4 GiB as float32: the largest sparse matrix that is made dense for training
SPARSE_ROWS = 512  # made dense at a time to predict


class LabelLoopClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier for noisy labels that corrects them with a few clean ones.

    `fit(X, y, y_clean)` takes one clean label per row, missing where a row has none, so that cross-validation can slice
    it; metadata routing passes it on. A label is missing if it is -1, NaN, None or blank. As in scikit-learn's
    semi-supervised classifiers, -1 is never a class. (Scikit-learn's splitters accept only -1 and blank.)

    X is an array of numbers or of images [n, H, W, C]; a pandas, polars or Arrow data frame with numbers, categories,
    dates, texts and gaps, read as by `labelloop.fit`; texts; or a sparse matrix, which is made dense as a whole for
    training (up to 2**30 values) and a few rows at a time for prediction. `fit` takes no sample weights.

    A parameter of None keeps the recipe's value. The parameters below override `config`, and `config` overrides the
    recipe.

    Args:
        recipe: The name of the settings to start from: "default", or a recipe of the paper.
        config: Settings that differ from the recipe, as nested keys: {"network_options": {"hidden": [64]}}.
        network: "mlp", "small-cnn", ..., or "auto" for what suits the inputs.
        epochs: Passes over the rows.
        warm_up: Epochs before the first correction; only with a recipe of the paper, and less than `epochs`.
        batch_size: Rows per step.
        learning_rate: The learning rate at the start.
        noisy_loss_weight: The weight λ of the noisy head's loss; only with a recipe of the paper.
        random_state: A whole number is the seed of `labelloop.fit`; None draws a new one for every fit.
        device: The device to train on: "auto", "cpu", "cuda", ...
        verbose: Above 0, draws a progress bar.
        encoder: Turns X (texts, or images as paths, bytes, Pillow images or uint8 arrays) into features:
            "sentence-transformers:NAME", "transformers:NAME", "timm:NAME" or "module:factory", as in `labelloop.fit`.
        train_encoder: Train the encoder too, at a lower learning rate, instead of encoding every row once.
        output_dir: A new folder to record the run in, for one fit and not for a grid search; None records nothing.

    Attributes:
        classes_: The classes of `y` and `y_clean`, sorted, in the type of `y` [C].
        corrected_labels_: A label for every row, in the type of `y`: the clean one, else the corrected one.
        corrected_proba_: The same as probabilities [n, C].
        label_quality_: The corrected probability of the given label; low is bad, NaN where none was given [n].
        noise_matrix_: `T[true, noisy]`, C × C, rows sum to 1: how often each true class was given each label. Rows with
            a given label count by their corrected probabilities; a class without any probability has a row of the
            identity matrix.
        combination_weights_: A row for every correction, which sums to 1: the weights of the given labels and of all
            corrections so far.
        labels_from_: "labelloop", or "closed-loop" with a recipe of the paper.
        history_: A record for every epoch.
        estimate_: How good `corrected_labels_` are, with 95% intervals and notes, as in `labelloop.Result`.
        stop_reason_: Why the training ended.
        model_: The trained network; `model_.save(folder)` stores it without pickle.
        n_features_in_: The columns of X.
        feature_names_in_: Their names, where all are text.

    Without any clean label, `fit` warns and trains a plain classifier on the given labels. Their quality is then
    unknown: `corrected_labels_` are the given ones, `label_quality_` and `noise_matrix_` hold NaN, and
    `combination_weights_` has no rows.
    """

    # Where metadata is routed, unless `set_fit_request` or `set_score_request` says otherwise.
    __metadata_request__fit = {"y_clean": True}  # noqa: RUF012
    __metadata_request__score = {"y_clean": False}  # noqa: RUF012

    def __init__(
        self,
        *,
        recipe: str = DEFAULT_RECIPE,
        config: Mapping[str, Any] | None = None,
        network: str | None = None,
        epochs: int | None = None,
        warm_up: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        noisy_loss_weight: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 0,
        encoder: str | None = None,
        train_encoder: bool = False,
        output_dir: str | Path | None = None,
    ) -> None:
        self.recipe = recipe
        self.config = config
        self.network = network
        self.epochs = epochs
        self.warm_up = warm_up
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.noisy_loss_weight = noisy_loss_weight
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.encoder = encoder
        self.train_encoder = train_encoder
        self.output_dir = output_dir

    def fit(self, X: Any, y: ArrayLike, y_clean: ArrayLike | None = None) -> LabelLoopClassifier:
        """Corrects the noisy labels with the clean ones, and trains on them.

        Args:
            X: The inputs [n, ...].
            y: The given labels [n], missing where a row has none.
            y_clean: The clean labels [n], missing where a row has none.

        Raises:
            DataError: Rows or labels cannot be used, such as a single clean row.

        Warns:
            UserWarning: There is no clean label, or none of some class.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        # Imported here, because torch is slow to import and only needed once something is trained.
        from labelloop.workflows.fit_estimator import RunOptions, check_rows, fit_estimator, holds_more_than_numbers

        check_rows(X, y, y_clean, self.encoder, self.train_encoder)
        self._beyond_numbers = self.encoder is None and holds_more_than_numbers(X)
        names: Any = getattr(X, "column_names", getattr(X, "columns", ()))
        self._names = [str(name) for name in names]
        if self._beyond_numbers:
            self.n_features_in_ = len(self._names) or 1
            if self._names:
                self.feature_names_in_ = np.array(self._names, dtype=object)
        elif self.encoder is None:
            checked = validate_data(self, X, accept_sparse="csr", allow_nd=True)
            X = X if self._names else _dense(checked)  # a frame is read as `labelloop.fit` reads it
        given = _labels(y, "y")
        clean = None if y_clean is None else _labels(y_clean, "y_clean")
        folder = None if self.output_dir is None else Path(self.output_dir)
        result, self.classes_, self.noise_matrix_ = fit_estimator(
            X,
            given,
            clean,
            self.recipe,
            [dict(self.config or {}), self._own_settings()],
            RunOptions(self._seed(), self.device, progress=bool(self.verbose), folder=folder),
            (self.encoder, self.train_encoder),
        )
        self.corrected_labels_ = result.corrected_labels
        self.corrected_proba_ = result.corrected_proba
        self.label_quality_ = result.label_score
        widest = max((len(record["weights"]) for record in result.rounds), default=1)
        self.combination_weights_ = np.zeros((len(result.rounds), widest))  # [K, components of the last round]
        for weights, record in zip(self.combination_weights_, result.rounds, strict=True):
            weights[: len(record["weights"])] = record["weights"]
        self.history_ = list(result.history)
        self.labels_from_ = result.labels_from
        self.estimate_ = result.estimate
        self.stop_reason_ = result.stop_reason
        self.model_ = result.model
        self._n_features_out = result.model.network.encoder.feature_dim
        return self

    def predict(self, X: Any) -> NDArray:
        """The most probable class of every row, in the type of the labels that came in."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """A probability for every class, [n, C]."""
        return self._ask(X, "predict_proba")

    def transform(self, X: Any) -> Floats:
        """The features that the network's heads see, [n, D], in float32."""
        return self._ask(X, "transform")

    def score(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, y_clean: ArrayLike | None = None
    ) -> float:
        """The accuracy on the rows that have a label.

        Args:
            X: The inputs [n, ...].
            y: The labels to compare with. If they are noisy, so is the score.
            sample_weight: How much each row counts.
            y_clean: Clean labels. If given, they alone count, and only where a row has one; ask for them with
                `set_score_request(y_clean=True)`.
        """
        from labelloop.workflows.fit_estimator import typed

        truth, missing = typed(_labels(y, "y") if y_clean is None else _labels(y_clean, "y_clean"))
        predicted = typed(self.predict(X))[0]
        check_consistent_length(predicted, truth, sample_weight)
        if missing.all():
            raise DataError("no row to score on has a label; give more rows, or leave y_clean out")
        weight = None if sample_weight is None else np.asarray(sample_weight)[~missing]
        return float(accuracy_score(truth[~missing], predicted[~missing], sample_weight=weight))

    def _ask(self, X: Any, question: str) -> Floats:
        check_is_fitted(self)
        ask = getattr(self.model_, question)
        if self.model_.encoder_form is not None or self._beyond_numbers:
            return ask(X)
        checked = validate_data(self, X, reset=False, accept_sparse="csr", allow_nd=True)
        if self.model_.encoding:  # of a frame of which some columns are left out, or read in their own way
            from labelloop.workflows.fit_estimator import in_columns

            return ask(in_columns(X, checked, self._names))
        X = checked
        if not issparse(X):
            return ask(X)
        parts = (X[start : start + SPARSE_ROWS] for start in range(0, X.shape[0], SPARSE_ROWS))
        return np.concatenate([ask(part.toarray()) for part in parts])

    def _own_settings(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in OWN_PARAMETERS if getattr(self, name) is not None}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in own.items()}

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "model_"):
            self.model_.network.cpu()  # so that it can be unpickled where there is no GPU
        return super().__getstate__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _labels(values: ArrayLike, name: str) -> NDArray:
    """One label per row, of the user's type; a column is taken for a row with scikit-learn's warning."""
    shape = np.asarray(values).shape
    if name != "y" and len(shape) > 1 and shape[1:] != (1,):  # scikit-learn would blame y
        raise DataError(f"{name}: expected one label per row, got an array of shape {shape}")
    whole: Any = getattr(getattr(values, "dtype", None), "numpy_dtype", None)  # of pandas' Int64 and its like
    if whole is not None and whole.kind == "i":  # NumPy would make floats of them, where one is missing
        values = cast("Any", values).to_numpy(whole, na_value=MISSING)
    labels = column_or_1d(values, warn=True)
    if labels.dtype.kind == "f":  # whole numbers, perhaps with NaN for missing
        assert_all_finite(labels, allow_nan=True, input_name=name)
        check_classification_targets(labels[~np.isnan(labels)])
    return labels


def _dense(X: Any) -> NDArray:
    if not issparse(X):
        return X
    if X.shape[0] * X.shape[1] > DENSE_VALUES:
        raise DataError(
            f"a sparse matrix of {X.shape[0]} x {X.shape[1]} is too large to be made dense; reduce its columns first, "
            "for example with TruncatedSVD"
        )
    return X.astype(np.float32).toarray()

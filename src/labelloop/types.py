"""The nouns: frozen records without logic. Arrays are numpy, so that nothing here imports torch.

Shape letters: N training rows, M clean rows, C classes, D features, K components. A label of -1 is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]
Floats = NDArray[np.float32]

MISSING = -1
NARROW = 128  # arrays with fewer columns may be tables; embeddings have more


@runtime_checkable
class StreamedStore(Protocol):
    """A store of inputs that are read when they are needed, such as images in files, and that augments them itself."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Floats: ...

    def read_into(self, indices: Sequence[int], batch: NDArray) -> None:
        """Reads inputs straight into the first rows of a batch [B, ...]."""

    def augmented(self, seed: int, epoch: int = 0) -> StreamedStore:
        """The same inputs, seen at random as in training. This one is left as it is."""


@dataclass(frozen=True)
class Rows(Sized):
    """Some rows of a store of inputs, with the two labels a row may have.

    Attributes:
        inputs: The store: an array [n, ...] (float features, or uint8 images as n, height, width, channels), or a
            `StreamedStore` or other map-style dataset whose items are an input or a tuple that begins with one.
        index: Which rows of the store these are.
        labels: The given (noisy) labels.
        clean_labels: The clean labels. All missing in training rows.
        extra: Further columns for the correction network, or None.
    """

    inputs: Any
    index: Labels  # [N]
    labels: Labels  # [N]
    clean_labels: Labels  # [N]
    extra: Floats | None = None  # [N, E]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class RawInputs(Sized):
    """Texts or images as they came, before an encoder makes features of them.

    Attributes:
        kind: "text" or "image".
        items: Texts; or images as paths, bytes, Pillow images or uint8 arrays [H, W, C].
    """

    kind: str
    items: Sequence[Any]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


@dataclass(frozen=True)
class EncoderForm:
    """How raw rows became inputs; kept in model.json so that new rows are treated alike.

    Attributes:
        name: The encoder, as `--encoder` takes it.
        kind: "text" or "image".
        version: Differs where the same row could get other features.
        trained: Whether the encoder is the network that was trained, instead of making features once.
        column: The column of the texts; None for images, and for texts that came as a list.
        width: Numbers a row of features; None where the encoder is trained.
        preprocessing: What is done to a row before the network.
    """

    name: str
    kind: str
    version: str
    trained: bool = False
    column: str | None = None
    width: int | None = None
    preprocessing: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """What a method may see. It holds no true label of a training row and no test row."""

    train: Rows  # noisy and unlabelled rows
    clean: Rows  # clean rows; `labels` is missing where unpaired
    class_names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)


@dataclass(frozen=True)
class Truth:
    """What only the recorder may see."""

    train_labels: Labels | None = None  # [N] true labels of the training rows, where known
    test: Rows | None = None


@dataclass(frozen=True)
class Extracted:
    """What the network says of some rows, in evaluation mode."""

    features: Floats  # [N, D]
    logits: Floats  # [N, C]
    noisy_posterior: Floats  # [N, C]


@dataclass(frozen=True)
class Correction:
    """One component of the convex combination: its opinion on the training rows and on the clean rows."""

    train: Floats  # [N, C]
    clean: Floats  # [M, C]


@dataclass(frozen=True)
class HeldOutLabels:
    """Labels made by networks that have not seen the row, and what shows how good they are."""

    train: Floats  # [N, C] soft labels of the training rows, after the guard
    cross_fitted: Floats  # [M, C] the same for the clean rows, learnt without them
    expected_right: Floats  # [M, K] for clean rows without a given label, P(right) under each noise model; else NaN
    train_scores: Floats  # [N, E] the log-probabilities that they were made from, the half-networks' first
    clean_scores: Floats  # [M, E] the same for the clean rows
    guard: dict[str, Any]  # what the guard decided, and how sure that is


@dataclass(frozen=True)
class Fitted:
    """What a method returns."""

    model: Any
    targets: Floats  # [N, C] corrected soft labels of the training rows
    rounds: tuple[dict[str, Any], ...]  # a record for every correction: epoch, weights, losses
    stop_reason: str
    first_clean: Extracted | None = None  # what the network said of the clean rows before any label was corrected
    held_out: HeldOutLabels | None = None  # labels made before the loop by networks that have not seen the row

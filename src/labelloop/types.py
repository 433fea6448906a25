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
FLOOR = 1e-5  # of a probability, before its logarithm
NARROW = 128  # arrays with fewer columns may be tables; embeddings have more
DIFFER = "clean rows differ from the others"  # so begins the note that says so


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
    """One component of the convex combination: its soft labels of the training rows and of the clean rows."""

    train: Floats  # [N, C]
    clean: Floats  # [M, C]


@dataclass(frozen=True)
class ReturnedLabels:
    """The labels that a method hands back, and what shows how good they are.

    Attributes:
        train: Soft labels of the training rows [N, C].
        labels_from: What made them: the entry "labels_from" of run.json.
        estimate: How good they are: the entry "estimate" of run.json.
        guard: What the guard decided, and how sure it is: the entry "guard" of run.json; None without a guard.
        scores: The log-probabilities that relabelling made them from [N, E] and [M, E]; None if it did not.
        judged: What a certificate of the labels is made from [N, 4] and [M, 4]; None if there can be none.
        inputs_as: The name under which a run keeps the inputs, where the labels were made from them too; else None.
    """

    train: Floats
    labels_from: str
    estimate: dict[str, Any]
    guard: dict[str, Any] | None = None
    scores: Correction | None = None
    judged: Correction | None = None
    inputs_as: str | None = None


@dataclass(frozen=True)
class Fitted:
    """What a method returns.

    Attributes:
        model: The trained classifier.
        targets: The soft labels that it was trained on last [N, C].
        rounds: A record for every correction: epoch, weights, losses.
        stop_reason: Why it ended.
        returned: The labels to hand back; None for a method that leaves it at `targets`.
    """

    model: Any
    targets: Floats
    rounds: tuple[dict[str, Any], ...]
    stop_reason: str
    returned: ReturnedLabels | None = None

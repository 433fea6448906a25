"""Numbers about labels, from numpy arrays."""

from __future__ import annotations

from labelloop.types import Floats, Labels


def accuracy(predicted: Labels, true: Labels) -> float:
    return float((predicted == true).mean())


def label_metrics(targets: Floats, given: Labels, true: Labels) -> dict[str, float]:
    """How good the corrected labels of the training rows are.

    Args:
        targets: Corrected soft labels [N, C].
        given: Given labels [N], -1 where missing.
        true: True labels [N].
    """
    corrected = targets.argmax(axis=1)
    known = given >= 0
    good = known & (given == true)
    return {
        "given_label_accuracy": accuracy(given[known], true[known]) if known.any() else float("nan"),
        "corrected_label_accuracy": accuracy(corrected, true),
        "good_labels_broken": float((corrected[good] != true[good]).mean()) if good.any() else float("nan"),
    }

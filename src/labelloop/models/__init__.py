"""Networks only: backbones, their weights from a file, and the classifier with two heads."""

from labelloop.models.build import (
    NETWORKS,
    as_encoder,
    build_encoder,
    evaluating,
    is_convolutional,
    load_encoder,
    read_state_dict,
)
from labelloop.models.two_head import Normalise, Outputs, TwoHeadClassifier, mean_and_std

__all__ = [
    "NETWORKS",
    "Normalise",
    "Outputs",
    "TwoHeadClassifier",
    "as_encoder",
    "build_encoder",
    "evaluating",
    "is_convolutional",
    "load_encoder",
    "mean_and_std",
    "read_state_dict",
]

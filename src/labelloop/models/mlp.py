"""A multi-layer perceptron for embeddings and tables; images are flattened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from labelloop.errors import UsageError


class MLP(nn.Module):
    """Linear layers, each followed by ReLU. The features are the output of the last one, after its ReLU.

    Args:
        input_dim: The number of values in a row.
        hidden: The width of each layer; with an empty list the inputs are the features.
        dropout: The share of values set to zero after each ReLU in training mode.
    """

    def __init__(self, input_dim: int, hidden: Sequence[int], dropout: float) -> None:
        super().__init__()
        widths = [input_dim, *hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.dropout = dropout
        self.feature_dim = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)  # [B, D]
        for layer in self.hidden:
            x = F.dropout(F.relu(layer(x)), self.dropout, self.training)
        return x


def mlp(input_shape: tuple[int, ...], hidden: Sequence[int] = (256, 256), dropout: float = 0.0) -> MLP:
    """The `mlp` network for inputs of this shape."""
    if not isinstance(hidden, list | tuple) or not all(isinstance(width, int) and width > 0 for width in hidden):
        raise UsageError(f"mlp: hidden must be a list of positive whole numbers, not {hidden!r}")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise UsageError(f"mlp: dropout must be at least 0 and below 1, not {dropout!r}")
    return MLP(math.prod(input_shape), hidden, dropout)

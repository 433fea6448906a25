"""One encoder, two linear heads: the head that learns the corrected labels and the head that learns the noisy ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labelloop.models.normalise import Normalise


class Outputs(NamedTuple):
    """The output of the classifier for a batch. Logits are before the softmax."""

    features: Tensor  # [B, D]
    logits: Tensor  # [B, C]
    noisy_logits: Tensor  # [B, C]


class TwoHeadClassifier(nn.Module):
    """An encoder with a head for the labels and a head for the noisy labels.

    Args:
        encoder: A module that maps a batch to features [B, D] and has `feature_dim`, as `build_encoder` returns it.
        num_classes: The number of classes of both heads.
        normalise: Applied to a batch before the encoder; None only scales uint8 pixels to [0, 1].
        bfloat16: Whether the encoder computes in bfloat16 where that is safe; its weights and all else stay in float32.
    """

    def __init__(
        self, encoder: nn.Module, num_classes: int, normalise: Normalise | None = None, bfloat16: bool = False
    ) -> None:
        super().__init__()
        self.in_bfloat16 = bfloat16
        feature_dim: Any = encoder.feature_dim
        self.normalise = Normalise.identity() if normalise is None else normalise
        self.encoder = encoder
        # The noisy head comes last: a one-head network from the same seed then has the same encoder and head.
        self.head = nn.Linear(feature_dim, num_classes)
        self.noisy_head = nn.Linear(feature_dim, num_classes)

    def forward(self, x: Tensor) -> Outputs:
        x = self.normalise(x)
        if self.in_bfloat16:
            with torch.autocast(x.device.type, torch.bfloat16):
                features = self.encoder(x).float()  # [B, D]
        else:
            features = self.encoder(x)  # [B, D]
        return Outputs(features, self.head(features), self.noisy_head(features))

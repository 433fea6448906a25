"""Pretrained encoders as networks for the training loop, which turn a batch into features [B, D]."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from labelloop.encoders.tokens import from_rows
from labelloop.errors import UsageError


class SentenceNetwork(nn.Module):
    """A sentence-transformers model that takes rows of tokens [B, L]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> Tensor:
        return self.model({**from_rows(rows), "modality": "text"})["sentence_embedding"]


class TextNetwork(nn.Module):
    """A transformers model that takes rows of tokens [B, L]; its features are the last layer's mean over tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model

    def forward(self, rows: Tensor) -> Tensor:
        batch = from_rows(rows)
        return self.features(batch["input_ids"], batch["attention_mask"])

    def features(self, ids: Tensor, mask: Tensor) -> Tensor:
        if hasattr(self.model, "get_text_features"):  # a model of both texts and images has its own features for each
            return _pooled(self.model.get_text_features(input_ids=ids, attention_mask=mask))
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # [B, L, D]
        weight = mask.unsqueeze(2).to(hidden.dtype)
        return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


class ImageNetwork(nn.Module):
    """A transformers model that takes images [B, 3, H, W]; its features are pooled, or the mean over positions.

    Args:
        model: The model.
        has_pooler: Whether its pooling layer has trained weights; without saved ones they would be random.
    """

    def __init__(self, model: Any, has_pooler: bool) -> None:
        super().__init__()
        self.model, self.has_pooler = model, has_pooler

    def forward(self, pixels: Tensor) -> Tensor:
        if hasattr(self.model, "get_image_features"):
            return _pooled(self.model.get_image_features(pixel_values=pixels))
        out = self.model(pixel_values=pixels)
        pooled = getattr(out, "pooler_output", None)
        if self.has_pooler and pooled is not None:
            return pooled.flatten(1)
        hidden = out.last_hidden_state  # [B, L, D] or [B, D, H, W]
        return hidden.mean(dim=1) if hidden.ndim == 3 else hidden.flatten(2).mean(dim=2)


def _pooled(found: Any) -> Tensor:
    return found if isinstance(found, Tensor) else found.pooler_output


def pretrained(encoder: str, kind: str, with_weights: bool = True) -> nn.Module:
    """Builds an encoder with its pretrained weights as a network; a factory that the setting `network` can name.

    Args:
        encoder: A name for `open_encoder`.
        kind: "text" or "image".
        with_weights: Whether to load the weights; not needed if they are replaced by trained ones.
    """
    from labelloop.encoders.open_encoder import open_encoder

    module = open_encoder(encoder, kind, "cpu", with_weights).load().module
    if module is None:
        raise UsageError(
            f"encoder {encoder!r} is a function, which cannot be fine-tuned; leave train_encoder out, or let the"
            " factory return a torch module with `preprocess`"
        )
    for weight in module.parameters():
        weight.requires_grad_(True)
    return module

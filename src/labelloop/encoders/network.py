"""Pretrained encoders as networks of the training loop: from a batch to features [B, D]."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from labelloop.encoders.tokens import from_rows
from labelloop.errors import UsageError


class SentenceNetwork(nn.Module):
    """A model of sentence-transformers on rows of tokens [B, L]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> Tensor:
        return self.model({**from_rows(rows), "modality": "text"})["sentence_embedding"]


class TextNetwork(nn.Module):
    """A model of transformers on rows of tokens [B, L]; its features are the mean over the tokens of the last layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model

    def forward(self, rows: Tensor) -> Tensor:
        batch = from_rows(rows)
        return self.features(batch["input_ids"], batch["attention_mask"])

    def features(self, ids: Tensor, mask: Tensor) -> Tensor:
        if hasattr(self.model, "get_text_features"):  # a model of texts and images has features of its own for both
            return _pooled(self.model.get_text_features(input_ids=ids, attention_mask=mask))
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # [B, L, D]
        weight = mask.unsqueeze(2).to(hidden.dtype)
        return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


class ImageNetwork(nn.Module):
    """A model of transformers on images [B, 3, H, W]; its features are what it pools, else the mean over positions.

    Args:
        model: The model.
        has_pooler: Whether its pooling layer was trained; one that was not saved would be random.
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
    """A factory of networks, as `network` names one: the encoder with its pretrained weights.

    Args:
        encoder: A name as `open_encoder` takes it.
        kind: "text" or "image".
        with_weights: Whether to load the weights; not needed where trained ones are put in their place.
    """
    from labelloop.encoders.open_encoder import open_encoder

    module = open_encoder(encoder, kind, "cpu", with_weights).load().module
    if module is None:
        raise UsageError(
            f"encoder {encoder!r} is a function, which cannot be trained further; leave train_encoder out, or let the"
            " factory return a torch module with `preprocess`"
        )
    for weight in module.parameters():
        weight.requires_grad_(True)
    return module

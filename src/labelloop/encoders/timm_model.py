"""`timm:NAME`: encodes images with a timm model, and with the preprocessing that timm defines for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from labelloop.encoders.encoder import BATCH, IMAGE, Encoder, Loaded
from labelloop.encoders.libraries import device_of, from_library, need, quiet
from labelloop.encoders.versions import state_version
from labelloop.errors import UsageError

LIBRARY = "timm"


def open_timm(name: str, place: str, kind: str, device: str, with_weights: bool) -> Encoder:
    if kind != IMAGE:
        raise UsageError(f"encoder {name!r} is for images; for texts, use sentence-transformers:NAME")
    need("timm", LIBRARY, name)

    @cache
    def load() -> Loaded:
        return _load(name, place, device_of(device), with_weights)

    found = load()  # timm has no folder of files that could be compared without loading it
    return Encoder(name, kind, state_version(found.module.state_dict(), LIBRARY, found.preprocessing), load)


def _load(name: str, place: str, device: str, with_weights: bool) -> Loaded:
    with from_library(name, place, LIBRARY), quiet():
        import timm
        import torch

        source = f"local-dir:{Path(place).expanduser()}" if Path(place).expanduser().is_dir() else place
        model = timm.create_model(source, pretrained=with_weights, num_classes=0).to(device).eval()
        settings = timm.data.resolve_model_data_config(model)
        transform = timm.data.create_transform(**settings, is_training=False)

    def prepare(images: list[Any]) -> Any:
        return torch.stack([transform(image) for image in images])

    def encode(images: list[Any]) -> Any:
        with torch.inference_mode():
            return model(prepare(images).to(device))

    about = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return Loaded(encode, BATCH, None, about, model, prepare)

"""`sentence-transformers:NAME`: encodes texts with a model of that library, by name or from a folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from labelloop.encoders.encoder import BATCH, TEXT, Encoder, Loaded
from labelloop.encoders.libraries import device_of, from_library, need, quiet
from labelloop.encoders.versions import folder_version, hub_version, state_version
from labelloop.errors import UsageError

LIBRARY = "sentence-transformers"
ROWS = 8 * BATCH  # passed on at once: the library sorts them by length


def open_sentence_transformer(name: str, place: str, kind: str, device: str, with_weights: bool) -> Encoder:
    if kind != TEXT:
        raise UsageError(f"encoder {name!r} is for texts; for images, use transformers:NAME or timm:NAME")
    need("sentence_transformers", LIBRARY, name)
    folder = Path(place).expanduser()
    owned = (place, f"{LIBRARY}/{place}") if "/" not in place else (place,)
    known = None if folder.is_dir() else hub_version(owned, LIBRARY)

    @cache
    def load() -> Loaded:
        options = {} if known is None else {"revision": known[1]}
        return _load(name, str(folder) if folder.is_dir() else place, device_of(device), options)

    if folder.is_dir():
        return Encoder(name, kind, folder_version(folder, LIBRARY), load)
    if known is not None:
        return Encoder(name, kind, known[2], load)
    return Encoder(name, kind, state_version(load().module.state_dict(), LIBRARY, load().preprocessing), load)


def _load(name: str, place: str, device: str, options: dict[str, Any]) -> Loaded:
    with from_library(name, place, LIBRARY), quiet():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(place, device=device, **options).eval()
    tokenizer, limit = model.tokenizer, model.max_seq_length or 512

    def encode(texts: list[Any]) -> Any:
        return model.encode(texts, batch_size=BATCH, show_progress_bar=False)

    def prepare(texts: list[Any]) -> Any:
        return tokenizer(texts, truncation=True, max_length=limit, padding=False)["input_ids"]

    def save(folder: Path) -> None:
        with quiet():
            model.save_pretrained(str(folder), create_model_card=False)

    from labelloop.encoders.network import SentenceNetwork

    about = {"tokens": limit, "pooling": [type(part).__name__ for part in list(model)[1:]]}
    return Loaded(encode, ROWS, limit, about, SentenceNetwork(model), prepare, save)

"""`transformers:NAME`, `sentence-transformers:NAME` and `timm:NAME`: models of these libraries, by name or folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from labelloop.encoders.encoder import BATCH, IMAGE, TEXT, Encoder, Loaded
from labelloop.encoders.libraries import (
    device_of,
    folder_version,
    from_library,
    hub_version,
    need,
    quiet,
    state_version,
)
from labelloop.errors import UsageError

TRANSFORMERS = "transformers"
LONGEST = 512  # tokens of a text, unless the model has a lower limit

SENTENCES = "sentence-transformers"
ROWS = 8 * BATCH  # passed on at once: the library sorts them by length

TIMM = "timm"


def open_transformers(name: str, place: str, kind: str, device: str, with_weights: bool) -> Encoder:
    need("transformers", TRANSFORMERS, name)
    folder = Path(place).expanduser()
    known = None if folder.is_dir() else hub_version((place,), TRANSFORMERS)

    @cache
    def load() -> Loaded:
        options = {} if known is None else {"revision": known[1]}
        where = str(folder) if folder.is_dir() else place
        return _load_transformers(name, where, kind, device_of(device), with_weights, options)

    if folder.is_dir():
        return Encoder(name, kind, folder_version(folder, TRANSFORMERS), load)
    if known is not None:
        return Encoder(name, kind, known[2], load)
    return Encoder(name, kind, state_version(load().module.state_dict(), TRANSFORMERS, load().preprocessing), load)


def _load_transformers(
    name: str, place: str, kind: str, device: str, with_weights: bool, options: dict[str, Any]
) -> Loaded:
    with from_library(name, place, TRANSFORMERS), quiet():
        from transformers import AutoImageProcessor, AutoTokenizer

        model, has_pooler = _model(name, place, with_weights, options)
        model = model.to(device).eval()
        opener = AutoImageProcessor if kind == IMAGE else AutoTokenizer
        try:
            reader = opener.from_pretrained(place, **options)
        except Exception as error:
            lacking = "an image processor" if kind == IMAGE else "a tokenizer"
            paths = "" if kind == IMAGE else "; in Python, pass image files as pathlib.Path"
            raise UsageError(
                f"encoder {name!r} has no {lacking.split(' ', 1)[1]} that can be loaded, so it cannot read {kind}s"
                f" ({' '.join(str(error).split())[:200]}); use a model for {kind}s, or save {lacking} with it{paths}"
            ) from error
    if kind == TEXT:
        return _of_texts(model, reader, device)
    return _of_images(model, reader, device, has_pooler)


def _model(name: str, place: str, with_weights: bool, options: dict[str, Any]) -> tuple[Any, bool]:
    """The network, and whether the weights of its pooling layer, if it has one, were saved."""
    from transformers import AutoConfig, AutoModel

    if not with_weights:
        return AutoModel.from_config(AutoConfig.from_pretrained(place, **options)), True
    model, info = AutoModel.from_pretrained(place, output_loading_info=True, **options)
    missing = sorted(info["missing_keys"])
    drawn = [key for key in missing if "pooler" not in key]
    if drawn:
        raise UsageError(
            f"encoder {name!r}: {len(drawn)} of its weights are missing, such as {drawn[0]}, and would be random;"
            " use a model that was saved completely"
        )
    return model, not missing


def _of_texts(model: Any, tokenizer: Any, device: str) -> Loaded:
    import torch

    from labelloop.encoders.network import TextNetwork

    limit = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or LONGEST, LONGEST)
    network = TextNetwork(model)

    def encode(texts: list[Any]) -> Any:
        batch = tokenizer(texts, truncation=True, max_length=limit, padding=True, return_tensors="pt").to(device)
        with torch.inference_mode():
            return network.features(batch["input_ids"], batch["attention_mask"])

    def prepare(texts: list[Any]) -> Any:
        return tokenizer(texts, truncation=True, max_length=limit, padding=False)["input_ids"]

    about = {"tokens": limit, "pooling": "mean"}
    return Loaded(encode, BATCH, limit, about, network, prepare, _saver(model, tokenizer))


def _of_images(model: Any, processor: Any, device: str, has_pooler: bool) -> Loaded:
    import torch

    from labelloop.encoders.network import ImageNetwork

    network = ImageNetwork(model, has_pooler)

    def prepare(images: list[Any]) -> Any:
        # Stated, not guessed: the layout of an image that is one or three pixels high is ambiguous.
        found = processor(images=images, return_tensors="pt", input_data_format="channels_last")
        return found["pixel_values"]

    def encode(images: list[Any]) -> Any:
        with torch.inference_mode():
            return network(prepare(images).to(device))

    about = {key: value for key, value in processor.to_dict().items() if _is_plain(value)}
    about["pooling"] = "of the network" if has_pooler else "mean"
    return Loaded(encode, BATCH, None, about, network, prepare, _saver(model, processor))


def _saver(model: Any, reader: Any) -> Any:
    def save(folder: Path) -> None:
        with quiet():
            model.save_pretrained(folder)
            reader.save_pretrained(folder)

    return save


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def open_sentence_transformer(name: str, place: str, kind: str, device: str, with_weights: bool) -> Encoder:
    if kind != TEXT:
        raise UsageError(f"encoder {name!r} is for texts; for images, use transformers:NAME or timm:NAME")
    need("sentence_transformers", SENTENCES, name)
    folder = Path(place).expanduser()
    owned = (place, f"{SENTENCES}/{place}") if "/" not in place else (place,)
    known = None if folder.is_dir() else hub_version(owned, SENTENCES)

    @cache
    def load() -> Loaded:
        options = {} if known is None else {"revision": known[1]}
        return _load_sentences(name, str(folder) if folder.is_dir() else place, device_of(device), options)

    if folder.is_dir():
        return Encoder(name, kind, folder_version(folder, SENTENCES), load)
    if known is not None:
        return Encoder(name, kind, known[2], load)
    return Encoder(name, kind, state_version(load().module.state_dict(), SENTENCES, load().preprocessing), load)


def _load_sentences(name: str, place: str, device: str, options: dict[str, Any]) -> Loaded:
    with from_library(name, place, SENTENCES), quiet():
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


def open_timm(name: str, place: str, kind: str, device: str, with_weights: bool) -> Encoder:
    if kind != IMAGE:
        raise UsageError(f"encoder {name!r} is for images; for texts, use sentence-transformers:NAME")
    need("timm", TIMM, name)

    @cache
    def load() -> Loaded:
        return _load_timm(name, place, device_of(device), with_weights)

    found = load()  # timm has no folder of files that could be compared without loading it
    return Encoder(name, kind, state_version(found.module.state_dict(), TIMM, found.preprocessing), load)


def _load_timm(name: str, place: str, device: str, with_weights: bool) -> Loaded:
    with from_library(name, place, TIMM), quiet():
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

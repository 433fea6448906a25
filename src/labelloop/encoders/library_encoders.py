"""`transformers:NAME`, `sentence-transformers:NAME` and `timm:NAME`: models of these libraries, by name or folder.

The libraries are imported only when used, silenced, with clear messages and versions.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.encoders.encoder import BATCH, IMAGE, TEXT, Encoder, Loaded
from labelloop.errors import UsageError

TRANSFORMERS = "transformers"
LONGEST = 512  # tokens of a text, unless the model has a lower limit

SENTENCES = "sentence-transformers"
ROWS = 8 * BATCH  # passed on at once: the library sorts them by length

TIMM = "timm"
PATIENCE = 5.0  # seconds to wait for the hub
FORMAT = "1"  # of our own code, such as pooling and truncation; a change there makes cached features stale
_PROSE = (".md", ".txt.license", ".gitattributes")
_PIECE = 1 << 20


def open_transformers(name: str, place: str, kind: str, device: str, with_weights: bool) -> Encoder:
    need("transformers", TRANSFORMERS, name)

    def load(where: str, options: dict[str, Any]) -> Loaded:
        return _load_transformers(name, where, kind, device_of(device), with_weights, options)

    return _with_files(name, kind, place, TRANSFORMERS, (place,), load)


def _with_files(
    name: str, kind: str, place: str, library: str, owned: tuple[str, ...], load: Callable[..., Loaded]
) -> Encoder:
    """An encoder whose version is that of its files: in a folder, or downloaded before; else that of its weights.

    Args:
        name: As the user wrote it.
        kind: "text" or "image".
        place: The folder, or the name on the hub.
        library: The library that loads it.
        owned: The names on the hub that are meant.
        load: Loads it from a place, with options.
    """
    folder = Path(place).expanduser()
    known = None if folder.is_dir() else hub_version(owned, library)
    where, options = str(folder) if folder.is_dir() else place, {} if known is None else {"revision": known[1]}
    loaded = cache(lambda: load(where, options))
    if folder.is_dir():
        return Encoder(name, kind, folder_version(folder, library), loaded)
    if known is not None:
        return Encoder(name, kind, known[2], loaded)
    version = state_version(loaded().module.state_dict(), library, loaded().preprocessing)
    return Encoder(name, kind, version, loaded)


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
            lacking = "image processor" if kind == IMAGE else "tokenizer"
            raise UsageError(
                f"encoder {name!r} has no {lacking} that can be loaded, so it cannot read {kind}s"
                f" ({' '.join(str(error).split())[:200]}); use a model for {kind}s (image files are given as Path)"
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
            f"encoder {name!r}: {len(drawn)} of its weights are missing, such as {drawn[0]}; use a complete model"
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

    about = {"tokens": limit, "pooling": "mean"}
    return Loaded(encode, BATCH, limit, about, network, _tokens(tokenizer, limit), _saver(model, tokenizer))


def _tokens(tokenizer: Any, limit: int) -> Callable[[list[Any]], Any]:
    return lambda texts: tokenizer(texts, truncation=True, max_length=limit, padding=False)["input_ids"]


def _of_images(model: Any, processor: Any, device: str, has_pooler: bool) -> Loaded:
    from labelloop.encoders.network import ImageNetwork

    network = ImageNetwork(model, has_pooler)

    def prepare(images: list[Any]) -> Any:
        # Stated, not guessed: the layout of an image that is one or three pixels high is ambiguous.
        found = processor(images=images, return_tensors="pt", input_data_format="channels_last")
        return found["pixel_values"]

    about = {key: value for key, value in processor.to_dict().items() if _is_plain(value)}
    about["pooling"] = "of the network" if has_pooler else "mean"
    return Loaded(of_module(network, prepare, device), BATCH, None, about, network, prepare, _saver(model, processor))


def of_module(module: Any, prepare: Callable[[list[Any]], Any], device: str) -> Callable[[list[Any]], Any]:
    """Encodes texts or images with a network, without gradients."""
    import torch

    def encode(items: list[Any]) -> Any:
        with torch.inference_mode():
            return module(torch.as_tensor(prepare(items)).to(device))

    return encode


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
    owned = (place, f"{SENTENCES}/{place}") if "/" not in place else (place,)

    def load(where: str, options: dict[str, Any]) -> Loaded:
        return _load_sentences(name, where, device_of(device), options)

    return _with_files(name, kind, place, SENTENCES, owned, load)


def _load_sentences(name: str, place: str, device: str, options: dict[str, Any]) -> Loaded:
    with from_library(name, place, SENTENCES), quiet():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(place, device=device, **options).eval()
    limit = model.max_seq_length or 512

    def encode(texts: list[Any]) -> Any:
        return model.encode(texts, batch_size=BATCH, show_progress_bar=False)

    def save(folder: Path) -> None:
        with quiet():
            model.save_pretrained(str(folder), create_model_card=False)

    from labelloop.encoders.network import SentenceNetwork

    about = {"tokens": limit, "pooling": [type(part).__name__ for part in list(model)[1:]]}
    return Loaded(encode, ROWS, limit, about, SentenceNetwork(model), _tokens(model.tokenizer, limit), save)


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

    about = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return Loaded(of_module(model, prepare, device), BATCH, None, about, model, prepare)


def need(module: str, extra: str, name: str) -> None:
    """Fails at once if a library is not installed."""
    try:
        found = find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise UsageError(f"encoder {name!r} needs {extra}: install it with pip install 'labelloop[{extra}]'")


def device_of(device: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


@contextmanager
def from_library(name: str, place: str, library: str) -> Iterator[None]:
    """Turns the errors of a library that loads a model into messages that say what to do."""
    is_folder = Path(place).expanduser().is_dir()
    looks_like_folder = os.sep in place and place.startswith((".", "/", "~"))
    unreachable = None if is_folder or looks_like_folder else why_unreachable()
    try:
        with offline() if unreachable else nullcontext():
            yield
    except ImportError as error:
        raise UsageError(
            f"encoder {name!r}: {library} cannot be imported ({error}); install it again with pip install"
            f" 'labelloop[{library}]'"
        ) from error
    except UsageError:
        raise
    except Exception as error:  # the libraries raise many kinds of errors
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if is_folder:
            advice = f"the folder {place} has no model that {library} can load; save one there with save_pretrained"
        elif looks_like_folder:
            advice = f"there is no folder {place}"
        else:
            advice = f"there is no folder {place!r} here, and {library} found no model of that name"
            advice += "; check the spelling and the network, or give the folder of a model"
            reason = f"no network connection to look for it: {unreachable}" if unreachable else reason
        raise UsageError(f"encoder {name!r}: {advice} ({reason})") from error


def why_unreachable() -> str | None:
    """Asks the Hugging Face hub once; None if it answers. The libraries would ask for every file several times."""
    try:
        from huggingface_hub import constants
        from huggingface_hub.utils import get_session
    except ImportError:
        return None
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # from whichever library makes the requests
        return " ".join(f"{constants.ENDPOINT}: {error}".split())[:200]
    return None


@contextmanager
def offline() -> Iterator[None]:
    """Lets the libraries use earlier downloads only, and fail at once without one."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def quiet() -> Iterator[None]:
    """Hides the progress bars and messages of the libraries while a model is loaded or saved."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from transformers.utils import logging
        except ImportError:
            yield
            return
        level = logging.get_verbosity()
        bars = logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()


def library_version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:  # the adapter then says what to install
        return "none"


def folder_version(folder: Path, library: str) -> str:
    """The version of a folder, from the content of every relevant file; its location does not matter."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(_PROSE):
            digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
    return f"files {digest.hexdigest()}, {library} {library_version(library)}, format {FORMAT}"


def hub_version(names: tuple[str, ...], library: str) -> tuple[str, str, str] | None:
    """The name, commit and version of a model that was downloaded before, or None."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    for name in names:
        try:
            found = try_to_load_from_cache(name, "config.json")
        except ValueError:  # not a valid name on the hub
            continue
        if isinstance(found, str) and "snapshots" in (parts := Path(found).parts):
            commit = parts[parts.index("snapshots") + 1]
            return name, commit, f"commit {commit}, {library} {library_version(library)}, format {FORMAT}"
    return None


def state_version(state: Mapping[str, Any], library: str, *settings: object) -> str:
    """The version of a network in memory, from its tensors."""
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=16)
    for key, value in state.items():
        digest.update(key.encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().float().numpy()).tobytes())
    return f"weights {digest.hexdigest()}, {library} {library_version(library)}, format {FORMAT}"

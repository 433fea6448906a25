"""Modules in the place of transformers and sentence-transformers, with the parts of their interface that are used.

CI installs neither. A model reads the length and the number of a's of a text, or the mean colour of an image.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

LIMIT = 8  # tokens of a text


def tokens_of(text: str) -> list[int]:
    """A token a word: its length, and 20 more if it has an a."""
    return [1, *(min(len(word), 19) + 20 * ("a" in word) for word in text.split())]


class Batch(dict):
    def to(self, device: str) -> Batch:
        return Batch({key: value.to(device) for key, value in self.items()})


class Tokenizer:
    model_max_length = LIMIT

    def __call__(self, texts, *, truncation, max_length, padding, return_tensors=None) -> Mapping:
        assert truncation
        found = [tokens_of(text)[:max_length] for text in texts]
        if not padding:
            return {"input_ids": found}
        assert return_tensors == "pt"
        ids, mask = torch.zeros(len(found), max(map(len, found))).long(), torch.zeros(len(found), max(map(len, found)))
        for row, part in enumerate(found):
            ids[row, : len(part)], mask[row, : len(part)] = torch.tensor(part), 1
        return Batch(input_ids=ids, attention_mask=mask.long())

    def save_pretrained(self, folder: str | Path) -> None:
        Path(folder, "tokenizer.json").write_text("{}")


class Processor:
    """The mean colour, as an image of one pixel."""

    def __call__(self, images, return_tensors, input_data_format) -> Mapping:
        assert (return_tensors, input_data_format) == ("pt", "channels_last")
        colours = [np.asarray(image, np.float32).reshape(-1, 3).mean(axis=0) / 255 for image in images]
        return {"pixel_values": torch.from_numpy(np.array(colours))[:, :, None, None]}

    def to_dict(self) -> dict:
        return {"size": {"height": 1, "width": 1}, "loader": self}

    def save_pretrained(self, folder: str | Path) -> None:
        Path(folder, "preprocessor_config.json").write_text("{}")


class Model(nn.Module):
    """Both kinds in one: texts by an embedding of their tokens, images by a line of their colour."""

    def __init__(self) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(max_position_embeddings=LIMIT, is_encoder_decoder=False)
        self.words, self.colours = nn.Embedding(40, 4), nn.Linear(3, 4)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for weight in self.parameters():
                nn.init.normal_(weight)

    def forward(self, input_ids=None, attention_mask=None, pixel_values=None) -> types.SimpleNamespace:
        if pixel_values is None:
            return types.SimpleNamespace(last_hidden_state=self.words(input_ids))
        return types.SimpleNamespace(pooler_output=self.colours(pixel_values.flatten(1)), last_hidden_state=None)

    def save_pretrained(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "config.json").write_text("{}")
        Path(folder, "weights.json").write_text(json.dumps({k: v.tolist() for k, v in self.state_dict().items()}))


def _opened(folder: str | Path) -> Model:
    if not Path(folder, "config.json").exists():
        raise OSError(f"{folder} is not a local folder and is not a valid model identifier")
    model = Model()
    weights = json.loads(Path(folder, "weights.json").read_text())
    model.load_state_dict({key: torch.tensor(value) for key, value in weights.items()})
    return model


class SentenceTransformer(nn.Sequential):
    max_seq_length = LIMIT

    def __init__(self, place: str, device: str) -> None:
        super().__init__(_opened(place), nn.Identity())
        self.tokenizer = Tokenizer()

    def forward(self, batch: Mapping) -> Mapping:
        assert batch["modality"] == "text"
        hidden, mask = self[0].words(batch["input_ids"]), batch["attention_mask"].unsqueeze(2)
        return {"sentence_embedding": (hidden * mask).sum(dim=1) / mask.sum(dim=1)}

    def encode(self, texts: list[str], batch_size: int, show_progress_bar: bool) -> np.ndarray:
        assert not show_progress_bar
        options = {"truncation": True, "max_length": LIMIT, "padding": True, "return_tensors": "pt"}
        with torch.no_grad():
            parts = [
                self({**self.tokenizer(texts[start : start + batch_size], **options), "modality": "text"})
                for start in range(0, len(texts), batch_size)
            ]
        return torch.cat([part["sentence_embedding"] for part in parts]).numpy()

    def save_pretrained(self, folder: str, create_model_card: bool) -> None:
        self[0].save_pretrained(folder)


def _module(name: str, **parts: object) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = types.SimpleNamespace(name=name)
    made.__path__ = []
    vars(made).update(parts)
    return made


def _class(**functions: object) -> type:
    return type("Auto", (), {name: staticmethod(function) for name, function in functions.items()})


def _with_info(place: str, output_loading_info: bool) -> tuple[Model, dict]:
    assert output_loading_info
    return _opened(place), {"missing_keys": []}


@pytest.fixture
def stand_in_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Puts both in place; gives a folder with a model."""
    state = {"verbosity": 30, "bars": True}
    logging = _module(
        "transformers.utils.logging",
        get_verbosity=lambda: state["verbosity"],
        set_verbosity=lambda level: state.update(verbosity=level),
        set_verbosity_error=lambda: state.update(verbosity=40),
        is_progress_bar_enabled=lambda: state["bars"],
        disable_progress_bar=lambda: state.update(bars=False),
        enable_progress_bar=lambda: state.update(bars=True),
    )
    utils = _module("transformers.utils", logging=logging)
    library = _module(
        "transformers",
        AutoModel=_class(from_pretrained=_with_info, from_config=lambda config: Model()),
        AutoConfig=_class(from_pretrained=lambda place: None),
        AutoTokenizer=_class(from_pretrained=lambda place: Tokenizer()),
        AutoImageProcessor=_class(from_pretrained=lambda place: Processor()),
        utils=utils,
    )
    for name in [name for name in sys.modules if name.partition(".")[0] in ("transformers", "sentence_transformers")]:
        monkeypatch.delitem(sys.modules, name)
    for name, module in {
        "transformers": library,
        "transformers.utils": utils,
        "transformers.utils.logging": logging,
        "sentence_transformers": _module("sentence_transformers", SentenceTransformer=SentenceTransformer),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    folder = tmp_path / "stand-in"
    Model().save_pretrained(folder)
    yield folder
    assert state == {"verbosity": 30, "bars": True}  # a library is left as it was


def mean_of_tokens(model: Model, text: str) -> Tensor:
    return model.words(torch.tensor(tokens_of(text)[:LIMIT])).mean(dim=0)

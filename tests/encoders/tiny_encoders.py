"""Tiny encoders in the libraries' own formats, made and saved in a moment; the tests skip where a library is absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

WORDS = ["good", "bad", "great", "broken", "late", "love", "solid", "refund", "the", "it", "box", "hill", "honey"]
WORDS += ["queen", "purr", "milk", "paw"]


def words_of(folder: Path) -> Path:
    """A BERT of one layer that knows a few words, with its tokenizer."""
    transformers = pytest.importorskip("transformers", reason="pip install transformers to test its encoders")
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    )
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = transformers.BertModel(config)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def sentences_of(folder: Path) -> Path:
    """The same with mean pooling, as sentence-transformers saves it."""
    library = pytest.importorskip(
        "sentence_transformers", reason="pip install sentence-transformers to test its encoders"
    )
    inner = words_of(folder.with_name(folder.name + "-inner"))
    try:
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError:
        from sentence_transformers.models import Pooling, Transformer
    part = Transformer(str(inner))
    model = library.SentenceTransformer(modules=[part, Pooling(16)], device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def pictures_of(folder: Path) -> Path:
    """A vision transformer of one layer that sees 16 x 16 pixels, with its image processor."""
    transformers = pytest.importorskip("transformers", reason="pip install transformers to test its encoders")
    torch = pytest.importorskip("torch")
    processor = transformers.AutoImageProcessor
    config = transformers.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = transformers.ViTModel(config)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        '{"image_processor_type": "ViTImageProcessor", "do_normalize": true, "do_rescale": true, "do_resize": true,'
        ' "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,'
        ' "rescale_factor": 0.00392156862745098, "size": {"height": 16, "width": 16}}'
    )
    assert processor.from_pretrained(folder) is not None
    return folder


def some_images(folder: Path, count: int = 12, seed: int = 0) -> list[Path]:
    """Images of many sizes, in files."""
    image = pytest.importorskip("PIL.Image", reason="pip install pillow to test images")
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        pixels = rng.integers(0, 256, (9 + number, 20 - number, 3), dtype=np.uint8)
        paths.append(folder / f"{number}.png")
        image.fromarray(pixels).save(paths[-1])
    return paths

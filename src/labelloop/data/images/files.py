"""Large images that stay in their files and are decoded one by one, by the workers of a data loader."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labelloop.data.images.pillow import need_pillow, to_rgb
from labelloop.data.images.transforms import EvalTransform, TrainTransform, Transform
from labelloop.errors import DataError
from labelloop.types import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ImageFiles:
    """A map-style dataset: image i as a float32 array [3, H, W].

    Args:
        paths: The files.
        transform: From an image to an array; by default the centre of the image, scaled like ImageNet.
    """

    def __init__(self, paths: Iterable[str | Path], transform: Transform | None = None) -> None:
        need_pillow("decoding images")
        # One array, not a list: a million small objects would be copied into every worker as they are accessed.
        self._paths: NDArray[np.bytes_] = np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)
        self.transform: Transform = EvalTransform() if transform is None else transform
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, index: int) -> Path:
        return Path(os.fsdecode(self._paths[index]))

    def augmented(self, seed: int, epoch: int = 0) -> ImageFiles:
        """The same files with random augmentation for training, as a new object."""
        size = self.transform.size if isinstance(self.transform, EvalTransform) else TrainTransform.size
        view = ImageFiles((), TrainTransform(seed, size))
        view._paths, view.epoch = self._paths, epoch
        return view

    def __getitem__(self, index: int) -> Floats:
        from PIL import Image, UnidentifiedImageError

        index = range(len(self))[index]  # supports negative indices; raises IndexError outside, which ends a loop
        try:
            with open(os.fsdecode(self._paths[index]), "rb", buffering=0) as file:
                content = io.BytesIO(file.read())  # at once: Pillow would read it in many small parts
            with Image.open(content) as image:
                image.load()
                colours = to_rgb(image)
        except Exception as error:  # a damaged image can fail in any way
            reason = "in no known format" if isinstance(error, UnidentifiedImageError) else error
            raise DataError(
                f"{self.path(index)}: cannot be read as an image ({reason}): replace the file, or leave it out"
            ) from error
        return self.transform(colours, self.epoch, index)

    def read_into(self, indices: Sequence[int], batch: NDArray) -> None:
        """Decodes images straight into the first rows of a batch [B, 3, H, W]."""
        for position, index in enumerate(indices):
            batch[position] = self[index]

"""Large images that stay in their files and are decoded one by one, by the workers of a data loader."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from labelloop.data import pillow
from labelloop.errors import DataError, UsageError
from labelloop.types import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
IN_MEMORY = 1 << 30  # bytes of decoded pixels; a larger set is streamed
KEPT = 64  # images that all have one size of at most this many pixels keep it; others are resized to it
THREADS = 4


class ImageFiles:
    """A map-style dataset: image i as a float32 array [3, H, W].

    Args:
        paths: The files.
        transform: From an image to an array; by default the centre of the image, scaled like ImageNet.
    """

    def __init__(self, paths: Iterable[str | Path], transform: pillow.Transform | None = None) -> None:
        pillow.need_pillow("decoding images")
        # One array, not a list: a million small objects would be copied into every worker as they are accessed.
        self._paths: NDArray[np.bytes_] = np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)
        self.transform: pillow.Transform = pillow.EvalTransform() if transform is None else transform
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, index: int) -> Path:
        return Path(os.fsdecode(self._paths[index]))

    def augmented(self, seed: int, epoch: int = 0) -> ImageFiles:
        """The same files with random augmentation for training, as a new object."""
        size = self.transform.size if isinstance(self.transform, pillow.EvalTransform) else pillow.TrainTransform.size
        view = ImageFiles((), pillow.TrainTransform(seed, size))
        view._paths, view.epoch = self._paths, epoch
        return view

    def __getitem__(self, index: int) -> Floats:
        from PIL import UnidentifiedImageError

        index = range(len(self))[index]  # supports negative indices; raises IndexError outside, which ends a loop
        try:
            with open(os.fsdecode(self._paths[index]), "rb", buffering=0, opener=_no_waiting) as file:
                content = io.BytesIO(file.read())  # at once: Pillow would read it in many small parts
            with pillow.open_image(content) as image:
                image.load()
                colours = pillow.to_rgb(image)
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


@dataclass(frozen=True)
class ImageForm:
    """How an image becomes an input; stored in model.json so that new images are treated in the same way.

    Attributes:
        height: Pixels.
        width: Pixels.
        streamed: Whether training decoded the images in every epoch, with the augmentation and scale of `ImageFiles`.
    """

    height: int
    width: int
    streamed: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Unreadable:
    """An image that could not be used: its row, its file and the reason."""

    row: int
    path: str
    reason: str


@dataclass(frozen=True)
class Resized:
    """The whole image at one size, as pixels [3, H, W]."""

    height: int
    width: int

    def __call__(self, image: Image, epoch: int = 0, index: int = 0) -> Any:
        from PIL.Image import Resampling

        if image.size != (self.width, self.height):
            image = image.resize((self.width, self.height), Resampling.BILINEAR)
        return np.ascontiguousarray(pillow.planes(image))


def _no_waiting(path: str, flags: int) -> int:
    """Opens a file; a pipe without a writer would be waited for, and reads as an empty file here."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def load_images(
    paths: Sequence[Path | bytes],
    image_size: int | None = None,
    form: ImageForm | None = None,
    progress: bool | None = None,
    seen: pillow.ImageWarnings | None = None,
) -> tuple[Any, ImageForm, list[Unreadable]]:
    """Checks every image, and decodes all of them if they fit into memory.

    Args:
        paths: The files, or their contents; only files can be streamed.
        image_size: The side in pixels; see KEPT for the default.
        form: The form of a trained model; replaces `image_size`.
        progress: Whether to show a progress bar; None shows one only in a terminal.
        seen: Is shown every image that can be decoded.

    Returns:
        Pixels [n, H, W, 3], black where unreadable, or `ImageFiles`; the form; and the images that cannot be used.
    """
    pillow.need_pillow("reading images")
    if image_size is not None and image_size < 1:
        raise UsageError(f"image_size is {image_size}: give the side of the images in pixels, such as 64")
    if form is None:
        height, width = (image_size, image_size) if image_size else _default_size(paths)
        streamed = len(paths) * height * width * 3 > IN_MEMORY
        if streamed:
            height = width = max(height, width)  # views of streamed images are square
        form = ImageForm(height, width, streamed)
    if seen is not None:
        seen.form = (form.height, form.width)
    resized = Resized(form.height, form.width)
    if form.streamed or len(paths) * form.height * form.width * 3 > IN_MEMORY:
        files = [path for path in paths if isinstance(path, Path)]
        if len(files) < len(paths):
            raise DataError(
                f"{len(paths)} images of {form.height} x {form.width} pixels do not fit into memory; give a smaller"
                " image_size, or save them as files in class folders, which are read in every epoch"
            )
        view: pillow.Transform = resized  # trained in memory, applied to more images than fit
        if form.streamed:
            view = pillow.EvalTransform(resize=round(form.height * 256 / 224), size=form.height)
        return ImageFiles(files, view), form, _check_all(files, progress, seen)
    pixels = np.zeros((len(paths), form.height, form.width, 3), dtype=np.uint8)
    bad = []
    for row, path in enumerate(_bar(paths, "reading images", progress)):
        try:
            pixels[row] = resized(_decode(path, seen)).transpose(1, 2, 0)
        except Exception as error:  # a damaged image can fail in any way
            bad.append(Unreadable(row, pillow.name_of(path, row), pillow.why_unreadable(path, error)))
    return pixels, form, bad


def _default_size(paths: Sequence[Path | bytes]) -> tuple[int, int]:
    sizes = set()
    for path in paths:
        try:
            with pillow.open_image(path) as image:
                sizes.add(image.size)
        except Exception:  # reported when it is decoded
            continue
        if len(sizes) > 1:
            break
    width, height = sizes.pop() if len(sizes) == 1 else (KEPT, KEPT)
    return (height, width) if max(height, width) <= KEPT else (KEPT, KEPT)


def _decode(path: Path | bytes, seen: pillow.ImageWarnings | None = None) -> Image:
    with pillow.open_image(path) as image:
        colours = pillow.to_rgb(image)
        if seen is not None:
            seen.see(image, (colours.height, colours.width))
        return colours


def _bar(paths: Iterable[Any], name: str, progress: bool | None) -> Iterable[Any]:
    """The same with a progress bar after two seconds."""
    total = len(paths) if isinstance(paths, Sequence) else None
    hide = None if progress is None else not progress
    return tqdm(paths, desc=name, unit="image", total=total, disable=hide, leave=False, delay=2)


def _check_all(paths: Sequence[Path], progress: bool | None, seen: pillow.ImageWarnings | None) -> list[Unreadable]:
    def problem(path: Path) -> str | None:
        try:
            _decode(path, seen)
        except Exception as error:  # a damaged image can fail in any way
            return pillow.why_unreadable(path, error)
        return None

    with ThreadPoolExecutor(THREADS) as pool:
        reasons = list(_bar(pool.map(problem, paths), "checking images", progress))
    return [Unreadable(row, str(paths[row]), reason) for row, reason in enumerate(reasons) if reason]

"""What is unusual about the images of a set, in words: more than 8 bits, transparency, several frames, other sizes."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Any

import numpy as np

from labelloop.data.images.pillow import is_deep, is_transparent

WORDS = {
    "deep": "images have more than 8 bits; in 16 bits, 0 to 65535 is read as black to white; the largest value is",
    "transparent": "images are partly transparent, and are placed on white",
    "frames": "images have several frames or pages; only the first is used",
}


class Peculiarities:
    """Counts the unusual images among those that it sees."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._largest = 0.0
        self._sizes: set[tuple[int, int]] = set()  # height and width
        self.form: tuple[int, int] | None = None  # what they are resized to
        self._lock = Lock()

    def see(self, image: Any, size: tuple[int, int]) -> None:
        """Looks at a decoded image, and its height and width once upright; from several threads, if need be."""
        found = {"transparent": is_transparent(image), "frames": getattr(image, "n_frames", 1) > 1}
        found["deep"] = is_deep(image)
        largest = float(np.asarray(image).max(initial=0)) if found["deep"] else 0.0
        with self._lock:
            self._counts.update({kind: 1 for kind, is_so in found.items() if is_so})
            self._largest = max(self._largest, largest)
            self._sizes.add(size)

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for each kind that occurred."""
        lines = {kind: f"{self._counts[kind]} {words}" for kind, words in WORDS.items() if self._counts[kind]}
        if "deep" in lines:
            lines["deep"] += f" {self._largest:g}"
        return (*self._resized(), *lines.values())

    def _resized(self) -> tuple[str, ...]:
        if self.form is None or self._sizes <= {self.form}:
            return ()
        ends = [
            f"{height} x {width}" for height, width in sorted(self._sizes, key=lambda size: (size[0] * size[1], size))
        ]
        sizes = (
            f"of {len(ends)} sizes, from {ends[0]} to {ends[-1]} pixels," if len(ends) > 1 else f"of {ends[0]} pixels"
        )
        return (f"images {sizes} are resized to {self.form[0]} x {self.form[1]}",)

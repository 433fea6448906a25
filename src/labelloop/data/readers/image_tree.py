"""Class folders of images as a table, with clean images from another folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.data.images.peculiar import Peculiarities
from labelloop.data.images.store import load_images
from labelloop.data.readers.clean_folder import read_clean_folder
from labelloop.data.readers.image_folder import left_out_of, read_image_folder
from labelloop.data.readers.options import ReadOptions
from labelloop.data.readers.origin import origin_of
from labelloop.data.table import Table, from_arrays
from labelloop.data.understood import Understood
from labelloop.errors import some
from labelloop.types import RawInputs


def read_image_tree(root: Path, options: ReadOptions) -> Table:
    """The images in a folder. Images that are only in the clean folder come last."""
    names, labels, classes = read_image_folder(root, options.labels_required)
    paths = [root / name for name in names]
    said: dict[str, Any] = {"image_size": options.image_size, "clean_folder": options.clean_folder}
    said["encoder"] = options.encoder
    clean_labels = None
    if options.clean_folder is not None:
        found = read_clean_folder(options.clean_folder, root, names, classes)
        clean_labels = [found.clean.get(row, "") for row in range(len(names))] + [c for _, _, c in found.added]
        names = names + [name for name, _, _ in found.added]
        paths += [path for _, path, _ in found.added]
        labels = np.concatenate([labels, np.full(len(found.added), "", labels.dtype)])
        said["added_rows"] = len(found.added)
    inputs: Any
    seen = Peculiarities()
    if options.encoder is None:
        inputs, form, bad = load_images(paths, options.image_size, options.image_form, options.progress, seen)
    else:
        inputs, form, bad = RawInputs("image", paths), None, []
    table = from_arrays(
        inputs,
        labels if options.labels_required else None,
        clean_labels,
        ids=names,
        class_names=classes if options.labels_required else None,
        source=str(root),
        origin=origin_of("image-folder", root, options=said),
    )
    deeper = [name for name in names if name.count("/") > 1] if options.labels_required else []
    nested = [f"{len(deeper)} images in folders below a class folder are of that class: {some(deeper, 3)}"] * bool(
        deeper
    )
    understood = Understood(remarks=(*seen.remarks, *nested, *left_out_of(root)))
    return replace(table, image_form=form, unreadable=tuple(bad), understood=understood)

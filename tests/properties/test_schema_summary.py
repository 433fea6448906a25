"""Whatever a user brings: a command says what it did with every column, class and file, or refuses in words.

100 cases here; LABELLOOP_CASES=2000 asks for more. What a long search found is a test of its own below.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from made_tables import MadeTable, draw_image, image_folders, tables

from labelloop.data.problem import encoded
from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError
from labelloop.workflows.summary import schema_text

MADE = MadeTable(
    ".csv",
    {"x": ["1", "2", "3"], "label": ["-1", "0", "1"], "clean_label": ["-1", None, "1"]},
    ("-1", "0", "1"),
)
CASES = int(os.environ.get("LABELLOOP_CASES", "100"))
MANY = settings(
    max_examples=CASES // 2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=CASES == 100,
)


def schema_summary(path: Path, options: ReadOptions | None = None):
    """The table and all that was said of it, warnings included; or None and the refusal."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            table = read_table(path, options)
            text = schema_text(table)
        except (DataError, UsageError) as error:
            return None, str(error)
    return table, "\n".join([text, *(str(warning.message) for warning in said)])


@MANY
@given(tables())
@example(MADE)
def test_every_column_and_class_of_a_table_is_spoken_of(made):
    with tempfile.TemporaryDirectory() as folder:
        path = made.write(Path(folder))
        table, said = schema_summary(path)
        if table is None:
            assert str(path) in said, f"a refusal that names no file: {said}"
            return
        names = [
            *(use.column for use in table.schema_summary.uses),
            *(use.column for use in table.schema_summary.features),
        ]
        names += [out.column for out in table.schema_summary.left_out]
        columns = made.as_written
        assert Counter(names) == Counter(list(columns)), "every column once"
        for name in columns:
            assert repr(name) in said
        uses = {use.what: use.column for use in table.schema_summary.uses}
        wanted = columns[uses["given label"]]
        assert len(table) == len(wanted), "no row is lost"
        classes = _classes(table)
        found = [None if k < 0 else str(classes[k]) for k in encoded(table, classes)[0]]
        meant = [_meant(text, table.markers, classes) for text in wanted]
        if "are read as one class" in said:
            meant = [None if text is None else text.removesuffix(".0") for text in meant]
        assert found == meant, "labels as written, in order"
        for name in classes:
            assert str(name) in said
        if "id" in uses:
            assert table.ids.tolist() == columns[uses["id"]]


def _classes(table):
    from labelloop.data.problem import classes_of

    return classes_of(table)


def _meant(text, markers, classes):
    """What a written label means: the class of this name, or none."""
    if text is None or text.strip() == "" or text in markers:
        return None
    text, names = text.strip(), {str(name) for name in classes}
    if text not in names and text.capitalize() in names:
        return text.capitalize()  # true and false
    return text


@MANY
@given(image_folders())
def test_every_file_of_a_folder_is_a_row_or_named_unreadable(made):
    image = pytest.importorskip("PIL.Image")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "images"
        files = {}
        for label, file, mode, size in made:
            path = root / label / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() or path.is_symlink():
                continue
            files[f"{label}/{path.name}"] = mode
            draw_image(image, path, mode, size)
        table, said = schema_summary(root)
        if table is None:
            assert "class" in said or "images" in said
            return
        assert table.ids.tolist() == sorted(files)
        assert table.labels.tolist() == [name.split("/")[0] for name in table.ids]
        bad = {table.ids[row.row] for row in table.unreadable}
        assert bad == {name for name, mode in files.items() if mode in ("broken", "empty", "dangling", "cut")}
        good = np.flatnonzero(table.usable)
        if not len(good):
            return
        assert (table.inputs[good].reshape(len(good), -1).max(axis=1) > 0).all(), "nothing becomes black"
        assert (table.inputs[good].reshape(len(good), -1).min(axis=1) < 255).all(), "nothing becomes white"

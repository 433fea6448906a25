"""Labels, ids and order survive fit or correct, export and undo: of tables and of folders of images.

100 cases here, 60 tables and 40 folders; LABELLOOP_CASES=2000 asks for more. Most must come through to the end: a
generator whose every table is refused would show nothing. What a long search found is an example below.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from made_tables import MadeTable, draw_image, image_folders, tables

from labelloop.data.problem import classes_of, encoded
from labelloop.data.readers import ReadOptions, read_table
from labelloop.errors import DataError, UsageError
from labelloop.export.export import export
from labelloop.export.undo import undo
from labelloop.workflows.compose import RunOptions
from labelloop.workflows.correct_file import Outputs, correct_file
from labelloop.workflows.fit_file import Settings, fit_file

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("LABELLOOP_CASES", "100"))
TABLES, FOLDERS = CASES * 6 // 10, CASES * 4 // 10
SETTINGS = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
    "derandomize": CASES == 100,
}
QUICK = Settings(overrides=("epochs=2", "rounds=1", "learners=networks"))
SMALL = Settings(overrides=(*QUICK.overrides, "network_options.widths=[4, 4]"))
# Most runs are of a baseline, which takes a fifth of the time: the way of rows and labels through files is the same.
BASELINE = Settings(method="noisy-and-clean", overrides=("epochs=1",))
SMALL_BASELINE = Settings(method="noisy-and-clean", overrides=("epochs=1", "network_options.widths=[4, 4]"))
METHODS = st.sampled_from(["correct", "fit", *["baseline"] * 6])


@pytest.fixture(autouse=True, scope="module")
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labelloop.relabel.learners.trees.MOST_WORK", 0)
        patch.setattr("labelloop.relabel.calibration.TREES", 5)
        patch.setattr(
            "os.fsync", lambda handle: None
        )  # most of the time of a tiny run, and nothing to do with its rows
        yield


def run_on(path: Path, folder: Path, method: str, options: ReadOptions, quick: Settings) -> None:
    if method == "correct":
        correct_file(path, options, Outputs(folder=folder, report=False))
    else:
        run = RunOptions(folder=folder, report=False, progress=False, device="cpu")
        fit_file(path, options, quick, run, max_unreadable=1.0)


def test_rows_survive_correction_export_and_undo():
    came_through = []

    @settings(max_examples=TABLES, **SETTINGS)
    @given(tables(usable=True), METHODS)
    def search(made, method):
        came_through.append(rows_survive(made, method))

    search()
    assert len(came_through) >= TABLES
    assert sum(came_through) >= 0.5 * len(came_through)


# Found by long searches: classes called true or 1.5 in a file that is exported in another format.
@pytest.mark.parametrize(
    ("form", "classes", "method"),
    [(".csv", ("cat", "dog"), each) for each in ("correct", "fit", "baseline")]
    + [(".csv.gz", classes, "baseline") for classes in (("true", "false"), ("1.5", "2.5"))],
)
def test_plain_rows_come_through_to_the_end(form, classes, method):
    labels, x = [*classes] * 20, [f"{k % 2 + k / 99:.2f}" for k in range(40)]
    columns = {"x": x, "label": labels, "clean_label": [*labels[:20], *[None] * 20]}
    assert rows_survive(MadeTable(form, columns, classes), method)


def rows_survive(made: MadeTable, method: str) -> bool:
    """Whether a table came through; False where it was refused in words."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        path = made.write(folder)
        before = path.read_bytes()
        options = ReadOptions(progress=False)
        try:
            table = read_table(path, options)
            run_on(path, folder / "run", method, options, BASELINE if method == "baseline" else QUICK)
        except (DataError, UsageError):
            return False
        labels = pq.read_table(folder / "run" / "labels.parquet")
        assert labels["id"].to_pylist() == table.ids.tolist()
        classes = classes_of(table)
        named = [[None if k < 0 else classes[k] for k in part] for part in encoded(table, classes)]
        assert labels["given_label"].to_pylist() == named[0], "every given label as it was"
        kept = [(a, b) for a, b in zip(labels["corrected_label"].to_pylist(), named[1], strict=True) if b is not None]
        assert all(corrected == clean for corrected, clean in kept), "a clean label is never changed"
        to = made.form.rsplit(".", 1)[1] if made.form.endswith((".csv", ".tsv", ".jsonl", ".parquet")) else "parquet"
        try:
            export(folder / "run", to, output=folder / f"out.{to}")
        except (DataError, UsageError) as error:
            refusal = str(error)
            if str(path) not in refusal or list(folder.glob("out*")):
                raise AssertionError(f"a refusal that names no file, or leaves one: {refusal}") from error
            return False
        undo(folder / f"out.{to}.undo.zip", folder / "back")
        assert (folder / "back").read_bytes() == before
        assert path.read_bytes() == before
        again = read_table(folder / f"out.{to}", ReadOptions(label_column="corrected_label", labels_required=False))
        assert len(again) == len(table)
        found = [None if k < 0 else str(classes_of(again)[k]) for k in encoded(again, classes_of(again))[0]]
        wanted = [None if label is None else str(label) for label in labels["corrected_label"].to_pylist()]
        assert found == wanted, "in order"
        return True


# Found by long searches: an image that is a link to nothing, and halves of the noisy rows without any.
LINK_TO_NOTHING = [
    ("one", "one0.png", "L", (8, 8)),
    ("with space", "zwei ä0.png", "RGB", (8, 8)),
    *(("two", f"{k}.PNG", "RGB", (8, 8)) for k in range(4)),
    ("two", "one2.png", "dangling", (8, 8)),
]
THREE_IMAGES = [("one", "0.png", "L", (8, 8)), ("two", "0.png", "L", (8, 8)), ("two", "1.png", "L", (8, 8))]


def test_images_survive_fit_export_and_undo():
    came_through = []

    @settings(max_examples=FOLDERS, **SETTINGS)
    @given(image_folders(), st.sampled_from(["fit", *["baseline"] * 7]))
    @example(LINK_TO_NOTHING, "fit")
    @example(THREE_IMAGES, "fit")
    def search(made, method):
        came_through.append(images_survive(made, method))

    search()
    assert len(came_through) >= FOLDERS
    assert sum(came_through) >= 0.5 * len(came_through)


@pytest.mark.parametrize("method", ["fit", "baseline"])
def test_plain_images_come_through_to_the_end(method):
    assert images_survive([(f"class {k % 2}", f"{k}.png", "RGB", (8, 8)) for k in range(12)], method)


def images_survive(made: list[tuple[str, str, str, tuple[int, int]]], method: str) -> bool:
    """Whether a folder came through; False where it was refused in words."""
    image = pytest.importorskip("PIL.Image")
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        root, clean = folder / "images", folder / "clean.csv"
        for label, file, mode, size in made:
            path = root / label / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() and not path.is_symlink():
                draw_image(image, path, mode, size)
        before = _contents(root)
        files = sorted(before)
        cells = [("id", "clean_label"), *((file, file.split("/")[0]) for file in files[::2])]
        lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in cells]
        clean.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = ReadOptions(progress=False, clean_file=clean, image_size=8)
        try:
            run_on(root, folder / "run", method, options, SMALL_BASELINE if method == "baseline" else SMALL)
        except (DataError, UsageError):
            return False
        labels = pq.read_table(folder / "run" / "labels.parquet")
        assert labels["id"].to_pylist() == files
        assert labels["given_label"].to_pylist() == [file.split("/")[0] for file in files]
        export(folder / "run", "imagefolder", output=folder / "out", copy=True)
        undo(folder / "out.undo.zip", folder / "back")
        assert _contents(root) == before
        there = {file: content for file, content in before.items() if content is not None}
        assert _contents(folder / "back") == there, "all but links to nothing"
        return True


def _contents(root: Path) -> dict[str, bytes | None]:
    """Every file and link below a folder; None for a link to nothing."""
    files = [path for path in root.rglob("*") if path.is_symlink() or path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() if path.exists() else None for path in files}

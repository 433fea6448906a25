"""Damages the files of a run in every way we could think of, and reads them: only our own errors may come out."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import shutil
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from strangers import ROWS, told

from labelloop.errors import DataError, UsageError
from labelloop.export.export import export
from labelloop.export.verify import verify
from labelloop.report.html import write_report
from labelloop.runs.read import read_run
from labelloop.runs.reviews import Answer, append_answers, reviewed_labels
from labelloop.trained_model import load_model
from labelloop.training.checkpoint import read_checkpoint
from labelloop.workflows.plan import rows_to_verify
from labelloop.workflows.refit import decided_labels, read_stored_run

TINY = ("epochs=2", "warm_up=1", "correct_every=1", "network=mlp", "augment=none", "network_options.hidden=[4]")
PAPER = ("--recipe", "paper", "--quiet", "--no-report", *(f"--set={text}" for text in TINY))
NASTY: list[Any] = [
    *(None, True, -1, 0, 7, 1.5, 1e308, 10**400, "", "x", "../..", "/etc/passwd", "\ud800", "a\0b", "x" * 5000),
    *([], {}, [[]], [None], {"a": 1}, [1, "x", None], {"": {}}, "NaN"),
]
NAMES = ["", " ", "a\0b", "\n", "ID", "id", "labels", "corrected_label", "ﬁ", "a" * 3000, "x.y[0]"]


def base_runs(place: Path) -> tuple[Path, Path]:
    """A run of `fit` with reviews and a checkpoint, and one of `correct`."""
    (place / "rows.csv").write_text(ROWS)
    assert told("fit", place / "rows.csv", "--output-dir", place / "fit", *PAPER).code == 0
    assert told("correct", place / "rows.csv", "--output-dir", place / "correct", "--quiet", "--no-report").code == 0
    for run in (place / "fit", place / "correct"):
        said = [
            Answer(f"key-{k:08d}", k, f"r{k}", "ann", "label", "cat" if k % 2 else "dog", "t") for k in range(25, 30)
        ]
        append_answers(run, said)
    return place / "fit", place / "correct"


# --- damage -----------------------------------------------------------------------------------------------------------


def flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def garbage(content: bytes, draw: random.Random) -> bytes:
    return draw.choice(
        (b"", b"\0" * 100, draw.randbytes(200), content + draw.randbytes(9), content[::-1], b"null", b"\xff")
    )


def nested(content: bytes, draw: random.Random) -> bytes:
    return draw.choice(
        (b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b'{"epoch": ' + b"9" * 400 + b"}", b"NaN", b'"x"')
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def other_json(content: bytes, draw: random.Random) -> bytes:
    """One value, key or element replaced, taken away or added, in a JSON file or in one line of several."""
    lines = content.decode().splitlines() if content.count(b"\n{") else [content.decode()]
    number = draw.randrange(len(lines))
    found = json.loads(lines[number])
    if isinstance(found, dict) and ("sum" in found or "sha256" in found) and draw.random() < 0.7:
        found.pop("sum", None)  # as an older version, or a stranger, would have written it
        found.pop("sha256", None)
    for _ in range(draw.choice((1, 1, 1, 3))):
        *outer, last = draw.choice([path for path in places(found) if path] or [()])
        inner = found
        for key in outer:
            inner = inner[key]
        action = draw.randrange(5)
        if action == 0:
            del inner[last]
        elif action == 1 and isinstance(inner, dict):
            inner[draw.choice(NAMES)] = inner.pop(last)
        elif action == 2 and isinstance(inner, dict):
            inner[draw.choice(NAMES)] = copy.deepcopy(draw.choice(NASTY))
        else:
            inner[last] = copy.deepcopy(draw.choice(NASTY))  # or one case would change the next
        if not [path for path in places(found) if path]:
            break
    lines[number] = json.dumps(found)
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def other_table(content: bytes, draw: random.Random) -> bytes:
    """A Parquet file with another column, type, name or length."""
    table = pq.read_table(io.BytesIO(content))
    place = draw.randrange(table.num_columns)
    name = table.column_names[place]
    values: list[Any] = draw.choice(
        (
            list(range(len(table))),
            [None] * len(table),
            [[1]] * len(table),
            [{"a": 1}] * len(table),
            [b"\xff"] * len(table),
            [1e300] * len(table),
            ["../x"] * len(table),
            [True] * len(table),
            ["9" * 400] * len(table),
        )
    )
    action = draw.randrange(6)
    if action == 0:
        table = table.drop_columns([name])
    elif action == 1:
        names = table.column_names
        table = table.rename_columns([*names[:place], draw.choice(NAMES), *names[place + 1 :]])
    elif action == 2:
        table = table.slice(0, draw.choice((0, 1, len(table) // 2)))
    elif action == 3 and not pa.types.is_nested(table.schema.field(place).type):
        table = table.set_column(place, name, table[name].combine_chunks().dictionary_encode())
    else:
        table = table.set_column(place, name, pa.array(values))
    table = table.replace_schema_metadata(None) if draw.random() < 0.2 else table
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _other(values: np.ndarray, draw: random.Random) -> np.ndarray:
    return draw.choice(
        (
            lambda: values[: len(values) // 2],
            lambda: values.astype(np.float64) * np.nan,
            lambda: np.zeros((), np.float32),
            lambda: values.reshape(-1),
            lambda: values[..., None],
            lambda: values.astype("S3"),
            lambda: values.astype(np.complex64),
            lambda: np.zeros((len(values), 0), np.float32),
            lambda: values.astype(np.int8) - 100,
            lambda: np.full(values.shape, 10**9),
        )
    )()


def other_array(content: bytes, draw: random.Random) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, _other(np.load(io.BytesIO(content)), draw))
    return buffer.getvalue()


def other_arrays(content: bytes, draw: random.Random) -> bytes:
    with np.load(io.BytesIO(content)) as file:
        arrays = dict(file)
    name = draw.choice(sorted(arrays))
    if draw.random() < 0.3:
        del arrays[name]
    else:
        arrays[draw.choice((name, name, name, *NAMES[4:8]))] = _other(arrays[name], draw)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


BYTES = (flip, cut, garbage, nested)
SPECIAL = {
    ".json": other_json,
    ".jsonl": other_json,
    ".parquet": other_table,
    ".npy": other_array,
    ".npz": other_arrays,
}


# --- reading ----------------------------------------------------------------------------------------------------------


def _labels(run: Path, out: Path) -> None:
    assert read_run(run).classes
    for to, name in (("issues", "i.csv"), ("noise-matrix", "n.csv"), ("csv", "c.csv"), ("model", "m")):
        with contextlib.suppress(DataError, UsageError):
            export(run, to, output=out / name)


def _report(run: Path, out: Path) -> None:
    write_report([run], out / "report.html")


def _predict(run: Path, out: Path) -> None:
    load_model(run).predict(np.zeros((2, 2), np.float32))


def _refit(run: Path, out: Path) -> None:
    stored = read_stored_run(run)
    rows_to_verify(stored, 3)
    decided_labels(run, stored.run.classes, len(stored.clean))


def _reviews(run: Path, out: Path) -> None:
    reviewed_labels(run)


def _resume(run: Path, out: Path) -> None:
    read_checkpoint(run / "checkpoint")


def _verify(run: Path, out: Path) -> None:
    verify(run)


Reader = Callable[[Path, Path], None]
READERS: dict[str, tuple[Reader, ...]] = {
    "run.json": (_labels, _report, _refit, _verify),
    "manifest.json": (_labels, _report, _predict, _verify),
    "metrics.jsonl": (_report, _labels),
    "labels.parquet": (_labels, _report, _refit),
    "targets.npy": (_labels, _report, _refit),
    "features.npz": (_refit,),
    "preview.parquet": (_report,),
    "model.json": (_predict, _labels, _verify),
    "model.safetensors": (_predict,),
    "reviews.jsonl": (_reviews, _refit, _verify),
    "checkpoint/state.json": (_resume, _verify),
}


def fuzz(runs: tuple[Path, Path], place: Path, cases: int, seed: int) -> tuple[int, Counter[str], dict[str, str]]:
    """The number of damaged files that were read, what escaped how often, and an example of each."""
    draw = random.Random(seed)
    escaped: Counter[str] = Counter()
    examples: dict[str, str] = {}
    out = place / "out"
    for run in runs:
        shutil.copytree(run, place / run.name)
    done = 0
    while done < cases:
        run = place / draw.choice(runs).name
        name = draw.choice([name for name in READERS if (run / name).exists()])
        path, whole = run / name, (run / name).read_bytes()
        sealed = (run / "manifest.json").read_bytes()
        special = SPECIAL.get(path.suffix)
        how = draw.choice((*BYTES, *([special] * 6 if special else [])))
        try:
            damaged = how(whole, draw)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, IndexError, KeyError, AttributeError):
            continue
        path.write_bytes(damaged)
        if name != "manifest.json" and draw.random() < 0.9:
            (run / "manifest.json").unlink()
        done += 1
        for reader in READERS[name]:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            try:
                with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                    warnings.simplefilter("ignore")
                    reader(run, out)
            except (DataError, UsageError):
                pass
            except Exception as error:  # what is looked for
                last = traceback.extract_tb(error.__traceback__)
                ours = [frame for frame in last if "labelloop" in frame.filename][-1]
                key = f"{type(error).__name__} at {Path(ours.filename).name}:{ours.lineno} from {name}"
                escaped[key] += 1
                examples.setdefault(key, f"{how.__name__}: {error!s:.200}")
        path.write_bytes(whole)
        (run / "manifest.json").write_bytes(sealed)
        (run / "report.html").unlink(missing_ok=True)
    return done, escaped, examples


if __name__ == "__main__":
    import sys
    import tempfile
    import time

    with tempfile.TemporaryDirectory() as made:
        here = Path(made)
        (here / "base").mkdir()
        (here / "work").mkdir()
        began = base_runs(here / "base")
        start = time.monotonic()
        count, found, shown = fuzz(began, here / "work", int(sys.argv[1]), int(sys.argv[2]))
        print(f"{count} cases, {sum(found.values())} escapes of {len(found)} kinds, {time.monotonic() - start:.0f} s")
        for key, times in found.most_common():
            print(f"{times:5d} {key}: {shown[key]}")

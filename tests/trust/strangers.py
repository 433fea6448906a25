"""Files that a stranger might send: a small model and a small run, and ways to change what they say."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelloop.cli import main
from labelloop.models import Normalise, TwoHeadClassifier, build_encoder
from labelloop.runs.manifest import read_manifest, write_manifest
from labelloop.trained_model import TrainedModel

ROWS = "id,a,b,label,clean_label\n" + "".join(
    f"r{k},{k % 2 * 4 + k % 5 * 0.1:.1f},{k % 3 * 0.5:.1f},{'cat' if k % 2 else 'dog'},"
    f"{('cat' if k % 2 else 'dog') if k < 20 else ''}\n"
    for k in range(60)
)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def told(*arguments: object) -> Ended:
    """Runs a command in this process. Nothing but an exit code may come out of it."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:  # of argparse
            code = int(ended.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def model(folder: Path) -> Path:
    """A model of two columns, and a file of rows for it beside the folder."""
    folder.mkdir(parents=True)
    architecture = {"network": "mlp", "network_options": {"hidden": [4]}, "input_shape": [2]}
    with torch.random.fork_rng(devices=[]):
        encoder = build_encoder("mlp", (2,), {"hidden": [4]})
        network = TwoHeadClassifier(encoder, 2, Normalise.identity(2))
    TrainedModel(network, np.array(["cat", "dog"]), architecture, ("a", "b")).save(folder)
    (folder.parent / "new.csv").write_text("a,b\n1,2\n3,4\n")
    (folder.parent / "texts.csv").write_text("text\nhello\nthere\n")
    return folder


@cache
def _made() -> Path:
    """A folder with rows.csv and the run of `labelloop correct` on it, made once."""
    place = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    (place / "rows.csv").write_text(ROWS)
    ended = told("correct", place / "rows.csv", "--output-dir", place / "run", "--quiet", "--no-report")
    assert ended.code == 0, ended.err
    return place


def corrected_run(folder: Path) -> Path:
    """A run of `labelloop correct` on rows.csv beside it, without a report: a copy that says it was made there."""
    shutil.copytree(_made() / "run", folder)
    shutil.copyfile(_made() / "rows.csv", folder.parent / "rows.csv")
    record = (folder / "run.json").read_text()
    (folder / "run.json").write_text(record.replace(str(_made()), str(folder.parent)))
    write_manifest(folder, list(read_manifest(folder) or {}))
    return folder


def change(path: Path, how: Callable[[dict[str, Any]], Any]) -> None:
    """Changes a JSON file in place, as a stranger would: without a manifest that knows."""
    content = json.loads(path.read_text())
    made = how(content)
    path.write_text(json.dumps(content if made is None else made))
    (path.parent / "manifest.json").unlink(missing_ok=True)

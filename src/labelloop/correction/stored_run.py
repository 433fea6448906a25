"""What a finished run knows of its rows, read back: enough to correct its labels anew without training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelloop.config.build import build_config
from labelloop.correction.cross_fit import Correct
from labelloop.correction.instant import correct_scores
from labelloop.correction.once import Seen, correct_once
from labelloop.errors import DataError, UsageError
from labelloop.methods.closed_loop import Config as ClosedLoopConfig
from labelloop.runs.folder import FEATURES, read_json
from labelloop.types import MISSING, Extracted, Floats, Labels

LARGEST = 2**32  # bytes of features that a run folder keeps


@dataclass(frozen=True)
class StoredRun:
    """A finished run of `fit` or `correct`.

    Attributes:
        folder: Where it is.
        run: Its run.json.
        labels: Its labels.parquet.
        targets: Its corrected soft labels [n, C]; NaN where a row has none.
        given: Given labels [n], -1 where missing.
        clean: Verified labels [n], -1 where missing; also of test rows.
        judges: Which of the clean rows may judge: those that were not chosen for being uncertain [n].
        arrays: What features.npz holds beside these.
        on: `on(rows)` corrects those rows with the help of their clean labels, as `cross_fitted` wants it.
    """

    folder: Path
    run: dict[str, Any]
    labels: pa.Table
    targets: Floats
    given: Labels
    clean: Labels
    judges: NDArray[np.bool_]
    arrays: dict[str, NDArray]
    on: Callable[[Labels], Correct]

    @property
    def instant(self) -> bool:
        """Whether its labels are instant correction's: of `correct`, or of a `fit` with enough paired rows."""
        return "scores" in self.arrays

    @property
    def classes(self) -> list[Any]:
        """The classes in the user's type [C]."""
        names = pa.array(self.run["data"]["classes"])
        return names.cast(self.labels.schema.field("corrected_label").type).to_pylist()


def arrays_to_store(given: Labels, clean: Labels, **known: Floats | None) -> dict[str, NDArray] | None:
    """What features.npz holds: half precision where that is enough. None if it would be too large."""
    arrays: dict[str, NDArray] = {"given": given, "clean": clean, "judges": clean != MISSING}
    for name, values in known.items():
        if values is not None:
            wide = name not in ("features", "extra") or np.abs(values).max(initial=0) > np.finfo(np.float16).max
            arrays[name] = values.astype(np.float32 if wide else np.float16)
    return arrays if sum(values.nbytes for values in arrays.values()) <= LARGEST else None


def read_stored_run(folder: Path) -> StoredRun:
    """Reads the folder of a finished run."""
    run = read_json(folder / "run.json")
    if run.get("state") != "finished":
        raise DataError(f"{folder}: the run is {run.get('state')}; finish it first with `labelloop fit --resume`")
    method = run["method"]
    if method not in ("closed-loop", "correct"):
        raise UsageError(f"{folder} is a run of {method!r}, which has no correction to re-fit; take one of closed-loop")
    try:
        labels, targets = pq.read_table(folder / "labels.parquet"), np.load(folder / "targets.npy", allow_pickle=False)
        with np.load(folder / FEATURES, allow_pickle=False) as file:
            arrays = dict(file)
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename} is missing; it is not kept where features take more than {LARGEST // 2**30} GiB, nor by"
            " older versions: run it again in another folder, with fewer features if they are many"
        ) from None
    except (ValueError, OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{folder} is damaged ({error}); run it again in another folder") from None
    given, clean, judges = (arrays.pop(name) for name in ("given", "clean", "judges"))
    if not len(given) == len(targets) == len(labels):
        raise DataError(f"{folder}: its files are of different runs; run it again in another folder")
    if "scores" in arrays:
        on = _instant(arrays["scores"].astype(np.float64), given, targets.shape[1], run["seed"])
    else:
        config = build_config(ClosedLoopConfig, run["config"])
        features, logits, posterior = (
            arrays[name].astype(np.float32) for name in ("features", "logits", "noisy_posterior")
        )
        extra = arrays["extra"].astype(np.float32) if "extra" in arrays else None
        on = _loop(Seen(given, Extracted(features, logits, posterior), extra), config, run["seed"])
    return StoredRun(folder, run, labels, targets, given, clean, judges, arrays, on)


def _loop(seen: Seen, config: ClosedLoopConfig, seed: int) -> Callable[[Labels], Correct]:
    return lambda rows: partial(correct_once, seen.rows(rows), config=config, seed=seed)


def _instant(scores: NDArray, given: Labels, num_classes: int, seed: int) -> Callable[[Labels], Correct]:
    def on(rows: Labels) -> Correct:
        return lambda clean: correct_scores(scores[rows], given[rows], clean, num_classes, seed).targets

    return on

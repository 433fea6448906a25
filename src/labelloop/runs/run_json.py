"""run.json: one versioned schema for every kind of run, with the software versions that a result depends on.

Only this module brings older files up to date.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelloop.errors import DataError
from labelloop.runs.schema import RUN as SHAPE
from labelloop.runs.schema import check
from labelloop.types import MISSING, Labels

SCHEMA_VERSION = 3
KINDS = ("fit", "correct", "refit", "bench")

# Settings that were removed, with the value that had no effect; and those that were renamed.
GONE = {
    "freeze_base": False,
    "settled_below": 0.0,
    "corrector.noisy_view": "soft",
    "corrector.select_by": "loss",
    "noisy_loss_weight_after": -1.0,
    "mixup_after": 0,
    "simulation": "posterior",
    "beliefs": "networks",
    "correct_until": 1.0,
    "combination_prior": 0.0,
    "clean_rows_train": "never",
    "clean_row_repeats": 1,
    "mixup_augmented": True,
    "final_labels": "loop",
}
RENAMED = {"lr_drops": "learning_rate_drops", "lr_factor": "learning_rate_factor"}

# Others have their wrong labels listed.
EXPORTS = {
    **{kind: kind for kind in ("csv", "tsv", "jsonl", "parquet")},
    **{"json": "jsonl", "image-folder": "imagefolder", "hf-dataset": "hf"},
}


def versions() -> dict[str, str]:
    """The versions of Python, of this package and of the numerical libraries."""
    libraries = {name: version(name) for name in ("labelloop", "torch", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version()} | libraries | _commit()


@cache
def _commit() -> dict[str, str]:
    """The commit, if the package runs from a checkout of its sources, and the checksum of the package in it.

    The checksum (git's tree) stays the same when a commit is moved to another place in the history.
    """
    git, found = ["git", "-C", str(Path(__file__).parents[1])], dict[str, str]()
    for name, asked in {"commit": ["log", "-1", "--format=%H", "--", "."], "tree": ["rev-parse", "HEAD:./"]}.items():
        try:
            answer = subprocess.run([*git, *asked], capture_output=True, text=True, check=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return {}
        found |= {name: answer.stdout.strip()} if answer.stdout.strip() else {}
    return found


@dataclass(frozen=True)
class RunRecord:
    """The content of run.json.

    Attributes:
        kind: What made the run: "fit" (or a demo), "correct", "refit" or "bench".
        method: A name in METHODS, or "correct".
        config: Its settings, with every "auto" resolved.
        seed: The seed of every random stream of the run.
        data: A summary of the rows, as from `data_record`.
        versions: The versions that the result depends on.
        source: Which file the rows came from, or None for arrays in memory.
        state: "running", "interrupted", "failed" or "finished".
        stop_reason: Why it ended.
        rounds: A record of every correction.
        labels_from: What made the labels: the method; in runs of version 0.1 also "held-out networks".
        estimate: How good the labels are, as estimated on the clean rows.
        about: Keys that only one kind of run has, such as "experiment", "demo" or "refitted_from"; they are stored at
            the top level of run.json.
    """

    kind: str = "fit"
    method: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    source: dict[str, Any] | None = None
    state: str = "running"
    stop_reason: str | None = None
    rounds: tuple[dict[str, Any], ...] = ()
    labels_from: str | None = None
    estimate: dict[str, Any] | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of run.json."""
        content = {"schema_version": SCHEMA_VERSION, **asdict(replace(self, about={}))}
        del content["about"]
        return {**content, "rounds": list(self.rounds), **self.about}


OWN = tuple(one.name for one in fields(RunRecord) if one.name != "about")


def from_json(content: Mapping[str, Any], path: Path) -> RunRecord:
    """A record from the content of run.json, brought up to date.

    Args:
        content: The content of the file.
        path: The file, for messages.

    Raises:
        DataError: A newer version wrote it, or it uses a setting that no longer exists.
    """
    check(content, SHAPE, path)
    content = up_to_date(content, path)
    check(content, SHAPE, path)
    about = {key: value for key, value in content.items() if key not in (*OWN, "schema_version")}
    own = {key: content[key] for key in OWN if key in content}
    return RunRecord(**own | {"rounds": tuple(own.get("rounds", ()))}, about=about)


def up_to_date(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The content of run.json as this version would have written it, as far as possible."""
    version = content.get("schema_version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise DataError(f"{path}: schema_version is {version!r}; is it the run.json of a run?")
    if version > SCHEMA_VERSION:
        raise DataError(
            f"{path} was written by a newer version (schema {version}, not {SCHEMA_VERSION}); update LabelLoop"
        )
    found = _from_version_1(content, path) if version == 1 else dict(content)
    config = found.get("config", {})
    if version < 3 and found.get("method") == "closed-loop" and config.get("final_labels") == "held_out":
        return found | {"method": "labelloop"}  # the default of before; its settings are a record, no more
    return found | {"config": _without_gone(config, path)}


def data_record(
    source: str,
    classes: Sequence[str],
    given: Labels,
    clean: Labels,
    used: NDArray[np.bool_] | None = None,
    sha256: str | None = None,
    test: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The "data" entry of run.json. Rows are counted here and nowhere else.

    Args:
        source: The name of the data.
        classes: The classes as text, in order.
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing.
        used: The rows that were neither test rows nor left out [n]; all if None.
        sha256: A checksum of the rows, if there is one.
        test: The number of test rows and their checksum, if there are any.
    """
    used = np.ones(len(given), bool) if used is None else used
    has_given, has_clean = used & (given != MISSING), used & (clean != MISSING)
    return {
        "source": source,
        "rows": len(given),
        "noisy": int((has_given & ~has_clean).sum()),
        "unlabelled": int((used & ~has_given & ~has_clean).sum()),
        "clean_paired": int((has_given & has_clean).sum()),
        "clean_unpaired": int((~has_given & has_clean).sum()),
        "classes": list(classes),
        "sha256": sha256,
        "test": test,
    }


def _from_version_1(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Version 1 did not name the kind, left out keys that a kind did not have, and always chose between two labels."""
    found = dict(content)
    if "experiment" in found:
        found.setdefault("method", found["experiment"].get("method", ""))
        found.setdefault("seed", found["experiment"].get("seed", 0))
    kinds = {"experiment": "bench", "refitted_from": "refit"}
    guessed = next((kind for key, kind in kinds.items() if key in found), "fit")
    found["kind"] = "correct" if found.get("method") == "correct" and guessed == "fit" else guessed
    config = {RENAMED.get(key, key): value for key, value in found.get("config", {}).items()}
    if found.get("method") == "closed-loop" and config:
        config.setdefault("final_labels", "loop" if found["kind"] == "bench" else "held_out")
    found["config"] = config
    data = found.get("data", {})
    found["data"] = {"sha256": data.get("fingerprint"), "test": None, **data}
    return found


def _without_gone(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The settings without those that no longer exist. Refuses one that made a difference."""
    found = {key: value for key, value in config.items() if key != "corrector"}
    corrector = dict(config.get("corrector", {}))
    for key, harmless in GONE.items():
        place = corrector if key.startswith("corrector.") else found
        if (value := place.pop(key.removeprefix("corrector."), harmless)) != harmless:
            raise DataError(
                f"{path}: the run used {key} = {value!r}, a setting that no longer exists; run it again without it"
            )
    return found | ({"corrector": corrector} if corrector else {})


def export_name(source: Mapping[str, Any] | None) -> str:
    """The format for `labelloop export --to` that suits a run.

    Args:
        source: The entry `source` of run.json; None if unknown.
    """
    about = source or {}
    kind = about.get("kind", "")
    if kind == "image-table":  # a file of names of images goes back as it came
        kind = str(about.get("path", "")).rpartition(".")[2]
    return EXPORTS.get(kind, "issues")

"""The name of a run's export format, by the source of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Others have their wrong labels listed.
EXPORTS = {
    **{kind: kind for kind in ("csv", "tsv", "jsonl", "parquet")},
    **{"json": "jsonl", "image-folder": "imagefolder", "hf-dataset": "hf"},
}


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

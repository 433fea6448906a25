"""How the export of a run is called, by where its rows came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Others have their wrong labels listed.
EXPORTS = {
    **{kind: kind for kind in ("csv", "tsv", "jsonl", "parquet")},
    **{"json": "jsonl", "image-folder": "imagefolder", "hf-dataset": "hf"},
}


def export_name(source: Mapping[str, Any] | None) -> str:
    """What `labelloop export --to` makes of a run.

    Args:
        source: Where its rows came from, as run.json holds it; None where that is not known.
    """
    about = source or {}
    kind = about.get("kind", "")
    if kind == "image-table":  # a file of names of images goes back as it came
        kind = str(about.get("path", "")).rpartition(".")[2]
    return EXPORTS.get(kind, "issues")

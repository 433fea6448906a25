"""Data frames with text, categories or dates: read like the columns of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from labelloop.data.columns import Roles
from labelloop.data.encoding import Column
from labelloop.data.features import Features, features_of
from labelloop.errors import DataError


def is_mixed_frame(values: Any) -> bool:
    """Whether this is a data frame, such as pandas', with text, categories or dates among its columns."""
    if not hasattr(values, "columns") or not hasattr(values, "dtypes"):
        return False
    return any(getattr(kind, "kind", "O") not in "biuf" for kind in values.dtypes)


def frame_features(frame: Any, source: str, encoding: Sequence[Column] | None = None) -> Features:
    """The features of a data frame.

    Args:
        frame: A data frame with named columns.
        source: For messages.
        encoding: That of an earlier frame, to get the same features again.
    """
    try:
        arrow = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError) as error:
        raise DataError(f"{source}: a column with mixed types ({error}); write it as text or numbers") from error
    columns = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in arrow.columns]
    arrow = pa.table(columns, names=[str(name) for name in arrow.column_names])
    train = np.ones(arrow.num_rows, dtype=bool)
    return features_of(arrow, Roles(), Path(source), None, None, train, encoding)

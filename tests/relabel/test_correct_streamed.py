"""`correct` in chunks and from mapped files gives what it gives in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import NUM_CLASSES, class_conditional

from labelloop import large_arrays
from labelloop.data.readers import ReadOptions
from labelloop.workflows.correct_file import Outputs, correct_file


@pytest.mark.filterwarnings("ignore:12 of 12 clean rows")
@pytest.mark.parametrize("clean", [150, 12])
def test_streamed_labels_are_those_made_in_memory(clean, tmp_path, monkeypatch):
    world = class_conditional(1500)
    labels = world.clean(clean)
    table = pa.table({
        "pred_probs": list(world.probabilities.astype(np.float32)),
        "label": [f"c{k}" for k in world.given],
        "clean_label": [None if k < 0 else f"c{k}" for k in labels],
    })  # fmt: skip
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(0, len(table), 400):
        pq.write_table(table.slice(number, 400), folder / f"{number:06d}.parquet")

    def corrected(name: str, size: str) -> pa.Table:
        options, names = ReadOptions(), [f"c{k}" for k in range(NUM_CLASSES)]
        correct_file(folder, options, Outputs(tmp_path / name), class_names=names, max_memory=size)
        return pq.read_table(tmp_path / name)

    whole = corrected("whole.parquet", "64G")
    monkeypatch.setattr(large_arrays, "SMALLEST", 0)
    monkeypatch.setattr(large_arrays, "CHUNK_VALUES", 999)
    streamed = corrected("streamed.parquet", "1M")
    for name in ("id", "given_label", "corrected_label", "changed", "verified"):
        assert streamed[name].to_pylist() == whole[name].to_pylist()
    np.testing.assert_allclose(streamed["corrected_confidence"], whole["corrected_confidence"], atol=1e-5)

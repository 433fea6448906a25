"""labels.parquet, by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from labelloop.runs.labels import as_now, label_table

NAN = float("nan")
# kind of row:          noisy, kept          noisy, changed       unlabelled           clean unpaired
#                       clean paired, wrong  clean paired, right  test row
GIVEN = np.array([0, 1, -1, -1, 2, 1, 0])
CLEAN = np.array([-1, -1, -1, 2, 0, 1, 0])
TARGETS = np.array(
    [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3], [0, 0, 1], [1, 0, 0], [0, 1, 0], [NAN, NAN, NAN]], np.float32
)
PREDICTED = np.array([0, 0, 1, 2, 2, 1, 2])
IDS = np.array(["a", "b", "c", "d", "e", "f", "g"])


@pytest.fixture
def table() -> pa.Table:
    return label_table(IDS, ["x", "y", "z"], GIVEN, CLEAN, TARGETS, PREDICTED)


def test_columns_in_order_with_a_row_for_every_row(table):
    assert {name: str(kind) for name, kind in zip(table.column_names, table.schema.types, strict=True)} == {
        "id": "string",
        "given_label": "string",
        "corrected_label": "string",
        "corrected_confidence": "float",
        "changed": "bool",
        "verified": "bool",
        "predicted_label": "string",
        "is_label_issue": "bool",
        "label_score": "float",
    }
    assert table["id"].to_pylist() == list("abcdefg")


def test_every_cell(table):
    found = table.to_pydict()
    assert found["given_label"] == ["x", "y", None, None, "z", "y", "x"]
    assert found["corrected_label"] == ["x", "z", "y", "z", "x", "y", None]
    assert found["corrected_confidence"] == [pytest.approx(v) for v in (0.7, 0.6, 0.5, 1, 1, 1)] + [None]
    assert found["changed"] == [False, True, False, False, False, False, False]  # a clean row is nobody's correction
    assert found["is_label_issue"] == [False, True, False, False, True, False, False]  # its given label is wrong
    assert found["verified"] == [False, False, False, True, True, True, True]
    assert found["predicted_label"] == ["x", "x", "y", "z", "z", "y", "z"]
    scores = found["label_score"]
    assert [scores[i] for i in (2, 3, 6)] == [None, None, None]
    assert [scores[i] for i in (0, 1, 4, 5)] == pytest.approx([0.7, 0.3, 0, 1])


@pytest.mark.parametrize("classes", [[10, 20, 30], [False, True, None]])
def test_labels_keep_their_type(classes):
    two = classes[-1] is None
    given = np.minimum(GIVEN, 1) if two else GIVEN
    clean, predicted = (np.minimum(v, 1) if two else v for v in (CLEAN, PREDICTED))
    targets = TARGETS[:, :2] if two else TARGETS
    table = label_table(IDS, classes[:2] if two else classes, given, clean, targets, predicted)
    assert str(table.schema.field("given_label").type) == ("bool" if two else "int64")
    assert table["given_label"].to_pylist()[:3] == [classes[0], classes[1], None]
    assert table["predicted_label"].null_count == 0


def test_a_missing_value_is_null_and_never_nan(table):
    for name in ("corrected_confidence", "label_score"):
        assert not any(value != value for value in table[name].to_pylist() if value is not None)
        assert table[name].null_count > 0


def test_tables_of_older_runs_say_changed_as_new_ones_do(table):
    older = table.set_column(table.column_names.index("changed"), "changed", table["is_label_issue"])
    assert as_now(older).equals(table)
    assert as_now(table).equals(table)

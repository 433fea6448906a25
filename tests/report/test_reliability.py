"""The figures of a run: drawn from stored numbers, and refused with the reason where there are none."""

from __future__ import annotations

import json

import pytest

from labelloop.errors import DataError
from labelloop.relabel.estimate import no_estimate
from labelloop.report.figure import draw_learning_curve, draw_reliability

pytest.importorskip("matplotlib", reason="figures need the extra report")


def test_the_reliability_is_drawn(tmp_path):
    part = {"from": 0.9, "to": 1.0, "confidence": 0.95, "value": 0.9, "low": 0.8, "high": 0.96, "rows": 60}
    (tmp_path / "run.json").write_text(json.dumps({"estimate": {"reliability": [part]}}))
    written = draw_reliability(tmp_path)
    assert [path.name for path in written] == ["reliability.png", "reliability.svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")


def test_without_numbers_the_reason_is_given(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"estimate": no_estimate("they were all trained on")}))
    with pytest.raises(DataError, match="they were all trained on"):
        draw_reliability(tmp_path)


def test_the_learning_curve_is_drawn(tmp_path):
    points = [{"clean_rows": n, "value": v, "low": v - 0.1, "high": v + 0.05} for n, v in ((10, 0.7), (40, 0.8))]
    written = draw_learning_curve({"of": "labels", "measured": points, "beyond": points}, tmp_path / "verify.curve")
    assert [path.name for path in written] == ["verify.curve.png", "verify.curve.svg"]
    assert written[1].read_text().count("<path") > 10

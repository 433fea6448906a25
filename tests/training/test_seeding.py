"""One way to seed torch: as `torch.manual_seed` does, without what it costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import labelloop
from labelloop.training import setup


@pytest.mark.parametrize("accelerator", [False, True])
def test_the_numbers_are_those_of_manual_seed(accelerator, monkeypatch):
    monkeypatch.setattr(setup, "_has_accelerator", lambda: accelerator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2**62 + 5)
        expected = torch.rand(5)
        setup.seed_torch(2**62 + 5)
        assert torch.equal(torch.rand(5), expected)


def test_nothing_else_seeds_torch():
    source = Path(labelloop.__file__).parent
    found = [p.name for p in source.rglob("*.py") if re.search(r"torch\.manual_seed\(", p.read_text(encoding="utf-8"))]
    assert found == ["setup.py"]

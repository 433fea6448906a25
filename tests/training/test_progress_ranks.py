"""Progress bars of several processes: only the first one draws them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from labelloop.training.runtime import Runtime


@pytest.mark.parametrize("is_first", [True, False])
def test_only_the_first_process_draws_a_bar(capsys, is_first):
    ranks = SimpleNamespace(is_first=is_first, device=torch.device)
    runtime = Runtime(0, device="cpu", progress=True, ranks=ranks)
    assert list(runtime.epochs(2)) == [1, 2]
    assert ("training" in capsys.readouterr().err) is is_first

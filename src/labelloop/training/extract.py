"""Features, logits and the noisy posterior of some rows: evaluation mode, no augmentation, no random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from labelloop.large_arrays import Releaser, release, zeros
from labelloop.models import TwoHeadClassifier, evaluating
from labelloop.training.batches import in_batches, read_batches
from labelloop.types import Extracted, Floats, Rows

if TYPE_CHECKING:
    from labelloop.training.runtime import Runtime

BATCH = 128  # larger batches do not fit into the processor's caches and take 1.5 times as long


def extract(model: TwoHeadClassifier, rows: Rows, runtime: Runtime) -> Extracted:
    """The network's outputs for every row, in the order of the rows. The model is not changed.

    Several processes share the batches, which are the same as in a single process, and each gets all rows.
    """
    # Filled batch by batch, because concatenating a list of batches would need twice the memory.
    widths = (model.head.in_features, model.head.out_features, model.head.out_features)
    whole: list[Floats] = [zeros((len(rows), width)) for width in widths]
    parts = in_batches(np.arange(len(rows)), BATCH)
    mine = parts[runtime.ranks.mine(len(parts))]
    let_go = Releaser(rows.inputs, *whole)
    with evaluating(model), torch.no_grad():
        for position, x in read_batches(rows, mine, workers=runtime.workers):
            out = model(runtime.inputs(x))
            said = (out.features, out.logits, torch.softmax(out.noisy_logits, dim=1))
            for array, part in zip(whole, said, strict=True):
                array[position] = part.cpu().numpy()
            let_go(len(position))
    if runtime.ranks.count > 1:
        runtime.ranks.gather_rows(whole, [len(part) for part in parts])
    release()
    return Extracted(*whole)

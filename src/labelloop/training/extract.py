"""Features, logits and the noisy posterior of some rows: evaluation mode, no augmentation, no random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from labelloop.large_arrays import Releaser, release, zeros
from labelloop.models import TwoHeadClassifier, evaluating
from labelloop.training.batches import batches
from labelloop.types import Extracted, Floats, Rows

if TYPE_CHECKING:
    from labelloop.training.runtime import Runtime

BATCH = 128  # larger ones spill out of the processor's caches and take half as long again


def extract(model: TwoHeadClassifier, rows: Rows, runtime: Runtime) -> Extracted:
    """What the network says of every row, in the order of the rows. The model is left as it was."""
    whole: list[Floats] = []  # filled batch by batch: joining lists of batches would hold everything twice
    let_go = Releaser(rows.inputs)
    with evaluating(model), torch.no_grad():
        for position, x in batches(rows, np.arange(len(rows)), BATCH, workers=runtime.workers):
            out = model(runtime.inputs(x))
            parts = (out.features, out.logits, torch.softmax(out.noisy_logits, dim=1))
            if not whole:
                whole = [zeros((len(rows), part.shape[1])) for part in parts]
                let_go = Releaser(rows.inputs, *whole)
            for array, part in zip(whole, parts, strict=True):
                array[position] = part.cpu().numpy()
            let_go(len(position))
    release()
    return Extracted(*whole)

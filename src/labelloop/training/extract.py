"""Features, logits and the noisy posterior of some rows: evaluation mode, no augmentation, no random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from labelloop.training.batches import batches
from labelloop.types import Extracted, Rows

if TYPE_CHECKING:
    from labelloop.models import TwoHeadClassifier
    from labelloop.training.runtime import Runtime

BATCH = 512  # no gradient is kept, so larger batches than in training fit


def extract(model: TwoHeadClassifier, rows: Rows, runtime: Runtime) -> Extracted:
    """What the network says of every row, in the order of the rows. The model is left as it was."""
    was_training = model.training
    model.eval()
    features, logits, noisy = [], [], []
    with torch.no_grad():
        for _, x in batches(rows, np.arange(len(rows)), BATCH, workers=runtime.workers):
            out = model(runtime.inputs(x))
            features.append(out.features.cpu())
            logits.append(out.logits.cpu())
            noisy.append(torch.softmax(out.noisy_logits, dim=1).cpu())
    model.train(was_training)
    return Extracted(torch.cat(features).numpy(), torch.cat(logits).numpy(), torch.cat(noisy).numpy())

"""The methods (step 3 of 5), by name. To add one: write its file, add its line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labelloop.methods import closed_loop, cross_entropy, emlc, fasten, glc, l2b, logistic, mwnet
from labelloop.training.config import TrainingConfig
from labelloop.types import Fitted


@dataclass(frozen=True)
class Method:
    """A way to train on noisy labels.

    Attributes:
        config: Its frozen configuration.
        fit: `fit(problem, config, runtime) -> Fitted`.
        clean_rows: How it uses the clean rows, in a few words for tables.
        is_oracle: Whether it is given the true labels in place of the noisy ones. Only experiments know them.
    """

    config: type[TrainingConfig]
    fit: Callable[[Any, Any, Any], Fitted]
    clean_rows: str
    is_oracle: bool = False


METHODS: dict[str, Method] = {
    "closed-loop": Method(closed_loop.Config, closed_loop.fit, "teach the correction"),
    "cross-entropy": Method(cross_entropy.Config, cross_entropy.fit_noisy, "not used"),
    "clean-only": Method(cross_entropy.Config, cross_entropy.fit_clean, "trained on, alone"),
    "noisy-and-clean": Method(cross_entropy.Config, cross_entropy.fit_both, "trained on"),
    "fine-tune": Method(cross_entropy.FineTuneConfig, cross_entropy.fit_fine_tune, "trained on, afterwards"),
    "oracle": Method(cross_entropy.Config, cross_entropy.fit_noisy, "not used", is_oracle=True),
    "logistic-corrector": Method(logistic.Config, logistic.fit, "teach one correction"),
    "glc": Method(glc.Config, glc.fit, "estimate the noise, and trained on"),
    "fasten": Method(fasten.Config, fasten.fit, "estimate the noise, and trained on"),
    "mw-net": Method(mwnet.Config, mwnet.fit, "teach the weights"),
    "l2b": Method(l2b.Config, l2b.fit, "set the weights"),
    "emlc": Method(emlc.Config, emlc.fit, "teach and train the teacher"),
}

"""Corrects noisy labels with a few clean rows, and trains a classifier on the result.

`fit` corrects and trains, `correct` only corrects, and `certify` finds labels that meet an error limit. The parts of
the paper's closed loop (`fit_corrector`, `fit_simplex_weights`, `combine`) also work in your own training loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Imported when first used, so that `import labelloop` and `labelloop --help` do not wait for torch.
_PUBLIC = {
    "fit": "labelloop.workflows.fit",
    "Result": "labelloop.workflows.fit",
    "correct": "labelloop.workflows.correct",
    "CorrectionResult": "labelloop.workflows.correct",
    "certify": "labelloop.workflows.certify",
    "Certified": "labelloop.workflows.certify",
    "LabelLoopClassifier": "labelloop.estimator",
    "load_model": "labelloop.trained_model",
    "TrainedModel": "labelloop.trained_model",
    "Config": "labelloop.methods.labelloop",
    "CorrectorConfig": "labelloop.methods.closed_loop.corrector",
    "fit_corrector": "labelloop.methods.closed_loop.corrector",
    "fit_simplex_weights": "labelloop.relabel.stacking",
    "combine": "labelloop.relabel.stacking",
    "stratified_split": "labelloop.splits",
    "DataError": "labelloop.errors",
    "UsageError": "labelloop.errors",
}

__all__ = [
    "Certified",
    "Config",
    "CorrectionResult",
    "CorrectorConfig",
    "DataError",
    "LabelLoopClassifier",
    "Result",
    "TrainedModel",
    "UsageError",
    "__version__",
    "certify",
    "combine",
    "correct",
    "fit",
    "fit_corrector",
    "fit_simplex_weights",
    "load_model",
    "stratified_split",
]

if TYPE_CHECKING:
    from labelloop.errors import DataError, UsageError
    from labelloop.estimator import LabelLoopClassifier
    from labelloop.methods.closed_loop.corrector import CorrectorConfig, fit_corrector
    from labelloop.methods.labelloop import Config
    from labelloop.relabel.stacking import combine, fit_simplex_weights
    from labelloop.splits import stratified_split
    from labelloop.trained_model import TrainedModel, load_model
    from labelloop.workflows.certify import Certified, certify
    from labelloop.workflows.correct import CorrectionResult, correct
    from labelloop.workflows.fit import Result, fit


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'labelloop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

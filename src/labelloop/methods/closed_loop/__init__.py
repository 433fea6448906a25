"""The paper: Algorithm 1 (loop.py), the correction network (corrector.py), the convex combination (combination.py)."""

from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import CorrectorConfig
from labelloop.methods.closed_loop.loop import fit

__all__ = ["Config", "CorrectorConfig", "fit"]

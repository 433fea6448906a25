"""The paper, and nothing else: Algorithm 1 (loop.py) and its correction network (corrector.py)."""

from labelloop.methods.closed_loop.config import Config
from labelloop.methods.closed_loop.corrector import CorrectorConfig
from labelloop.methods.closed_loop.loop import check, fit

__all__ = ["Config", "CorrectorConfig", "check", "fit"]

"""What was made of a file: every column once, in words, so that nothing is understood wrongly without being said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """A column that is no feature: what it is used for, and whether that was guessed by its name."""

    what: str
    column: str
    guessed: bool


@dataclass(frozen=True)
class Feature:
    """A column to learn from, and how it is read."""

    column: str
    how: str


@dataclass(frozen=True)
class LeftOut:
    """A column that is not used, and why."""

    column: str
    why: str


@dataclass(frozen=True)
class Understood:
    """What was made of a file.

    Attributes:
        uses: Labels, ids, split and extra columns.
        features: What is learned from.
        left_out: What is not used.
        remarks: What else was decided while reading: a separator, what was read as missing.
    """

    uses: tuple[Use, ...] = ()
    features: tuple[Feature, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    remarks: tuple[str, ...] = ()

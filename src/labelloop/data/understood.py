"""How a file was understood: every column once, in words, so that the user can see any mistake."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """A column that is not a feature: its use, and whether that was guessed from its name."""

    what: str
    column: str
    guessed: bool


@dataclass(frozen=True)
class Feature:
    """A feature column, and how it is read."""

    column: str
    how: str


@dataclass(frozen=True)
class LeftOut:
    """A column that is not used, and why."""

    column: str
    why: str


@dataclass(frozen=True)
class Understood:
    """How a file was understood.

    Attributes:
        uses: Labels, ids, split and extra columns.
        features: The feature columns.
        left_out: The columns that are not used.
        remarks: Other decisions while reading, such as the delimiter and what counted as missing.
    """

    uses: tuple[Use, ...] = ()
    features: tuple[Feature, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    remarks: tuple[str, ...] = ()

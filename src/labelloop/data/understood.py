"""How a file was understood: every column once, in words, so that the user can see any mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ONLY_NAMED = "only the named columns are used"


@dataclass(frozen=True)
class Use:
    """A column that is not a feature: its use, and whether that was guessed from its name."""

    what: str
    column: str
    guessed: bool


@dataclass(frozen=True)
class Feature:
    """A feature column, how it is read, and how many of its values are blank."""

    column: str
    how: str
    blank: int = 0


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
        markers: The labels besides a blank that were read as missing; None where labels are arrays.
    """

    uses: tuple[Use, ...] = ()
    features: tuple[Feature, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    remarks: tuple[str, ...] = ()
    markers: tuple[str, ...] | None = None


def together(parts: Sequence[Understood | None]) -> Understood | None:
    """How a file was understood that was read several times, for other columns each time."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    uses = tuple(dict.fromkeys(use for part in known for use in part.uses))
    features = tuple(dict.fromkeys(feature for part in known for feature in part.features))
    used = {*(use.column for use in uses), *(feature.column for feature in features)}
    left_out = {out.column: out for part in reversed(known) for out in part.left_out if out.column not in used}
    remarks = tuple(dict.fromkeys(remark for part in known for remark in part.remarks))
    return Understood(uses, features, tuple(left_out.values()), remarks, known[0].markers)

"""The role of each column: as the user says, else by its name in any spelling; and every column once in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from labelloop.errors import DataError, nearest

NULL_NUMBERS = ("", "NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "<NA>", "#N/A")

LABEL_NAMES = ("label", "labels", "noisy_label", "given_label", "target")
LABEL_IF_NO_OTHER = ("y",)  # next to another label column, y may well be a coordinate
CLEAN_NAMES = ("clean_label", "clean_labels", "y_clean", "verified")
ID_NAMES = ("id", "row_id")
ROW_NAMES = ("row",)  # in a file that `labelloop plan` wrote for rows without ids
GIVEN_NAME = "given_label"  # next to it
SPLIT_NAMES = ("split",)
FILE_NAMES = ("file_name", "filename", "image", "image_path", "path")
EMBEDDING_NAMES = ("embedding", "embeddings", "features")
# As `plain` spells them.
# Never a feature unless asked for: a column that gives the label away would make training look perfect without
# learning anything, and a row number gives away the order of the file.
NEVER_FEATURES = frozenset(
    {
        *(LABEL_NAMES + CLEAN_NAMES + ID_NAMES + SPLIT_NAMES),
        *("true_label", "y_true", "gold_label", "corrected_label", "predicted_label", "corrected_confidence"),
        *("label_score", "is_label_issue", "changed"),
        *("", "index", "unnamed:_0", "__index_level_0__"),
    }
)

ONLY_NAMED = "only the named columns are used"


def is_number(text: str) -> bool:
    """Whether a text is a number, NaN and infinity included; 2020_21, which Python takes for one, is not."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


@dataclass(frozen=True)
class Roles:
    """The columns that are not features, or None."""

    label: str | None = None
    clean: str | None = None
    id: str | None = None
    split: str | None = None
    extra: tuple[str, ...] = ()
    clean_guessed: bool = False
    label_guessed: bool = False
    id_guessed: bool = False
    split_guessed: bool = False
    flag: str | None = None  # a column that says whether a row was verified, not what its label is
    repeated_id: str | None = None  # a guessed id that does not tell rows apart

    @property
    def used(self) -> tuple[str, ...]:
        return tuple(
            name
            for name in (self.label, self.clean, self.id, self.split, self.flag, self.repeated_id, *self.extra)
            if name is not None
        )


def roles_of(
    names: Sequence[str], source: str, asked: Roles, feature_columns: Sequence[str] | None, labels_required: bool
) -> Roles:
    """Finds the columns that are not features.

    Args:
        names: The columns.
        source: Where they are from, for messages.
        asked: The roles that the user named; the others are guessed.
        feature_columns: The features that the user named, or None.
        labels_required: Whether to refuse a table without labels.

    Raises:
        DataError: A named column does not exist, a guess is ambiguous, a column is named twice, or there are no labels.
    """
    for name in asked.used:
        require(name, names, source)
        if asked.used.count(name) > 1:
            raise DataError(f"{source}: column {name!r} is named for two uses; each column has one")
    free = [name for name in names if name not in asked.used and name not in (feature_columns or ())]
    label = asked.label or guess(free, LABEL_NAMES, "label_column", source) or guess(free, LABEL_IF_NO_OTHER)
    clean = asked.clean or guess(free, CLEAN_NAMES, "clean_column", source)
    if labels_required and label is None and clean is None:
        hint = "; the first line must hold the names of all columns, and nothing above it" if len(names) < 3 else ""
        raise DataError(
            f"{source}: no label column; looked for {', '.join(LABEL_NAMES + LABEL_IF_NO_OTHER)} and found the columns"
            f" {', '.join(names)}; say which it is with label_column{hint}"
        )
    return Roles(
        label=label,
        clean=clean,
        id=asked.id or guess(free, ID_NAMES, "id_column", source),
        split=asked.split or guess(free, SPLIT_NAMES),
        extra=asked.extra,
        clean_guessed=asked.clean is None and clean is not None,
        label_guessed=asked.label is None and label is not None,
        id_guessed=asked.id is None,
        split_guessed=asked.split is None,
    )


def require(name: str, names: Sequence[str], source: str) -> None:
    """Refuses a name that is not a column, and suggests the nearest ones."""
    if name not in names:
        raise DataError(f"{source}: no column {name!r}; {nearest(name, names)}")


def plain(name: str) -> str:
    """Spells "Clean Label" and "clean-label" as "clean_label", without signs that nobody sees."""
    seen = "".join(sign for sign in name if sign.isprintable() or sign.isspace())
    return re.sub(r"[\s-]+", "_", seen.strip().lower())


def guess(names: Sequence[str], guesses: Sequence[str], argument: str = "", source: str = "") -> str | None:
    """The one name that matches a guess, in any spelling; None if there is none."""
    return the_one([name for name in names if plain(name) in guesses], argument, source)


def the_one(found: Sequence[str], argument: str, source: object) -> str | None:
    """The only one of some names, or None; refuses several, and says which argument decides."""
    if len(found) > 1:
        raise DataError(f"{source}: {' and '.join(map(repr, found))} could both be meant; say which with {argument}")
    return found[0] if found else None


def names_of_array(key: str, width: int) -> list[str]:
    """Names for the columns of an array."""
    return [f"{key}[{j}]" for j in range(width)]


def are_array_names(names: Sequence[str]) -> bool:
    """Whether these are names from `names_of_array`, so that columns are known only by number."""
    return len(names) > 0 and list(names) == names_of_array(names[0].removesuffix("[0]"), len(names))


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
class SchemaSummary:
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


def together(parts: Sequence[SchemaSummary | None]) -> SchemaSummary | None:
    """How a file was understood that was read several times, for other columns each time."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    uses = tuple(dict.fromkeys(use for part in known for use in part.uses))
    features = tuple(dict.fromkeys(feature for part in known for feature in part.features))
    used = {*(use.column for use in uses), *(feature.column for feature in features)}
    left_out = {out.column: out for part in reversed(known) for out in part.left_out if out.column not in used}
    remarks = tuple(dict.fromkeys(remark for part in known for remark in part.remarks))
    return SchemaSummary(uses, features, tuple(left_out.values()), remarks, known[0].markers)

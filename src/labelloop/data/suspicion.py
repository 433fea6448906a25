"""Columns that may give the label away, and numbers that may be no numbers. Each is named, with what was decided.

And columns that become many numbers, of which a split of a tree sees a few at random: they are used if they help a
small forest to predict the given label of rows that it has not seen. Labels never decide what the numbers are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelloop.data.classes import typed
from labelloop.data.column_kinds import Kind
from labelloop.data.columns import plain
from labelloop.data.encoding import Column, are_categories, encode_columns
from labelloop.types import MISSING, Floats, Labels

ENOUGH = 5  # rows on each side, to say anything
SURE = 20  # rows, to call two columns the same
ALIKE = 0.98  # of the rows
SENTINEL = re.compile(r"-?9{2,}(\.0)?|-9(\.0)?|-1(\.0)?")  # how people mark a missing number
MOST_SENTINELS = 0.5  # of the rows
CODE_NAME = re.compile(r"(^|_)(zip|zipcode|zip_code|postal_code|postcode|plz|fips|area_code|phone|ssn|isbn|iban)$")
WIDE = 12  # numbers; a column of fewer is always worth them
ROWS = 3000  # to judge by
TREES = 50
LEAF = 3  # rows
FEWEST = 30  # rows, to judge at all
MUST_ADD = 0.5  # standard errors of an accuracy that a column must add


@dataclass(frozen=True)
class Labelled:
    """The labels of rows as numbers, for comparison with columns.

    Attributes:
        given: Given labels [n], -1 where missing.
        clean: Clean labels [n], -1 where missing.
        names: The classes by number, in lower case.
    """

    given: Labels
    clean: Labels
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, labels: NDArray | None, clean_labels: NDArray | None, markers: Sequence[str], source: str
    ) -> Labelled | None:
        """From labels of any type; None if there are none."""
        columns = [
            None if values is None else typed(values, f"{source}: {what}", markers)
            for what, values in (("label", labels), ("clean_label", clean_labels))
        ]
        count = next((len(column[0]) for column in columns if column is not None), 0)
        texts = [
            np.full(count, "", dtype=object) if column is None else np.where(column[1], "", column[0].astype(str))
            for column in columns
        ]
        names = np.unique(np.concatenate([text.astype(str) for text in texts]))
        names = names[names != ""]
        if not len(names):
            return None
        given, clean = (
            np.where(text == "", MISSING, np.searchsorted(names, text.astype(str))).astype(np.int64) for text in texts
        )
        return cls(given, clean, tuple(name.lower() for name in names))


def why_never(kind: Kind, labelled: Labelled | None) -> str | None:
    """Why a column is never used: it is known on clean rows only, or says which rows are clean; None for any other."""
    if labelled is None:
        return None
    clean = labelled.clean != MISSING
    if min(clean.sum(), (~clean).sum()) < ENOUGH:
        return None
    codes = _codes(kind)
    usual = _usual(codes[~clean])
    if (codes[~clean] == usual).mean() >= ALIKE and (codes[clean] == usual).mean() <= 1 - ALIKE:
        value = "" if usual < 0 else f": {_example(kind, codes, usual)} in the others"
        return f"known on clean rows only{value}"
    usual = _usual(codes[clean])
    if (codes[clean] == usual).mean() >= ALIKE and (codes[~clean] == usual).mean() <= 1 - ALIKE and usual >= 0:
        return f"says which rows are clean: {_example(kind, codes, usual)} in these"
    return None


def why_a_copy(kind: Kind, labelled: Labelled | None) -> str | None:
    """Why a column is nearly a copy of a label or of whether a row is clean; None for any other."""
    if labelled is None or kind.kind in ("text", "date"):
        return None
    codes, clean = _codes(kind), labelled.clean != MISSING
    levels = int(codes.max()) + 1 if len(codes) else 0
    if not 2 <= levels <= len(labelled.names) + 1:
        return None
    if _same(codes, labelled.given) and (_follows_errors(codes, labelled) or _named_alike(kind, labelled)):
        return "nearly equal to the given label"
    if _same(codes, labelled.clean) and _named_alike(kind, labelled):
        return "nearly equal to the clean label"
    if levels == 2 and min(clean.sum(), (~clean).sum()) >= SURE and _same(codes, clean.astype(np.int64)):
        return "nearly equal to whether a row is clean"
    return None


def too_good(kind: Kind, labelled: Labelled | None) -> str | None:
    """A remark on a column that tells the label of nearly every row, but may well do so by itself."""
    if labelled is None or kind.kind in ("text", "date"):
        return None
    codes = _codes(kind)
    if not 2 <= int(codes.max(initial=0)) + 1 <= len(labelled.names) + 1:
        return None
    for what, labels in (("clean", labelled.clean), ("given", labelled.given)):
        if _same(codes, labels):
            return (
                f"{kind.name!r} tells the {what} label of nearly every row that has one, and is used; if it was made"
                " from the labels, say so with leave_out"
            )
    return None


def _follows_errors(codes: Labels, labelled: Labelled) -> bool:
    """Whether a column that is the same as the given label is so in clean rows whose given label is wrong too."""
    known = (codes >= 0) & (labelled.given >= 0)
    usual = {code: _usual(labelled.given[known & (codes == code)]) for code in np.unique(codes[known]).tolist()}
    wrong = np.flatnonzero(known & (labelled.clean >= 0) & (labelled.clean != labelled.given))
    follows = [usual[int(codes[row])] == labelled.given[row] for row in wrong]
    return len(follows) >= 3 and float(np.mean(follows)) > 0.5


def _codes(kind: Kind) -> Labels:
    """The values of a column numbered from 0; -1 where missing."""
    values = kind.values
    blank = np.isnan(values) if values.dtype.kind == "f" else values == None  # noqa: E711  (elementwise)
    codes = np.full(len(values), -1, dtype=np.int64)
    known = values[~blank]
    codes[~blank] = np.unique(known if values.dtype.kind == "f" else known.astype(str), return_inverse=True)[1]
    return codes


def _usual(codes: Labels) -> int:
    values, counts = np.unique(codes, return_counts=True)
    return int(values[counts.argmax()])


def _example(kind: Kind, codes: Labels, code: int) -> str:
    row = int(np.flatnonzero(codes == code)[0])
    value = kind.values[row]
    return repr(f"{value:g}" if isinstance(value, np.floating) else value)


def _same(codes: Labels, labels: Labels) -> bool:
    """Whether two columns are the same up to names, in nearly every row that has both."""
    both = (codes >= 0) & (labels >= 0)
    if both.sum() < SURE or both.sum() < 0.5 * (labels >= 0).sum():
        return False
    counts = np.zeros((codes[both].max() + 1, labels[both].max() + 1))
    np.add.at(counts, (codes[both], labels[both]), 1)
    if min((counts.sum(axis=0) > 0).sum(), (counts.sum(axis=1) > 0).sum()) < 2:
        return False
    return min(counts.max(axis=0).sum(), counts.max(axis=1).sum()) >= ALIKE * counts.sum()


def _named_alike(kind: Kind, labelled: Labelled) -> bool:
    """Whether the values are the names of the classes, or the column is named as labels are."""
    if re.search(r"label|target|truth|true|gold|verified|correct|annot|(^|_)y(_|$)", plain(kind.name)):
        return True
    values = kind.values
    if values.dtype.kind == "f":
        known = {f"{value:g}" for value in np.unique(values[~np.isnan(values)])}
    else:
        known = {str(value).lower() for value in set(values) - {None}}
    return known <= set(labelled.names)


def sentinel(values: Floats) -> float | None:
    """A number such as -999 or 99999 that stands for a missing one: it occurs more than once, far from all others."""
    known = values[np.isfinite(values)]
    different, counts = np.unique(known, return_counts=True)
    if len(different) < 3:
        return None
    for place, rest in ((0, different[1:]), (len(different) - 1, different[:-1])):
        value = float(different[place])
        spread, away = float(rest[-1] - rest[0]), float(np.abs(rest - value).min())
        often = 2 <= counts[place] <= MOST_SENTINELS * len(known)
        if often and away > max(spread, 1e-12) and SENTINEL.fullmatch(f"{value:.10g}"):
            lone = value in (-1.0, -9.0)  # small numbers that may well be measured
            if not lone or (rest[0] >= 0 and away > 2 * spread):
                return value
    return None


def is_code(name: str, values: NDArray, train: NDArray[np.bool_]) -> tuple[bool, bool]:
    """Whether whole numbers are a code by the name of the column; and whether they repeat enough to be categories."""
    known = values[~np.isnan(values)]
    if not CODE_NAME.search(plain(name)) or not len(known) or (known != np.floor(known)).any():
        return False, False
    texts = np.array([None if np.isnan(value) else f"{value:.0f}" for value in values], dtype=object)
    return True, are_categories(texts, train)


def examined(kind: Kind, texts: NDArray | None, train: NDArray[np.bool_], labelled: Labelled | None) -> Kind | str:
    """A column as it is used, with a remark if something about it is odd; or why it is left out.

    Args:
        kind: The column.
        texts: The same as text, for numbers that may be codes; None if nobody asks.
        train: Masks the rows to judge by [n].
        labelled: The labels; None if there are none.
    """
    if why := why_never(kind, labelled):
        return why
    if why := why_a_copy(kind, labelled):
        return f"{why}; to use it all the same, name it with trust_columns"
    remarks = [kind.remark, too_good(kind, labelled) or ""]
    if texts is not None and train.sum() > 1 and len(set(texts[train])) == 1:
        remarks.append(f"{kind.name!r} holds the same number in every row, which says nothing")
    if kind.kind == "number" and (value := sentinel(kind.values[train])) is not None:
        count = int((kind.values == value).sum())
        kind = replace(kind, values=np.where(kind.values == value, np.nan, kind.values), sentinel=value)
        remarks.append(
            f"{kind.name!r} holds {value:g} in {count} rows, far from all other numbers: read as missing; if it is a"
            " number, name the column with trust_columns"
        )
    if kind.kind == "number" and texts is not None and not kind.form:
        code, repeated = is_code(kind.name, kind.values, train)
        if code and repeated:
            kind = replace(kind, kind="category", values=texts)
            remarks.append(f"{kind.name!r} is a code by its name: read as categories; for numbers, use trust_columns")
        elif code:
            remarks.append(f"{kind.name!r} is a code by its name, but is read as numbers: most codes occur once")
    return replace(kind, remark="; ".join(remark for remark in remarks if remark))


def idle_columns(
    columns: Sequence[Column],
    raw: Mapping[str, NDArray],
    kept: Collection[str],
    given: Labels,
    train: NDArray[np.bool_],
) -> list[str]:
    """The names of the columns of many numbers that do not help to predict the given label.

    Args:
        columns: All fitted columns.
        raw: Their values by name, as for `encode_columns`.
        kept: Columns that stay in any case.
        given: Given labels [n], -1 where missing.
        train: Masks the rows to judge by [n].
    """
    wide = [column.name for column in columns if len(column.encoded_names) > WIDE and column.name not in kept]
    if not wide or len(columns) < 2:
        return []
    numbers = {column.name: encode_columns([column], raw)[1] for column in columns}
    base = [numbers[column.name] for column in columns if column.name not in wide]
    none = np.zeros((len(train), 0), np.float32)
    return not_worth_it(np.hstack([none, *base]), {name: numbers[name] for name in wide}, given, train)


def not_worth_it(base: Floats, wide: Mapping[str, Floats], given: Labels, train: NDArray[np.bool_]) -> list[str]:
    """The columns that do not help, greedily: the best one first, each added to those that do.

    Args:
        base: The numbers of all other columns [n, D].
        wide: By column, its numbers [n, K].
        given: Given labels [n], -1 where missing.
        train: Masks the rows to judge by [n].
    """
    rows = np.flatnonzero(train & (given != MISSING))
    rows = rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:ROWS])]
    labels = given[rows]
    if len(rows) < FEWEST or len(np.unique(labels)) < 2:
        return []
    parts = {name: values[rows] for name, values in wide.items()}
    kept = base[rows]
    accuracy = _out_of_bag(kept, labels) if kept.shape[1] else np.bincount(labels).max() / len(labels)
    alone = {name: _out_of_bag(np.hstack([kept, values]), labels) for name, values in parts.items()}
    left_out, first = [], True
    for name in sorted(alone, key=lambda name: (-alone[name], name)):
        together = np.hstack([kept, parts[name]])
        found = alone[name] if first else _out_of_bag(together, labels)
        if found > accuracy + MUST_ADD * np.sqrt(accuracy * (1 - accuracy) / len(rows)):
            kept, accuracy, first = together, found, False
        else:
            left_out.append(name)
    return [] if len(left_out) == len(wide) and not base.shape[1] else left_out


def _out_of_bag(inputs: Floats, labels: Labels) -> float:
    """The share of given labels that a forest predicts for rows it has not seen."""
    from sklearn.ensemble import ExtraTreesClassifier  # slow to import

    forest = ExtraTreesClassifier(TREES, bootstrap=True, min_samples_leaf=LEAF, random_state=0, n_jobs=1)
    forest.fit(inputs, labels)
    votes = np.zeros((len(labels), len(forest.classes_)))
    for tree, seen in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        out = np.ones(len(labels), bool)
        out[seen] = False
        votes[out] += tree.predict_proba(inputs[out])
    return float((forest.classes_[votes.argmax(axis=1)] == labels).mean())

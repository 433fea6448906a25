"""Columns that may leak the label, and numbers that may not be numbers. Each is reported, with the decision.

A column that becomes many numbers, of which a split of a tree sees a few at random, is used only if it helps a small
forest to predict the given labels of held-out rows. Labels never decide what the numbers are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from labelloop.data.classes import typed
from labelloop.data.column_kinds import Kind, without_sentinels
from labelloop.data.columns import plain
from labelloop.data.encoding import Column, are_categories, encode_columns, is_blank, is_date
from labelloop.data.questions import lost_digits, variants
from labelloop.errors import some
from labelloop.types import MISSING, Floats, Labels

ENOUGH = 5  # rows, to say anything
SURE = 20  # rows, to call two columns the same
ALIKE = 0.98  # of the rows
NEARLY = 0.9  # of the rows, to mention it
OFTEN = 0.25  # of the clean rows: more than chance, where hardly any other row has such a value
# How people mark a missing number: 99, 998, -999, -999.25, 1e20, and -1 to -9.
SENTINEL = re.compile(r"-?9+[6-9](\.25)?|-[1-9]|-?[19](\.\d+)?e\+\d+")
MOST_SENTINELS = 0.5  # of the rows
FAR = 10  # times the spread of all other numbers
NO_DATES = ("0001-01-01", "1899-12-30", "1900-01-01", "1970-01-01", "9999-12-31")  # that mean a missing one
CODE_NAME = re.compile(r"(^|_)(zip|zipcode|postcode|plz|fips|phone|ssn|isbn|iban|naics|code)$")
ID_NAME = re.compile(r"(^|_)ids?$")
PACKED_DATE = re.compile(r"(19|20)\d{6}")
WORD = re.compile(r"[^\W_]+")
DATES = 10  # different ones, to call whole numbers dates
WIDE = 12  # numbers; a column of fewer is always worth them
ROWS = 3000  # to judge by
LOOKED_AT = 200  # numbers that were texts
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
        count = next((len(values) for values in (labels, clean_labels) if values is not None), 0)
        texts = [np.full(count, "", dtype=str)] * 2
        for place, (what, values) in enumerate((("label", labels), ("clean_label", clean_labels))):
            if values is not None:
                found, missing = typed(values, f"{source}: {what}", markers)
                texts[place] = np.where(missing, "", found.astype(str))
        names = np.setdiff1d(np.concatenate(texts), [""])
        if not len(names):
            return None
        given, clean = (np.where(text == "", MISSING, np.searchsorted(names, text)).astype(np.int64) for text in texts)
        return cls(given, clean, tuple(name.lower() for name in names))


def why_never(kind: Kind, labelled: Labelled | None) -> str | None:
    """Why a column is never used: it is known on clean rows only, or says which rows are clean; None for any other."""
    if labelled is None:
        return None
    clean = labelled.clean != MISSING
    if min(clean.sum(), (~clean).sum()) < 2:
        return None
    codes = _codes(kind)
    usual = _usual(codes[~clean])
    others, known = (codes[~clean] != usual).mean(), codes[clean] != usual
    many = known.sum() >= ENOUGH and known.mean() >= OFTEN
    if (others <= 1 - ALIKE and many) or (not others and (known.all() or (usual < 0 and known.any()))):
        value = "" if usual < 0 else f": {_example(kind, codes, usual)} in the others"
        return f"known on clean rows only{value}"
    usual = _usual(codes[clean])
    same, others = (codes[clean] == usual).mean(), (codes[~clean] == usual).mean()
    if min(clean.sum(), (~clean).sum()) >= ENOUGH and same >= ALIKE and others <= 1 - ALIKE and usual >= 0:
        return f"reveals which rows are clean: {_example(kind, codes, usual)} in these"
    return None


def why_a_copy(kind: Kind, labelled: Labelled | None) -> str | None:
    """Why a column is nearly a copy of a label or of whether a row is clean; None for any other."""
    if labelled is None or kind.kind == "date":
        return None
    codes, clean, few = _codes(kind), labelled.clean != MISSING, len(labelled.names) + 1
    levels = int(codes.max()) + 1 if len(codes) else 0
    if kind.kind == "text" or (kind.kind == "category" and levels > few):
        rows = np.union1d(np.flatnonzero(clean)[:ROWS], np.arange(len(clean))[:ROWS])
        labelled = replace(labelled, given=labelled.given[rows], clean=labelled.clean[rows])
        codes = _mentions(kind.values[rows], labelled.names)
        named = _same(codes, labelled.given) and _follows_errors(codes, labelled)
        return "holds the name of the given label, even where that is wrong" if named else None
    if not 2 <= levels <= few:
        return None
    if _same(codes, labelled.given) and (_follows_errors(codes, labelled) or _named_alike(kind, labelled)):
        return "nearly equal to the given label"
    if _same(codes, labelled.clean) and _named_alike(kind, labelled):
        return "nearly equal to the clean label"
    if levels == 2 and min(clean.sum(), (~clean).sum()) >= SURE and _same(codes, clean.astype(np.int64)):
        return "nearly equal to whether a row is clean"
    if _follows_errors(codes, labelled):
        return "follows the given label, even where that is wrong"
    return None


def too_good(kind: Kind, labelled: Labelled | None) -> str | None:
    """A remark on a column that tells the label of nearly every row, but may well do so by itself."""
    if labelled is None or kind.kind == "text":
        return None
    codes = _codes(kind)
    few = 2 <= int(codes.max(initial=0)) + 1 <= len(labelled.names) + 1 and kind.kind != "date"
    alike = NEARLY if few and _named_alike(kind, labelled) else ALIKE
    for what, labels in (("clean", labelled.clean), ("given", labelled.given)):
        if few and _same(codes, labels, alike):
            rows = "nearly every row that has one" if alike == ALIKE else f"{100 * alike:.0f}% of the rows or more"
            return f"{kind.name!r} predicts the {what} label of {rows}, and is used; if derived from it, use leave_out"
    if kind.kind == "number" and not few and _scores_follow_errors(kind.values, labelled):
        words = "follows the given label, even where that is wrong, and is used; if derived from it, use leave_out"
        return f"{kind.name!r} {words}"
    if _tells_clean(codes, labelled.clean != MISSING, ordered=kind.kind != "category"):
        return f"{kind.name!r} reveals which rows are clean, and is used; if checking a row changes it, use leave_out"
    return None


def _tells_clean(codes: Labels, clean: NDArray[np.bool_], ordered: bool) -> bool:
    """Whether a few values, or all above or below some value, stand in nearly all clean rows and hardly any other."""
    if min(clean.sum(), (~clean).sum()) < SURE or codes.max() < 0:
        return False
    if (levels := int(codes.max()) + 1) <= len(codes) / ENOUGH / 2:
        mostly = np.array([clean[codes == k].mean() > 0.5 for k in range(levels)])
        found = mostly[codes] & (codes >= 0)
        if found[clean].mean() >= NEARLY and found[~clean].mean() <= 1 - NEARLY:
            return True
    ends = [np.quantile(codes[rows], end) for rows in (clean, ~clean) for end in (1 - NEARLY, NEARLY)]
    return ordered and bool(ends[0] > ends[3] or ends[1] < ends[2])


def _mentions(texts: NDArray, names: Sequence[str]) -> Labels:
    """The class whose name stands in a text as a word, -1 where none or several do."""

    def words(text: str) -> str:
        return f" {' '.join(WORD.findall(text.lower()))} "

    known, codes = [words(name) for name in names], []
    for text in map(words, (text or "" for text in texts)):
        found = [k for k, name in enumerate(known) if name.strip() and name in text]
        codes.append(found[0] if len(found) == 1 else -1)
    return np.array(codes, dtype=np.int64)


def _follows_errors(codes: Labels, labelled: Labelled) -> bool:
    """Whether the given label tells a column, in clean rows whose given label is wrong too."""
    known = (codes >= 0) & (labelled.given >= 0)
    if known.sum() < SURE:
        return False
    usual = np.full(len(labelled.names), -1)
    for label in np.unique(labelled.given[known]):
        usual[label] = _usual(codes[known & (labelled.given == label)])
    if (usual[labelled.given[known]] == codes[known]).mean() < ALIKE:
        return False
    wrong = known & (labelled.clean >= 0) & (usual[labelled.given] != usual[labelled.clean])
    follows = (usual[labelled.given] == codes)[wrong]
    return len(follows) >= 3 and float(follows.mean()) > 0.5


def _scores_follow_errors(values: Floats, labelled: Labelled) -> bool:
    """The same for ranges of numbers, as for the score of a model that has seen the given labels."""
    from sklearn.tree import DecisionTreeClassifier  # slow to import

    rows = np.flatnonzero((labelled.given >= 0) & np.isfinite(values))[:ROWS]
    part = replace(labelled, given=labelled.given[rows], clean=labelled.clean[rows])
    if ((part.clean >= 0) & (part.clean != part.given)).sum() < 3:
        return False
    scores, most = values[rows, None], max(len(np.unique(part.given)), 2)
    trees = (DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0) for leaves in {2, most})
    return any(_follows_errors(tree.fit(scores, part.given).apply(scores), part) for tree in trees)


def _codes(kind: Kind) -> Labels:
    """The values of a column numbered from 0; -1 where missing."""
    known = ~is_blank(kind.values)
    codes = np.full(len(known), -1, dtype=np.int64)
    values = kind.values[known]
    codes[known] = np.unique(values if values.dtype.kind == "f" else values.astype(str), return_inverse=True)[1]
    return codes


def _usual(codes: Labels) -> int:
    values, counts = np.unique(codes, return_counts=True)
    return int(values[counts.argmax()])


def _example(kind: Kind, codes: Labels, code: int) -> str:
    value = kind.values[np.argmax(codes == code)]
    return repr(f"{value:g}" if isinstance(value, np.floating) else value)


def _same(codes: Labels, labels: Labels, alike: float = ALIKE) -> bool:
    """Whether two columns are the same up to names, in nearly every row that has both."""
    both = (codes >= 0) & (labels >= 0)
    if both.sum() < SURE or both.sum() < 0.5 * (labels >= 0).sum():
        return False
    counts = np.zeros((codes[both].max() + 1, labels[both].max() + 1))
    np.add.at(counts, (codes[both], labels[both]), 1)
    if min((counts.sum(axis=0) > 0).sum(), (counts.sum(axis=1) > 0).sum()) < 2:
        return False
    return min(counts.max(axis=0).sum(), counts.max(axis=1).sum()) >= alike * counts.sum()


def _named_alike(kind: Kind, labelled: Labelled) -> bool:
    """Whether the values are the names of the classes, or the column is named as labels are."""
    if re.search(r"label|target|truth|true|gold|verified|correct|annot|(^|_)y(_|$)", plain(kind.name)):
        return True
    values = {value for value in kind.values.tolist() if value is not None and value == value}
    return {f"{v:g}" if isinstance(v, float) else str(v).lower() for v in values} <= set(labelled.names)


def sentinels(values: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Numbers such as -999 or 99999 that stand for a missing one, repeated and far from all others; and those that may.

    The others may be numbers: -1 where nothing else is negative, or one that is very far away.
    """
    different, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    often = (counts >= 2) & (counts <= MOST_SENTINELS * counts.sum())
    first, last = 0, len(different)

    def is_mark(k: int) -> bool:
        return bool(often[k]) and SENTINEL.fullmatch(f"{different[k]:.7g}") is not None

    while first < last and is_mark(first):
        first += 1
    while last > first and is_mark(last - 1):
        last -= 1
    rest, marks = different[first:last].astype(np.float64), [*different[:first], *different[last:]]
    if len(rest) < 2:
        return (), ()
    spread, sure = max(float(rest[-1] - rest[0]), 1e-12), []
    for mark in map(float, marks):
        away = float(np.abs(rest - mark).min())
        small = -10 < mark < 0  # which may well be measured
        if (rest[0] >= 0 and away > 2 * spread) if small else away > spread:
            sure.append(mark)
    left = different[~np.isin(different, sure)].astype(np.float64)
    negative = marks if first <= 3 and rest[0] >= 0 else ()
    frequent = different[counts >= ENOUGH * max(1, np.median(counts[first:last]))]
    perhaps = [mark for mark in map(float, marks) if (mark < 0 and mark in negative) or mark in frequent]
    if len(left) >= ENOUGH + 2 and counts.sum() >= SURE:
        perhaps += [end for end in (left[0], left[-1]) if np.abs(left[1:-1] - end).min() > FAR * np.ptp(left[1:-1])]
    return tuple(sure), tuple(float(mark) for mark in dict.fromkeys(perhaps) if mark not in sure)


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
        return f"{why}; to use it anyway, name it with trust_columns"
    remarks = [kind.remark, too_good(kind, labelled) or ""]
    if texts is not None and train.sum() > 1 and len(set(texts[train])) == 1:
        remarks.append(f"{kind.name!r} holds the same number in every row, which carries no information")
    if texts is not None and not kind.form:
        is_id, is_code = (name.search(plain(kind.name)) for name in (ID_NAME, CODE_NAME))
        code = (is_id or is_code) and all(text is None or re.fullmatch(r"-?\d+(\.0)?", text) for text in texts)
        if code and are_categories(texts, train):
            kind = replace(kind, kind="category", values=texts)
            remarks.append(f"{kind.name!r} is a code by its name: read as categories; for numbers, use trust_columns")
        elif code and is_id:
            return "an id by its name, different in most rows; to use it as a number, name it with trust_columns"
        elif code:
            remarks.append(f"{kind.name!r} is a code by its name, but is read as numbers: most codes occur once")
        elif _are_dates(texts):
            kind = replace(kind, kind="date", values=texts, form="%Y%m%d")
            remarks.append(f"{kind.name!r} holds dates such as {texts[0]}; for numbers, name it with trust_columns")
        elif lost := lost_digits([text for text in texts[:LOOKED_AT] if text is not None]):
            remarks.append(f"{kind.name!r} is read as numbers, {lost}")
    return _odd_values(kind, train, remarks)


def _are_dates(texts: NDArray) -> bool:
    """Whether whole numbers are dates such as 20240131."""
    known = set(texts) - {None}
    return len(known) >= DATES and all(PACKED_DATE.fullmatch(text) and is_date(text, "%Y%m%d") for text in known)


def _odd_values(kind: Kind, train: NDArray[np.bool_], remarks: list[str]) -> Kind:
    """The column without numbers that stand for missing ones, and with remarks on its values."""
    name, seen = kind.name, kind.values[train]
    if kind.kind == "number":
        sure, perhaps = sentinels(seen)
        if sure:
            count = int(np.isin(kind.values, np.array(sure, np.float32)).sum())
            named = some(f"{mark:g}" for mark in sure)
            kind = replace(kind, values=without_sentinels(kind.values, sure), sentinels=sure)
            remarks.append(
                f"{name!r} holds {named} in {count} rows, far from all other numbers: read as missing; if it is a"
                " number, name the column with trust_columns"
            )
        if perhaps:
            named = ",".join(f"{mark:g}" for mark in perhaps)
            remarks.append(f"{name!r} holds {named}, unlike all other numbers; if it means missing, say --na={named}")
    elif kind.kind == "date":
        marks = [text for text in set(seen) - {None} if text.startswith(NO_DATES) and (seen == text).sum() > 1]
        remarks += [
            f"{name!r} holds {mark} more than once; if it means missing, say --na={quote(mark)}" for mark in marks
        ]
    elif kind.kind == "category" and (alike := variants(sorted(set(seen) - {None}))):
        named = some(" and ".join(map(repr, group)) for group in alike)
        remarks.append(f"{name!r} holds {named} as different categories; if they are one, write them alike")
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
    base = [np.zeros((len(train), 0), np.float32), *(numbers[name] for name in numbers if name not in wide)]
    return not_worth_it(np.hstack(base), {name: numbers[name] for name in wide}, given, train)


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
        out = ~np.isin(np.arange(len(labels)), seen)
        votes[out] += tree.predict_proba(inputs[out])
    return float((forest.classes_[votes.argmax(axis=1)] == labels).mean())

"""Nasty inputs of 46 kinds: each is refused with a reason, or read in the right way and said; none in silence."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from labelloop.data.problem import check
from labelloop.data.readers import read_table
from labelloop.errors import DataError, UsageError
from labelloop.workflows.summary import schema_text

COUNT = 120
RNG = np.random.default_rng(0)
TRUE = np.arange(COUNT) % 3
GIVEN = np.where(RNG.random(COUNT) < 0.2, (TRUE + 1) % 3, TRUE)
NAMES = np.array(["ant", "bee", "cat"])
VERIFIED = np.arange(COUNT) % 4 == 0
SIZE = (TRUE + RNG.normal(size=COUNT)).round(3)


def given(i):
    return str(NAMES[GIVEN[i]])


def clean(i):
    return str(NAMES[TRUE[i]]) if VERIFIED[i] else ""


def rows(more=None, label=given, verified=clean, head=("label", "clean_label"), join=","):
    """The text of a file: a number, a further column, the given and the clean label."""
    names = ["size", *(["more"] if more else []), *head]
    lines = [join.join(names)]
    for i in range(COUNT):
        cells = [str(SIZE[i]), *([str(more(i))] if more else []), label(i), verified(i)]
        lines.append(join.join(f'"{cell}"' if join in cell else cell for cell in cells))
    return "\n".join(lines) + "\n"


def read(content, path, ending=".csv"):
    """All that a user is told: the summary and the warnings, or the error."""
    path = path / f"rows{ending}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            table = read_table(path)
            check(table)
            text = schema_text(table)
        except (DataError, UsageError) as error:
            return f"REFUSED {error}"
    return "\n".join([text, *(str(warning.message) for warning in found)])


def every(i, step, odd, usual):
    return odd if i % step == 0 else usual


KINDS = {
    # leaks
    "a copy of the clean label": (rows(lambda i: clean(i) or "pending"), "'more' .known on clean rows only: 'pending'"),
    "blank elsewhere": (rows(clean), r"'more' \(known on clean rows only\)"),
    "verified by": (rows(lambda i: "ana" if VERIFIED[i] else ""), "'more' .known on clean rows only"),
    "a flag of clean rows": (rows(lambda i: int(VERIFIED[i])), "'more' .known on clean rows only"),
    "the label as numbers": (rows(lambda i: GIVEN[i]), "'more' .nearly equal to the given label"),
    "the label in other words": (rows(lambda i: f"kind {GIVEN[i]}"), "'more' .nearly equal to the given label"),
    "the truth by name": (rows(lambda i: NAMES[TRUE[i]]), "'more' .nearly equal to the clean label"),
    "the truth by another name": (rows(lambda i: f"t{TRUE[i]}"), "'more' predicts the clean label of nearly every row"),
    "known on half of the clean rows": (
        rows(lambda i: clean(i) if i % 8 else ""),
        r"'more' \(known on clean rows only\)",
    ),
    "one class against the rest": (rows(lambda i: int(GIVEN[i] == 1)), "'more' .follows the given label, even where"),
    "folders named by the label": (
        rows(lambda i: f"data/{given(i)}/{i}.tif"),
        "'more' .holds the name of the given label, even where",
    ),
    "another column of labels": (
        rows(lambda i: every(i, 11, "ant", given(i))),
        "'more' predicts the given label of 90% of the rows",
    ),
    "batches of clean rows": (
        rows(lambda i: i % 3 + 10 * VERIFIED[i]),
        "'more' reveals which rows are clean, and is used",
    ),
    "when a row was checked": (
        rows(lambda i: f"202{3 + VERIFIED[i]}-01-{1 + i % 28:02d}"),
        "'more' reveals which rows are clean",
    ),
    "the score of a model that saw the labels": (
        rows(lambda i: round(float(GIVEN[i] + SIZE[i] / 100), 4)),
        "'more' follows the given label, even where that is wrong, and is used",
    ),
    "such a score of one class": (
        rows(lambda i: round(float((GIVEN[i] == 1) + SIZE[i] / 100), 4)),
        "'more' follows the given label, even where that is wrong, and is used",
    ),
    # numbers that are none
    "-999": (rows(lambda i: every(i, 9, -999, i % 40)), "'more' holds -999 in 14 rows, .* read as missing"),
    "99999": (rows(lambda i: every(i, 9, 99999, 20 + i % 40)), "'more' holds 99999 in 14 rows, .* read as missing"),
    "two markers": (
        rows(lambda i: every(i, 9, -999, every(i, 10, -998, i % 40))),
        "'more' holds -999, -998 in 24 rows, .* read as missing",
    ),
    "a marker near the numbers": (
        rows(lambda i: every(i, 9, -1, i % 40)),
        "'more' holds -1, unlike all other numbers; if it means missing, say --na=-1",
    ),
    "a shop by its number": (rows(lambda i: i % 7).replace("more", "shop_id"), "'shop_id' is a code by its name"),
    "customers, twice each": (rows(lambda i: i // 2).replace("more", "user_id"), "'user_id' .an id by its name"),
    "telephone numbers": (
        rows(lambda i: 4915200000 + 97 * i).replace("more", "phone"),
        "'phone' is a code by its name, but is read as numbers: most codes occur once",
    ),
    "seasons": (rows(lambda i: f"20{i % 9 + 10}_{i % 9 + 11}"), "'more' .category of 9"),
    "zip codes": (
        rows(lambda i: f"{10000 + i % 6}", head=("label", "clean_label")).replace("more", "zip"),
        "'zip' is a code by its name: read as categories",
    ),
    "leading zeros": (rows(lambda i: f"0{i % 50:03d}"), "'more' is read as numbers, without its leading zeros"),
    "versions": (
        rows(lambda i: f"1.{i % 11}"),
        "'more' is read as numbers, '1.10' as 1.1; if these are versions, name it with --category-columns",
    ),
    "lists as text": (rows(lambda i: f"[{i}. {i % 5}. 3.5]"), "'more' holds lists of numbers as text; save them"),
    "a row number": (rows(lambda i: i), "'more' holds each number from 0 to 119 once"),
    "a constant": (rows(lambda i: 7), "'more' holds the same number in every row"),
    "an id by its name": (rows(lambda i: 5000 + 3 * i).replace("more", "user_id"), "'user_id' .an id by its name"),
    "ids of letters": (rows(lambda i: f"x{i}y"), "'more' .120 different values in 120 rows that share no words"),
    "a repeated id": (rows(lambda i: f"p{i // 2}").replace("more", "id"), "'id' .an id that repeats"),
    "infinity": (rows(lambda i: every(i, 50, "inf", i)), "REFUSED .*infinite"),
    "a typo among numbers": (
        rows(lambda i: every(i, 100, "12o", i)),
        "REFUSED .*'more' is not numbers: row 0 .* '12o'",
    ),
    "numbers too fine": (rows(lambda i: 1_700_000_000_000 + i), "'more' holds 120 different numbers, but only"),
    "time of day": (rows(lambda i: f"{i % 24:02d}:30"), "'more' is read as numbers: '00:30:00' as 0.5"),
    # money, percent, separators
    "dollars": (rows(lambda i: f"${1000 + i:,}.21"), r"'more' is read as numbers: '\$1,000.21' as 1000.21"),
    "percent": (rows(lambda i: f"{i}%"), "'more' is read as numbers: '100%' as 100"),
    "thousands": (rows(lambda i: f"{1751 + 1000 * i:,}"), "'more' is read as numbers: '100,751' as 100751"),
    "decimal commas": (rows(lambda i: f"{i},5"), "'more' is read as numbers: '100,5' as 100.5"),
    "two currencies": (rows(lambda i: f"{'$€'[i % 2]}{i}"), "all read as the same unit"),
    "a unit": (rows(lambda i: f"{i} kg"), "'more' is read as numbers: '100 kg' as 100"),
    "thousands and millions": (
        rows(lambda i: f"{i}{'KM'[i % 2]}"),
        "'more' .120 different values in 120 rows that share",
    ),
    "two units": (rows(lambda i: f"{i} {'kg' if i % 2 else 'g'}"), r"'more' is not .* units differ \('g', 'kg'\)"),
    "money with a slip": (rows(lambda i: every(i, 100, "free", f"${i}.50")), "REFUSED .*row 0 holds 'free'"),
    # dates
    "day or month first": (
        rows(lambda i: f"0{1 + i % 9}/0{1 + i % 5}/2024"),
        "'more' is read as dd/mm/yyyy, but no day is above 12",
    ),
    "years of two digits": (rows(lambda i: f"{1 + i % 12}/{1 + i % 28:02d}/24"), "'more' .date mm/dd/yy,"),
    "months by their names": (rows(lambda i: f"{1 + i % 28}-Jan-24"), "'more' .date dd-mon-yy, as year"),
    "dates as whole numbers": (
        rows(lambda i: 20240101 + 100 * (i % 12) + i % 28),
        "'more' holds dates such as 20240101; for numbers, name it with --trust-columns",
    ),
    "dates, some with a time": (
        rows(lambda i: f"2024-01-{1 + i % 28:02d}{every(i, 2, '', 'T10:00')}"),
        "'more' .date yyyy-mm-dd",
    ),
    "the year 1900": (
        rows(lambda i: every(i, 9, "1900-01-01", f"2024-01-{1 + i % 28:02d}")),
        "'more' holds 1900-01-01 more than once; if it means missing, say --na=1900-01-01",
    ),
    "categories in two spellings": (
        rows(lambda i: ("red", "Red", "blue", "green", "grey")[i % 5]),
        "'more' holds 'Red' and 'red' as different categories",
    ),
    "a slip among dates": (
        rows(lambda i: every(i, 100, "soon", f"2024-01-{1 + i % 28:02d}")),
        "REFUSED .*not dates: row 0",
    ),
    # labels
    "several labels in one": (
        rows(
            label=lambda i: ("a", "b", "a|b")[GIVEN[i]],
            verified=lambda i: ("a", "b", "a|b")[TRUE[i]] if VERIFIED[i] else "",
        ),
        "1 of 3 classes look like several labels in one",
    ),
    "lists of labels as text": (
        rows(
            label=lambda i: ("['a']", "['b']", "['a', 'b']")[GIVEN[i]],
            verified=lambda i: ("['a']", "['b']", "['a', 'b']")[TRUE[i]] if VERIFIED[i] else "",
        ),
        "1 of 3 classes look like several labels in one",
    ),
    "a bar after every label": (
        rows(
            label=lambda i: ("a|", "b|", "a|b|")[GIVEN[i]],
            verified=lambda i: ("a|", "b|", "a|b|")[TRUE[i]] if VERIFIED[i] else "",
        ),
        "1 of 3 classes look like several labels in one",
    ),
    "some clean labels are pending": (
        rows(verified=lambda i: clean(i) or every(i, 5, "pending", "")),
        "clean labels hold 'pending' .* mark it as missing .--missing=pending.",
    ),
    "as many classes as rows": (
        rows(label=lambda i: f"c{i}", verified=lambda i: f"c{i}" if VERIFIED[i] else ""),
        "REFUSED .*120 classes in 120 labelled rows",
    ),
    "labels that are measurements": (
        rows(label=lambda i: str(i * 17 + 3), verified=lambda i: str(i * 17 + 3) if VERIFIED[i] else ""),
        "REFUSED .*looks like a measurement",
    ),
    "two spellings": (rows(label=lambda i: every(i, 7, given(i).upper(), given(i))), "count as different classes"),
    "blanks around labels": (rows(label=lambda i: every(i, 7, f" {given(i)}", given(i))), "are read as one class"),
    "-1 as a label": (
        rows(
            label=lambda i: every(i, 7, "-1", str(GIVEN[i] % 2)),
            verified=lambda i: str(TRUE[i] % 2) if VERIFIED[i] else "",
        ),
        "REFUSED .*'-1' occurs .* is it a class or a missing label",
    ),
    "a class called NA": (rows(label=lambda i: every(i, 7, "NA", given(i))), "NA is used as a class name"),
    "labels in other words than clean ones": (
        rows(verified=lambda i: f"class {TRUE[i]}" if VERIFIED[i] else ""),
        "REFUSED .*share no class",
    ),
    "a class without a clean row": (
        rows(verified=lambda i: clean(i) if TRUE[i] else ""),
        "classes have no clean row .ant.",
    ),
    "verified says yes": (
        rows(head=("label", "verified"), verified=lambda i: "yes" if VERIFIED[i] else "no"),
        "REFUSED .*no clean rows: no row has a clean_label",
    ),
    # files
    "UTF-16": (rows(lambda i: "été" if i % 2 else "hiver").encode("utf-16"), "not in UTF-8: read as UTF-16"),
    "Latin-1": (rows(lambda i: "été" if i % 2 else "hiver").encode("latin-1"), "not in UTF-8: read as Windows-1252"),
    "UTF-32": (rows(lambda i: "été" if i % 2 else "hiver").encode("utf-32"), "not in UTF-8: read as UTF-32"),
    "euros in Latin-1": (rows(lambda i: f"{i} €").encode("cp1252"), "read as Windows-1252 .*'100 €' as 100"),
    "Cyrillic in one byte": (rows(lambda i: "зимой и летом одним цветом").encode("cp1251"), "REFUSED .*not in UTF-8"),
    "semicolons": (rows(lambda i: f"{i},5", join=";"), "fields are separated by ';' and a comma in numbers"),
    "thousands with a point": (
        rows(lambda i: f"{1 + i % 9}.{100 + i}" if i % 2 else i),
        r"'more' is read as numbers, with a decimal point \('2.101'\); if that separates thousands, write 2101",
    ),
    "points beside decimal commas": (
        re.sub(r"(?m)^(-?\d+)\.", r"\1,", rows(lambda i: f"{1 + i % 9}.{100 + i}", join=";")),
        "with a decimal point .*; if that separates thousands",
    ),
    "a title above the names": ("My table\n" + rows(), "REFUSED .*the first line must hold the names of all columns"),
    "a broken line": (rows() + "1,2,3,4,5,6\n", "REFUSED .*line 122 has 6 fields"),
    "a column twice": (rows(lambda i: i).replace("more", "size"), "REFUSED .*columns named twice: 'size'"),
    "no header": (
        rows().partition("\n")[2].replace("ant", "1").replace("bee", "2").replace("cat", "3").replace(",\n", ",1\n"),
        "REFUSED .*the first line holds only numbers",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_misread_in_silence(kind, tmp_path):
    content, expected = KINDS[kind]
    told = read(content, tmp_path)
    assert re.search(expected, told, re.DOTALL), told


def test_there_are_46_kinds_and_more():
    assert len(KINDS) >= 46

"""reviews.jsonl: nothing that was confirmed is lost, and what the answers come to."""

from __future__ import annotations

import threading

import pytest

from labelloop.errors import DataError
from labelloop.runs.reviews import (
    REVIEWS,
    Answer,
    append_answers,
    read_answers,
    reviewed_labels,
    standing,
    verdict,
    verdicts,
)


def answer(row: int, reviewer: str, label: str | None, key: str = "", action: str = "label", undoes: str | None = None):
    return Answer(key or f"{row}-{reviewer}-{label}", row, str(row), reviewer, action, label, "2026-01-01", undoes)


def test_what_is_added_is_read_back(tmp_path):
    first, second = answer(3, "ann", "a <cat>\n"), answer(4, "böb", None, action="unsure")
    size = append_answers(tmp_path, [first])
    assert append_answers(tmp_path, [second]) > size
    assert read_answers(tmp_path)[0] == [first, second]
    assert read_answers(tmp_path, size)[0] == [second]
    assert read_answers(tmp_path / "elsewhere") == ([], 0)


def test_a_line_that_a_crash_cut_short_does_not_count(tmp_path):
    append_answers(tmp_path, [answer(1, "ann", "cat")])
    with (tmp_path / REVIEWS).open("ab") as file:
        file.write(b'{"key": "half')
    found, end = read_answers(tmp_path)
    assert [each.row for each in found] == [1]
    append_answers(tmp_path, [answer(2, "ann", "dog")])
    assert [each.row for each in read_answers(tmp_path)[0]] == [1, 2]
    assert [each.row for each in read_answers(tmp_path, end)[0]] == [2]


def test_lines_of_a_newer_version_are_not_guessed_at(tmp_path):
    (tmp_path / REVIEWS).write_text('{"key": "k", "mood": "good"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="newer version"):
        read_answers(tmp_path)


def test_many_writers_lose_nothing(tmp_path):
    def write(who: int) -> None:
        for row in range(20):
            append_answers(tmp_path, [answer(row, f"r{who}", "cat")])

    threads = [threading.Thread(target=write, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_answers(tmp_path)[0]) == 160


def test_the_last_answer_counts_until_it_is_taken_back():
    said = [answer(1, "ann", "cat", "first"), answer(1, "ann", "dog", "second")]
    assert standing(said)[1, "ann"].label == "dog"
    said.append(answer(1, "ann", None, "third", "undo", "second"))
    assert standing(said)[1, "ann"].label == "cat"
    said.append(answer(1, "ann", None, "fourth", "undo", "first"))
    assert standing(said) == {}
    assert len(standing([said[0], said[0]])) == 1


@pytest.mark.parametrize(
    ("answers", "label", "disputed"),
    [
        ({"ann": "cat"}, "cat", False),
        ({"ann": "cat", "bob": "cat"}, "cat", False),
        ({"ann": "cat", "bob": "dog"}, None, True),
        ({"ann": "cat", "bob": "dog", "eve": "dog"}, "dog", False),
        ({"ann": "cat", "bob": None}, "cat", False),
        ({"ann": None}, None, False),
    ],
)
def test_verdicts(answers, label, disputed):
    found = verdict(answers)
    assert (found.label, found.disputed) == (label, disputed)


def test_disputed_and_skipped_rows_teach_nothing(tmp_path):
    append_answers(
        tmp_path,
        [
            answer(1, "ann", "cat"),
            answer(2, "ann", "cat"),
            answer(2, "bob", "dog"),
            answer(3, "ann", None, action="skip"),
            answer(4, "ann", None, action="unsure"),
        ],
    )
    assert reviewed_labels(tmp_path) == {1: "cat"}
    assert set(verdicts(standing(read_answers(tmp_path)[0]))) == {1, 2, 4}

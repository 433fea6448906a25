"""A review: the order of the rows, several people, and an estimate that moves."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from reported_runs import made_run

from labelloop.errors import DataError, UsageError
from labelloop.report.review.session import LEASE, SECOND, Neighbours, Seat, Session, seat_of
from labelloop.report.review.tally import LiveEstimate
from labelloop.runs.result_files import Preview, write_preview
from labelloop.runs.reviews import read_answers
from labelloop.runs.survey import survey

ANN, BOB, EVE = Seat("ann", "1"), Seat("bob", "1"), Seat("eve", "1")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def open_session(folder, clock=None, neighbours=None) -> Session:
    run = survey(folder)
    confidence = run.numbers("corrected_confidence")
    rows = np.flatnonzero(~run.flags("verified"))
    order = rows[np.argsort(confidence[rows])]
    return Session(run, order.tolist(), neighbours, clock or Clock())


@pytest.fixture
def session(tmp_path):
    return open_session(made_run(tmp_path / "run", classes=("cat", "dog", "owl")))


def answer(session, seat, row, action="accept", label=None, key=None):
    key = key or f"{seat.reviewer}-{seat.tab}-{row}-{action}-{label}"
    return session.decide(seat, [{"row": row, "action": action, "label": label, "key": key}])


def first(session, seat):
    return session.next_rows(seat)[0]["row"]


def test_rows_come_in_the_order_of_the_plan_and_are_kept_for_a_tab(session):
    mine = first(session, ANN)
    assert mine == session.order[0]
    assert first(session, ANN) == mine
    assert first(session, BOB) == session.order[1]
    assert first(session, Seat("ann", "2")) == session.order[2]
    answer(session, ANN, mine)
    assert first(session, ANN) == session.order[3]


def test_a_row_goes_to_another_when_its_tab_is_gone(tmp_path):
    clock = Clock()
    session = open_session(made_run(tmp_path / "run"), clock)
    mine = first(session, ANN)
    clock.now = LEASE + 1
    assert first(session, BOB) == mine


def test_what_was_decided_is_there_in_the_next_session(session):
    rows = [session.order[k] for k in range(5)]
    for row in rows:
        answer(session, ANN, row)
    again = open_session(session.folder)
    assert again.state("ann")["mine"] == 5
    assert first(again, ANN) == session.order[5]


def test_answers(session):
    changed = int(np.flatnonzero(session.rows.changed)[0])
    names = session.classes
    other = next(
        n for n in names if n not in (names[session.rows.given[changed]], names[session.rows.corrected[changed]])
    )
    for action, label, kept in (
        ("keep", None, names[session.rows.given[changed]]),
        ("accept", None, names[session.rows.corrected[changed]]),
        ("label", other, other),
        ("unsure", None, None),
    ):
        assert answer(session, ANN, changed, action, label) == 1
        assert session.card(changed, ANN)["mine"] == kept
    assert answer(session, ANN, changed, "unsure") == 0  # the same answer sent twice counts once
    assert len(read_answers(session.folder)[0]) == 4


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        ({"row": 10**6, "action": "keep", "key": "k" * 8}, "there is no row"),
        ({"row": True, "action": "keep", "key": "k" * 8}, "there is no row"),
        ({"row": 1, "action": "burn", "key": "k" * 8}, "unknown answer"),
        ({"row": 1, "action": "label", "label": "unicorn", "key": "k" * 8}, "not a class"),
        ({"row": 1, "action": "keep"}, "its own key"),
    ],
)
def test_answers_that_make_no_sense_keep_nothing(session, decision, why):
    good = {"row": 1, "action": "unsure", "key": "a-good-one"}
    with pytest.raises(UsageError, match=why):
        session.decide(ANN, [good, decision])
    assert read_answers(session.folder)[0] == []


def test_undo_takes_back_the_last_answer_of_that_reviewer(session):
    a, b, c = session.order[:3]
    answer(session, ANN, a)
    answer(session, BOB, b)
    answer(session, ANN, c, key="the-last-one")
    assert session.undo(ANN)["row"] == c
    assert session.undo(ANN)["row"] == a
    assert session.undo(ANN) is None
    assert session.state("bob")["mine"] == 1
    assert session.undo(ANN, "the-last-one") is None  # taken back already
    assert open_session(session.folder).state("ann")["mine"] == 0


def test_skipped_rows_come_last(session):
    row = first(session, ANN)
    answer(session, ANN, row, "skip")
    assert first(session, ANN) != row
    assert first(session, BOB) == row
    for rest in session.order:
        if rest != row:
            answer(session, ANN, rest)
    session._leases.clear()
    assert first(session, ANN) == row


def test_a_disputed_row_comes_back_with_both_answers(session):
    row = first(session, ANN)
    answer(session, ANN, row, "label", "cat")
    answer(session, BOB, row, "label", "dog")
    state = session.state("ann")
    assert (state["disputed"], state["by_several"], state["agreed"]) == (1, 1, 0)
    card = session.next_rows(ANN)[0]
    assert (card["row"], card["answers"], card["disputed"]) == (row, {"ann": "cat", "bob": "dog"}, True)
    session._leases.clear()
    assert first(session, BOB) != row  # who answered last waits for the others
    answer(session, ANN, row, "label", "dog")
    state = session.state("ann")
    assert (state["disputed"], state["by_several"], state["agreed"]) == (0, 1, 1)


def test_now_and_then_a_row_is_asked_twice(session):
    for row in session.order[:20]:
        answer(session, ANN, row)
    asked = []
    for _ in range(SECOND):
        asked.append(first(session, BOB))
        answer(session, BOB, asked[-1])
    assert [row in session.order[:20] for row in asked] == [False] * (SECOND - 1) + [True]
    assert session.state("bob")["by_several"] == 1


def test_a_grid_has_one_pair_and_only_open_rows(session):
    pair = session.pairs()[0]
    cards = session.grid(ANN, pair["given"], pair["corrected"], 50)
    assert len(cards) == pair["rows"]
    assert {(card["given"], card["proposed"]) for card in cards} == {(pair["given"], pair["corrected"])}
    session.decide(ANN, [{"row": card["row"], "action": "accept", "key": f"from-grid-{card['row']}"} for card in cards])
    assert session.grid(ANN, pair["given"], pair["corrected"], 50) == []
    with pytest.raises(UsageError, match="not a class"):
        session.grid(ANN, "unicorn", "dog", 5)


def test_the_estimate_moves_with_the_decisions(tmp_path):
    confidence = np.array([0.5, 0.6, 0.9, 0.9, 1.0, np.nan])
    clean = np.array([False, False, False, False, True, False])
    share = {"value": 0.75, "low": 0.5, "high": 0.9, "rows": 20}
    live = LiveEstimate(confidence, clean, {"corrected_label_accuracy": share})
    start = live.now()
    assert start["value"] == pytest.approx(1 - 4 * 0.25 / 5)
    live.decide(0, True)
    right = live.now()
    assert right["value"] > start["value"]
    assert right["low"] > start["low"]
    live.decide(0, True, -1)
    assert live.now() == pytest.approx(start)
    live.decide(0, False)
    assert start["value"] < live.now()["value"] < right["value"]  # fixed, but the others are believed less
    for row in (1, 2, 3):
        live.decide(row, True)
    assert live.now()["value"] == pytest.approx(1)
    assert LiveEstimate(confidence, clean, {}).now()["low"] is None


def test_the_csv_says_who_said_what(session):
    a, b = session.order[:2]
    answer(session, ANN, a, "label", "cat")
    answer(session, BOB, a, "label", "dog")
    answer(session, ANN, b, "unsure")
    found = {line["id"]: line for line in csv.DictReader(io.StringIO(session.as_csv()))}
    assert len(found) == 2
    assert found[session.ids[a]]["answer of ann"] == "cat"
    assert (found[session.ids[a]]["clean_label"], found[session.ids[a]]["disputed"]) == ("", "yes")
    assert found[session.ids[b]]["answer of ann"] == "unsure"


def test_what_rows_look_like(tmp_path):
    folder = made_run(tmp_path / "run")
    write_preview(folder, Preview("image", [0, 1], [b"\xff\xd8", None]))
    session = open_session(folder)
    assert session.card(0, ANN)["look"] == {"kind": "image", "jpeg": "/9g="}
    assert session.card(1, ANN)["look"] is None  # its image was gone
    assert session.card(2, ANN)["look"] is None


def test_the_nearest_clean_rows():
    features = np.array([[1, 0], [0.9, 0.1], [0, 1], [-1, 0]], np.float16)
    near = Neighbours(features, np.array([0, -1, 1, 1]))
    assert near.nearest(1) == [0, 2, 3]
    assert near.nearest(0, 1) == [2]


def test_names_and_runs_that_cannot_be_used(tmp_path):
    assert seat_of("  ann  b ", None) == Seat("ann b", "")
    for name in ("", " ", "x" * 61, "a\x00b", None):
        with pytest.raises(UsageError, match="your name"):
            seat_of(name, "1")
    folder = made_run(tmp_path / "run")
    (folder / "labels.parquet").unlink()
    with pytest.raises(DataError, match=r"labels\.parquet is missing"):
        Session(survey(folder), [])

"""A review: queues, blind cards, several people, batches, and the way to a goal."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from reported_runs import made_run
from sklearn.metrics import cohen_kappa_score

from labelloop.errors import DataError, UsageError
from labelloop.report.review.looks import Columns, Learners, Neighbours, Words
from labelloop.report.review.queues import Filter, containing, in_small_letters, read_filter
from labelloop.report.review.session import LEASE, SECOND, Seat, Session, seat_of
from labelloop.report.review.tally import certain_share, cohens_kappa, people, rows_per_hour, rows_to_goal
from labelloop.runs.result_files import Preview, write_preview
from labelloop.runs.reviews import Answer, random_order, random_reviewed, read_answers, reviewed_labels
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


def answer(session, seat, row, action="accept", label=None, key=None, **more):
    key = key or f"{seat.reviewer}-{seat.tab}-{row}-{action}-{label}-{more}"
    return len(session.decide(seat, [{"row": int(row), "action": action, "label": label, "key": key, **more}]))


def batch_of(cards, action, seen=True):
    """What the grid sends: all rows as one batch."""
    rows = [card["row"] for card in cards]
    return [
        {"row": row, "action": action, "key": f"from-grid-{row}", "queue": "grid", "batch": "one", "seen": seen}
        for row in rows
    ]


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
    assert [card["row"] for card in session.undo(ANN)] == [c]
    assert [card["row"] for card in session.undo(ANN)] == [a]
    assert session.undo(ANN) == []
    assert session.state("bob")["mine"] == 1
    assert session.undo(ANN, ["the-last-one"]) == []  # taken back already
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
    wanted = read_filter(pair, session.classes)
    cards = session.grid(ANN, wanted, 50)
    assert len(cards) == pair["rows"]
    assert {(card["given"], card["proposed"]) for card in cards} == {(pair["given"], pair["corrected"])}
    session.decide(ANN, batch_of(cards, "accept"))
    assert session.grid(ANN, wanted, 50) == []


def test_a_batch_needs_rows_that_were_seen_and_is_undone_at_once(session):
    pair = session.pairs()[0]
    cards = session.grid(ANN, read_filter(pair, session.classes), 50)
    assert len(cards) > 1
    with pytest.raises(UsageError, match="only rows that were on the screen"):
        session.decide(ANN, batch_of(cards, "accept", seen=False))
    assert read_answers(session.folder)[0] == []
    other = next(row for row in session.order.tolist() if row not in {card["row"] for card in cards})
    answer(session, ANN, other, "unsure")
    session.decide(ANN, batch_of(cards, "keep"))
    assert session.state("ann")["mine"] == len(cards) + 1
    assert {card["row"] for card in session.undo(ANN)} == {card["row"] for card in cards}
    assert session.state("ann")["mine"] == 1
    assert open_session(session.folder).state("ann")["mine"] == 1
    assert len(session.undo(ANN)) == 1  # the single one before it


def test_a_review_says_that_changes_are_not_proved(tmp_path, session):
    assert session.state("ann")["unproved"] == ""
    assumed = made_run(tmp_path / "assumed", guard={"changed": 3, "sure": None, "how": "assumed"})
    assert "rest on the noise as estimated" in open_session(assumed).state("ann")["unproved"]
    kept = made_run(tmp_path / "kept", guard={"changed": 0, "sure": None, "how": "assumed"})
    assert open_session(kept).state("ann")["unproved"] == ""


def test_rows_of_the_grid_and_picked_rows_are_no_evidence(session):
    start = session.state("ann")["estimate"]
    for row in session.order[:10].tolist():
        answer(session, ANN, row)
    state = session.state("ann")
    assert state["estimate"] == start == {"value": 0.9, "low": 0.8, "high": 0.95, "rows": 12}
    assert (state["random"]["rows"], random_reviewed(session.folder)) == (0, set())
    assert len(reviewed_labels(session.folder)) == 10


def test_random_rows_are_random_blind_and_counted(session):
    ask = {"queue": "estimate", "blind": True}
    expected = [row for row in random_order(60).tolist() if not session.rows.clean[row]]
    answer(session, ANN, expected[1], "accept")  # elsewhere, with the labels in sight: it is asked again
    asked = []
    for k in range(4):
        card = session.next_rows(ANN, **ask)[0]
        asked.append(card["row"])
        assert set(card) == {"row", "id", "look", "blind", "order", "near"}
        assert session.ids[card["row"]] not in str(card)
        right = session.classes[session.rows.corrected[card["row"]]]
        said = right if k else next(name for name in session.classes if name != right)
        answer(session, ANN, card["row"], "label", said, queue="estimate", blind=True)
    assert asked == expected[:4]
    found = session.state("ann")["random"]
    assert (found["rows"], found["right"], found["unknown"]) == (4, 3, 0)
    assert found["share"]["value"] == 0.75
    assert random_reviewed(session.folder) == set(asked)
    session.undo(ANN)
    assert session.state("ann")["random"]["rows"] == 3


def test_the_way_to_a_goal():
    assert certain_share(0, 10) == 0.0
    assert certain_share(20, 20) == pytest.approx(0.05 ** (1 / 20))  # all right: the bound solves b^n = 0.05
    assert rows_to_goal(99, 99, 0.97, 1.0, 1000) == 0  # 0.05^(1/99) = 0.9702
    assert rows_to_goal(98, 98, 0.97, 1.0, 1000) == 1
    assert rows_to_goal(0, 0, 0.97, 0.9, 10_000) is None  # labels are not that good
    assert rows_to_goal(0, 0, 0.97, 0.99, 50) is None  # there are not that many rows
    more = rows_to_goal(50, 50, 0.9, 0.95, 10_000)
    likely = (50 + 20 * 0.95) / 70
    assert certain_share(50 + int(likely * more), 50 + more) >= 0.9
    assert more == 0 or certain_share(50 + int(likely * (more - 1)), 49 + more) < 0.9


def test_a_disagreement_is_settled_and_what_each_said_is_kept(session):
    row = int(session.order[0])
    answer(session, ANN, row, "label", "cat")
    answer(session, BOB, row, "label", "dog")
    assert [card["row"] for card in session.disputes(EVE)] == [row]
    answer(session, ANN, row, "label", "dog", queue="settle")
    assert session.disputes(EVE) == []
    assert reviewed_labels(session.folder) == {row: "dog"}
    found = people(session.tally)
    wrong = {each["name"]: each["wrong"]["value"] for each in found["reviewers"]}
    assert wrong == {"ann": 1.0, "bob": 0.0}
    assert found["pairs"] == [{"who": ["ann", "bob"], "rows": 1, "agreed": 0, "kappa": 0.0}]
    with pytest.raises(UsageError, match="nothing to settle"):
        answer(session, EVE, int(session.order[1]), "label", "dog", queue="settle")
    session.undo(ANN)
    assert len(session.disputes(EVE)) == 1  # the settling is taken back, the answers are not


def test_kappa_is_that_of_the_textbook():
    # Two raters, 50 rows: 20 both yes, 15 both no, 5 and 10 split. Agreement 0.7, by chance 0.5: kappa 0.4.
    pairs = [("yes", "yes")] * 20 + [("no", "no")] * 15 + [("yes", "no")] * 5 + [("no", "yes")] * 10
    assert cohens_kappa(pairs) == pytest.approx(0.4)
    rng = np.random.default_rng(0)
    a, b = rng.integers(4, size=200), rng.integers(4, size=200)
    b = np.where(rng.random(200) < 0.5, a, b)
    drawn = [(str(x), str(y)) for x, y in zip(a, b, strict=True)]
    assert cohens_kappa(drawn) == pytest.approx(cohen_kappa_score(a, b))
    assert cohens_kappa([]) is None
    assert cohens_kappa([("yes", "yes")]) is None  # chance alone explains it


def test_the_pace_leaves_out_pauses():
    def at(minute, second=0):
        return Answer("k", 0, "0", "ann", "keep", "cat", f"2026-01-01T10:{minute:02d}:{second:02d}+00:00")

    assert rows_per_hour([at(0), at(0, 30), at(1), at(30), at(30, 30)]) == pytest.approx(120)
    assert rows_per_hour([at(0)]) is None


def test_filters(session):
    changed = int(np.flatnonzero(session.rows.changed)[0])
    given, corrected = int(session.rows.given[changed]), int(session.rows.corrected[changed])
    rows = session.queues.named("improve", Filter(given=given, corrected=corrected))
    assert changed in rows
    assert set(session.rows.given[rows]) == {given}
    assert set(session.rows.corrected[rows]) == {corrected}
    assert first_of(session, Filter(least=0.9)) in np.flatnonzero(session.rows.confidence >= 0.9)
    assert session.ids[first_of(session, Filter(words="row-1"))].startswith("row-1")
    assert session.next_rows(ANN, wanted=Filter(words="no such row")) == []
    assert read_filter({"given": "dog", "least": "0.5", "words": " ROW "}, session.classes) == Filter(
        1, None, 0.5, 1.0, "row"
    )
    for query, why in (
        ({"given": "unicorn"}, "not a class"),
        ({"least": "2"}, "between 0 and 1"),
        ({"most": "x"}, "not 'x'"),
    ):
        with pytest.raises(UsageError, match=why):
            read_filter(query, session.classes)


def test_a_search_takes_the_words_as_they_are():
    texts = in_small_letters(["Straße 1", "xa", "aab", None, "", "A\0b", "(a)*", "naïve aa aa"])
    wanted = {"a": [1, 1, 1, 0, 0, 1, 1, 1], "aa": [0, 0, 1, 0, 0, 0, 0, 1], "(a)*": [0, 0, 0, 0, 0, 0, 1, 0]}
    wanted |= {"a\0b": [0, 0, 0, 0, 0, 1, 0, 0], "straße": [1, 0, 0, 0, 0, 0, 0, 0], "none": [0] * 8}
    assert {words: containing(texts, words).astype(int).tolist() for words in wanted} == wanted


def first_of(session, wanted):
    return session.next_rows(ANN, wanted=wanted)[0]["row"]


def test_the_most_telling_columns_come_first():
    labels = np.array([0, 0, 0, 1, 1, 1])
    values = [["0", "red", "5"], ["1", "red", "5"], ["2", "red", "5.1"]]
    values += [["0", "blue", "5.1"], ["1", "blue", "5.1"], ["2", "blue", "5"]]
    columns = Columns(values, labels)
    assert columns.telling(0, 1) == [1, 2, 0]  # colour tells them apart fully, then the last number, the first not
    assert columns.telling(0, 7) == [0, 1, 2]  # of a class without rows nothing is known
    assert columns.differing(["0", "red", "5"], ["2", "red", "5"]) == [True, False, False]
    assert columns.differing(["1", "red", "5"], ["1.1", "blue", "5"]) == [False, True, False]  # 0.1 is no difference


def test_words_that_speak_for_a_class():
    words = Words(["the parcel is late"] * 4 + ["the refund is late"] * 4, np.array([0] * 4 + [1] * 4))
    assert words.speaking("The PARCEL and the refund, late", 0, 1) == {"parcel": 0, "refund": 1}
    assert words.speaking("The parcel", 0, 0) == {}


def test_words_that_speak_for_a_class_by_the_learners():
    """Labels say that "late" is of class 0; learners that it tells nothing, once the word beside it is known."""
    texts = ["parcel late"] * 30 + ["refund"] * 30 + ["refund late"] * 6
    labels = np.array([0] * 30 + [1] * 36)
    sure = np.log(np.where(np.array([0] * 30 + [1] * 36)[:, None] == [0, 1], 0.95, 0.05))  # [n, C]
    assert Words(texts, labels).speaking("refund late parcel", 0, 1) == {"refund": 1, "late": 0, "parcel": 0}
    assert Words(texts, labels, sure).speaking("refund late parcel", 0, 1) == {"refund": 1, "parcel": 0}
    there = np.array([["parcel" in t, "late" in t, "refund" in t] for t in texts], float)
    wanted = sure[:, 0] - sure[:, 0].mean() - (sure[:, 1] - sure[:, 1].mean())
    ridge = np.linalg.solve(there.T @ there + np.eye(3), there.T @ wanted)  # by the normal equations
    assert [abs(weight) >= np.log(2) for weight in ridge] == [True, False, True]


def test_what_learners_vote():
    scores = np.log([[0.2, 0.8, 0.5, 0.5], [0.9, 0.1, 0.4, 0.6]]) + 3.0  # which need not be normed
    learners = Learners(["trees", "network"], scores)
    assert learners.classes == 2
    (who, label, p), second = learners.votes(1)
    assert (who, label, round(p, 6)) == ("trees", 0, 0.9)
    assert (second[0], second[1], round(second[2], 6)) == ("network", 1, 0.6)


def test_the_csv_says_who_said_what(session):
    a, b = session.order[:2]
    answer(session, ANN, a, "label", "cat")
    answer(session, BOB, a, "label", "dog")
    answer(session, ANN, b, "unsure")
    found = {line["id"]: line for line in csv.DictReader(io.StringIO(session.csv()))}
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

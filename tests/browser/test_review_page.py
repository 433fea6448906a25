"""People in the loop, in a real browser: a table, texts and pictures, by keyboard, on a screen and on a phone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from barriers import serious_barriers
from chromium import Browser
from layout import SCHEMES, SIZES, overlaps, sticking_out
from page_runs import KINDS

from labelloop.cli import main
from labelloop.report.review.server import ReviewServer
from labelloop.runs.reviews import random_reviewed, read_answers, reviewed_labels
from labelloop.workflows.review import open_review

pytestmark = pytest.mark.slow

READY = "document.body.dataset.ready === 'yes' && document.body.dataset.row !== undefined"
MINE = "Number(document.body.dataset.mine)"
IDLE = "document.body.getAttribute('aria-busy') !== 'true'"
MESSAGE = "document.getElementById('message').textContent"


@pytest.fixture
def run(request, runs, tmp_path) -> Path:
    """A copy of a run for one test: the kind is the parameter, a table without one."""
    kind = getattr(request, "param", "table")
    return Path(shutil.copytree(runs[kind], tmp_path / runs[kind].name))


class Process:
    """`labelloop review` as a process of its own, which can be killed."""

    def __init__(self, run: Path, port: int = 0) -> None:
        self.log = run.parent / f"server-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "labelloop", "review", str(run), "--name", "ann", "--port", str(port)]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        for _ in range(6000):
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/\?token=\S+", self.log.read_text()):
                self.address, self.port = found[0], int(found[1])
                return
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def server(run) -> Iterator[ReviewServer]:
    made_server = open_review(run, reviewer="ann")
    thread = threading.Thread(target=made_server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made_server
    made_server.shutdown()
    made_server.server_close()
    thread.join()


def opened(browser: Browser, server: ReviewServer | Process) -> Browser:
    browser.open(server.address)
    browser.wait(READY)
    return browser


def view(browser: Browser, key: str, name: str, ready: str = "true") -> None:
    browser.press(key)
    browser.wait(f"document.body.dataset.view === '{name}' && {ready}")


def answer(browser: Browser, *keys: str) -> None:
    before = browser.run(f"return {MINE}")
    browser.press(*keys)
    browser.wait(f"{MINE} === {before + 1} && {IDLE}")


def called(browser: Browser, name: str) -> None:
    """Goes on under another name, which has not decided anything yet."""
    browser.set_value("#reviewer", name)
    browser.wait(f"{IDLE} && {MINE} === 0 && document.body.dataset.row !== undefined")


@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_every_state_is_readable_everywhere(browser, run, server, axe):
    opened(browser, server)
    states = {
        "improve": ("i", "document.body.dataset.row !== undefined"),
        "grid": ("g", "document.querySelectorAll('.tile-row').length > 0"),
        "estimate": ("e", "document.body.dataset.row !== undefined"),
        "disputes": ("d", "document.querySelector('#disputes p')"),
    }
    looked = 0
    for name, (key, ready) in states.items():
        view(browser, key, name, ready)
        for size in SIZES.values():
            browser.resize(*size)
            for scheme in SCHEMES:
                browser.colours(scheme)
                looked += 1
                assert overlaps(browser) == []
                assert sticking_out(browser) == []
                assert serious_barriers(browser, axe) == []
    assert looked == 16
    assert browser.problems() == []
    asked = [address for address in browser.requests() if address.startswith(("http", "ws", "ftp"))]
    assert asked
    assert [address for address in asked if not address.startswith(f"http://127.0.0.1:{server.server_port}/")] == []


def twenty_rows_by_keyboard(browser: Browser, run: Path) -> None:
    for k in range(20):
        proposed = browser.run("return !!document.querySelector('[data-action=accept]')")
        likeliest = browser.run("return document.querySelector('[data-class]').dataset.class")
        keys = (("a" if proposed else "k"), "1", "u", "2")[k % 4]
        answer(browser, keys)
        made_answers = read_answers(run)[0]
        assert len(made_answers) == k + 1  # on disk before the page went on
        if keys == "1":
            assert made_answers[-1].label == likeliest
    assert len({each.row for each in made_answers}) == 20
    first = browser.run("return document.querySelectorAll('[data-class]')[0].dataset.class")
    answer(browser, "c", *first, "Enter")  # keys are letters while a class is typed
    assert read_answers(run)[0][-1].label == first
    browser.press("z")
    browser.wait(f"{MINE} === 20 && {IDLE}")
    browser.press("y")
    browser.wait(f"{MINE} === 21 && {IDLE}")
    assert browser.run("return document.getElementById('saved').textContent") == "All decisions saved"


def a_batch_taken_back(browser: Browser, run: Path) -> None:
    before = reviewed_labels(run)
    view(browser, "g", "grid", "document.querySelectorAll('.tile-row[data-seen]').length > 0")
    browser.click("#accept-seen")
    browser.click("#save-grid")
    browser.wait(f"{MINE} > 21 && {IDLE}")
    assert len(reviewed_labels(run)) > len(before)
    browser.press("z")
    browser.wait(f"{MINE} === 21 && {IDLE}")
    assert reviewed_labels(run) == before


def a_blind_answer(browser: Browser, run: Path) -> None:
    """Random rows are drawn from all, so this one may have been answered before."""
    view(browser, "e", "estimate", "document.querySelector('.odds')?.textContent === ''")
    browser.press("1")
    browser.wait(f"{MESSAGE}.startsWith('You said') && {IDLE}")
    assert random_reviewed(run) == {read_answers(run)[0][-1].row}


def a_conflict(browser: Browser, run: Path) -> None:
    """Another reviewer answers ten rows; the tenth is one that ann has answered, and the answer another one."""
    said = {each.row: each.label for each in read_answers(run)[0]}
    view(browser, "i", "improve", "document.body.dataset.row !== undefined")
    called(browser, "bob")
    for _ in range(9):
        answer(browser, "1")
    browser.wait("document.getElementById('verdict').textContent.includes('Answered before by ann')")
    row = int(browser.run("return document.body.dataset.row"))
    classes = browser.run("return [...document.querySelectorAll('[data-class]')].map((each) => each.dataset.class)")
    answer(browser, str(1 + next(k for k, name in enumerate(classes) if name != said[row])))
    browser.wait("document.body.dataset.disputed === '1'")
    assert row not in reviewed_labels(run)


def killed_and_started_again(browser: Browser, run: Path, server: Process) -> Process:
    """The server is gone, and an answer with it; a new one finds the open tab, which sends the answer."""
    server.kill()  # as hard as it gets
    shown = browser.run("return document.body.dataset.row")
    saved = len(read_answers(run)[0])
    browser.press("1")
    browser.wait(f"{MESSAGE}.includes('nothing that was saved is lost')")
    assert browser.run("return document.getElementById('saved').dataset.state") == "lost"
    assert browser.run("return document.body.dataset.row") == shown  # the row waits for its answer
    again = Process(run)
    assert again.port == server.port  # so that the open tab finds it
    browser.wait(f"{MINE} === 11 && {IDLE}")
    assert browser.run("return document.getElementById('saved').dataset.state") == "saved"
    assert len(read_answers(run)[0]) == saved + 1  # the unsent answer was sent, once
    return again


def refitted_and_exported(browser: Browser, run: Path) -> None:
    view(browser, "d", "disputes", "document.querySelectorAll('.dispute-row').length === 1")
    browser.click(".dispute-row .pick button")
    browser.wait("document.querySelectorAll('.dispute-row').length === 0")
    decided = reviewed_labels(run)
    assert len(decided) > 20  # five of ann's were "cannot tell"
    browser.click("#refit")
    browser.wait("document.body.dataset.refitted", 300)
    assert f"{len(decided)} new clean rows" in browser.run(f"return {MESSAGE}")
    new = pq.read_table(Path(browser.run("return document.body.dataset.refitted")) / "labels.parquet").to_pylist()
    assert {row: new[row]["corrected_label"] for row in decided} == decided
    assert main(["export", str(run), "--to", "jsonl", "--output", "out.jsonl"]) == 0
    lines = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row: lines[row]["corrected_label"] for row in decided} == decided


@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_a_whole_review(browser, run, tmp_path, monkeypatch):
    """From the first key to the exported file, in one tab."""
    monkeypatch.chdir(tmp_path)
    server = again = Process(run)
    try:
        opened(browser, server)
        twenty_rows_by_keyboard(browser, run)
        a_batch_taken_back(browser, run)
        a_blind_answer(browser, run)
        a_conflict(browser, run)
        assert browser.problems() == []
        again = killed_and_started_again(browser, run, server)
        browser.problems()  # that a request failed while no server was there
        refitted_and_exported(browser, run)
        assert browser.problems() == []
    finally:
        server.kill()
        again.kill()


def test_keys_that_make_no_sense_say_why(browser, run, server):
    opened(browser, server)
    browser.set_value("#filter [data-filter=given]", "approve")
    browser.set_value("#filter [data-filter=corrected]", "approve")
    browser.wait("!document.querySelector('[data-action=accept]') && document.body.dataset.row !== undefined")
    for key, why in (
        ("a", "No change is proposed"),
        ("9", "There is no class 9"),
        ("v", "no picture"),
        ("q", "? lists"),
    ):
        browser.press(key)
        browser.wait(f"{MESSAGE}.includes({why!r})")
    browser.press("z")
    browser.wait(f"{MESSAGE}.includes('no decision to undo')")
    browser.press("y")
    browser.wait(f"{MESSAGE}.includes('nothing to redo')")
    browser.run("document.getElementById('reviewer').focus()")
    browser.press("k", "a", "1")
    assert read_answers(run)[0] == []  # silent while typing


@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_a_batch_is_seen_saved_undone_and_done_again(browser, run, server):
    opened(browser, server)
    tiles = "document.querySelectorAll('.tile-row')"
    view(browser, "g", "grid", f"{tiles}.length > 4")
    browser.press("Enter")
    browser.wait(f"{MESSAGE}.includes('Nothing is chosen')")
    assert read_answers(run)[0] == []  # nothing was chosen for anybody
    browser.wait("document.querySelectorAll('.tile-row[data-seen]').length > 0")
    time.sleep(0.7)
    seen, rows = browser.run(f"return [document.querySelectorAll('.tile-row[data-seen]').length, {tiles}.length]")
    assert 0 < seen < rows or "images" in run.name  # those below the edge of the window were not on the screen
    browser.click("#accept-seen")
    assert browser.run("return document.querySelectorAll('[data-verdict=accept].tile-row').length") == seen
    assert f"{seen} of {rows} rows were on the screen" in browser.run("return document.body.innerText")
    browser.click("#save-grid")
    browser.wait(f"{MINE} === {seen} && {IDLE}")
    assert {each.batch for each in read_answers(run)[0]} != {None}
    estimate = browser.run("return document.getElementById('estimate').textContent")
    browser.press("z")
    browser.wait(f"{MINE} === 0 && {IDLE}")
    assert reviewed_labels(run) == {}
    browser.press("y")
    browser.wait(f"{MINE} === {seen} && {IDLE}")
    assert len(reviewed_labels(run)) == seen
    assert browser.run("return document.getElementById('estimate').textContent") == estimate  # no evidence
    assert random_reviewed(run) == set()
    assert browser.problems() == []


@pytest.mark.parametrize("run", ["images"], indirect=True)
def test_blind_rows_hide_their_labels_until_they_are_answered(browser, run, server):
    opened(browser, server)
    view(browser, "e", "estimate", "document.querySelector('.odds')?.textContent === ''")
    shown = browser.run("return document.getElementById('one').innerText")
    row = int(browser.run("return document.body.dataset.row"))
    labels = pq.read_table(run / "labels.parquet").to_pylist()
    assert labels[row]["id"] not in shown  # the file is in the folder of its given label
    assert "%" not in shown
    assert "stay hidden" in shown
    browser.press("k")
    browser.wait(f"{MESSAGE}.includes('hidden here')")
    answer(browser, "1")
    browser.wait(f"{MESSAGE}.startsWith('You said')")
    assert labels[row]["corrected_label"] in browser.run(f"return {MESSAGE}")
    for _ in range(4):
        answer(browser, "2")
    made_answers = read_answers(run)[0]
    assert {(each.queue, each.blind) for each in made_answers} == {("estimate", True)}
    assert len(random_reviewed(run)) == 5
    assert "of 5 random rows were right" in browser.run("return document.getElementById('toward').textContent")
    view(browser, "i", "improve", "document.body.dataset.row !== undefined")
    browser.press("b")
    browser.wait("document.getElementById('verdict').textContent.includes('stay hidden')")
    assert browser.problems() == []


def test_hidden_labels_are_offered_where_labels_lead(browser, run, server, axe):
    opened(browser, server)
    offered = "document.getElementById('offer-blind')"
    for _ in range(10):
        assert not browser.run(f"return {offered}")
        answer(browser, "a" if browser.run("return !!document.querySelector('[data-action=accept]')") else "k")
    assert "last 10 answers all followed" in browser.run("return document.getElementById('verdict').textContent")
    assert serious_barriers(browser, axe) == []
    browser.click("#offer-blind")
    browser.wait("document.getElementById('verdict').textContent.includes('stay hidden')")
    answer(browser, "1")
    assert read_answers(run)[0][-1].blind
    browser.press("b")
    browser.wait(f"!{offered} && document.querySelector('#verdict .given')")  # hidden rows were answered meanwhile
    assert browser.problems() == []


@pytest.mark.parametrize("run", ["text"], indirect=True)
def test_words_are_marked_by_what_the_learners_predict(browser, run, server):
    opened(browser, server)
    for _ in range(6):
        if browser.run("return document.querySelectorAll('#card blockquote mark').length"):
            break
        answer(browser, "1")
    assert browser.run("return document.querySelectorAll('#card blockquote mark').length") > 0
    assert "makes the learners lean to" in browser.run("return document.getElementById('card').innerText")


@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_the_labels_and_the_answers_are_near_the_row_on_a_phone(browser, run, server):
    opened(browser, server)
    browser.resize(*SIZES["phone"])
    places = browser.run(
        "return ['verdict', 'card', 'keys', 'near'].map((id) =>"
        " document.getElementById(id).getBoundingClientRect().top)"
    )
    assert places[0] < 200
    assert places[0] < places[1] < places[2] <= places[3]
    broken = browser.run(
        "return [...document.querySelectorAll('.compare td, .compare th')].filter((each) => { const range ="
        " document.createRange(); range.selectNodeContents(each); const lines = new Set([...range.getClientRects()]"
        ".map((rect) => Math.round(rect.top))).size; return each.checkVisibility() && lines >"
        " each.innerText.split(/[ _\\n]+/).length + 1; }).map((each) => each.innerText)"
    )
    assert broken == []


def test_two_reviewers_disagree_and_settle(browser, run, server, axe):
    opened(browser, server)
    for _ in range(3):
        answer(browser, "1")
    rows = [each.row for each in read_answers(run)[0]]
    called(browser, "bob")
    for _ in range(9):
        answer(browser, "1")
    browser.wait("document.getElementById('verdict').textContent.includes('Answered before by ann')")
    answer(browser, "2")  # the tenth row of bob is one of ann's
    browser.wait("document.body.dataset.disputed === '1'")
    both = [each.row for each in read_answers(run)[0] if each.row in rows]
    assert len(both) == 4
    view(browser, "d", "disputes", "document.querySelectorAll('.dispute-row').length === 1")
    assert "ann says" in browser.run("return document.getElementById('disputes').innerText")
    assert serious_barriers(browser, axe) == []
    assert overlaps(browser) == []
    browser.click(".dispute-row .pick button")
    browser.wait("document.querySelectorAll('.dispute-row').length === 0")
    assert len(reviewed_labels(run)) == 12
    browser.click("#show-people")
    browser.wait("document.querySelectorAll('#people table').length === 3")
    shown = browser.run("return document.getElementById('people').innerText")
    assert "Cohen's kappa" in shown
    assert "ann and bob" in shown
    for size in SIZES.values():
        browser.resize(*size)
        assert sticking_out(browser) == []
        assert overlaps(browser) == []
        assert serious_barriers(browser, axe) == []
    assert browser.problems() == []

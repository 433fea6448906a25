"""Pages that are hard to lay out: a hundred classes, sixty columns, long words, markup, and text from right to left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from chromium import Browser
from layout import overlaps, sticking_out
from reported_runs import made_run

from labelloop.report.html import write_report
from labelloop.report.review.server import ReviewServer
from labelloop.report.review.session import Session
from labelloop.runs.result_files import Preview, write_preview
from labelloop.runs.reviews import read_answers
from labelloop.runs.survey import survey

pytestmark = pytest.mark.slow

WIDTHS = (1280, 640, 390)  # a desktop, the same at a zoom of 200%, a phone
MARKUP = ("<img src=x onerror=alert(1)>", "{braces} & 'quotes' \"too\"", "</script><b>bold</b>")
FOREIGN = ("שירות", "شكوى", "质量问题")
MANY = tuple(f"category {k:03d} of the catalogue, with a long name" for k in range(100))
SENTENCE = "المنتج لم يصل بعد، وأريد استرداد المبلغ (25 يورو)."


def values(row: int) -> list[str]:
    return [f"<script>alert({row})</script>" if k == 7 else f"{row * k / 7:.3f}" for k in range(60)]


def text(row: int) -> str:
    return ("x" * 5_000, "A sentence of a long letter. " * 400, "", "质量很差" * 200, SENTENCE)[row % 5]


@pytest.fixture(scope="module")
def hard(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("hard")
    names = tuple(f"a_very_long_column_name_of_the_export_{k:02d}_in_percent" for k in range(60))
    runs = {
        "table": made_run(place / "table", rows=200, classes=MARKUP),
        "text": made_run(place / "text", rows=200, classes=FOREIGN),
        "many": made_run(place / "many", rows=600, classes=MANY),
    }
    write_preview(runs["table"], Preview("values", list(range(200)), [values(k) for k in range(200)], names))
    write_preview(runs["text"], Preview("text", list(range(200)), [text(k) for k in range(200)]))
    for run in runs.values():
        write_report([run])
    return runs


@contextmanager
def reviewed(run: Path, browser: Browser) -> Iterator[None]:
    found = survey(run)
    server = ReviewServer(Session(found, np.flatnonzero(~found.flags("verified"))), reviewer="ann")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    browser.open(server.address)
    browser.wait("document.body.dataset.ready === 'yes' && document.body.dataset.row !== undefined")
    yield
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("kind", ["table", "text", "many"])
def test_a_report_that_is_hard_to_lay_out(browser, hard, kind):
    browser.open((hard[kind] / "report.html").as_uri())
    browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'")
    for width in WIDTHS:
        browser.resize(width, 900)
        browser.run("window.dispatchEvent(new Event('resize'))")
        browser.wait("document.querySelectorAll('#row-table .line').length > 5")
        assert overlaps(browser) == []
        assert sticking_out(browser) == []
        inside = "document.querySelector('.wide')"
        assert browser.run(f"return {inside}.scrollWidth <= {inside}.clientWidth")  # no column of the classes is hidden
    browser.resize(1280, 900)
    cut = "[...document.querySelectorAll('.line > .corrected')].filter((each) => each.scrollHeight > each.clientHeight)"
    assert kind == "many" or browser.run(f"return {cut}.length") == 0
    if kind == "text":
        browser.set_value("[data-filter=words]", "يورو")
        ways = "[...document.querySelectorAll('.line .text')].map((each) => getComputedStyle(each).direction)"
        assert set(browser.run(f"return {ways}")) == {"rtl"}
    assert browser.problems() == []


@pytest.mark.parametrize("kind", ["table", "text", "many"])
def test_a_review_that_is_hard_to_lay_out(browser, hard, kind):
    with reviewed(hard[kind], browser):
        for key, view, ready in (("i", "improve", "#card"), ("g", "grid", ".tile-row"), ("e", "estimate", "#card")):
            browser.press(key)
            browser.wait(f"document.body.dataset.view === '{view}' && document.querySelector('{ready}')?.innerText")
            for width in WIDTHS:
                browser.resize(width, 900)
                assert overlaps(browser) == []
                assert sticking_out(browser) == []
        browser.press("i")
        browser.wait("document.body.dataset.view === 'improve' && document.body.dataset.row !== undefined")
        last = browser.run("return LabelLoop.read('review-data').classes.at(-1)")
        browser.press("c")
        browser.set_value("#search", last[:20])  # also where it has no number key
        browser.press("Enter")
        browser.wait("document.body.dataset.mine === '1'")
        assert read_answers(hard[kind])[0][-1].label == last
        assert browser.problems() == []

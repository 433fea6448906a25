"""The report in a real browser: sorted, filtered, searched, silent, and without barriers."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from barriers import serious_barriers
from chromium import Browser
from layout import SCHEMES, SIZES, overlaps, sticking_out
from page_runs import KINDS
from reported_runs import made_run

from labelloop.report.html import write_report
from labelloop.runs.result_files import Preview, write_preview

pytestmark = pytest.mark.slow

IMAGES = "document.querySelectorAll('#row-table img').length"
SHOWN = "[...document.querySelectorAll('#row-table .line')].map((line) => line.querySelector('.number').textContent)"


def picture(shade: int) -> bytes:
    image = pytest.importorskip("PIL.Image", reason="thumbnails need Pillow")
    place = io.BytesIO()
    image.new("RGB", (8, 8), (shade, 80, 120)).save(place, "JPEG")
    return place.getvalue()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = made_run(tmp_path_factory.mktemp("report") / "a run", rows=2_000)
    rows = list(range(2_000))
    write_preview(folder, Preview("image", rows, [picture(k % 250) for k in rows]))
    return write_report([folder])


def opened(browser: Browser, page: Path) -> Browser:
    browser.open(page.as_uri())
    browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'")
    return browser


def test_it_opens_sorts_filters_and_asks_for_nothing(browser, report):
    opened(browser, report)
    labels = pq.read_table(report.parent / "labels.parquet")
    changed = labels.filter(labels["changed"]).filter(~np.asarray(labels.filter(labels["changed"])["verified"]))
    assert browser.run("return document.querySelectorAll('figure[data-picture] svg').length") >= 8
    assert browser.run(f"return {IMAGES}") > 5
    browser.wait("document.querySelector('#row-table img').naturalWidth === 8")
    assert browser.run("return Number(document.querySelector('#row-table').dataset.found)") == len(changed)

    sure = [float(text.rstrip("%")) for text in browser.run(f"return {SHOWN}")]
    assert sure == sorted(sure, reverse=True)
    browser.click("#row-table [data-key=confidence] button")
    doubtful = [float(text.rstrip("%")) for text in browser.run(f"return {SHOWN}")]
    assert doubtful == sorted(doubtful)
    assert doubtful[0] < sure[0]
    assert browser.run("return document.querySelector('[data-key=confidence]').ariaSort") == "ascending"

    browser.set_value("[data-filter=given]", "0")
    browser.set_value("[data-filter=corrected]", "1")
    browser.set_value("[data-filter=least]", "0.8")
    found = changed.to_pylist()
    wanted = sum(
        row["given_label"] == "cat" and row["corrected_label"] == "dog" and row["corrected_confidence"] >= 0.8
        for row in found
    )
    assert browser.run("return Number(document.querySelector('#row-table').dataset.found)") == wanted > 0
    browser.set_value("[data-filter=given]", "-1")
    browser.set_value("[data-filter=corrected]", "-1")
    browser.set_value("[data-filter=least]", "0")
    browser.set_value("[data-filter=words]", "row-1")
    assert browser.run("return Number(document.querySelector('#row-table').dataset.found)") == sum(
        "row-1" in row["id"] for row in found
    )
    assert browser.problems() == []
    assert browser.requests() == [report.as_uri()]


def test_a_class_that_is_a_script_does_nothing(browser, report):
    opened(browser, report)
    assert "<script>alert('x')</script>" in browser.run("return document.body.textContent")
    assert browser.run("return [...document.scripts].length") == 7
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hurt = 1\">')")
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.hurt = 2'; document.body.append(s)"
    )
    assert browser.run("return window.hurt ?? 'unharmed'") == "unharmed"  # the policy holds even then


def test_by_keyboard(browser, report):
    opened(browser, report)
    browser.press("Tab", "Enter")
    assert browser.run("return location.hash") == "#rows"
    browser.run("document.querySelector('.scroller').focus()")
    first = browser.run("return document.querySelector('#row-table .line').ariaRowIndex")
    browser.press("PageDown", "PageDown", "PageDown")
    browser.wait("document.querySelector('.scroller').scrollTop > 500")
    browser.wait(f"document.querySelector('#row-table .line').ariaRowIndex !== '{first}'")


def test_no_serious_barriers(browser, report, axe):
    opened(browser, report)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert serious_barriers(browser, axe) == []


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_readable_everywhere(browser, kind, runs, axe):
    browser.open((runs[kind] / "report.html").as_uri())
    browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'")
    looked = 0
    for size in SIZES.values():
        browser.resize(*size)
        time.sleep(0.4)  # pictures are drawn anew for another width
        for scheme in SCHEMES:
            browser.colours(scheme)
            looked += 1
            paper = browser.run("return getComputedStyle(document.body).backgroundColor")
            assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}[scheme]
            assert overlaps(browser) == []
            assert sticking_out(browser) == []
            assert serious_barriers(browser, axe) == []
    assert looked == 4
    browser.resize(*SIZES["desktop"])
    end = browser.run("return document.getElementById('answer').getBoundingClientRect().bottom + scrollY")
    assert end < 900  # the numbers, the next step and the warnings are on the first screen
    assert browser.problems() == []


FOUND = "Number(document.querySelector('#row-table').dataset.found)"


def test_every_number_leads_to_its_rows(browser, runs):
    browser.open((runs["table"] / "report.html").as_uri())
    browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'")
    every = browser.run(f"return {FOUND}")
    cell = "document.querySelector('.class-table [data-drill]')"
    wanted = int(browser.run(f"return {cell}.textContent"))
    browser.run(f"{cell}.click()")
    assert browser.run(f"return {FOUND}") == wanted < every
    assert browser.run("return document.activeElement.id") == "rows"
    flow = "document.querySelector('figure[data-picture=flows] path[data-drill]')"
    browser.run(f"{flow}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    shown = browser.run(f"return {flow}.querySelector('title')?.textContent ?? ''")
    assert f": {browser.run(f'return {FOUND}')} rows" in shown
    browser.run("document.querySelector('.confusions [data-drill]').click()")
    assert 0 < browser.run(f"return {FOUND}") < every
    browser.run("[...document.querySelectorAll('.controls button')].at(-1).click()")
    assert browser.run(f"return {FOUND}") == every
    browser.click("#row-table .line .id button")
    browser.wait("document.querySelector('dialog[open]')")
    assert browser.run("return document.querySelectorAll('dialog[open] tr').length") == 10  # all columns, whole
    assert browser.problems() == []


def test_a_part_of_the_map_filters_the_table(browser, runs):
    browser.open((runs["images"] / "report.html").as_uri())
    browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'")
    every = browser.run(f"return {FOUND}")
    browser.run(
        "const canvas = document.querySelector('canvas'), box = canvas.getBoundingClientRect();"
        "canvas.setPointerCapture = () => {};"
        "const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind, {buttons: 1,"
        " clientX: box.left + x * box.width, clientY: box.top + y * box.height}));"
        "send('pointerdown', 0, 0); send('pointermove', 0.5, 0); send('pointermove', 0.5, 1);"
        "send('pointermove', 0, 1);"
        "send('pointerup', 0, 1);"
    )
    marked = int(browser.run("return document.querySelector('figure[data-picture=map]').dataset.marked"))
    part = browser.run(f"return {FOUND}")
    assert 0 < part < every
    assert part <= marked < 500
    browser.run("document.querySelector('canvas').focus()")
    browser.press("Escape")
    assert browser.run(f"return {FOUND}") == every
    browser.press("ArrowDown", "+", "+", "Enter")  # the same by keyboard
    assert 0 < int(browser.run("return document.querySelector('figure[data-picture=map]').dataset.marked")) < 500


@pytest.mark.parametrize("kind", KINDS)
def test_it_prints_whole(browser, kind, runs):
    """On paper nothing scrolls, so nothing may be cut off: lines grow with what they hold, and the rest is named."""
    browser.open((runs[kind] / "report.html").as_uri())
    browser.wait("document.querySelector('#row-table')?.dataset.ready === 'yes'")
    assert browser.printed().startswith(b"%PDF")
    browser.media("print")
    browser.resize(700, 900)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    cut = browser.run(
        "return [...document.querySelectorAll('.line > span, .class-table th, .class-table td')]"
        ".filter((each) => each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 6)"
        ".map((each) => each.textContent)"
    )
    assert cut == []
    assert 10 < browser.run("return document.querySelectorAll('#row-table .line').length") <= 40
    assert "changes; all are in labels.parquet" in browser.run("return document.querySelector('.printed').innerText")
    assert overlaps(browser) == []
    broken = browser.run(
        "return [...document.querySelectorAll('.class-table thead th + th')].filter((each) => { const range ="
        " document.createRange(); range.selectNodeContents(each); return range.getClientRects().length >"
        " each.textContent.split(' ').length; }).map((each) => each.textContent)"
    )
    assert broken == []  # no heading breaks inside a word


def test_several_runs(browser, tmp_path, axe):
    runs = [made_run(tmp_path / f"run-{seed}", seed=seed) for seed in range(3)]
    browser.open(write_report(runs, tmp_path / "all.html").as_uri())
    browser.wait("document.querySelectorAll('figure[data-picture] svg').length >= 3")
    assert browser.problems() == []
    assert serious_barriers(browser, axe) == []


def test_half_a_run(browser, tmp_path):
    folder = made_run(tmp_path / "run", state="failed", stop_reason="out of memory")
    (folder / "labels.parquet").unlink()
    browser.open(write_report([folder]).as_uri())
    browser.wait("document.querySelectorAll('figure[data-picture] svg').length >= 2")
    assert "the run failed: out of memory" in browser.run("return document.body.innerText")
    assert browser.problems() == []

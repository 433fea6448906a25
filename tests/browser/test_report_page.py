"""The report in a real browser: sorted, filtered, searched, silent, and without barriers."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from barriers import serious_barriers
from chromium import Browser, missing
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
    assert browser.run("return document.querySelectorAll('figure[data-picture] svg').length") >= 9
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
    assert browser.run("return [...document.scripts].length") == 6
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


def test_dark_and_on_a_phone(tmp_path, report, axe):
    if missing():
        pytest.skip("no browser")
    with Browser(tmp_path / "dark", 400, 800, dark=True) as browser:
        opened(browser, report)
        assert browser.run("return matchMedia('(prefers-color-scheme: dark)').matches")
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")  # nothing sticks out
        assert serious_barriers(browser, axe) == []


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

"""A person in the loop: twenty rows by keyboard, the server killed and started again, nothing lost, and a refit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from barriers import serious_barriers
from sklearn.datasets import load_digits

from labelloop.cli import main
from labelloop.runs.reviews import read_answers, reviewed_labels

pytestmark = pytest.mark.slow

READY = "document.body.dataset.ready === 'yes' && document.body.dataset.row !== undefined"
MINE = "Number(document.body.dataset.mine)"


@pytest.fixture(scope="module")
def real_run(tmp_path_factory) -> Path:
    """Digits with wrong labels, corrected from their pixels and shown as pictures."""
    place = tmp_path_factory.mktemp("review")
    inputs, true = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    given = np.where(rng.random(len(true)) < 0.3, rng.integers(10, size=len(true)), true)
    clean = np.where(rng.random(len(true)) < 0.2, true, -1)
    np.savez(place / "digits.npz", embeddings=inputs.astype(np.float32), label=given, clean_label=clean)
    command = ["correct", str(place / "digits.npz"), "--output-dir", str(place / "run"), "--quiet"]
    assert main(command) == 0
    return place / "run"


class Server:
    """`labelloop review` as a process of its own."""

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
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def answer(browser, *keys: str) -> None:
    before = browser.run(f"return {MINE}")
    browser.press(*keys)
    browser.wait(f"{MINE} === {before + 1} && document.body.getAttribute('aria-busy') === 'false'")


def test_twenty_rows_a_kill_and_a_refit(browser, real_run, axe):
    server = Server(real_run)
    try:
        browser.open(server.address)
        browser.wait(READY)
        assert "Nearest clean rows" in browser.run("return document.body.innerText")
        assert browser.run("return document.querySelectorAll('#near li').length") == 6
        start = browser.run("return document.querySelector('.estimate').textContent")
        for k in range(10):
            answer(browser, "a" if browser.run("return !!document.querySelector('[data-action=accept]')") else "k")
            assert len(read_answers(real_run)[0]) == k + 1  # on disk before the page went on
        answer(browser, "c", "7", "Enter")
        assert read_answers(real_run)[0][-1].label == "7"
        browser.press("z")
        browser.wait(f"{MINE} === 10")
        for key in "kkuk":
            answer(browser, key)
        assert browser.run("return document.querySelector('.estimate').textContent") != start
        assert browser.problems() == []
        asked = [address for address in browser.requests() if address.startswith(("http", "ws", "ftp"))]
        assert asked
        assert [address for address in asked if not address.startswith(f"http://127.0.0.1:{server.port}/")] == []
        assert serious_barriers(browser, axe) == []
    finally:
        server.kill()  # as hard as it gets
    shown = browser.run("return document.body.dataset.row")
    browser.press("k")
    browser.wait("document.getElementById('message').textContent.includes('nothing that was saved is lost')")
    assert browser.run("return document.body.dataset.row") == shown  # the row waits for its answer
    assert all("REFUSED" in problem or "RESET" in problem for problem in browser.problems())

    server = Server(real_run)
    try:
        browser.open(server.address)
        browser.wait(READY)
        assert browser.run(f"return {MINE}") == 14  # where it stopped
        for _ in range(6):
            answer(browser, "k")
        decided = reviewed_labels(real_run)
        assert len(decided) == 19  # one of the twenty could not be told
        browser.click("#refit")
        browser.wait("document.body.dataset.refitted", 300)
        new = pq.read_table(Path(browser.run("return document.body.dataset.refitted")) / "labels.parquet").to_pylist()
        assert {row: str(new[row]["corrected_label"]) for row in decided} == decided
        # The old page went on asking until the new one was opened; nothing may be wrong since then.
        assert [problem for problem in browser.problems() if f":{server.port}/" in problem] == []

        browser.press("2")
        browser.wait("document.querySelectorAll('.tile-row').length > 0")
        count = browser.run("return document.querySelectorAll('.tile-row').length")
        browser.click(".tile-row")
        browser.click("#save-grid")
        browser.wait(f"{MINE} === {20 + count}")
        actions = [each.action for each in read_answers(real_run)[0][-count:]]
        assert actions == ["keep"] + ["accept"] * (count - 1)
        assert serious_barriers(browser, axe) == []
    finally:
        server.kill()

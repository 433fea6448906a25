"""Every page of docs/ runs as it stands, block after block in one folder, and what it links to exists.

A ```sh or ```python block is run. `<!-- not run: why -->` on the line before it leaves it out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import ROOT, blocks_of, commands_of, run_page, script_of

PAGES = sorted((ROOT / "docs").glob("*.md"))
NAMES = [page.name for page in PAGES]


@pytest.mark.page
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_page_runs(page: Path, tmp_path: Path):
    if not any(block.run for block in blocks_of(page.read_text(encoding="utf-8"))):
        pytest.skip("nothing to run on this page")
    done = run_page(page, tmp_path)
    assert done.code == 0, f"{page.name}\n{done.out}\n{done.err}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_files_it_links_to_exist(page: Path):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_pages_are_found():
    assert {"methods.md"} <= set(NAMES)


def test_the_page_on_the_default_is_short_and_its_tables_are_in_the_appendix():
    page, appendix = (
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("recipe.md", "recipe-appendix.md")
    )
    assert len(page.splitlines()) <= 150
    for table in ("tally", "tally-alike", "recipe-gains", "correct-on-data", "chosen", "cells"):
        assert f"<!-- {table} -->" in appendix
        assert f"<!-- {table} -->" not in page


def test_names_and_files_last_from_block_to_block(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\necho 2 > number\n```\n"
        "text\n```python\nx = int(open('number').read())\n```\n"
        "<!-- not run: it would fail -->\n```python\nraise SystemExit(3)\n```\n"
        "```text\nnot code\n```\n"
        "```python\nprint(x + 1)\n```\n"
    )
    done = run_page(page, tmp_path)
    assert (done.code, done.out) == (0, "3\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\ntwo\n```python\nx = 1\nundefined\n```\n", 'page.md", line 5'),
        ("```sh\nfalse\ntrue\n```\n", "CalledProcessError"),  # a command in the middle may not fail either
        ("```sh\nlabelloop no-such-command\n```\n", "no-such-command"),
        ("```sh\nlabelloop report nowhere\necho after\n```\n", "exit code 1: labelloop report nowhere"),
        ("```sh\nlabelloop --help | grep -q no-such-word\n```\n", "CalledProcessError"),
    ],
)
def test_a_block_that_fails_is_seen(tmp_path: Path, text: str, said: str):
    page = tmp_path / "page.md"
    page.write_text(text)
    done = run_page(page, tmp_path)
    assert done.code != 0
    assert said in done.err


def test_plain_commands_run_inside_the_page_and_all_other_lines_in_bash():
    text = "labelloop fit a.csv --set x=1    # why\nlabelloop a | tail\ncat > b <<'END'\nlabel\nEND\nlabelloop b\n"
    assert commands_of(text) == [
        ("labelloop", "labelloop fit a.csv --set x=1    # why"),
        ("shell", "labelloop a | tail\ncat > b <<'END'\nlabel\nEND"),
        ("labelloop", "labelloop b"),
    ]


def test_a_block_is_left_out_only_for_a_reason():
    assert "exit(3)" in script_of("page.md", "<!-- not run: -->\n```python\nexit(3)\n```\n")
    assert "exit(3)" not in script_of("page.md", "<!-- not run: needs a GPU -->\n```python\nexit(3)\n```\n")


def test_the_messages_in_the_faq_are_ours():
    quoted = re.findall(r'^\*\*"([^"]+)"', (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert len(quoted) > 10
    assert [text for text in quoted if text not in source] == []

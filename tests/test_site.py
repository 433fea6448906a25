"""What the documentation site shows of the package: `make docs` builds it. And what a wheel holds."""

from __future__ import annotations

import argparse
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import labelloop
from labelloop.cli import make_parser

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_flag_is_on_the_page_of_commands(site):
    page = site.commands_page()
    parser = make_parser()
    commands = site.subparsers_of(parser).choices
    assert len(commands) > 10
    for name, command in commands.items():
        section = page.split(f"\n## labelloop {name}\n")[1].split("\n## ")[0]
        shown = [action for action in command._actions if action.help != argparse.SUPPRESS]
        flags = [flag for action in shown for flag in action.option_strings if flag not in ("-h", "--help")]
        assert [flag for flag in flags if f"`{flag}" not in section] == [], name


@pytest.mark.parametrize(
    ("arguments", "options", "row"),
    [
        (["data"], {"metavar": "DATA", "help": "a table"}, "| `DATA` | a table |"),
        (["--seed"], {"help": "a|b (default %(default)s)", "default": 3}, "| `--seed SEED` | a\\|b (default 3) |"),
        (["--to"], {"choices": ("a", "b"), "required": True, "help": "where"}, "| `--to {a,b}` | where (required) |"),
        (["--quiet"], {"action": "store_true", "help": "no summary"}, "| `--quiet` | no summary |"),
    ],
)  # fmt: skip
def test_an_option_as_one_writes_it(site, arguments, options, row):
    parser = argparse.ArgumentParser()
    parser.add_argument(*arguments, **options)
    assert site.options_table(parser)[2:] == [row]


def test_every_public_name_is_on_the_page_of_python(site):
    named = re.findall(r"^::: [\w.]+\.(\w+)$", site.python_page(), flags=re.MULTILINE)
    assert named == [name for name in labelloop.__all__ if name != "__version__"]


def test_every_page_is_in_the_site():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert len(pages) > 10
    assert [page for page in sorted(pages) if f": {page}" not in text] == []


def test_the_menu_lists_a_page_once():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    entries = re.findall(r"- (.+): (\S+\.md)$", menu, flags=re.MULTILINE)
    assert len(entries) > 20
    for listed in zip(*entries, strict=True):  # titles, then files
        assert [one for one in sorted(set(listed)) if listed.count(one) > 1] == []


def test_the_front_page_is_not_the_readme(site):
    assert "README.md" not in site.PAGES
    assert "make " not in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "labelloop.__version__"}
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "\nversion:" not in cited


def test_every_data_file_of_the_package_is_in_the_wheel():
    """By the patterns of pyproject.toml; `make dist` installs the wheel and runs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["labelloop"]
    source = ROOT / "src" / "labelloop"
    kept = {path for pattern in patterns for path in source.glob(pattern)}
    files = {path for path in source.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert len(files) > 10
    assert files - kept == set()

"""PAPER.md against the code: defaults, guesses, and every file, function and setting it names. Each check counts."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import labelloop
from labelloop.config.build import build_config, parse_overrides
from labelloop.methods import recipe_config
from labelloop.methods.closed_loop import Config, CorrectorConfig
from labelloop.methods.closed_loop.corrector import INPUTS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "labelloop"
TEXT = (ROOT / "PAPER.md").read_text(encoding="utf-8")
GUESSES = 36
REFERENCE = re.compile(r"`((?:[\w-]+/)*\w+\.py)(?:::([\w.]+))?`")


def section(title: str) -> str:
    """What stands under a heading, up to the next heading of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"PAPER.md has no heading {title!r}"
    return found[2]


def table(text: str, first: str) -> list[dict[str, str]]:
    """The rows of the table whose first column is called `first`."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(f"| {first} |")), None)
    assert start is not None, f"PAPER.md has no table that begins with {first!r}"
    names = cells(lines[start])
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        assert len(cells(line)) == len(names), f"another number of columns than the heading: {line}"
        rows.append(dict(zip(names, cells(line), strict=True)))
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def code(cell: str) -> str:
    """The only thing in backticks."""
    found = re.findall(r"`([^`]*)`", cell)
    assert len(found) == 1, f"expected one value in backticks: {cell!r}"
    return found[0]


def value(cell: str) -> Any:
    """A default as written there: TOML, with fractions such as 1/3."""
    text = re.sub(r"\b(\d+)/(\d+)\b", lambda m: repr(int(m[1]) / int(m[2])), code(cell))
    return tomllib.loads(f"value = {text}")["value"]


def leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting by its dotted key, tuples as lists."""
    found: dict[str, Any] = {}
    for field in fields(config):
        content = getattr(config, field.name)
        if is_dataclass(content):
            found |= leaves(content, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = list(content) if isinstance(content, tuple) else content
    return found


def resolved(file: str) -> Path:
    return ROOT / file if file.startswith("tests/") else SOURCE / file


def names_in(path: Path) -> set[str]:
    """Functions, classes with their members, and constants that a file defines."""
    found = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def test_every_default_is_the_codes():
    rows = table(section("Every default"), "Key")
    columns = {
        "`Config()`": Config(),
        "`paper`": recipe_config("closed-loop", "paper"),
        "`paper-clothing1m`": recipe_config("closed-loop", "paper-clothing1m"),
    }
    compared, wrong = 0, []
    for column, config in columns.items():
        settings = leaves(config)
        for row in rows:
            key = code(row["Key"])
            assert key in settings, f"PAPER.md names a setting that does not exist: {key}"
            compared += 1
            if value(row[column]) != settings[key]:
                wrong.append(f"{key} in {column}: PAPER.md says {row[column]}, the code {settings[key]!r}")
    assert wrong == []
    assert compared == 3 * len(leaves(Config())) > 80


def test_every_setting_is_in_the_table_once_and_says_where_it_comes_from():
    rows = table(section("Every default"), "Key")
    keys = [code(row["Key"]) for row in rows]
    assert sorted(keys) == sorted(leaves(Config()))
    assert {f"corrector.{field.name}" for field in fields(CorrectorConfig)} <= set(keys)
    assert len(fields(Config)) + len(fields(CorrectorConfig)) - 1 == len(keys) > 25
    open_rows = 0
    for row in rows:
        assert row["Where the paper says it"], row
        if row["Paper, CIFAR"] == "–":
            open_rows += 1
            why = r"guess \d+|not in the paper|is not explained"
            assert re.search(why, row["Where the paper says it"]), f"not in the paper, and no guess: {row}"
    assert open_rows >= 9


def test_the_papers_recipe_changes_the_network_alone():
    ours, papers = leaves(Config()), leaves(recipe_config("closed-loop", "paper"))
    assert {key for key in ours if ours[key] != papers[key]} == {"network"}


def test_the_epochs_it_counts_are_those_of_the_code():
    for recipe, drops, corrections in (
        ("paper", (60, 80), list(range(40, 100, 5))),
        ("paper-clothing1m", (5, 10), [3, 6, 9, 12]),
    ):
        config = recipe_config("closed-loop", recipe)
        assert isinstance(config, Config)
        assert config.drop_epochs() == drops
        assert [epoch for epoch in range(1, config.epochs + 1) if config.corrects_after(epoch)] == corrections
        assert all(config.learning_rate_in(drop) > 2 * config.learning_rate_in(drop + 1) for drop in drops)


def test_the_default_recipe_leaves_the_papers_method_as_it_is():
    assert recipe_config("closed-loop", "default") == Config()


def test_the_default_differs_as_it_says():
    rows = table(section("The default is another method"), "Key")
    said = {code(row["Key"]): value(row["`labelloop`"]) for row in rows}
    papers, ours = leaves(Config()), leaves(recipe_config("labelloop"))
    assert said == {key: content for key, content in ours.items() if papers.get(key, None) != content}
    assert len(said) == 7
    gone = {key.partition(".")[0] for key in papers.keys() - ours.keys()}
    assert gone == {field.name for field in fields(Config)} - {field.name for field in fields(labelloop.Config)}


def test_what_is_not_built_is_said():
    text = section("What the paper only suggests")
    for words in ("not built", "continuous targets", "several labels per row", "another domain", "prior knowledge"):
        assert words in text
    assert all(f'"{name}' in TEXT or f"+{name}" in TEXT for name in INPUTS), "an input that is not written down"


def test_every_value_the_paper_does_not_have_is_named_and_off():
    text = section("Values the paper does not have")
    for key in (
        "mixup",
        "average_weights",
        "corrector.standardise",
        "corrector.optimizer",
        "corrector.inputs",
    ):
        assert f"`{key}" in text, f"{key} is not explained"
        for recipe in ("paper", "paper-clothing1m"):
            assert leaves(recipe_config("closed-loop", recipe))[key] == leaves(Config())[key], (
                f"{key} is on in {recipe}"
            )


def test_the_defaults_of_data_and_noise_are_the_codes():
    rows = table(section("Data and noise"), "What")
    for row in rows:
        file, name = code(row["Function"]).split("::")
        module = importlib.import_module("labelloop." + file.removesuffix(".py").replace("/", "."))
        found = getattr(module, name)
        if row["Argument"] != "–":
            found = inspect.signature(found).parameters[code(row["Argument"])].default
        assert value(row["Default"]) == found, f"{row['What']}: PAPER.md says {row['Default']}, the code {found!r}"
    assert len(rows) >= 9


def test_choices_have_letters_without_gaps_and_are_explained():
    explained = re.findall(r"^- \*\*Choice ([A-Z]),", section("Data and noise"), re.MULTILINE)
    assert explained == [chr(ord("A") + i) for i in range(len(explained))]
    named = set(re.findall(r"\bchoice ([A-Z])\b", TEXT))
    assert len(explained) >= 5
    assert named <= set(explained)


def test_guesses_are_numbered_without_gaps():
    numbers = [int(number) for number in re.findall(r"^(\d+)\. \*\*", section("Guesses"), re.MULTILINE)]
    assert numbers == list(range(1, GUESSES + 1))
    named = [int(number) for number in re.findall(r"\bguess (\d+)", TEXT)]
    assert len(named) >= 20
    assert set(named) <= set(numbers)


def test_every_guess_named_in_the_code_exists():
    looked_at, found = 0, []
    for path in sorted(path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")):
        if path == Path(__file__).resolve():
            continue
        looked_at += 1
        for number in re.findall(r"PAPER\.md, guess (\d+)", path.read_text(encoding="utf-8")):
            found.append(int(number))
            assert 1 <= int(number) <= GUESSES, f"{path.relative_to(ROOT)} refers to guess {number}"
    assert looked_at > 50
    assert len(found) >= 3


def test_every_file_and_function_it_names_exists():
    files, names, wrong = set(), set(), []
    for file, name in REFERENCE.findall(TEXT):
        files.add(file)
        if not resolved(file).is_file():
            wrong.append(file)
        elif name:
            names.add((file, name))
            if name not in names_in(resolved(file)):
                wrong.append(f"{file}::{name}")
    assert wrong == []
    assert len(files) >= 15
    assert len(names) >= 40
    # Nothing that looks like a reference escapes the pattern.
    assert set(re.findall(r"[\w/]+\.py\b", TEXT)) == files


def test_every_symbol_is_in_the_file_it_names():
    rows, looked_at = table(section("Symbols"), "Paper"), 0
    for row in rows:
        texts = [resolved(file).read_text(encoding="utf-8") for file, _ in REFERENCE.findall(row["File"])]
        assert texts, row
        names = re.findall(r"`([^`]+)`", row["Name in code"])
        assert names, row
        for name in names:
            looked_at += 1
            assert any(re.search(rf"(?<![\w.]){re.escape(name)}\b|\.{re.escape(name)}\b", t) for t in texts), (
                row,
                name,
            )
    assert len(rows) >= 18
    assert looked_at >= 25


def test_every_equation_and_line_has_code_and_a_test():
    rows = table(section("Equations and algorithm"), "Paper")
    first = [row["Paper"] for row in rows]
    for wanted in (*(f"Eq. {n}," for n in range(1, 6)), *(f"line {n}," for n in range(1, 12))):
        assert sum(name.startswith(wanted) for name in first) == 1, f"no row, or several, for {wanted}"
    for row in rows:
        assert "tests/" in row["Test"] or row["Test"] == "as above", row
        assert "`" in row["Code"], row
    assert len(rows) >= 20


def test_every_setting_it_writes_down_is_accepted():
    written = re.findall(r"`([a-z_.]+)\s=\s([^`]+)`", TEXT)
    for key, content in written:
        build_config(Config, parse_overrides([f"{key}={content}"]))
    assert len(written) >= 20
    assert {"combination", "corrector.inputs", "noisy_loss_weight", "correct_every"} <= {key for key, _ in written}

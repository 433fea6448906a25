"""Pages of the site that are made when it is built: commands, Python, and what stands outside docs/.

mkdocs calls `on_files` and `on_page_markdown`. Nothing here is part of the package.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md"} | {name: name for name in ("PAPER.md", "CHANGELOG.md", "CONTRIBUTING.md")}
EXAMPLES = ("examples/own_training_loop.py",)
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that no file of docs/ holds."""
    from mkdocs.structure.files import File

    made = {target: (ROOT / source).read_text(encoding="utf-8") for source, target in PAGES.items()}
    for example in EXAMPLES:
        code = (ROOT / example).read_text(encoding="utf-8")
        made[example.replace(".py", ".md")] = f"# {Path(example).name}\n\n```python\n{code}```\n"
    made |= {"commands.md": commands_page(), "python.md": python_page()}
    for target, text in made.items():
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as they are in the site; a link to a file that is not a page becomes its name."""
    source = next((name for name, target in PAGES.items() if target == page.file.src_uri), None)
    folder = ROOT if source else ROOT / "docs"

    def link(match: re.Match[str]) -> str:
        text, written, anchor = match[1], match[2], match[3] or ""
        path = (folder / written).resolve()
        if not path.exists():
            return match[0]  # another page made here, or a broken link, which mkdocs reports
        target = target_of(path)
        return f"[{text}]({target}{anchor})" if files.get_file_from_path(target) else text

    return LINK.sub(link, markdown)


def target_of(path: Path) -> str:
    """Where a file of the repository is in the site."""
    name = path.relative_to(ROOT).as_posix()
    if name in EXAMPLES:
        return name.replace(".py", ".md")
    return PAGES.get(name, name.removeprefix("docs/"))


# --- commands --------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its options, from the parser that reads them."""
    from labelloop.cli import make_parser

    parser = make_parser()
    commands = subparsers_of(parser)
    lines = ["# Commands", "", parser.description or "", ""]
    lines += ["Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.", ""]
    for name, command in commands.choices.items():
        lines += [f"## labelloop {name}", "", command.description or "", "", *options_table(command), ""]
    return "\n".join(lines)


def subparsers_of(parser: argparse.ArgumentParser) -> Any:
    """The action of a parser that holds its commands."""
    return next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def options_table(parser: argparse.ArgumentParser) -> list[str]:
    """A line for each argument: how it is written, and what it does."""
    rows = ["| option | |", "|---|---|"]
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        text = (action.help or "") % {"default": action.default, "prog": parser.prog} if action.help else ""
        if action.required and action.option_strings:
            text = f"{text} (required)"
        rows.append(f"| {written(action)} | {escaped(text)} |")
    return rows


def written(action: argparse.Action) -> str:
    """An argument as one writes it: `--seed SEED`, or `DATA`."""
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    text = " ".join([", ".join(action.option_strings), str(value)] if action.nargs != 0 else action.option_strings)
    return f"`{text.strip()}`"


def escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


# --- Python ----------------------------------------------------------------------------------------------------------


def python_page() -> str:
    """The public names, each with its docstring."""
    import labelloop

    lines = ["# Python", "", "Everything here is imported from `labelloop` itself.", ""]
    for name in labelloop.__all__:
        if not name.startswith("__"):
            lines += [f"::: {labelloop._PUBLIC[name]}.{name}", ""]
    return "\n".join(lines)

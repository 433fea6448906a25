"""Help at once, versions, and exit code 2 for what cannot be understood."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from cli_tools import command

import labelloop as library

MOST_MODULES = 150  # that --help may import, Python's own included; numpy alone has more


def test_help_lists_the_commands():
    done = subprocess.run(command("--help"), capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0
    assert done.stderr == ""
    for name in ("fit", "predict", "demo"):
        assert name in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["predict", "--help"], ["demo", "--help"]])
def test_help_imports_little_and_nothing_heavy(arguments):
    program = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "import labelloop\n"
        "from labelloop.cli import main\n"
        "try:\n    main(json.loads(sys.argv[1]))\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"assert 10 < len(sys.modules.keys() - before) < {MOST_MODULES}, len(sys.modules.keys() - before)\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'pyarrow', 'tqdm', 'safetensors'}\n"
        "assert 'labelloop.cli' in sys.modules\n"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, json.dumps(arguments)], capture_output=True, text=True)
    assert done.stderr.strip() == ""
    assert done.returncode == 0
    assert done.stdout.startswith("usage: labelloop")


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        (
            "fit",
            ["DATA", "--output-dir", "--config", "--set", "--resume", "--overwrite", "--quiet", "--seed", "--test"],
        ),
        ("predict", ["RUN", "DATA", "--output", "--overwrite"]),
        ("demo", ["--output-dir", "--seeds"]),
    ],
)
def test_every_command_has_help(name, flags, labelloop):
    ended = labelloop(name, "--help")
    assert ended.code == 0
    for flag in flags:
        assert flag in ended.out


def test_version(labelloop):
    ended = labelloop("--version")
    assert (ended.code, ended.out) == (0, f"labelloop {library.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "COMMAND"),
        (["fitt"], "fitt"),
        (["fit"], "DATA"),
        (["fit", "rows.csv"], "--output-dir"),
        (["fit", "rows.csv", "--output-dir", "run", "--sead", "3"], "--sead"),
        (["fit", "rows.csv", "--output-dir", "run", "--seed", "three"], "three"),
        (["predict", "run"], "DATA"),
        (["demo", "--seeds", "many"], "many"),
        (["demo", "--seeds", "0"], "--seeds"),
    ],
)
def test_what_cannot_be_understood_exits_2(arguments, word, labelloop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = labelloop(*arguments)
    assert ended.code == 2
    assert word in ended.err
    assert ended.out == ""
    assert list(tmp_path.iterdir()) == []


def test_public_names_can_all_be_had():
    assert len(library.__all__) > 10
    for name in library.__all__:
        assert getattr(library, name) is not None
    assert dir(library) == sorted(library.__all__)
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = library.fitt


def test_a_command_is_one_file_and_one_line(labelloop, tmp_path, monkeypatch):
    from labelloop.cli import COMMANDS

    (tmp_path / "greet.py").write_text(
        "HELP = 'say hello'\nDESCRIPTION = 'Say hello.'\n"
        "def add_flags(parser):\n    parser.add_argument('--name')\n"
        "def run(options):\n    print(f'hello {options.name}')\n    return 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "greet", "greet")
    assert labelloop("greet", "--name", "Ada").out == "hello Ada\n"
    assert "say hello" in labelloop("--help").out


@pytest.mark.parametrize(
    "arguments",
    [["plan", "run"], ["undo", "x.undo.zip"], ["demo"], ["noise", "a.csv", "--output", "b", "--noise", "pair"]],
)
def test_ctrl_c_ends_every_command_in_one_line(arguments, labelloop, monkeypatch, tmp_path):
    import importlib

    from labelloop.cli import COMMANDS

    def interrupt(options):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.import_module(COMMANDS[arguments[0]]), "run", interrupt)
    ended = labelloop(*arguments)
    assert (ended.code, ended.err) == (130, "\nlabelloop: interrupted\n")

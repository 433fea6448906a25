"""`labelloop review`: label the doubtful rows of a run on a local page."""

from __future__ import annotations

import argparse
import getpass
import os
import tempfile
from html import escape
from pathlib import Path

from labelloop.cli.flags import add, flag, switch

HELP = "label the doubtful rows of a run on a local page"
DESCRIPTION = (
    "Serve a page on this machine that shows the rows of RUN one by one, the most useful first, and saves every"
    " decision to RUN/reviews.jsonl at once. `labelloop refit RUN` uses the decisions as clean rows. Ctrl-C stops it."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add(parser, "run_folder")
    flag(parser, "--port", None, "the port of the page (default: any free one)", int, 0)
    flag(parser, "--name", "NAME", "the name of the reviewer; can be changed on the page")
    switch(parser, "--open", "open the page in a browser")
    parser.set_defaults(kept=lambda options: "; every decision is kept")


def run(options: argparse.Namespace) -> int:
    from labelloop.workflows.review import open_review

    server = open_review(options.run_folder, options.port, options.name or _user())
    print(f"review {options.run_folder} at\n  {server.address}\nCtrl-C stops it; every decision is kept", flush=True)
    page = _open(server.address) if options.open else None
    try:
        server.serve_forever()
    except KeyboardInterrupt as interrupt:
        print()
        return getattr(interrupt, "code", 0)
    finally:
        server.server_close()
        if page is not None:
            page.unlink(missing_ok=True)
    return 0


def _open(address: str) -> Path:
    """Opens a browser at a file that leads to the address: other users can read the command line of a browser."""
    import webbrowser

    handle, name = tempfile.mkstemp(prefix="labelloop-", suffix=".html")  # only this user may read it
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address, quote=True)}">\n')
    webbrowser.open(Path(name).as_uri())
    return Path(name)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "reviewer"

"""`labelloop paper`: the tables and figures of the paper, from stored runs or new ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from labelloop.cli.flags import add, add_workers, flag, switch
from labelloop.errors import UsageError

HELP = "show the tables and figures of the paper, from stored runs or new ones"
DESCRIPTION = "Without NAME: list every table and figure of the paper, which runs are stored, and the commands."


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "name", "NAME", "table1 to table9, figure1 to figure7, weights", str, "", nargs="?")
    about = "small runs on a CPU; full is the paper's protocol and needs a GPU"
    flag(parser, "--scale", None, about, str, "small", choices=("small", "full"))
    how = parser.add_mutually_exclusive_group()
    switch(how, "--rerun", "run it again and compare with the stored runs")
    switch(how, "--dry-run", "list what would run, with all settings")
    flag(parser, "--figure", "FILE", "draw it to FILE.png and FILE.svg", Path)
    flag(parser, "--output-dir", "FOLDER", "the folder of new runs (default: runs/paper)", Path)
    add(parser, "--jobs")
    add_workers(parser, "processes per run that decode image files")
    switch(parser, "--without-gpu", "run the full scale on a CPU (takes months)")


def run(options: argparse.Namespace) -> int:
    from labelloop.paper import items as paper

    folder = options.output_dir or Path("runs") / "paper"
    if not options.name:
        if options.rerun or options.dry_run or options.figure:
            raise UsageError("--rerun, --dry-run and --figure need one table or figure; name it, such as table1")
        print(paper.list_items(paper.stored_runs(folder)))
        return 0
    item = paper.find_item(options.name)
    if options.dry_run:
        print(paper.dry_run(item, options.scale))
        return 0
    if options.rerun:
        paper.need_runs(item, options.scale)
    if options.figure:  # before anything runs
        from labelloop.paper.figures import need_picture
        from labelloop.report.figure import figure_place

        need_picture(item.shows, item.place)
        paper.need_panels(item, options.scale)
        options.figure = figure_place(options.figure)
    runs, agreement = _runs(item, options, folder)
    print(paper.show(item, options.scale, runs))
    if agreement:
        print(f"\n{agreement}")
    if options.figure:
        from labelloop.paper.figures import draw

        drawn = draw(item.shows, paper.panels(item, options.scale, runs), options.figure)
        print("\n".join(f"wrote {path}" for path in drawn))
    return int(bool(agreement) and not paper.is_complete(item, options.scale, runs))


def _runs(item: Any, options: argparse.Namespace, folder: Path) -> tuple[Any, str]:
    """The runs of a table or figure, stored or new, and for new ones how far they agree with those stored."""
    from labelloop.paper import items as paper

    full = options.scale == "full"
    if not (options.rerun or (full and paper.has_runs(item, "full"))):
        return paper.stored_runs(folder), ""
    if full and not options.without_gpu and not paper.has_gpu():
        raise UsageError(
            "the full scale needs a GPU, and none was found: --dry-run lists what would run, --scale small shows the"
            " reduced protocol, --without-gpu runs it on the CPU anyway"
        )
    return paper.rerun(item, options.scale, folder, 1 if full else options.jobs, options.workers)

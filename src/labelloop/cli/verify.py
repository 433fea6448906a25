"""`labelloop verify`: say which files of a run are whole, damaged, missing or foreign."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import flag

HELP = "check which files of a run are whole, damaged, missing or foreign"
DESCRIPTION = (
    "Compare every file of RUN, or of an exported model, with the checksums that were written with it. Nothing is"
    " changed. Exits with code 1 if a file is damaged or missing."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "run_folder", "RUN", "the folder of a run or of an exported model", Path)


def run(options: argparse.Namespace) -> int:
    from labelloop.export.verify import BAD, verify

    found, remarks = verify(options.run_folder)
    for one in found:
        print(f"{one.state:<8} {one.name}")
    for remark in remarks:
        print(remark)
    bad = [one for one in found if one.state in BAD]
    states = {state: sum(one.state == state for one in found) for state in dict.fromkeys(one.state for one in found)}
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    print(f"{len(found)} files: {counted or 'nothing to compare'}")
    return 1 if bad else 0

"""`labelloop bench`: run a grid of experiments and print its table."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add, add_trust, add_workers, flag, switch

HELP = "run a grid of experiments and print its table"
DESCRIPTION = "Run the experiments of GRID, a TOML file, in parallel, skip those with a result, and print the table."


def add_flags(parser: argparse.ArgumentParser) -> None:
    flag(parser, "grid", "GRID", None, Path)
    flag(parser, "--output-dir", "FOLDER", "the folder of the results (default: runs/GRID)", Path)
    add(parser, "--jobs")
    add_trust(parser, "GRID")
    add_workers(parser, "processes per run that decode image files")
    switch(parser, "--dry-run", "check the grid and list what would run")
    parser.set_defaults(kept=lambda options: "; finished runs are kept, and the same command continues")


def run(options: argparse.Namespace) -> int:
    from labelloop.bench.experiment import check_experiments
    from labelloop.bench.grid import read_grid
    from labelloop.bench.pool import bench_report, run_bench

    experiments = read_grid(options.grid, options.trust_code)
    folder = options.output_dir or Path("runs") / options.grid.stem
    if options.dry_run:
        check_experiments(experiments)
        print("\n".join(f"{e.key}  {e.title}  seed {e.seed}" for e in experiments))
        return 0
    outcome = run_bench(experiments, folder, options.jobs, workers=options.workers)
    print(bench_report(outcome))
    return 1 if outcome.failures else 0

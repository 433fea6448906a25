"""`labelloop bench`: run a grid of experiments and print its table."""

from __future__ import annotations

import argparse
from pathlib import Path

from labelloop.cli.flags import add_jobs, add_trust, processes

HELP = "run a grid of experiments and print its table"
DESCRIPTION = "Run the experiments of GRID, a TOML file, that have no result yet, in parallel, and print the table."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("grid", type=Path, metavar="GRID")
    parser.add_argument(
        "--output-dir", type=Path, metavar="FOLDER", help="the folder of the results (default: runs/GRID)"
    )
    add_jobs(parser)
    add_trust(parser, "GRID")
    parser.add_argument(
        "--workers", type=processes, default=0, help="processes per run that decode image files (default 0)"
    )
    parser.add_argument("--dry-run", action="store_true", help="check the grid and list what would run")
    parser.set_defaults(kept=_kept)


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


def _kept(options: argparse.Namespace) -> str:
    return "; finished runs are kept, and the same command continues"

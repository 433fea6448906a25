"""`fit` on a file: read, run, and summarise the result."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labelloop.config.base import DEFAULT_METHOD, DEFAULT_RECIPE, TrainingConfig, method_of
from labelloop.config.build import parse_overrides, read_toml
from labelloop.data.classes import typed
from labelloop.data.problem import check
from labelloop.data.readers import ReadOptions, is_hub_dataset
from labelloop.data.readers.hub import has_test_split
from labelloop.data.table import Table
from labelloop.errors import DataError, UsageError, some
from labelloop.methods import recipe_config
from labelloop.relabel.estimate import estimate_lines
from labelloop.runs.folder import UNREADABLE, holds_run
from labelloop.training.ranks import alone_among_others, join
from labelloop.trust import Stored
from labelloop.workflows.compose import RunOptions
from labelloop.workflows.encode import hint, read_inputs, shape_of, trained_config
from labelloop.workflows.fit import Result, fit_table, list_unreadable
from labelloop.workflows.noise import with_noisy_labels
from labelloop.workflows.summary import next_steps, result_text, schema_text

__all__ = ["ReadOptions", "RunOptions", "Settings", "fit_file", "holds_run", "join", "method_of", "summary"]

MAX_UNREADABLE = 0.01  # of the rows


@dataclass(frozen=True)
class Settings:
    """A method and its settings, as given on the command line: overrides take precedence over the file.

    Attributes:
        method: A name in METHODS.
        recipe: A name in RECIPES to start from.
        config_file: Settings in TOML.
        overrides: Settings as "key=value".
        trust_code: Whether the file may name code of its own as the network; overrides always may.
    """

    method: str = DEFAULT_METHOD
    recipe: str = DEFAULT_RECIPE
    config_file: Path | None = None
    overrides: Sequence[str] = ()
    trust_code: bool = False

    def config(self) -> TrainingConfig:
        """The method's whole configuration."""
        stored: dict[str, Any] = {}
        if self.config_file is not None:
            stored = read_toml(self.config_file)
            network, options = stored.get("network", "auto"), stored.get("network_options", {})
            Stored(self.config_file, self.trust_code).check_network(network, options)
        return recipe_config(self.method, self.recipe, stored, parse_overrides(self.overrides))


def fit_file(
    path: Path,
    columns: ReadOptions,
    settings: Settings,
    run: RunOptions,
    *,
    noisy_labels: Path | None = None,
    test: Path | None = None,
    allow_overlap: bool = False,
    max_unreadable: float = MAX_UNREADABLE,
) -> str:
    """Trains on a file, writes the run folder, and returns a summary as text.

    Args:
        path: A table, a folder of Parquet parts, a folder of images, or a Hugging Face data set.
        columns: How to read it.
        settings: The method and its settings.
        run: The options of the run; it has a folder unless it is a dry run.
        noisy_labels: A noise file, whose labels replace the given ones.
        test: A file of rows with true labels to report the accuracy on.
        allow_overlap: As in `fit`.
        max_unreadable: The share of images that may be unreadable.
    """
    with run.memory_limit():
        assert run.folder is not None or run.dry_run
        if not 0 <= max_unreadable <= 1:
            raise UsageError(f"max_unreadable is a share of the images, from 0 to 1, not {max_unreadable:g}")
        if path.is_dir() and run.folder is not None and run.folder.resolve().is_relative_to(path.resolve()):
            raise UsageError(
                f"{run.folder} is inside the data {path}, of which it would become a part; give another folder"
            )
        with run.ranks.together():
            config = settings.config()
            columns = replace(columns, progress=run.progress if run.ranks.is_first else False)
            table, true_labels = read_inputs(path, columns, device=run.device), None
            config = trained_config(config, table, settings.method)
            _check_unreadable(table, max_unreadable, run)
            if noisy_labels is not None:
                table, true_labels = with_noisy_labels(table, noisy_labels)
            test_table = _test_rows(path, test, _like(table, columns), table, run.device)
            if test_table is not None:
                _check_unreadable(test_table, max_unreadable, run)
        if run.dry_run:
            check(table, test_table, allow_overlap=allow_overlap)
            return f"{schema_text(table)}\nnothing was trained or written (--dry-run)"
        if run.progress is not False:
            ranks = run.ranks
            shared = f"{ranks.count} processes take part" if ranks.count > 1 else alone_among_others()
            text = "\n".join([*filter(None, [shared]), schema_text(table)])
            run = replace(run, before=lambda: print(text, flush=True))
        result = fit_table(
            table, config, run, method=settings.method, test=test_table, y_true=true_labels, allow_overlap=allow_overlap
        )
        return summary(table, result) if run.ranks.is_first else ""


def _test_rows(path: Path, test: Path | None, columns: ReadOptions, table: Table, device: str) -> Table | None:
    """The rows of the test file, or of the data set's own test split, read in the same way as the table."""
    columns = replace(columns, hub_split="test")
    if test is not None:
        return read_inputs(test, columns, table.encoder_form, shape=shape_of(table), device=device)
    if not is_hub_dataset(path) or not has_test_split(path):
        return None
    columns = replace(columns, labels_required=False)
    return _with_labels(read_inputs(path, columns, table.encoder_form, shape=shape_of(table), device=device))


def _like(table: Table, options: ReadOptions) -> ReadOptions:
    """How to read the test rows of a table: the same features, made in the same way."""
    options = replace(
        options, labels_path=None, clean_file=None, extra_columns=(), clean_folder=None, image_form=table.image_form
    )
    if table.encoding:
        return replace(options, feature_columns=None, encoding=table.encoding)
    if options.feature_columns is None and table.encoder_form is None:
        return replace(options, feature_columns=table.column_names or None)
    return options


def _with_labels(test: Table) -> Table | None:
    """The test split of a data set. Without clean labels, its labels count as true; None if it has no labels."""
    known = [values is not None and not typed(values)[1].all() for values in (test.labels, test.clean_labels)]
    if not any(known):
        warnings.warn(f"{test.source}: no row of the split 'test' has a label, so it is not used", stacklevel=2)
        return None
    return test if known[1] else replace(test, clean_labels=None)


def _check_unreadable(table: Table, most: float, run: RunOptions) -> None:
    """Warns about images that cannot be read, and stops if they are more than a share of the rows."""
    count = len(table.unreadable)
    if not count:
        return
    output_dir = None if run.dry_run else run.folder
    message = f"{table.source}: {count} of {len(table)} images cannot be read ({100 * count / len(table):.1f}%)"
    if count <= most * len(table):
        where = "" if output_dir is None else f" and listed in {output_dir / UNREADABLE}"
        warnings.warn(f"{message}; they are left out{where}", stacklevel=2)
        return
    listed = f"such as {some(f'{bad.path} ({bad.reason})' for bad in table.unreadable)}"
    free = output_dir is not None and not holds_run(output_dir) and not output_dir.is_file()
    if run.ranks.is_first and output_dir is not None and free:  # what is there is not replaced
        output_dir.mkdir(parents=True, exist_ok=True)
        listed = f"all are listed in {list_unreadable(output_dir, table)}"
    raise DataError(
        f"{message}, more than the {100 * most:g}% allowed; {listed}; replace them, or raise max_unreadable"
    )


def summary(table: Table, result: Result) -> str:
    """The result in a few lines."""
    assert result.output_dir is not None
    corrections = "1 correction" if len(result.rounds) == 1 else f"{len(result.rounds)} corrections"
    lines = [f"{len(table)} rows, {len(result.classes)} classes, {corrections}"]
    if result.rounds:
        lines.append(result_text(result.labels, result.classes.tolist(), result.estimate))
    if guard := result.record.about.get("guard"):
        lines.append(guard["line"])
    last = result.history[-1]
    if "test_accuracy" in last:
        lines.append(f"test accuracy after the last epoch: {100 * last['test_accuracy']:.1f}%")
    lines += estimate_lines(result.estimate)
    lines.append(f"stopped by: {result.stop_reason}")
    if encoder := (table.origin or {}).get("encoder"):
        counts = f"{encoder['from_cache']} rows from the cache, {encoder['encoded']} new"
        lines.insert(1, f"encoder {encoder['name']}: {counts}")
    lines.append(f"everything is in {result.output_dir} (the corrected labels: labels.parquet)")
    lines.append(next_steps(result.output_dir, table.origin))
    return "\n".join(lines + hint(table))

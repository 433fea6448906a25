"""`labelloop paper`: every table and figure of the paper, from stored runs or new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.bench.experiment import Experiment
from labelloop.bench.pool import run_bench
from labelloop.bench.tables import best, cell, cell_text, last, setting
from labelloop.config.build import to_dict
from labelloop.errors import DataError, UsageError, nearest
from labelloop.paper.evidence import agreement, read_evidence
from labelloop.paper.grids import SCALES, Item, Part, item_names, read_item, read_items
from labelloop.paper.tally import Duel, compared, of_labels, tally_text
from labelloop.runs.files import read_json

VALUES = {
    "last": last,
    "best": best,
    "labels": of_labels("corrected_label_accuracy"),
    "broken": of_labels("good_labels_broken"),
    "broken_rarest": of_labels("rarest_labels_broken"),
    "calibration": of_labels("corrected_label_ece"),
}
CAPTIONS = {
    "last": "Test accuracy after the last epoch",
    "best": "Test accuracy at the best epoch, which is chosen on test data",
    "labels": "Right labels among those returned for the training rows",
    "broken": "Good labels broken: right as given, wrong as returned",
    "broken_rarest": "Good labels broken in the rarest class",
    "calibration": "Calibration error of the confidence in the labels returned",
}
EFFICIENCY = "efficiency.json"
NOT_MEASURED = "not measured yet: python benchmarks/efficiency.py measures it"
ROWS_OF = {"cifar10": 50_000, "cifar100": 50_000}
NONE_STORED = (
    "No runs are stored here: they are in evidence/ of a checkout of the repository, not in the installed package. "
    "Run this command in a checkout, or make the runs with --rerun."
)
Records = Mapping[str, Mapping[str, Any]]


# --- what there is ---------------------------------------------------------------------------------------------------


def evidence_folder() -> Path:
    """The folder of stored runs: in the checkout of this package, else in that of the current folder.

    An installed wheel has the grids but no runs, so the folder need not exist.
    """
    own = Path(__file__).resolve().parents[3] / "evidence"
    return own if own.is_dir() else Path("evidence").resolve()


def stored_runs(runs: Path | None = None) -> dict[str, dict[str, Any]]:
    """Finished runs by key: those of the repository, then those of a folder that `--rerun` or `--scale full` filled."""
    found = read_evidence(evidence_folder())
    if runs and runs.exists() and not runs.is_dir():
        raise DataError(f"{runs} is a file; give a folder for the runs")
    for path in sorted(runs.glob("*.json")) if runs else ():
        record = read_json(path)
        if not isinstance(record, dict) or not record.get("history"):
            raise DataError(f"{path} is not the record of a run; move it out of this folder, or give another folder")
        found.setdefault(path.stem, record)
    return found


def records_of(part: Part, runs: Records) -> list[dict[str, Any]]:
    """The finished runs of a part, under the titles it gives them."""
    return [{**runs[e.key], "experiment": asdict(e), "title": e.title} for e in part.experiments if e.key in runs]


def comparisons(item: Item, scale: str, runs: Records) -> dict[str, list[Duel]]:
    """The default against others in every cell of an item, for test accuracy and for labels."""
    parts = item.at(scale)
    records = [(part.protocol, part.title, record) for part in parts for record in records_of(part, runs)]
    return compared(records, {e.title: e.method for part in parts for e in part.experiments})


def list_items(runs: Records) -> str:
    """Every table and figure of the paper, its stored runs, and the commands."""
    lines = []
    for item in read_items().values():
        lines.append(f"{item.place}: {item.title}")
        lines += [f"  {scale:5}  {_state(item, scale, runs)}" for scale in SCALES]
        if item.note:
            lines.append(f"  note   {item.note}")
    if not runs and not evidence_folder().is_dir():
        lines += ["", NONE_STORED]
    return "\n".join(lines)


def _state(item: Item, scale: str, runs: Records) -> str:
    keys = {e.key for part in item.at(scale) for e in part.experiments}
    command = f"labelloop paper {item.name} --scale {scale}"
    if item.shows == "nothing":
        return "nothing to run"
    if item.shows == "details":
        return f"{command:44} complete: a comparison of settings, nothing to run"
    if item.shows == "resources" and scale == "small":
        return f"{command:44} {NOT_MEASURED if _measured() is None else 'measured and stored'}"
    if not keys:
        return f"no {scale} counterpart"
    stored = len(keys & runs.keys())
    if stored == len(keys):
        return f"{command:44} all {stored} runs stored"
    needs = "; needs a GPU" if scale == "full" else ""
    if scale == "full" and any(part.protocol == "clothing1m" for part in item.at(scale)):
        needs += ", Clothing1M and ImageNet weights (resnet50.safetensors)"
    return f"{command:44} {stored} of {len(keys)} runs stored, {len(keys) - stored} missing{needs}"


# --- what would run --------------------------------------------------------------------------------------------------


def dry_run(item: Item, scale: str) -> str:
    """All settings of what would run, each configuration once."""
    parts = []
    for part in item.at(scale):
        lines = [f"{part.title}: {len(part.experiments)} runs"]
        groups: dict[str, list[Experiment]] = {}
        for experiment in part.experiments:
            groups.setdefault(f"{experiment.title}: {_settings(experiment)}", []).append(experiment)
        for text, group in groups.items():
            cells = dict.fromkeys(setting(asdict(e)) for e in group)
            seeds = sorted({e.seed for e in group})
            lines += [f"  {text}", f"    {len(group)} runs: {', '.join(cells)}; seeds {', '.join(map(str, seeds))}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or f"{item.place} has nothing to run at this scale"


def _settings(experiment: Experiment) -> str:
    config = to_dict(experiment.method_config)
    config["learning_rate_drops"] = list(experiment.method_config.drop_epochs())  # in epochs, as the paper has them
    config["augment"] = augmentation(experiment)
    sizes = f"clean = {experiment.clean}" if experiment.clean else "clean rows of the data set"
    if experiment.dataset in ROWS_OF:
        noisy = experiment.dataset_options.get("limit", ROWS_OF[experiment.dataset]) - experiment.clean
        sizes = f"{noisy} noisy + {experiment.clean} clean rows"
    options = ", ".join(f"{key} = {value}" for key, value in experiment.dataset_options.items())
    given = [sizes, *([options] if options else []), f"method = {experiment.method}", "optimizer = SGD"]
    return ", ".join([*given, *(f"{key} = {value}" for key, value in config.items())])


def augmentation(experiment: Experiment) -> str:
    """How the training images of an experiment are augmented, in words."""
    kind = experiment.method_config.augment
    if kind == "auto":
        kind = {"cifar10": "crop-flip", "cifar100": "crop-flip", "clothing1m": "own"}.get(experiment.dataset, "none")
    return {"crop-flip": "flip, crop", "own": "resized crop, flip, colour jitter, grey"}.get(kind, kind)


def details(experiment: Experiment) -> dict[str, Any]:
    """The rows of the paper's table of experimental details, as this package would run them."""
    config: Any = experiment.method_config
    corrector = config.corrector
    return {
        "architecture": config.network.replace("resnet", "ResNet-"),
        "pretraining": "ImageNet" if config.weights else "none",
        "epochs": config.epochs,
        "augmentation": augmentation(experiment),
        "optimizer": "SGD",
        "batch size": config.batch_size,
        "momentum": config.momentum,
        "weight decay": config.weight_decay,
        "learning rate": config.learning_rate,
        "drops after epoch": list(config.drop_epochs()),
        "drop factor": config.learning_rate_factor,
        "corrects every": config.correct_every,
        "λ": config.noisy_loss_weight,
        "clean split": config.clean_fit_fraction,
        "corrector layers": 2,
        "corrector hidden units": corrector.hidden,
        "corrector activation": "ReLU",
        "corrector optimizer": corrector.optimizer.upper(),
        "corrector learning rates": [corrector.learning_rate, corrector.low_learning_rate],
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def show(item: Item, scale: str, runs: Records) -> str:
    """A table as text, from finished runs, with the paper's own numbers."""
    parts = item.at(scale) if item.shows != "details" else item.at("full")
    if item.shows == "nothing":
        return f"{item.place}: {item.note}"
    if item.shows == "resources" and scale == "small":
        return f"{item.place}: {item.title}\n\n{measured_resources(item)}"
    if not parts:
        return f"{item.place} has no counterpart at this scale{item.why}"
    blocks = [f"{item.place}: {item.title}"]
    if item.shows == "details":
        blocks.append(_details_table(item, parts))
    if item.shows == "tally":
        blocks.append(tally_text(comparisons(item, scale, runs)))
    for part in parts if item.shows != "details" else ():
        records = records_of(part, runs)
        missing = len(part.experiments) - len(records)
        note = f" ({missing} of {len(part.experiments)} runs missing)" if missing else ""
        if not records:
            blocks.append(f"{part.title}: no runs yet")
        elif item.shows == "phases":
            blocks.append(phase_table(item, part, records, note))
        elif item.shows == "resources":
            caption = f"{part.title}. Training time per epoch without the test, and peak memory, mean over runs{note}"
            blocks.append(_resource_table(item, _resources_of(records), caption))
        else:
            values = item.values if item.shows in ("accuracy", "tally") else ("last", "best")
            blocks += [accuracy_table(item, part, records, value, note) for value in values]
    if not runs and not evidence_folder().is_dir() and item.shows != "details":
        blocks.append(NONE_STORED)
    return "\n\n".join(blocks)


def accuracy_table(item: Item, part: Part, records: Sequence[Mapping[str, Any]], value: str, note: str = "") -> str:
    """Rows by cells, mean ± deviation over the seeds, and the paper's own number in brackets."""
    cells: dict[str, dict[str, list[float]]] = {e.title: {} for e in part.experiments}
    columns: dict[str, tuple[str, float]] = {}
    realised: dict[str, list[float]] = {}
    for experiment in part.experiments:
        columns.setdefault(setting(asdict(experiment)), (experiment.noise, experiment.rate))
    for record in records:
        realised.setdefault(setting(record["experiment"]), []).append(record["realised_rate"])
        number = VALUES[value](record)
        if number is not None:
            cells[record["title"]].setdefault(setting(record["experiment"]), []).append(number)
    published = False
    lines = []
    for row, line in cells.items():
        texts = []
        for column, (noise, rate) in columns.items():
            theirs = item.published_value(part.beside, value, row, noise, rate)
            ours = cell_text(cell(line[column])) if column in line else "–"
            published |= theirs is not None
            texts.append(ours if theirs is None else f"{ours} [{theirs:.1f}]")
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    beside = "; in brackets the paper's own, on its data and network" if published else ""
    caption = f"{part.title}. {CAPTIONS[value]}, mean ± deviation (seeds), in %{beside}{note}"
    wrong = {column: f" ({100 * np.mean(rates):.0f}% wrong)" for column, rates in realised.items()}
    heads = [f"{column}{wrong.get(column, '')}" for column in columns]
    return "\n".join([caption, "", "| method | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|", *lines])


def phase_table(item: Item, part: Part, records: Sequence[Mapping[str, Any]], note: str = "") -> str:
    """Seconds and share of every phase of a run, without testing, and the paper's share."""
    published = item.published.get(part.beside, {}).get("hours", {})
    phases = list(dict.fromkeys([*published, *(p for r in records for row in r["history"] for p in row["seconds"])]))
    phases = [phase for phase in phases if phase != "evaluate"]  # the paper's times leave out testing too
    totals = {
        p: float(np.mean([sum(row["seconds"].get(p, 0.0) for row in r["history"]) for r in records])) for p in phases
    }
    times = {p: max(sum(row["seconds"].get(p, 0.0) > 0 for row in r["history"]) for r in records) for p in phases}
    whole, theirs = sum(totals.values()), sum(sum(v) for v in published.values())
    lines = [f"{part.title}. Seconds per run, mean of {len(records)} runs{note}", ""]
    lines += ["| phase | executions | seconds | share | paper's share |", "|---|---|---|---|---|"]
    for phase in phases:
        share = f"{100 * sum(published[phase]) / theirs:.1f}%" if phase in published else "–"
        spent = f"{totals[phase]:.1f} | {100 * totals[phase] / whole:.1f}%"
        lines.append(f"| {phase} | {times[phase]} | {spent} | {share} |")
    return "\n".join(lines)


def _measured() -> dict[str, Any] | None:
    """Seconds and memory of all methods on the same work, as measured here by benchmarks/efficiency.py."""
    path = evidence_folder() / EFFICIENCY
    return read_json(path) if path.exists() else None


def measured_resources(item: Item | None = None) -> str:
    """The same as a table."""
    record = _measured()
    return NOT_MEASURED if record is None else _resource_table(item, record["methods"], record["caption"])


def _resources_of(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds per epoch without testing, and peak memory, of each method: the mean over its runs."""
    runs: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        epochs = record["history"]
        seconds = sum(spent for row in epochs for phase, spent in row["seconds"].items() if phase != "evaluate")
        peak = max(row["peak_memory_mib"] for row in epochs)
        runs.setdefault(record["title"], []).append((seconds / len(epochs), peak))
    means = {row: np.mean(values, axis=0) for row, values in runs.items()}
    return {row: {"seconds": float(mean[0]), "memory_mib": float(mean[1])} for row, mean in means.items()}


def _resource_table(item: Item | None, rows: Mapping[str, Mapping[str, float]], caption: str) -> str:
    """Seconds and memory of each method, also as multiples of the loop's, with the paper's multiples in brackets."""
    published = item.published.get("clothing1m", {}) if item else {}
    hours, memory = published.get("hours_an_epoch", {}), published.get("memory_mib", {})
    ours = rows.get("closed loop")
    beside = "; in brackets the paper's own multiples, on Clothing1M" if rows.keys() & hours.keys() else ""
    lines = [
        f"{caption}{beside}",
        "",
        "| method | seconds | times the loop's | memory, MiB | times the loop's |",
        "|---|---|---|---|---|",
    ]
    for row, found in rows.items():
        texts = []
        for key, digits, of in (("seconds", 1, hours), ("memory_mib", 0, memory)):
            theirs = f" [{of[row][0] / of['closed loop'][0]:.2f}]" if row in of else ""
            times = f"{found[key] / ours[key]:.2f}" if ours else "–"
            texts += [f"{found[key]:.{digits}f}", f"{times}{theirs}"]
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _details_table(item: Item, parts: Sequence[Part]) -> str:
    ours = [details(part.experiments[0]) for part in parts]
    lines = ["| | " + " | ".join(part.title for part in parts) + " |", "|---" * (len(parts) + 1) + "|"]
    for name, values in item.published["details"].items():
        texts = []
        for mine, theirs in zip(ours, values, strict=True):
            equal = mine[name] == theirs
            texts.append(f"{mine[name]}" if equal else f"{mine[name]}, but the paper {theirs}")
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


# --- figures ---------------------------------------------------------------------------------------------------------


def need_panels(item: Item, scale: str) -> None:
    """Refuses to draw an item that has nothing at this scale.

    Raises:
        UsageError: With the reason, or with the command that makes it.
    """
    if item.shows == "resources" and scale == "small":
        if _measured() is None:
            raise UsageError(f"{item.place} is {NOT_MEASURED}")
    elif not item.at(scale):
        raise UsageError(f"{item.place} has no counterpart at the {scale} scale, so nothing to draw{item.why}")


def panels(item: Item, scale: str, runs: Records) -> dict[str, list[dict[str, Any]]]:
    """The finished runs of a figure by panel: one panel per cell.

    A figure of resources has seconds and memory of each method instead.
    """
    if item.shows == "resources":
        return _resource_panels(item, scale, runs)
    found: dict[str, list[dict[str, Any]]] = {}
    for part in item.at(scale):
        for record in records_of(part, runs):
            found.setdefault(f"{part.title}\n{setting(record['experiment'])}", []).append(record)
    return found


def _resource_panels(item: Item, scale: str, runs: Records) -> dict[str, list[dict[str, Any]]]:
    if scale == "small":
        record = _measured()
        measured = {} if record is None else {record["caption"]: record["methods"]}
    else:
        what = "Training time per epoch without the test, and peak memory, mean over runs"
        measured = {f"{part.title}. {what}": _resources_of(records_of(part, runs)) for part in item.at(scale)}
    return {
        title: [{"title": row, **found} for row, found in methods.items()]
        for title, methods in measured.items()
        if methods
    }


# --- running ---------------------------------------------------------------------------------------------------------


def rerun(item: Item, scale: str, folder: Path, jobs: int, workers: int) -> tuple[dict[str, Any], str]:
    """Runs a table or figure again; returns the runs by key, and how they agree with the stored ones."""
    experiments = list({e.key: e for part in item.at(scale) for e in part.experiments}.values())
    outcome = run_bench(experiments, folder, jobs, workers=workers)
    fresh = {e.key: read_json(folder / f"{e.key}.json") for e in experiments if (folder / f"{e.key}.json").exists()}
    lines = [f"failed: {words}\n  {reason}" for words, reason in outcome.failures.items()]
    lines.append(agreement(fresh, stored_runs()))
    return fresh, "\n".join(lines)


def find_item(name: str) -> Item:
    """A table or figure by name: table1, "Table 1", tab:main_results."""
    wanted = name.casefold().replace(" ", "")
    if wanted in item_names():  # reading all of them takes half a second
        return read_item(wanted)
    items = read_items()
    found = next((item for item in items.values() if wanted and wanted == item.label.casefold()), None)
    if found is not None:
        return found
    raise UsageError(f"the paper has no {name!r}; {nearest(name, items)}")


def need_runs(item: Item, scale: str) -> None:
    """Refuses to run an item that has no runs.

    Raises:
        UsageError: With what to do instead.
    """
    if item.shows == "resources" and scale == "small":
        raise UsageError(f"{item.place} is measured at this scale, not run: python benchmarks/efficiency.py does it")
    if not has_runs(item, scale):
        raise UsageError(f"{item.place} has nothing to run at the {scale} scale{item.why}")


def has_runs(item: Item, scale: str) -> bool:
    """Whether it has anything to run at this scale."""
    return bool(item.at(scale)) and item.shows not in ("nothing", "details")


def is_complete(item: Item, scale: str, runs: Records) -> bool:
    """Whether all its runs are among these; failed runs are not."""
    return all(e.key in runs for part in item.at(scale) for e in part.experiments)


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()

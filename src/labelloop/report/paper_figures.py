"""The paper's figures from records of runs: training dynamics, clean and test accuracy, combination weights, time.

A figure has panels, each a list of records. Lines are means over seeds, bands the deviation, and dashed lines the
epochs after which the learning rate drops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.errors import UsageError
from labelloop.report.figure import new_figure, save

Records = Sequence[Mapping[str, Any]]
OURS = "closed loop"  # drawn above the others, and thicker
# No two lines of a figure look alike: there are up to thirteen methods.
COLOURS = [
    *("#1f77b4", "#aec7e8", "#ff7f0e", "#2ca02c", "#98df8a", "#9467bd", "#c5b0d5"),
    *("#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#d62728", "#000000"),
]


def draw(shows: str, panels: Mapping[str, Records], path: Path) -> list[Path]:
    """Draws a figure to path.png and path.svg and says where.

    Raises:
        UsageError: There is no figure of that kind, or no run for it.
    """
    need_picture(shows, "this")
    if not panels:
        raise UsageError("there is no finished run to draw; --rerun makes them")
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(rows, columns)
    for axis, (title, records) in zip(axes, panels.items(), strict=False):
        PANELS[shows](axis, records)
        axis.set_title(title, fontsize=9)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=2 * columns, fontsize=8, frameon=False)
    return save(figure, path)


def need_picture(shows: str, place: str) -> None:
    """Refuses to draw what is no picture.

    Raises:
        UsageError: It names the place, and what there is to draw.
    """
    if shows not in PANELS:
        raise UsageError(f"{place} shows {shows}, of which there is no picture; there is of {', '.join(PANELS)}")


def drops(record: Mapping[str, Any]) -> list[int]:
    """The epochs after which the learning rate drops."""
    config = record["config"]
    return [round(share * config["epochs"]) for share in config["lr_drops"]]


def curve(records: Records, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Epochs of the last stage, and mean and deviation over the seeds there, in per cent."""
    lines = []
    for record in records:
        final = record["history"][-1].get("stage")
        rows = [row for row in record["history"] if row.get("stage") == final]
        if any(row.get(key) is None for row in rows):
            raise UsageError(f"a run of {record['title']} has no {key}, so it cannot be drawn; --rerun makes it anew")
        lines.append([100 * row[key] for row in rows])
    length = min(map(len, lines))
    values = np.array([line[:length] for line in lines])
    return np.arange(1, length + 1), values.mean(axis=0), values.std(axis=0)


def _dynamics(axis: Any, records: Records) -> None:
    axis.set_prop_cycle(color=COLOURS)
    for title in dict.fromkeys(record["title"] for record in records):
        _line(axis, [record for record in records if record["title"] == title], "test_accuracy", title)
    _epochs(axis, records, "test accuracy, %")


TEST_AND_CLEAN = (("test_accuracy", "test rows"), ("clean_val_accuracy", "clean rows that judge the corrections"))


def _clean(axis: Any, records: Records) -> None:
    for key, label in TEST_AND_CLEAN:
        _line(axis, records, key, label)
    _epochs(axis, records, "accuracy, %")


def _clean_error(axis: Any, records: Records) -> None:
    for key, label in TEST_AND_CLEAN:
        epochs, mean, _ = curve(records, key)
        axis.plot(epochs, 100 - mean, label=label)
    _epochs(axis, records, "error, %")


def _weights(axis: Any, records: Records) -> None:
    """The mean weight of each component by round: 0 is the given label, k the k-th correction."""
    records = [record for record in records if record["rounds"]]
    rounds = min((len(record["rounds"]) for record in records), default=0)
    if not rounds:
        raise UsageError("these runs have no combination weights: only the closed loop has")
    bottom = np.zeros(rounds)
    for component in range(rounds + 1):
        height = np.array(
            [
                np.mean([_weight(record["rounds"][number]["weights"], component) for record in records])
                for number in range(rounds)
            ]
        )
        name = "given label" if component == 0 else f"correction {component}"
        axis.bar(np.arange(1, rounds + 1), height, bottom=bottom, label=name)
        bottom += height
    axis.set_xlabel("round")
    axis.set_ylabel("weight ω")


def _weight(weights: Sequence[float], component: int) -> float:
    return weights[component] if component < len(weights) else 0.0


def _resources(axis: Any, methods: Records) -> None:
    """A bar a method, the quickest at the top: seconds, and how many times the closed loop's they are."""
    ordered = sorted(methods, key=lambda method: -method["seconds"])
    ours = next((method["seconds"] for method in methods if method["title"] == OURS), None)
    names = [method["title"] for method in ordered]
    bars = axis.barh(
        names,
        [method["seconds"] for method in ordered],
        color=[COLOURS[-2] if name == OURS else COLOURS[0] for name in names],
    )
    times = ["" if ours is None else f"{method['seconds'] / ours:.1f} ×" for method in ordered]
    axis.bar_label(bars, times, padding=3, fontsize=8)
    axis.margins(x=0.18)
    axis.set_xlabel("seconds")


def _line(axis: Any, records: Records, key: str, label: str) -> None:
    epochs, mean, deviation = curve(records, key)
    ours = label.startswith(OURS)
    line = axis.plot(epochs, mean, label=label, linewidth=2.5 if ours else 1.2, zorder=3 if ours else 2)[0]
    axis.fill_between(epochs, mean - deviation, mean + deviation, color=line.get_color(), alpha=0.15, linewidth=0)


def _epochs(axis: Any, records: Records, label: str) -> None:
    for epoch in drops(records[0]):
        axis.axvline(epoch, color="grey", linestyle="--", linewidth=0.8)
    axis.set_xlabel("epoch")
    axis.set_ylabel(label)


PANELS: dict[str, Callable[[Any, Records], None]] = {
    "dynamics": _dynamics,
    "accuracy": _dynamics,
    "clean-accuracy": _clean,
    "clean-error": _clean_error,
    "weights": _weights,
    "resources": _resources,
}

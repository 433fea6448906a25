"""The paper's figures from records of runs: training dynamics, clean and test accuracy, combination weights, resources.

A figure has panels, each a list of records. Lines are means over seeds, bands and bars the deviation, and dashed grey
lines the epochs after which the learning rate drops.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.errors import UsageError
from labelloop.paper.tally import DEFAULT_ROW
from labelloop.report.figure import new_figure, save

Records = Sequence[Mapping[str, Any]]
Style = dict[str, Any]  # arguments of a line
Styles = Mapping[str, Style]
OURS = "closed loop"  # the paper's method
THICK = (OURS, DEFAULT_ROW)  # and drawn above the others

# A title looks the same in every figure, and no two look alike: its line here sets the colour, its column the dashes.
# The colours can be told apart by colour-blind people, and none is pale; "" is free for titles that are not listed.
DASHES = ("-", "--", ":", "-.", (0, (7, 1.5)), (0, (4, 1, 1, 1, 1, 1)))
TITLES = {
    "#000000": ("cross-entropy", "noisy + clean", "clean rows only", "fine-tune on clean", "", "logistic corrector"),
    "#d55e00": (OURS, "closed loop (50% clean)", "closed loop (10% clean)", "λ = 0.5", "every 5 epochs", ""),
    "#0072b2": ("", "", "EMLC", "closed loop, clean rows train too", THICK[1], ""),
    "#009e73": ("final-layer logits", "λ = 0.2", "closed loop, practical recipe", "", "FasTEN", ""),
    "#e69f00": ("GLC", "every 8 epochs", "Co-teaching", "MW-Net", "pseudo-soft-labels", ""),
    "#aa3377": ("DivideMix", "L2B", "no convex combination", "λ = 1.0", "", "shorter warm-up"),
    "#56b4e9": ("DMLP", "DMLP without pretraining", "DMLP (10% clean)", "DMLP (50% clean)", "", "every 10 epochs"),
    "#777777": ("", "true labels", "", "AdamW and standardised columns for the correction network", "", ""),
}
COLOURS = tuple(TITLES)
MARKS = dict(zip(DASHES, "o^vsDp", strict=True))  # for everything that is not a line
TITLE_WIDTH = 58  # letters above a panel


def draw(shows: str, panels: Mapping[str, Records], path: Path) -> list[Path]:
    """Draws a figure to path.png and path.svg, and returns a message with the paths.

    Raises:
        UsageError: There is no such figure, or no run for it.
    """
    need_picture(shows, "this")
    if not panels:
        raise UsageError("there is no finished run to draw; make runs with --rerun")
    styles = styles_of(record["title"] for records in panels.values() for record in records)
    pictures = [(title, panel, records) for title, records in panels.items() for panel in PANELS[shows]]
    columns = min(3, len(pictures))
    figure, axes = new_figure(-(-len(pictures) // columns), columns)
    for axis, (title, panel, records) in zip(axes, pictures, strict=False):
        panel(axis, records, styles)
        if len(panels) > 1:
            axis.set_title(_wrapped(title, TITLE_WIDTH), fontsize=9)
    if len(panels) == 1:
        figure.suptitle(_wrapped(next(iter(panels)), columns * TITLE_WIDTH), fontsize=9)
    for axis in axes[len(pictures) :]:
        axis.set_visible(False)
    _legend(figure, axes)
    return save(figure, path)


def need_picture(shows: str, place: str) -> None:
    """Refuses to draw what is not a figure.

    Raises:
        UsageError: With the name of the item, and what can be drawn.
    """
    if shows not in PANELS:
        raise UsageError(f"{place} shows {shows}, which cannot be drawn; only {', '.join(PANELS)} can")


def styles_of(titles: Iterable[str]) -> dict[str, Style]:
    """The style of each title: that in TITLES, else an unused one."""
    cells = [(colour, dash, title) for colour, row in TITLES.items() for dash, title in zip(DASHES, row, strict=True)]
    known = {title: (colour, dash) for colour, dash, title in cells if title}
    free = [(colour, dash) for colour, dash, title in cells if not title]
    strangers = [title for title in dict.fromkeys(titles) if title not in known]
    known |= {title: free[number % len(free)] for number, title in enumerate(strangers)}
    return {
        title: {
            "color": colour,
            "linestyle": dash,
            "linewidth": 2.6 if title in THICK else 1.3,
            "zorder": 4 if title in THICK else 3,
        }
        for title, (colour, dash) in known.items()
    }


def drops(record: Mapping[str, Any]) -> list[int]:
    """The epochs after which the learning rate drops."""
    config = record["config"]
    return [round(share * config["epochs"]) for share in config["learning_rate_drops"]]


def curve(records: Records, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The epochs of the last stage, with mean and deviation over the seeds, in per cent."""
    lines = []
    for record in records:
        final = record["history"][-1].get("stage")
        rows = [row for row in record["history"] if row.get("stage") == final]
        if any(row.get(key) is None for row in rows):
            raise UsageError(
                f"a run of {record['title']} has no {key}, so it cannot be drawn; run it again with --rerun"
            )
        lines.append([100 * row[key] for row in rows])
    length = min(map(len, lines))
    values = np.array([line[-length:] for line in lines])
    return np.arange(1, length + 1), values.mean(axis=0), values.std(axis=0, ddof=len(lines) > 1)


# --- panels ----------------------------------------------------------------------------------------------------------


def _dynamics(axis: Any, records: Records, styles: Styles) -> None:
    """One line per method. Epochs after the schedule are shown as a mark at the right edge."""
    beyond = 0
    for title in dict.fromkeys(record["title"] for record in records):
        runs = [record for record in records if record["title"] == title]
        epochs, mean, deviation = curve(runs, "test_accuracy")
        if len(epochs) <= runs[0]["config"]["epochs"]:
            _line(axis, epochs, mean, deviation, title, styles[title])
        else:
            _mark(axis, beyond, mean[-1], deviation[-1], title, styles[title])
            beyond += 1
    _epochs(axis, records, "test accuracy, %")


TEST_AND_CLEAN = (
    ("test_accuracy", "test rows", {"color": COLOURS[2], "linestyle": "-", "linewidth": 2}),
    ("clean_val_accuracy", "clean rows that judge the corrections", {"color": COLOURS[4], "linestyle": "--"}),
)


def _clean(axis: Any, records: Records, _: Styles, what: str = "accuracy") -> None:
    for key, label, style in TEST_AND_CLEAN:
        epochs, mean, deviation = curve(records, key)
        _line(axis, epochs, mean if what == "accuracy" else 100 - mean, deviation, label, style)
    _epochs(axis, records, f"{what}, %")


def _weights(axis: Any, records: Records, _: Styles) -> None:
    """The mean weight of each component by round: 0 is the given label or the first labels, k the k-th correction."""
    records = [record for record in records if record["rounds"]]
    rounds = min((len(record["rounds"]) for record in records), default=0)
    if not rounds:
        raise UsageError("these runs have no combination weights: only the closed loop has")
    bottom = np.zeros(rounds)
    for component in range(rounds + 1):
        weights = [[_weight(each["weights"], component) for each in record["rounds"][:rounds]] for record in records]
        height = np.mean(weights, axis=0)
        named = records[0]["rounds"][-1].get("components") or ["given label"]  # older records have no names
        name = str(named[0]) if component == 0 else f"correction {component}"
        again, colour = divmod(component, len(COLOURS))
        look = {"color": COLOURS[colour], "hatch": "/" * again, "edgecolor": "white"}
        axis.bar(np.arange(1, rounds + 1), height, bottom=bottom, label=name, **look)
        bottom += height
    axis.set_xlabel("round")
    axis.set_ylabel("weight ω")
    axis.set_ylim(0, 1)
    axis.xaxis.get_major_locator().set_params(integer=True)


def _weight(weights: Sequence[float], component: int) -> float:
    return weights[component] if component < len(weights) else 0.0


def _bars(axis: Any, methods: Records, _: Styles, key: str, digits: int, label: str) -> None:
    """One bar per method, the fastest on top: its value, also as a multiple of the closed loop's."""
    ordered = sorted(methods, key=lambda method: -method["seconds"])
    ours = next((method[key] for method in methods if method["title"] == OURS), None)
    names = [method["title"] for method in ordered]
    colours = [COLOURS[1] if name == OURS else COLOURS[2] for name in names]
    bars = axis.barh(names, [method[key] for method in ordered], color=colours)
    times = ["" if ours is None else f" ({method[key] / ours:.1f} ×)" for method in ordered]
    texts = [f"{method[key]:.{digits}f}{more}" for method, more in zip(ordered, times, strict=True)]
    axis.bar_label(bars, texts, padding=3, fontsize=8)
    axis.margins(x=0.38)
    axis.set_xlabel(label)


# --- what panels are made of -----------------------------------------------------------------------------------------


def _line(axis: Any, epochs: np.ndarray, mean: np.ndarray, deviation: np.ndarray, label: str, style: Style) -> None:
    axis.plot(epochs, mean, label=label, **style)
    axis.fill_between(epochs, mean - deviation, mean + deviation, color=style["color"], alpha=0.1, linewidth=0)


def _mark(axis: Any, number: int, mean: float, deviation: float, title: str, style: Style) -> None:
    """A mean with its deviation just outside the right edge; further ones are placed next to it."""
    axis.errorbar(
        1.025 + 0.03 * number,
        mean,
        yerr=deviation,
        transform=axis.get_yaxis_transform(),  # x in shares of the axis, y in per cent
        clip_on=False,
        fmt=MARKS[style["linestyle"]],
        color=style["color"],
        markersize=4,
        capsize=3,
        label=f"{title} (after more epochs)",
    )


def _epochs(axis: Any, records: Records, label: str) -> None:
    for epoch in drops(records[0]):
        axis.axvline(epoch, color="grey", linestyle="--", linewidth=0.8, zorder=1)
    last = max(record["config"]["epochs"] for record in records)
    axis.set_xlim(min(1, last - 1), last)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("epoch")
    axis.set_ylabel(label)


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    """The legend of all panels, in as many columns as fit."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        columns = _columns([0.8 + 0.058 * len(label) for label in found], figure.get_figwidth())
        figure.set_figheight(figure.get_figheight() + 0.17 * -(-len(found) // columns))
        style = {"ncols": columns, "fontsize": 8, "frameon": False, "handlelength": 4}
        figure.legend(found.values(), found.keys(), loc="outside lower center", **style)


def _columns(widths: Sequence[float], room: float) -> int:
    """The number of columns that needs the fewest lines; columns are filled one after the other."""
    for lines in range(1, len(widths)):
        if sum(max(widths[start : start + lines]) for start in range(0, len(widths), lines)) <= room:
            return -(-len(widths) // lines)
    return 1


def _wrapped(title: str, width: int) -> str:
    """Lines of similar length, none longer than this."""
    lines = []
    for line in title.splitlines():
        even = len(line) // max(1, -(-len(line) // width)) + 10
        lines.append(textwrap.fill(line, min(width, even)))
    return "\n".join(lines)


PANELS: dict[str, tuple[Callable[[Any, Records, Styles], None], ...]] = {
    "dynamics": (_dynamics,),
    "accuracy": (_dynamics,),
    "clean-accuracy": (_clean,),
    "clean-error": (partial(_clean, what="error"),),
    "weights": (_weights,),
    "resources": (
        partial(_bars, key="seconds", digits=1, label="seconds"),
        partial(_bars, key="memory_mib", digits=0, label="memory, MiB"),
    ),
}

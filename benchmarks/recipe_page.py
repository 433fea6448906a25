"""The results of the default in docs/recipe.md and its appendix, from the stored runs. write_tables.py writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelloop.bench.tables import last, setting
from labelloop.paper.grids import Item, Part
from labelloop.paper.items import accuracy_table, comparisons, records_of
from labelloop.paper.tally import Cells, Duel, count, duels, of_labels, tally_text

FIT_ON_TABLES = Path(__file__).resolve().parents[1] / "evidence" / "never_worse" / "fit.jsonl"
FIT_HEADS = ("data", "noise", "clean rows", "cells", "given", "labels", "good broken", "classifier",
             "forest of clean rows", "forest of given labels")  # fmt: skip
CORRECT_ON_DATA = FIT_ON_TABLES.with_name("runs.jsonl")
CORRECT_HEADS = ("clean rows", "cells", "given", "`correct`", "least over given", "good broken", "of the rarest class",
                 "calibration error", "interval holds", "cleanlab", "clean rows alone")  # fmt: skip
RIVALS = {"given": "against the given labels", "cleanlab": "against cleanlab",
          "clean rows only": "against the clean rows alone"}  # fmt: skip
CHOSEN = Path(__file__).resolve().parents[1] / "evidence" / "chosen.json"
MEASURES = {
    "test accuracy": last,
    "labels right": of_labels("corrected_label_accuracy"),
    "good labels broken": of_labels("good_labels_broken"),
    "calibration error": of_labels("corrected_label_ece"),
}
SHORT = {"test accuracy": "test accuracy", "labels": "labels right"}
Runs = Mapping[str, Mapping[str, Any]]


def tally(item: Item, runs: Runs) -> str:
    """In how many cells the default is first, tied and behind, and every cell."""
    return tally_text(comparisons(item, "small", runs))


def summary(item: Item, runs: Runs) -> str:
    """For README.md: the tally in a sentence, and who is ahead of the default, most often first."""
    found = comparisons(item, "small", runs)
    others, simple = found["test accuracy, all other methods"], found["test accuracy, simple baselines"]
    labels, given = found["labels, all other methods"], found["labels, as given"]
    if not others:
        return "not measured yet"
    ahead = sorted({duel.rival for duel in others if duel.mean < 0})
    named = f" Best where it is not: {', '.join(ahead)}." if ahead else ""
    return (
        f"In {len(others)} cells of data, noise and number of clean rows, the default against the best of all "
        f"other methods there, after the last epoch: {_counts(others)} (mean difference {_mean(others)} points); "
        f"against the best simple baseline: {_counts(simple)}; its labels against those of the best other method: "
        f"{_counts(labels)}, against the given ones: {_counts(given)}.{named}"
    )


def measures(item: Item, runs: Runs, values: Sequence[str]) -> str:
    """A table a part and a measure, as `labelloop paper` prints them."""
    blocks = []
    for part in item.at("small"):
        records = records_of(part, runs)
        missing = len(part.experiments) - len(records)
        note = f" ({missing} of {len(part.experiments)} runs missing)" if missing else ""
        blocks += [accuracy_table(item, part, records, value, note) for value in values if records]
    return "\n\n".join(blocks) or "not measured yet"


def gains(item: Item, runs: Runs) -> str:
    """What every row of a part adds to its first, seed by seed, in points: test accuracy and labels."""
    return "\n\n".join(_gains_of(part, runs) for part in item.at("small")) or "not measured yet"


def needed(item: Item, runs: Runs, least: float = 0.5) -> str:
    """Which parts of the default cost at least so many points where they are left out, and which do not."""
    costs: dict[str, list[str]] = {}
    for part in item.at("small"):
        head, _, where = part.title.partition(", ")
        if head != "All but one part":
            continue
        titles = list(dict.fromkeys(e.title for e in part.experiments))
        numbers = {word: _by_cell(part, runs, MEASURES[name]) for word, name in SHORT.items()}
        for title in (one for one in titles[1:] if not one.startswith("+ ")):  # parts that it has, not those it had
            found = costs.setdefault(title.removeprefix("- "), [])
            for cell in dict.fromkeys(setting(vars(e)) for e in part.experiments):
                gains = {word: _gain(some, cell, title, titles[0]) for word, some in numbers.items()}
                found += [f"{where}, {word} {g:+.1f}" for word, g in gains.items() if g is not None and g <= -least]
    if not costs:
        return "not measured yet"
    lines = [f"- without *{title}*: {'; '.join(found)}" for title, found in costs.items() if found]
    rest = ", ".join(f"*{title}*" for title, found in costs.items() if not found)
    lines.append(f"- parts that cost less than {least} points everywhere: {rest or 'none'}")
    return f"The cost of leaving out one part, in points (costs below {least} are not listed):\n\n{chr(10).join(lines)}"


def _gains_of(part: Part, runs: Runs) -> str:
    titles = list(dict.fromkeys(e.title for e in part.experiments))
    cells = list(dict.fromkeys(setting(vars(e)) for e in part.experiments))
    tables = {name: _by_cell(part, runs, value) for name, value in MEASURES.items()}
    lines = [f"| {part.title}: points over {titles[0]} | " + " | ".join(cells) + " |", "|---" * (len(cells) + 1) + "|"]
    for title in titles[1:]:
        texts = []
        for cell in cells:
            both = [_gain(tables[name], cell, title, titles[0]) for name in ("test accuracy", "labels right")]
            texts.append(
                "–" if both[0] is None else " \\| ".join("–" if each is None else f"{each:+.1f}" for each in both)
            )
        lines.append(f"| {title} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _by_cell(part: Part, runs: Runs, value: Callable[[Any], float | None]) -> dict[tuple[str, str, int], float]:
    found = {}
    for record in records_of(part, runs):
        number = value(record)
        if number is not None:
            found[setting(record["experiment"]), record["title"], record["experiment"]["seed"]] = number
    return found


def _gain(numbers: Mapping[tuple[str, str, int], float], cell: str, title: str, base: str) -> float | None:
    """The mean paired difference over the seeds that both have, in points."""
    seeds = [seed for where, row, seed in numbers if (where, row) == (cell, title) and (cell, base, seed) in numbers]
    if not seeds:
        return None
    return float(100 * np.mean([numbers[cell, title, seed] - numbers[cell, base, seed] for seed in seeds]))


def chosen() -> str:
    """Every choice of settings: what each candidate had right among the held-out clean rows."""
    entries = json.loads(CHOSEN.read_text(encoding="utf-8")) if CHOSEN.exists() else {}
    lines = ["| method | protocol | candidates, right of held-out rows | chosen |", "|---|---|---|---|"]
    for entry in entries.values():
        tried = "; ".join(f"{_words(one['sets'])}: {one['right']} of {one['of']}" for one in entry["candidates"])
        taken = "not decided yet" if entry["chosen"] is None else _words(entry["chosen"])
        lines.append(f"| {entry['row']} | {entry['protocol']} | {tried} | {taken} |")
    return "\n".join(lines)


def _words(sets: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in sets.items())


def _counts(found: Sequence[Duel]) -> str:
    counts = count(found)
    return ", ".join(f"{word} in {counts[word]}" for word in ("first", "tied", "behind"))


def _mean(found: Sequence[Duel]) -> str:
    return f"{100 * np.mean([duel.mean for duel in found]):+.1f}"


def fit_on_tables(stored: list[dict] | None = None) -> str:
    """A line for every data set, noise and number of clean rows."""
    if stored is None:
        stored = [json.loads(line) for line in FIT_ON_TABLES.read_text(encoding="utf-8").splitlines()]
    groups: dict[tuple, list[dict]] = {}
    for one in stored:
        how = f"{one['clean']}, {'paired' if one['paired'] else 'unpaired'}"
        groups.setdefault((one["data"], one["noise"], how), []).append(one)
    lines = ["| " + " | ".join(FIT_HEADS) + " |", "|---" * len(FIT_HEADS) + "|"]
    for place, cells in groups.items():
        numbers = [
            [one["given"]["right"] for one in cells], [one["ours"]["right"] for one in cells],
            [one["ours"]["broken"] for one in cells],
            *([one[key] for one in cells if one[key] is not None] for key in ("test", "forest_clean", "forest_given")),
        ]  # fmt: skip
        texts = [f"{100 * np.mean(some):.1f}" if some else "" for some in numbers]
        lines.append("| " + " | ".join([*place, str(len(cells)), *texts]) + " |")
    return "\n".join(lines)


def _corrected() -> list[dict]:
    return [json.loads(line) for line in CORRECT_ON_DATA.read_text(encoding="utf-8").splitlines()]


def correct_tally(stored: list[dict] | None = None) -> str:
    """In how many cells of `correct` its labels are first, tied and behind, against each of the others."""
    cells: Cells = {}
    for one in _corrected() if stored is None else stored:
        how = f"{one['clean']}, {'paired' if one['paired'] else 'unpaired'}"
        rows = cells.setdefault((f"{one['data']}, {how}", how, one["noise"]), {})
        for who in ("ours", *RIVALS):
            if one.get(who):
                rows.setdefault(who, {})[one["seed"]] = one[who]["right"]
    lines = ["| clean rows | " + " | ".join(RIVALS.values()) + " |", "|---" * (len(RIVALS) + 1) + "|"]
    for how in sorted({place[1] for place in cells}, key=lambda text: (int(text.split(",")[0]), text)):
        mine = {place: rows for place, rows in cells.items() if place[1] == how}
        lines.append(f"| {how} | " + " | ".join(_counts(duels(mine, "ours", [who])) for who in RIVALS) + " |")
    return "\n".join(lines)


def correct_on_data() -> str:
    """`correct` on every stored data set and noise: a line for every number of clean rows; cells are over seeds."""
    stored = _corrected()
    groups: dict[tuple[int, bool], dict[tuple[str, str], list[dict]]] = {}
    for one in stored:
        cells = groups.setdefault((one["clean"], one["paired"]), {})
        cells.setdefault((one["data"], one["noise"]), []).append(one)
    lines = ["| " + " | ".join(CORRECT_HEADS) + " |", "|---" * len(CORRECT_HEADS) + "|"]
    for (clean, paired), cells in sorted(groups.items(), key=lambda group: (group[0][0], not group[0][1])):
        ones = [one for cell in cells.values() for one in cell]
        over = [np.mean([one["ours"]["right"] - one["given"]["right"] for one in cell]) for cell in cells.values()]
        holds = [one["estimate"]["low"] <= one["ours"]["right"] <= one["estimate"]["high"] for one in ones]
        numbers = [
            _mean_of(ones, "given", "right"), _mean_of(ones, "ours", "right"), f"{100 * min(over):+.1f}",
            *(_mean_of(ones, "ours", key) for key in ("broken", "rare_broken", "calibration_error")),
            f"{sum(holds)} of {len(holds)}",
            *(_mean_of(ones, who, "right") for who in ("cleanlab", "clean rows only")),
        ]  # fmt: skip
        how = f"{clean}, {'paired' if paired else 'unpaired'}"
        lines.append("| " + " | ".join([how, str(len(cells)), *numbers]) + " |")
    return "\n".join(lines)


def _mean_of(ones: Sequence[Mapping[str, Any]], who: str, key: str) -> str:
    found = [one[who][key] for one in ones if one.get(who)]
    return f"{100 * np.mean(found):.1f}" if found else ""

"""The short results in README.md, docs/index.md and docs/recipe.md, from the stored runs. write_tables.py writes them.

The paper's method and ours are named as the command line names them. A rival counts in its best stored form: with its
published settings, with those chosen for it, or trained with the same mixup and averaged weights as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labelloop.bench.tables import cell as cell_of
from labelloop.bench.tables import last, setting
from labelloop.paper.grids import Item, Part
from labelloop.paper.items import comparisons, records_of
from labelloop.paper.tally import DEFAULT_ROW, LITERAL_ROW, Duel, count, of_labels, tally_table

NOISE = "instance 0.4"
PROTOCOLS = ("embeddings", "images")
PLAIN_ROW = "cross-entropy"
WITHOUT_ROUNDS = "- rounds (labels corrected once)"
NOT_RIVALS = ("closed-loop", "labelloop", "oracle")  # methods: the paper's, ours, and the true labels
NAMES = {LITERAL_ROW: "`closed-loop`, the paper's method", DEFAULT_ROW: "`labelloop`, ours and the default"}
EARLIER_GUARD = ("7d4b9a3", "8179ffe", "d902862")  # commits
Runs = Mapping[str, Mapping[str, Any]]
Value = Callable[[Any], float | None]
Scores = Mapping[str, tuple[float, float, int]]  # row -> mean and deviation in per cent, seeds


def main_table(items: Mapping[str, Item], runs: Runs) -> str:
    """Four rows: plain training, the best of all others, the paper's method and ours, where noise is memorised most."""
    values: tuple[Value, Value] = (last, of_labels("corrected_label_accuracy"))
    columns = [_scores(items, runs, protocol, value) for protocol in PROTOCOLS for value in values]
    methods = _methods(items)
    heads = [f"{protocol}, {what}" for protocol in PROTOCOLS for what in ("test", "labels")]
    seeds = " or ".join(map(str, sorted({score[2] for column in columns for score in column.values()})))
    lines = [
        f"| in %, mean ± deviation of {seeds} seeds | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    lines.append(f"| {PLAIN_ROW} on the noisy labels | " + " | ".join(_text(c, PLAIN_ROW) for c in columns) + " |")
    lines.append("| best other method in the column | " + " | ".join(_best(c, methods) for c in columns) + " |")
    for row, name in NAMES.items():
        lines.append(f"| **{name}** | " + " | ".join(_text(c, row) for c in columns) + " |")
    return "\n".join(lines)


def standing(items: Mapping[str, Item], runs: Runs) -> str:
    """In how many cells ours is better, level and worse, and where it is worse."""
    found = comparisons(items["cells"], "small", runs)
    test, labels = found["test accuracy, all other methods"], found["labels, all other methods"]
    if not test:
        return "not measured yet"
    alike = comparisons(items["alike"], "small", runs)["test accuracy, all other methods"]
    sentences = [
        f"Against the strongest other method in each of {len(test)} settings, the default's test accuracy "
        f"is {_counts(test)}, and its labels are {_counts(labels)}.",
        *(f"Its {what} worse than {_where(duel)}." for what, duel in _behind(test, labels)),
    ]
    if alike:
        sentences.append(
            f"Against rivals that also get mixup and averaged weights ({len(alike)} settings), its test accuracy "
            f"is {_counts(alike)}."
        )
    return " ".join(sentences)


def counts(items: Mapping[str, Item], runs: Runs) -> str:
    """One line per comparison, without the cells."""
    return tally_table(comparisons(items["cells"], "small", runs))


def default_runs(items: Mapping[str, Item], runs: Runs) -> str:
    """Which version of the default made the stored runs; one that relabels once is named as such."""
    rows = [run for part in items["cells"].at("small") for run in records_of(part, runs) if run["title"] == DEFAULT_ROW]
    old = sum(run["experiment"].get("method", "closed-loop") == "closed-loop" for run in rows)
    if not rows:
        return "No run of the default is stored yet."
    if not old:
        earlier = sum((run["versions"].get("commit") or "").startswith(EARLIER_GUARD) for run in rows)
        if not earlier:
            return "All stored runs of the default were made with the current version of `labelloop`."
        return (
            f"{earlier} of the {len(rows)} stored runs of the default {'predates' if earlier == 1 else 'predate'} a"
            " change in the guard for runs without pairs, which all of these are. Their networks and test accuracy are"
            " unaffected. The current guard may change some labels that these runs kept, and keep a"
            " few that they changed."
        )
    which = "The stored runs" if old == len(rows) else f"{old} of the {len(rows)} stored runs"
    return f"{which} of the default come from version 0.1.0, which relabels once, before the final network is trained."


def loop_worth(items: Mapping[str, Item], runs: Runs) -> str:
    """What the rounds are worth: the default against itself without them, seed by seed."""
    sentences = []
    for part in items["recipe"].at("small"):
        if not part.title.startswith("All but one part, "):
            continue
        words = []
        for what, value in (("label accuracy", of_labels("corrected_label_accuracy")), ("test accuracy", last)):
            numbers: dict[str, dict[int, float]] = {}
            for record in records_of(part, runs):
                numbers.setdefault(record["title"], {})[record["experiment"]["seed"]] = value(record) or 0.0
            ours, once = numbers.get(DEFAULT_ROW, {}), numbers.get(WITHOUT_ROUNDS, {})
            if shared := sorted(ours.keys() & once.keys()):
                gain, spread, _ = cell_of([ours[seed] - once[seed] for seed in shared])
                words.append(f"{100 * gain:+.1f} ± {100 * spread:.1f} points of {what}")
        if words:
            where = part.title.removeprefix("All but one part, ")
            sentences.append(f"{where}: {' and '.join(words)} ({len(shared)} seeds)")
    return "; ".join(sentences) or "not measured yet"


def against_before(items: Mapping[str, Item], runs: Runs, before: Runs) -> str:
    """The default beside that of version 0.1.0, which relabelled once: every cell with seeds of both."""
    old = {_cell(run): run for run in before.values()}
    values = (of_labels("corrected_label_accuracy"), last)
    rows: dict[tuple[str, str], list[list[float]]] = {}
    for part in items["cells"].at("small"):
        for run in records_of(part, runs):
            if run["title"] == DEFAULT_ROW and (then := old.get(_cell(run))) is not None:
                numbers = [value(each) or 0.0 for value in values for each in (then, run)]
                rows.setdefault((part.title, setting(run["experiment"])), []).append(numbers)
    lines = ["| where | noise | seeds | labels, 0.1.0 | labels, now | test, 0.1.0 | test, now |", "|---" * 7 + "|"]
    for (where, noise), numbers in rows.items():
        means = [100 * sum(column) / len(column) for column in zip(*numbers, strict=True)]
        lines.append(f"| {where} | {noise} | {len(numbers)} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    return "\n".join(lines)


def intervals_held(items: Mapping[str, Item], runs: Runs) -> str:
    """In how many runs the interval for the default's returned labels contains the true accuracy."""
    held = []
    for part in items["cells"].at("small"):
        for run in records_of(part, runs):
            said = (run.get("estimate") or {}).get("corrected_label_accuracy")
            if run["title"] == DEFAULT_ROW and said:
                held.append(said["low"] <= run["handed_back"]["corrected_label_accuracy"] <= said["high"])
    return (
        f"The interval for the accuracy of the returned labels contains the true value in {sum(held)} of {len(held)}"
        " runs, none of which has pairs."
    )


def _cell(run: Mapping[str, Any]) -> str:
    """What a run of the default was given: rows, noise and seed."""
    known = run["experiment"]
    keys = ("dataset", "dataset_options", "clean", "paired", "noise", "rate", "noise_options", "seed")
    return repr([known[key] for key in keys] + [known["config"].get("augment")])


def named(text: str) -> str:
    """The text with our row called what a reader of the short pages knows it by."""
    return text.replace(DEFAULT_ROW, "the default")


def _methods(items: Mapping[str, Item]) -> dict[str, str]:
    return {
        e.title: e.method for name in ("cells", "alike") for part in items[name].at("small") for e in part.experiments
    }


def _parts(items: Mapping[str, Item], protocol: str) -> list[Part]:
    """The parts with the rows of Table 1's first part: as many noisy and clean rows."""
    wanted = next(part.title for part in items["table1"].at("small") if part.protocol == protocol)
    parts = [part for name in ("cells", "alike") for part in items[name].at("small")]
    return [part for part in parts if part.title == wanted]


def _scores(items: Mapping[str, Item], runs: Runs, protocol: str, value: Value) -> Scores:
    """Mean and deviation, in per cent, over the seeds of ours and plain training; rows that lack one are left out."""
    numbers: dict[str, dict[int, float]] = {}
    for part in _parts(items, protocol):
        for record in records_of(part, runs):
            number = value(record)
            if number is not None and setting(record["experiment"]) == NOISE:
                numbers.setdefault(record["title"], {})[record["experiment"]["seed"]] = number
    seeds = numbers.get(DEFAULT_ROW, {}).keys() & numbers.get(PLAIN_ROW, {}).keys()
    found = {}
    for title, some in numbers.items():
        if seeds and seeds <= some.keys():
            mean, deviation, _ = cell_of([some[seed] for seed in sorted(seeds)])
            found[title] = (100 * mean, 100 * deviation, len(seeds))
    return found


def _text(scores: Scores, row: str) -> str:
    return f"{scores[row][0]:.1f} ± {scores[row][1]:.1f}" if row in scores else "–"


def _best(scores: Scores, methods: Mapping[str, str]) -> str:
    rivals = [row for row in scores if methods.get(row) not in NOT_RIVALS and row != PLAIN_ROW]
    if not rivals:
        return "–"
    top = max(rivals, key=lambda row: scores[row][0])
    return f"{_text(scores, top)} ({top})"


def _counts(found: Sequence[Duel]) -> str:
    words = count(found)
    return f"better in {words['first']}, level in {words['tied']} and worse in {words['behind']}"


def _behind(test: Sequence[Duel], labels: Sequence[Duel]) -> list[tuple[str, Duel]]:
    pairs = [("test accuracy is", duel) for duel in test] + [("labels are", duel) for duel in labels]
    return [(what, duel) for what, duel in pairs if duel.outcome == "behind"]


def _where(duel: Duel) -> str:
    return f"{duel.rival}'s by {-100 * duel.mean:.1f} points on {duel.place[1]} ({duel.place[2]})"

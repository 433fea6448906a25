"""The tables of docs/results.md: each claim of the paper and what the stored runs show. write_tables.py writes them."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import recipe_page

from labelloop.bench.tables import best, last, setting
from labelloop.bench.tables import cell as cell_of
from labelloop.paper.grids import Part, read_items
from labelloop.paper.items import accuracy_table, measured_resources, phase_table, records_of, stored_runs
from labelloop.paper.tally import DEFAULT_ROW, LITERAL_ROW

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "evidence"
OURS, DEFAULT = LITERAL_ROW, DEFAULT_ROW
THEIRS = ("cross-entropy", "FasTEN", "MW-Net", "L2B", "EMLC")  # the baselines of the paper
SIMPLE = ("cross-entropy", "clean rows only", "noisy + clean", "fine-tune on clean")
NOT_RIVALS = (OURS, DEFAULT, "closed loop, practical recipe", "true labels", "closed loop, clean rows train too")


MEMORISING = ("embeddings", "images")
PROTOCOLS = ("embeddings", "images", "augmented")
TENTH = "closed loop (10% clean)"
PAPER_RATE = 12  # corrections in 100 epochs


class Score(NamedTuple):
    mean: float  # per cent
    deviation: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.deviation:.1f}"


Scores = dict[str, dict[str, Score]]  # cell -> row -> score


def score(accuracies: Sequence[float]) -> Score:
    """The score of one method: the same numbers, to the last digit shown, as in the tables of `labelloop paper`."""
    mean, deviation, seeds = cell_of(accuracies)
    return Score(100 * mean, 100 * deviation, seeds)


class Page:
    """The stored runs, and what the page says of them."""

    def __init__(self) -> None:
        self.items = read_items()
        self.runs = stored_runs()

    def scores(self, part: Part, value: Any = last) -> Scores:
        """Mean and deviation over the seeds, of the rows that have every seed."""
        wanted = len({e.seed for e in part.experiments})
        found: dict[str, dict[str, list[float]]] = {}
        for record in records_of(part, self.runs):
            cell = found.setdefault(setting(record["experiment"]), {})
            cell.setdefault(record["title"], []).append(value(record))
        return {
            cell: {row: score(numbers) for row, numbers in rows.items() if len(numbers) == wanted}
            for cell, rows in found.items()
        }

    def parts(self, name: str, protocol: str) -> list[Part]:
        return [part for part in self.items[name].at("small") if part.protocol == protocol]

    # --- claims ------------------------------------------------------------------------------------------------------

    def beats_baselines(self) -> tuple[str, str]:
        """A cell is lost if any baseline is ahead, won if none of all is, and open while one is missing."""
        lines, lost_any, open_any = [], False, False
        for name in ("embeddings", "images"):
            cells = {c: r for part in self.parts("table1", name) for c, r in self.scores(part).items() if OURS in r}
            for ours in (OURS, DEFAULT):
                won, lost, undecided = 0, list[tuple[float, str]](), 0
                for cell, rows in cells.items():
                    rivals = {row: rows[row] for row in THEIRS if row in rows}
                    if ours not in rows or not rivals:
                        continue
                    top = max(rivals, key=lambda row: rivals[row].mean)
                    margin = rows[ours].mean - rivals[top].mean
                    if margin <= 0:
                        lost.append((margin, f"{cell}, {top}"))
                    elif len(rivals) == len(THEIRS):
                        won += 1
                    else:
                        undecided += 1
                if won or lost or undecided:
                    lost_any |= bool(lost) and ours == OURS
                    open_any |= bool(undecided) and ours == OURS
                    behind = f", else behind by {_margins(lost)}" if lost else ""
                    missing = f"; {undecided} cells lack runs of a baseline" if undecided else ""
                    lines.append(f"{name}, {ours}: ahead in {won} of {won + len(lost)} cells{behind}{missing}")
        return "; ".join(lines) or "no runs", _verdict(not lost_any, bool(lines) and (lost_any or not open_any))

    def gaps(self, name: str, protocol: str, row: str) -> list[float]:
        """Best minus last epoch of a row in every cell of a table, means over the seeds."""
        found = []
        for part in self.parts(name, protocol):
            lasts, bests = self.scores(part), self.scores(part, best)
            found += [bests[cell][row].mean - rows[row].mean for cell, rows in lasts.items() if row in rows]
        return found

    def last_is_best(self) -> tuple[str, str]:
        """Judged on Table 1, in every protocol; with few clean rows, Tables 3 and 6 say."""
        texts, ours = [], list[float]()
        for protocol in PROTOCOLS:
            for row in (OURS, "cross-entropy"):
                gaps = self.gaps("table1", protocol, row)
                if gaps:
                    texts.append(f"{protocol}, {row}: best minus last {_range(gaps)}")
                    ours += gaps if row == OURS else []
        few = self.few_clean_gaps()
        if few:
            texts.append(f"{OURS} with 200 or 400 clean rows: {_range(few)}")
        if not ours:
            return "; ".join(texts) or "no runs", "open"
        if max(ours) > 1:
            return "; ".join(texts), "does not hold"
        return "; ".join(texts), "holds, but not with few clean rows" if few and max(few) > 1 else "holds"

    def few_clean_gaps(self) -> list[float]:
        """Best minus last of the loop with the paper's values, where it has 200 or 400 clean rows."""
        return self.gaps("table3", "embeddings", TENTH) + self.gaps("table6", "embeddings", OURS)

    def features_logits_pseudo(self) -> tuple[str, str]:
        order = (OURS, "final-layer logits", "pseudo-soft-labels")
        cells = {
            cell: [rows[row] for row in order]
            for part in self.parts("table2", "embeddings")
            for cell, rows in self.scores(part).items()
            if all(row in rows for row in order)
        }
        if not cells:
            return "no runs", "open"
        steps = [[numbers[k].mean - numbers[k + 1].mean for numbers in cells.values()] for k in (0, 1)]
        fails = [cell for cell, first, second in zip(cells, *steps, strict=True) if first <= 0 or second <= 0]
        holds = len(cells) - len(fails)
        text = f"in {holds} of {len(cells)} cells; features over logits {_gains(steps[0])}, logits over pseudo-labels "
        text += _gains(steps[1])
        named = [f"{cell} ({' / '.join(map(str, cells[cell]))})" for cell in fails]
        text += f"; not in {', '.join(named)}" if fails else ""
        return text, "holds" if not fails else "holds in most cells" if holds > len(cells) / 2 else "does not hold"

    def combination_helps(self) -> tuple[str, str]:
        gains: dict[int, list[float]] = {}
        spreads: dict[int, list[float]] = {}
        for part in self.parts("table2", "embeddings"):
            for rows in self.scores(part).values():
                if OURS in rows and "no convex combination" in rows:
                    gain = rows[OURS].mean - rows["no convex combination"].mean
                    spread = np.hypot(rows[OURS].deviation, rows["no convex combination"].deviation)
                    gains.setdefault(part.experiments[0].clean, []).append(gain)
                    spreads.setdefault(part.experiments[0].clean, []).append(float(spread))
        text = "; ".join(
            f"{clean:,} clean rows: {_gains(found)} in {len(found)} cells" for clean, found in gains.items()
        )
        if len(gains) < 2:
            return f"gain of the combination, {text}", "open"
        many, few = (float(np.mean(gains[clean])) for clean in (2000, 400))
        seen = abs(few) > float(np.mean(spreads[400]))
        verdict = _verdict(few > max(many, 0.0)) if seen else "not visible: within the spread"
        return f"gain of the combination, {text}", verdict

    def costs_six_per_cent(self) -> tuple[str, str]:
        """Judged at the paper's rate, 12 corrections in 100 epochs, on either kind of data."""
        record = json.loads((EVIDENCE / "overhead.json").read_text(encoding="utf-8"))
        shares, ratio = correction_shares(record), statistics.median(record["ratios"])
        texts = [
            f"the phases of the correction take {100 * statistics.median(shares):.1f}% of the training time "
            f"(median of {len(shares)} runs, {100 * min(shares):.1f} to {100 * max(shares):.1f}); a whole run takes "
            f"{ratio:.3f} times that of cross-entropy ({min(record['ratios']):.2f} to {max(record['ratios']):.2f}: "
            f"wall time here is disturbed by other work), {overhead_setting(record)}"
        ]
        costs = {"images": self.correction_epochs("images"), "embeddings": self.correction_epochs("embeddings")}
        texts += [
            f"{protocol}: a correction takes as long as {epochs:.1f} epochs, {PAPER_RATE * epochs:.0f}% of the "
            "training time at the paper's rate"
            for protocol, epochs in costs.items()
        ]
        holds = [protocol for protocol, epochs in costs.items() if PAPER_RATE * epochs <= 10]
        fails = [protocol for protocol in costs if protocol not in holds]
        verdict = " and ".join(holds) and f"holds on {' and '.join(holds)}"
        return "; ".join(texts), ", ".join(filter(None, [verdict, fails and f"does not on {' and '.join(fails)}"]))

    def correction_epochs(self, protocol: str) -> float:
        """How many epochs of training a correction takes as long as: the median over the stored runs of the loop."""
        found = []
        for part in self.parts("table1", protocol):
            for run in records_of(part, self.runs):
                if run["title"] == OURS:
                    phases = Counter[str]()
                    for row in run["history"]:
                        phases.update({name: spent for name, spent in row["seconds"].items() if name != "evaluate"})
                    found.append(_share(phases) * len(run["history"]) / len(run["rounds"]))
        return statistics.median(found)

    def correction_cost(self) -> str:
        """For docs/methods.md: what a correction costs, in epochs."""
        images, embeddings = (f"{self.correction_epochs(protocol):.1f}" for protocol in ("images", "embeddings"))
        return f"the time of {images} epochs for a correction on images, and of {embeddings} on embeddings"

    def meta_is_slower(self) -> tuple[str, str]:
        path = EVIDENCE / "efficiency.json"
        if not path.exists():
            return "not measured", "open"
        rows = json.loads(path.read_text(encoding="utf-8"))["methods"]
        ours, hours = rows[OURS], self.items["table4"].published["clothing1m"]["hours_an_epoch"]
        ratios = {name: rows[name]["seconds"] / ours["seconds"] for name in ("L2B", "EMLC")}
        theirs = {name: hours[name][0] / hours[OURS][0] for name in ratios}
        memory = ours["memory_mib"] / rows["cross-entropy"]["memory_mib"]
        text = ", ".join(
            f"{name} {ratio:.1f} times the closed loop's time (the paper: {theirs[name]:.1f})"
            for name, ratio in ratios.items()
        )
        text += f"; its memory is {memory:.2f} times cross-entropy's"
        if min(ratios.values()) < 2 or memory >= 1.1:
            return text, "does not hold"
        as_much = all(ratio >= 0.8 * theirs[name] for name, ratio in ratios.items())
        return text, "holds" if as_much else "holds in direction, but by less"

    def spread_over(self, name: str) -> tuple[str, str]:
        """How far the rows of a table are apart in each cell, and the rows where they are furthest."""
        spreads: dict[str, float] = {}
        texts: dict[str, str] = {}
        for part in self.parts(name, "embeddings"):
            for cell, rows in self.scores(part).items():
                if len(rows) == len({e.title for e in part.experiments}):
                    means = [score.mean for score in rows.values()]
                    spreads[cell] = max(means) - min(means)
                    texts[cell] = ", ".join(f"{row} {score}" for row, score in rows.items())
        if not spreads:
            return "no runs", "open"
        widest = max(spreads, key=lambda cell: spreads[cell])
        text = f"{min(spreads.values()):.1f} to {spreads[widest]:.1f} points apart in {len(spreads)} cells, most in "
        return f"{text}{widest}: {texts[widest]}", _verdict(spreads[widest] <= 2.0)

    def few_clean_rows(self) -> tuple[str, str]:
        texts, won, complete = [], 0, True
        for part in self.parts("table6", "embeddings"):
            for cell, rows in self.scores(part).items():
                rivals = {row: rows[row] for row in THEIRS if row in rows and row != "EMLC"}
                complete &= len(rivals) == len(THEIRS) - 1  # the paper leaves EMLC out of this table
                if OURS in rows and rivals:
                    top = max(rivals, key=lambda row: rivals[row].mean)
                    won += rows[OURS].mean > rivals[top].mean
                    default = f", {DEFAULT} {rows[DEFAULT]}" if DEFAULT in rows else ""
                    texts.append(f"{cell}: {rows[OURS]}{default}, against {top} {rivals[top]}")
        missing = "" if complete else "so far (runs of other baselines are missing) "
        ahead = f"ahead in {won} of {len(texts)} cells: {missing}" + "; ".join(texts)
        return ahead if texts else "no runs", _verdict(won > len(texts) / 2, bool(texts) and complete)

    def human_rows(self) -> dict[str, Score]:
        """Table 3 on the labels of people, if all its runs are there."""
        for part in self.parts("table3", "embeddings"):
            for rows in self.scores(part).values():
                if {e.title for e in part.experiments} <= rows.keys():
                    return rows
        return {}

    def ahead_on_human_labels(self) -> tuple[str, str]:
        rows = self.human_rows()
        rivals = {row: score for row, score in rows.items() if row in (*THEIRS, "DMLP")}
        if not rivals:
            return "runs are missing", "open"
        top = max(rivals, key=lambda row: rivals[row].mean)
        return f"{OURS} {rows[OURS]}, {top} {rivals[top]}", _verdict(rows[OURS].mean > rivals[top].mean)

    def tenth_of_clean(self) -> tuple[str, str]:
        rows = self.human_rows()
        if not rows:
            return "runs are missing", "open"
        names = (TENTH, "DMLP (10% clean)", "DMLP", OURS)
        ahead = [rows[TENTH].mean > rows[name].mean for name in names[1:3]]
        verdict = {2: "holds", 1: "holds in part", 0: "does not hold"}[sum(ahead)]
        return ", ".join(f"{name} {rows[name]}" for name in names), verdict

    def claims(self) -> str:
        claims = {
            "Table 1: after the last epoch the loop is ahead of every baseline in every cell": self.beats_baselines(),
            "Table 1: its last epoch is within 1 point of its best": self.last_is_best(),
            "Table 2: features are better than logits, logits than pseudo-labels": self.features_logits_pseudo(),
            "Table 2: the convex combination helps, most with few clean rows": self.combination_helps(),
            "Table 6: with few clean rows the loop is ahead of the baselines in most cells": self.few_clean_rows(),
            "Table 3: the loop is ahead of all others (human labels here)": self.ahead_on_human_labels(),
            "Table 3: with a tenth of the clean rows it is ahead of DMLP with a tenth or all": self.tenth_of_clean(),
            "Table 7: λ matters little, 1 to 2 points": self.spread_over("table7"),
            "Table 8: how often labels are corrected matters little too": self.spread_over("table8"),
            "Table 5: the correction costs about 6% of the time": self.costs_six_per_cent(),
            "Table 4: L2B and EMLC take 5 to 6 times as long, the loop takes no extra memory": self.meta_is_slower(),
        }
        lines = ["| what the paper says | here | what was measured |", "|---|---|---|"]
        lines += [f"| {claim} | **{verdict}** | {text} |" for claim, (text, verdict) in claims.items()]
        return "\n".join(lines)

    # --- where it wins -----------------------------------------------------------------------------------------------

    def ranking(self, ours: str) -> str:
        """For every cell: the best of all other methods, and whether ours wins, ties or loses against it."""
        lines = ["| where | cell | ours | best other | best simple baseline | against the best | against simple |"]
        lines.append("|---|---|---|---|---|---|---|")
        parts = [part for protocol in PROTOCOLS for part in self.parts("table1", protocol)]
        known = max(len({e.title for e in part.experiments} - set(NOT_RIVALS)) for part in parts)
        for protocol in PROTOCOLS:
            for part in self.parts("table1", protocol):
                for cell, rows in self.scores(part).items():
                    rivals = {row: score for row, score in rows.items() if row not in NOT_RIVALS}
                    simple = {row: score for row, score in rivals.items() if row in SIMPLE}
                    if ours in rows and simple:
                        tops = [max(group, key=lambda row: group[row].mean) for group in (rivals, simple)]
                        some = f" (of {len(rivals)} of {known})" if len(rivals) < known else ""
                        texts = [f"{tops[0]} {rows[tops[0]]}{some}", f"{tops[1]} {rows[tops[1]]}"]
                        outcomes = [_outcome(rows[ours], rows[top]) for top in tops]
                        lines.append(" | ".join([f"| {protocol}", cell, str(rows[ours]), *texts, *outcomes]) + " |")
        return "\n".join(lines)

    def method_summary(self, row: str) -> str:
        """Where a method wins and fails here, in a sentence: its distance to cross-entropy, and its rank."""
        texts = []
        for protocol in ("embeddings", "images"):
            gains, ranks = [], []
            for part in self.parts("table1", protocol):
                for cell, rows in self.scores(part).items():
                    plain = {r: s for r, s in rows.items() if r != "true labels"}
                    if row in plain and "cross-entropy" in plain:
                        gains.append((rows[row].mean - rows["cross-entropy"].mean, cell))
                        ranks.append((sorted(plain, key=lambda r: -plain[r].mean).index(row) + 1, len(plain)))
            if gains:
                low, high = min(gains), max(gains)
                span = f"{low[0]:+.1f} ({low[1]})" + (f" to {high[0]:+.1f} ({high[1]})" if len(gains) > 1 else "")
                place, among = (_span([rank[k] for rank in ranks]) for k in (0, 1))
                cells = f"{len(gains)} cell{'s' * (len(gains) > 1)}"
                texts.append(f"{protocol} ({cells}): {span} points against cross-entropy, rank {place} of {among}")
        return "; ".join(texts) or "no stored runs"

    def tables(self) -> str:
        blocks = []
        for name in ("table1", "table2", "table3", "table5", "table6", "table7", "table8", "recipe"):
            item = self.items[name]
            blocks.append(f"## {item.place}: {item.title}\n\n`labelloop paper {name} --scale small`")
            for part in item.at("small"):
                records = records_of(part, self.runs)
                missing = len(part.experiments) - len(records)
                note = f" ({missing} of {len(part.experiments)} runs missing)" if missing else ""
                if item.shows == "phases":
                    blocks += [phase_table(item, part, records, note)] if records else []
                else:
                    blocks += [accuracy_table(item, part, records, value, note) for value in item.values if records]
        return "\n\n".join(blocks)

    def counts(self) -> str:
        wanted = {e.key for item in self.items.values() for part in item.at("small") for e in part.experiments}
        commits = sorted({run["versions"]["commit"][:9] for run in self.runs.values()})
        return f"{len(wanted & self.runs.keys())} of {len(wanted)} runs are stored, made at {', '.join(commits)}."

    def efficiency(self) -> str:
        return measured_resources(self.items["table4"])

    # --- the short of it ---------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """For README.md: how the loop ends, and in how many cells it wins, ties and loses."""
        gaps = {
            row: [gap for p in MEMORISING for gap in self.gaps("table1", p, row)] for row in (OURS, "cross-entropy")
        }
        few = self.few_clean_gaps()
        if not gaps[OURS] or not few:
            return "runs are missing"
        return (
            f"After the last epoch the loop is at most {max(gaps[OURS]):.1f} points below its best one (with a tenth "
            f"or a fifth of the clean rows {max(few):.1f}), cross-entropy up to {max(gaps['cross-entropy']):.1f}. "
            f"{recipe_page.summary(self.items['cells'], self.runs)}"
        )

    def augmented(self) -> str:
        """All methods of the protocol in which nothing is memorised, best first."""
        texts = []
        for part in self.parts("table1", "augmented"):
            for cell, rows in self.scores(part).items():
                ordered = sorted(rows.items(), key=lambda named: -named[1].mean)
                texts.append(f"{cell}: " + ", ".join(f"{row} {score}" for row, score in ordered))
        return "; ".join(texts) or "not measured yet"


def correction_shares(record: Mapping[str, Any]) -> list[float]:
    """Of every run of the loop: the time of all phases but training, over that of training, as the paper counts."""
    return [_share(phases) for phases in record["runs"]["closed-loop"]]


def _share(phases: Mapping[str, float]) -> float:
    return sum(spent for phase, spent in phases.items() if phase != "train") / phases["train"]


def overhead_setting(record: Mapping[str, Any]) -> str:
    made = record["settings"]
    rows = f"{made['rows']:,} + {made['clean']} {record['data']} images"
    return f"{rows}, small-cnn, 3 corrections in {made['epochs']} epochs"


def _margins(lost: Sequence[tuple[float, str]]) -> str:
    """The smallest and the largest of some margins, each with where it was."""
    low, high = max(lost), min(lost)
    text = f"{-low[0]:.1f} ({low[1]})"
    return text if low == high else f"{text} to {-high[0]:.1f} ({high[1]})"


def _gains(numbers: Sequence[float]) -> str:
    """The smallest and the largest of some differences, with signs."""
    return f"{min(numbers):+.1f} to {max(numbers):+.1f} points"


def _range(gaps: Sequence[float]) -> str:
    low, high = f"{min(gaps):.2f}", f"{max(gaps):.2f}"
    return low if low == high else f"{low} to {high}"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low} to {high}" if low < high else f"{low}"


def _verdict(holds: bool, measured: bool = True) -> str:
    return ("holds" if holds else "does not hold") if measured else "open"


def _outcome(ours: Score, other: Score) -> str:
    """Wins or loses by more than the two deviations together, else a tie."""
    margin = ours.mean - other.mean
    word = "ties" if abs(margin) <= np.hypot(ours.deviation, other.deviation) else "wins" if margin > 0 else "loses"
    return f"{word} ({margin:+.1f})"

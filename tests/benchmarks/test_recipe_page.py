"""What docs/recipe.md says follows from the runs there are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import recipe_cost
import recipe_page

from labelloop.bench.experiment import Experiment
from labelloop.paper.grids import Item, Part, read_item
from labelloop.paper.tally import DEFAULT_ROW


def run(test: float, labels: float) -> dict:
    return {
        "history": [{"test_accuracy": test, "corrected_label_accuracy": labels}],
        "realised_rate": 0.4,
        "title": "",
        "experiment": {},
    }


def item_of(titles: tuple[str, ...]) -> Item:
    experiments = [
        Experiment(name=title, seed=seed, config={"epochs": 50, "rounds": number})
        for number, title in enumerate(titles)
        for seed in (0, 1)
    ]
    part = Part("digits", "small", "Digits", "", experiments)
    return Item("recipe", "", "", "", "accuracy", [part])


def test_a_gain_is_taken_seed_by_seed_and_missing_runs_are_dashes():
    item = item_of(("base", "mixup", "averaged weights"))
    first, second, third = (item.parts[0].experiments[k : k + 2] for k in (0, 2, 4))
    runs = {first[0].key: run(0.60, 0.70), first[1].key: run(0.50, 0.60), second[1].key: run(0.52, 0.57)}
    assert recipe_page.gains(item, runs) == (
        "| Digits: points over base | symmetric 0.4 |\n|---|---|\n| mixup | +2.0 \\| -3.0 |\n| averaged weights | – |"
    )
    assert third[0].key not in runs


def test_the_summary_counts_cells_and_names_who_is_ahead():
    item = read_item("cells")
    experiments = [e for part in item.at("small") for e in part.experiments if e.title in (DEFAULT_ROW, "GLC")]
    runs = {e.key: run(0.6 if e.title == DEFAULT_ROW else 0.7, 0.6) for e in experiments}
    text = recipe_page.summary(item, runs)
    assert "the default against the best of all other methods there, after the last epoch: first in 0" in text
    assert text.endswith("Best where it is not: GLC.")
    assert recipe_page.summary(item, {}) == "not measured yet"


def test_every_choice_is_shown_with_every_candidate(tmp_path, monkeypatch):
    entry = {
        "row": "L2B", "protocol": "images", "chosen": {"clip": 2.0},
        "candidates": [{"sets": {"clip": clip}, "right": right, "of": 100} for clip, right in ((0.25, 40), (2.0, 47))],
    }  # fmt: skip
    (tmp_path / "chosen.json").write_text(json.dumps({"a": entry, "b": entry | {"chosen": None}}))
    monkeypatch.setattr(recipe_page, "CHOSEN", tmp_path / "chosen.json")
    lines = recipe_page.chosen().splitlines()
    assert lines[2] == "| L2B | images | clip = 0.25: 40 of 100; clip = 2.0: 47 of 100 | clip = 2.0 |"
    assert lines[3].endswith("| not decided yet |")


def test_tables_of_all_measures():
    item = item_of(("base", "mixup"))
    runs = {e.key: run(0.6, 0.7) for e in item.parts[0].experiments}
    text = recipe_page.measures(item, runs, ("last", "labels"))
    assert "| mixup | 60.0 ± 0.0 (2) |" in text
    assert "| mixup | 70.0 ± 0.0 (2) |" in text
    assert recipe_page.measures(item, {}, ("last",)) == "not measured yet"


def corrected(data: str, clean: int, seed: int, ours: float, cleanlab: float | None) -> dict:
    found = {"data": data, "noise": "symmetric 0.3", "clean": clean, "paired": True, "seed": seed}
    rivals = {} if cleanlab is None else {"cleanlab": {"right": cleanlab}}
    return found | {"ours": {"right": ours}, "given": {"right": 0.7}} | rivals


def test_cells_of_correct_are_counted_against_each_of_the_others():
    """Two seeds that differ by 0.01 from seed to seed: the interval is 12.7 * 0.00707 / 1.41 wide to each side."""
    ahead = [corrected("wine", 100, seed, 0.95 + 0.01 * seed, 0.8) for seed in (1, 2)]
    level = [corrected("iris", 100, seed, 0.80 + 0.01 * seed, 0.79) for seed in (1, 2)]
    kept = [corrected("wine", 5, seed, 0.7, 0.9 + 0.01 * seed) for seed in (1, 2)]
    alone = [corrected("cars", 100, 1, 0.9, None)]
    lines = recipe_page.correct_tally([*ahead, *level, *kept, *alone]).splitlines()
    assert lines[0] == "| clean rows | against the given labels | against cleanlab | against the clean rows alone |"
    nothing = "first in 0, tied in 0, behind in 0"
    assert (
        lines[2]
        == f"| 5, paired | first in 0, tied in 1, behind in 0 | first in 0, tied in 0, behind in 1 | {nothing} |"
    )
    both = "first in 2, tied in 1, behind in 0 | first in 1, tied in 1, behind in 0"
    assert lines[3] == f"| 100, paired | {both} | {nothing} |"
    assert len(lines) == 4


def test_costs_are_compared_repeat_by_repeat_without_evaluation():
    plain = [{"train": 10.0}, {"train": 20.0}, {"train": 10.0}]
    ours = [{"train": 9.0, "halves": 3.0}, {"train": 20.0, "halves": 2.0}, {"train": 13.0, "extract": 1.0}]
    record = {"runs": {"cross-entropy": plain, DEFAULT_ROW: ours}}
    assert recipe_cost.ratios(record) == {DEFAULT_ROW: [1.2, 1.1, 1.4]}
    assert recipe_cost.cost(record).startswith(f"{DEFAULT_ROW} 1.20 (1.10 to 1.40); median and range of 3")


def test_the_cost_is_measured_on_what_the_tables_have():
    found = recipe_cost.experiments()
    assert set(found) == set(recipe_cost.ROWS)
    assert {one.seed for one in found.values()} == {recipe_cost.SEED}
    tables = [part for part in read_item("cells").at("small") if part.protocol == "images"]
    assert all(one.seed != recipe_cost.SEED for part in tables for one in part.experiments)
    ours = next(one for part in tables for one in part.experiments if one.name == DEFAULT_ROW)
    assert found[DEFAULT_ROW].config == ours.config


def test_the_curve_has_the_cost_and_the_means_of_every_number_of_rounds(tmp_path, monkeypatch):
    part = next(one for one in read_item("recipe").at("small") if one.protocol == "images")
    ours = [e for e in part.experiments if e.title == DEFAULT_ROW][:2]
    runs = {ours[0].key: run(0.5, 0.7), ours[1].key: run(0.6, 0.8)}
    record = {"runs": {"cross-entropy": [{"train": 10.0}], DEFAULT_ROW: [{"train": 14.0, "rounds": 4.5}]}}
    (tmp_path / "cost.json").write_text(json.dumps(record))
    monkeypatch.setattr(recipe_cost, "STORED", tmp_path / "cost.json")
    lines = recipe_cost.curve(runs).splitlines()
    assert lines[2] == "| `rounds=0` | – | – | – | 0 |"
    assert lines[4] == "| `rounds=3` | 1.85 | 75.0 | 55.0 | 2 |"

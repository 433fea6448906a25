"""First, tied or behind: by paired differences, against the rival that does best on the same seeds."""

from __future__ import annotations

import pytest

from labelloop.paper.grids import read_item
from labelloop.paper.items import comparisons, show
from labelloop.paper.tally import DEFAULT_ROW, cells_of, compared, count, duel_table, duels, of_labels, tally_text


def record(title: str, seed: int, test: float, labels: float = 0.6, noise: str = "symmetric", **more):
    experiment = {"noise": noise, "rate": 0.4, "seed": seed, "noise_options": {}}
    history = [{"test_accuracy": 0.0}, {"test_accuracy": test, "corrected_label_accuracy": labels}]
    return {"title": title, "experiment": experiment, "history": history, "realised_rate": 0.4} | more


def runs(numbers: dict[str, tuple[float, ...]], noise: str = "symmetric"):
    return [
        ("embeddings", "rows", record(title, seed, test, noise=noise))
        for title, tests in numbers.items()
        for seed, test in enumerate(tests)
    ]


def one(numbers: dict[str, tuple[float, ...]], rivals=("GLC", "L2B")):
    (duel,) = duels(cells_of(runs(numbers)), "ours", rivals)
    return duel


def test_the_difference_is_taken_seed_by_seed():
    duel = one({"ours": (0.70, 0.60, 0.50), "GLC": (0.69, 0.59, 0.49)})  # seeds differ far more than methods
    assert duel.mean == pytest.approx(0.01)
    assert duel.half_width == pytest.approx(0, abs=1e-9)
    assert duel.outcome == "first"


def test_an_interval_that_holds_nothing_is_a_tie():
    assert one({"ours": (0.70, 0.72), "GLC": (0.71, 0.70)}).outcome == "tied"


def test_the_rival_is_the_one_that_ours_does_worst_against_on_shared_seeds():
    numbers = {"ours": (0.70, 0.60, 0.50), "GLC": (0.71, 0.61, 0.51), "L2B": (0.705,)}
    duel = one(numbers)
    assert duel.rival == "GLC"
    assert duel.outcome == "behind"
    assert one(numbers | {"L2B": (0.72,)}).rival == "L2B"
    assert one(numbers | {"L2B": (0.72,)}).differences == pytest.approx((-0.02,))


def test_a_cell_has_the_interval_of_its_own_differences():
    steady = runs({"ours": (0.70, 0.60), "GLC": (0.69, 0.59)}, "instance")
    shaky = runs({"ours": (0.70, 0.60), "GLC": (0.60, 0.65)})
    alone = duels(cells_of(steady), "ours", ["GLC"])
    both = duels(cells_of(steady + shaky), "ours", ["GLC"])
    assert [duel.outcome for duel in alone] == ["first"]
    assert both[0].half_width == alone[0].half_width
    assert both[1].half_width == pytest.approx(12.7062 * 0.075, abs=1e-4)  # t with one degree of freedom
    assert [duel.outcome for duel in both] == ["first", "tied"]


def test_one_seed_alone_decides_nothing():
    duel = one({"ours": (0.9,), "GLC": (0.1,)})
    assert (duel.half_width, duel.outcome) == (None, "tied")


def test_a_cell_without_ours_or_without_a_rival_does_not_count():
    assert duels(cells_of(runs({"GLC": (0.7, 0.6)})), "ours", ["GLC"]) == []
    assert duels(cells_of(runs({"ours": (0.7, 0.6)})), "ours", ["GLC"]) == []


def test_labels_are_those_handed_back_where_a_run_says_so():
    value = of_labels("corrected_label_accuracy")
    assert value(record("a", 0, 0.5, labels=0.6)) == 0.6
    assert value(record("a", 0, 0.5, labels=0.6, handed_back={"corrected_label_accuracy": 0.8})) == 0.8


def test_every_comparison_counts_its_own_rivals():
    made = [
        ("embeddings", "rows", record(title, seed, test, labels))
        for seed in (0, 1)
        for title, test, labels in (
            (DEFAULT_ROW, 0.70, 0.7), ("GLC", 0.72, 0.6), ("fine-tune on clean", 0.6, 0.6), ("true labels", 0.9, 1.0),
            ("closed loop", 0.69, 0.65), ("LabelLoop, one round", 0.8, 0.9),
        )
    ]  # fmt: skip
    methods = {DEFAULT_ROW: "labelloop", "LabelLoop, one round": "labelloop", "closed loop": "closed-loop"}
    methods |= {"GLC": "glc", "fine-tune on clean": "fine-tune", "true labels": "oracle"}
    found = compared(made, methods)
    assert {name: (duel.rival, round(duel.mean, 3)) for name, (duel,) in found.items()} == {
        "test accuracy, all other methods": ("GLC", -0.02),
        "test accuracy, simple baselines": ("fine-tune on clean", 0.1),
        "test accuracy, the paper's method": ("closed loop", 0.01),
        "labels, all other methods": ("closed loop", 0.05),
        "labels, the paper's method": ("closed loop", 0.05),
        "labels, as given": ("given labels", 0.1),
    }
    text = tally_text(found)
    assert "| test accuracy, all other methods | 1 | 0 | 0 | 1 | 0 | -2.0 |" in text
    assert "| rows | symmetric 0.4 | 70.0 | GLC 72.0 | -2.0 ± 0.0 | 2 | behind |" in text
    assert count(found["labels, as given"]) == {"first": 1, "tied": 0, "behind": 0, "highest mean": 1}
    assert "behind" in duel_table(found["test accuracy, all other methods"])


def test_the_command_prints_the_tally_and_four_measures():
    item = read_item("cells")
    experiments = [e for part in item.at("small") for e in part.experiments if e.title in (DEFAULT_ROW, "GLC")]
    made = {
        e.key: record(e.title, e.seed, 0.7 if e.title == DEFAULT_ROW else 0.6, rarest_labels_broken=0.1)
        for e in experiments
    }
    text = show(item, "small", made)
    cells = sum(len({(e.noise, e.rate) for e in part.experiments}) for part in item.at("small"))
    assert f"| labels, as given | {cells} |" in text
    assert len(comparisons(item, "small", made)["labels, as given"]) == cells
    for words in ("Test accuracy after the last epoch", "Right labels", "Good labels broken:", "rarest", "Calibration"):
        assert words in text

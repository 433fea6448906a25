"""Tables of runs: what shares a cell, what the columns are called, what is not known."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tiny_runs import tiny

from labelloop.bench.tables import best, last, render, setting, table


def record(accuracies: list[float | None], title: str = "a", realised: float | None = None, **experiment: Any) -> Any:
    settings = {
        "dataset": "digits", "dataset_options": {}, "clean": 10, "paired": False, "noise": "symmetric", "rate": 0.4,
        "noise_options": {}, "method": "closed-loop", "recipe": "default", "config": {}, "seed": 0,
    }  # fmt: skip
    history = [{"epoch": n + 1, "test_accuracy": value} for n, value in enumerate(accuracies)]
    return {"title": title, "experiment": settings | experiment, "history": history, "realised_rate": realised}


def test_last_and_best():
    run = record([0.5, 0.9, 0.7])
    assert (last(run), best(run)) == (0.7, 0.9)
    assert (last(record([0.5, None])), best(record([0.5, None])), best(record([None]))) == (None, 0.5, None)


def test_a_cell_is_mean_deviation_and_seeds():
    columns, cells = table([record([0.8], seed=0), record([0.9], seed=1)])
    assert columns == ["symmetric 0.4"]
    assert cells["a"]["symmetric 0.4"] == pytest.approx((0.85, 0.0707107, 2))
    assert "| a | 85.0 ± 7.1 (2) |" in render(columns, cells, "caption")


def test_one_seed_has_no_spread():
    assert "| a | 80.0 (1) |" in render(*table([record([0.8])]), "caption")


def test_the_realised_rate_stands_beside_the_nominal_one():
    runs = [record([0.8], title, realised, seed=seed) for title in "ab" for seed, realised in ((0, 0.35), (1, 0.37))]
    columns, cells = table(runs)
    assert columns == ["symmetric 0.4 (realised 0.360)"]
    assert cells["b"][columns[0]][2] == 2


def test_settings_that_differ_do_not_share_a_column():
    runs = [record([0.8], dataset=dataset, clean=clean) for dataset in ("digits", "cifar10") for clean in (10, 20)]
    columns, cells = table(runs)
    assert columns == [
        "symmetric 0.4, dataset digits, clean 10",
        "symmetric 0.4, dataset digits, clean 20",
        "symmetric 0.4, dataset cifar10, clean 10",
        "symmetric 0.4, dataset cifar10, clean 20",
    ]
    assert all(cell[2] == 1 for cell in cells["a"].values())


def test_options_of_one_noise_are_told_apart_and_those_of_another_stay_out():
    runs = [
        record([0.8], noise_options={"convention": "all"}),
        record([0.7], noise_options={"convention": "others"}),
        record([0.6], noise="instance", noise_options={"scale": "unit"}),
    ]
    columns, _ = table(runs)
    assert columns == ["symmetric 0.4, convention all", "symmetric 0.4, convention others", "instance 0.4"]


def test_methods_of_one_title_are_told_apart_by_their_settings():
    runs = [
        record([0.8]),
        record([0.7], config={"combination": "latest"}),
        record([0.6], config={"corrector": {"hidden": 8}}),
        record([0.5], "b", paired=True),
    ]
    assert list(table(runs)[1]) == ["a", "a, combination latest", "a, corrector.hidden 8", "b"]


def test_a_run_that_lacks_the_number_leaves_a_dash():
    columns, cells = table([record([None]), record([0.8], "b"), record([0.5], "b", noise="none")])
    assert render(columns, cells, "c").splitlines()[4:] == ["| a | – | – |", "| b | 80.0 (1) | 50.0 (1) |"]
    assert render(*table([record([0.8])], partial(last, key="unknown")), "c").splitlines()[-1] == "| a | – |"


def test_names_of_settings():
    assert setting({"noise": "symmetric", "rate": 0.25, "noise_options": {}}) == "symmetric 0.25"
    assert setting({"noise": "none", "rate": 0.25, "noise_options": {}}) == "none"
    assert (
        setting({"noise": "recorded", "rate": 0.25, "noise_options": {"key": "worse_label"}}) == "recorded worse_label"
    )
    assert tiny("oracle", seed=3).words == "oracle, digits, symmetric 0.3, seed 3"

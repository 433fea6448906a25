"""The small words of a grid: seeds of single rows, settings under one noise, parts that are one table, choices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from choose_settings import SEED, read_choices

from labelloop.errors import UsageError
from labelloop.paper.grids import read_item, read_items

COMMON = """
wrong = { symmetric = 0.9, instance = 1.0 }

[protocols.tiny]
scale = "small"
title = "Tiny"
dataset = "digits"
clean = 100
recipe = "paper"
config = { network = "mlp", epochs = 3 }
seed = [0, 1, 2]
choose = [{ noise = "instance", rate = 0.4 }]

[rows."L2B"]
method = "l2b"
on.tiny = { warm_up = 1 }
on."tiny symmetric" = { warm_up = 2 }

[rows."L2B, chosen settings"]
like = "L2B"
candidates = [{ clip = 0.25 }, { clip = 2.0 }]
on.tiny = { clip = 2.0 }
"""
ITEM = """
place = "Here"
label = ""
title = "Two parts of one table"
shows = "tally"

[[runs]]
protocol = "tiny"
rows = ["L2B"]
noise = ["symmetric", "instance"]
rate = [0.4]
seeds_of = { "L2B" = [0] }

[[runs]]
protocol = "tiny"
rows = ["L2B, chosen settings"]
noise = ["instance"]
rate = [0.4]
seed = [0, 1]
"""


def write(folder: Path, item: str = ITEM, common: str = COMMON) -> Path:
    (folder / "common.toml").write_text(common, encoding="utf-8")
    (folder / "some.toml").write_text(item, encoding="utf-8")
    return folder


def test_parts_of_one_title_are_one_table_with_the_seeds_of_each_row(tmp_path):
    (part,) = read_item("some", write(tmp_path)).parts
    assert [(e.title, e.noise, e.seed) for e in part.experiments] == [
        ("L2B", "symmetric", 0), ("L2B", "instance", 0),
        ("L2B, chosen settings", "instance", 0), ("L2B, chosen settings", "instance", 1),
    ]  # fmt: skip


def test_other_items_keep_their_parts_apart(tmp_path):
    assert len(read_item("some", write(tmp_path, ITEM.replace('"tally"', '"accuracy"'))).parts) == 2


def test_a_setting_may_hold_under_one_noise_alone(tmp_path):
    (part,) = read_item("some", write(tmp_path)).parts
    assert [e.config["warm_up"] for e in part.experiments] == [2, 1, 1, 1]


def test_seeds_of_a_row_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(UsageError, match="seeds_of: unknown key 'L2C'; did you mean 'L2B'"):
        read_item("some", write(tmp_path, ITEM.replace('{ "L2B"', '{ "L2C"')))


def test_a_choice_has_an_experiment_a_candidate_and_what_the_tables_run(tmp_path):
    (choice,) = read_choices(write(tmp_path))
    assert (choice.row, choice.protocol, choice.noise, choice.rate) == ("L2B", "tiny", "instance", 0.4)
    assert [e.config["clip"] for e in choice.experiments] == [0.25, 2.0]
    assert {e.seed for e in choice.experiments} == {SEED}
    assert choice.now.config["clip"] == 2.0


def test_a_protocol_that_no_table_asks_for_has_nothing_to_choose(tmp_path):
    assert read_choices(write(tmp_path, ITEM.replace('"L2B, chosen settings"', '"L2B"'))) == []


def test_fine_tuning_has_a_lower_learning_rate_than_what_it_tunes():
    tuned = [
        e for item in read_items().values() for part in item.parts for e in part.experiments if e.method == "fine-tune"
    ]
    assert {e.dataset for e in tuned} >= {"cifar10", "cifar100", "clothing1m", "cifar10-embeddings"}
    for e in tuned:
        assert e.method_config.fine_tune_learning_rate < e.method_config.learning_rate, e.words

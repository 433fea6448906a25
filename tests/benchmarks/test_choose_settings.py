"""evidence/chosen.json: by the rule, of the candidates there are, and what the tables run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import choose_settings
from choose_settings import best_of, difference, name_of, plain, read_choices, read_chosen

CHOICES = {name_of(choice): choice for choice in read_choices()}


def test_what_is_stored_was_chosen_by_the_rule():
    stored = read_chosen()
    assert stored
    for name, entry in stored.items():
        assert [one["experiment"] for one in entry["candidates"]] == [
            experiment for experiment in map(plain, CHOICES[name].experiments) if entry["chosen"] is not None
        ] or entry["chosen"] is None, name
        if entry["chosen"] is not None:
            right = [one["right"] for one in entry["candidates"]]
            assert entry["chosen"] == entry["candidates"][best_of(right)]["sets"], name


def test_the_tables_run_what_was_chosen():
    assert [difference(CHOICES[name], entry) for name, entry in read_chosen().items()] == [""] * len(read_chosen())


def test_a_table_with_other_settings_is_found_out():
    choice = CHOICES["MW-Net, embeddings, instance"]
    (other,) = [each for each in choice.candidates if each["weight_norm"] != choice.now.method_config.weight_norm]
    assert difference(choice, {"chosen": other}) == f"MW-Net, embeddings, instance: common.toml should set {other}"
    assert difference(choice, None) == difference(choice, {"chosen": None}) == ""


def test_a_candidate_is_kept_as_soon_as_it_is_known_and_the_choice_when_all_are(tmp_path, monkeypatch):
    monkeypatch.setattr(choose_settings, "CHOSEN", tmp_path / "chosen.json")
    choice = CHOICES["MW-Net, embeddings, instance"]
    right = iter([(60, 100), (70, 100)])
    kept = []

    def train(experiment):
        kept.append(read_chosen())
        return next(right)

    monkeypatch.setattr(choose_settings, "held_out_right", train)
    choose_settings.choose(choice)
    assert kept[0] == {}
    assert kept[1][name_of(choice)]["chosen"] is None
    assert read_chosen()[name_of(choice)]["chosen"] == choice.candidates[1]
    choose_settings.choose(choice)  # nothing is left to run
    assert len(kept) == 2

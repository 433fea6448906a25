"""Half-networks: no row is judged by a network that saw its label; T, simulated labels, the first correction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import tiny_config
from toys import toy

from labelloop.errors import DataError
from labelloop.methods.closed_loop import first_labels as first_labels_file
from labelloop.methods.closed_loop import halves, loop
from labelloop.methods.closed_loop.first_labels import HeldOut, first_labels
from labelloop.methods.closed_loop.halves import hold_out
from labelloop.methods.closed_loop.loop import fit
from labelloop.methods.closed_loop.state import LoopState
from labelloop.methods.closed_loop.views import draw_labels, look, noisy_view, redraw_of, rows_to_train_on
from labelloop.relabel.stacking import fit_simplex_weights
from labelloop.splits import one_hot
from labelloop.training.checkpoint import Checkpoint
from labelloop.training.runtime import Runtime
from labelloop.training.setup import new_classifier
from labelloop.types import MISSING, Correction

TRANSITION = {"simulation": "transition", "correct_until": 0.6, "clean_rows_train": "after_last_correction"}


def quiet(seed: int = 0, **arguments) -> Runtime:
    return Runtime(seed, device="cpu", progress=False, **arguments)


def held_out(problem, **changes) -> HeldOut:
    return hold_out(problem, tiny_config(problem, **(TRANSITION | changes)), quiet())


def of_networks(found: HeldOut) -> np.ndarray:
    """What the half-networks alone say of the noisy rows."""
    return found.returned.train_scores[:, :3]


def with_label(problem, row: int, label: int):
    labels = problem.train.labels.copy()
    labels[row] = label
    return replace(problem, train=replace(problem.train, labels=labels))


# --- what they are trained on ----------------------------------------------------------------------------------------


def test_what_is_said_of_a_row_has_nothing_of_its_own_label_in_it():
    problem, _ = toy()
    first, others = held_out(problem, warm_up=1), np.arange(1, len(problem.train))
    changed = held_out(with_label(problem, 0, (problem.train.labels[0] + 1) % 3), warm_up=1)
    assert (of_networks(changed)[0] == of_networks(first)[0]).all()
    assert (of_networks(changed)[others] != of_networks(first)[others]).any()  # it did teach the network of the others


def test_a_clean_row_is_not_judged_by_what_memorised_it():
    problem, _ = toy(m=90)
    shuffled = np.random.default_rng(1).permutation(problem.clean.clean_labels)
    found = networks_know_nothing(replace(problem, clean=replace(problem.clean, clean_labels=shuffled)))
    # A forest that saw the row would be right on nearly all.
    assert (found.returned.cross_fitted.argmax(axis=1) == shuffled).mean() < 0.55
    assert (found.clean.argmax(axis=1) == shuffled).mean() < 0.7  # these lean towards labels drawn from the clean ones


def networks_know_nothing(problem, **changes) -> HeldOut:
    said = (np.full((len(rows), 3), -np.log(3), np.float32) for rows in (problem.train, problem.clean))
    return first_labels(problem, Correction(*said), tiny_config(problem, **({"beliefs": "all"} | changes)), 0)


def test_clean_rows_speak_where_networks_know_nothing():
    problem, truth = toy(m=90, noise=0.4)
    found = networks_know_nothing(problem)
    assert (found.train.argmax(axis=1) == truth.train_labels).mean() > 0.8
    assert found.returned.train_scores.shape[1] > 3  # the networks' scores, and those of other learners
    alone = networks_know_nothing(problem, beliefs="networks")
    assert alone.returned.train_scores.shape == (len(problem.train), 3)
    assert (alone.train.argmax(axis=1) == truth.train_labels).mean() < 0.8
    images, _ = toy(images=True)
    assert held_out(images, beliefs="all").returned.train_scores.shape[1] == 3  # no columns, no other learner


def test_every_row_keeps_its_place_whatever_the_order_of_the_table():
    """Rows are corrected in the order of their index; a problem may have them in any other."""
    problem, _ = toy(m=30, paired=10)
    rng = np.random.default_rng(0)
    log_p = [np.log(rng.dirichlet(np.ones(3), len(rows))).astype(np.float32) for rows in (problem.train, problem.clean)]
    config = tiny_config(problem)
    found = first_labels(problem, Correction(*log_p), config, 0)
    turned = [np.arange(len(values))[::-1] for values in log_p]
    other = replace(problem, train=_taken(problem.train, turned[0]), clean=_taken(problem.clean, turned[1]))
    again = first_labels(other, Correction(*(values[::-1] for values in log_p)), config, 0)
    np.testing.assert_array_equal(again.train, found.train[::-1])
    np.testing.assert_array_equal(again.returned.train, found.returned.train[::-1])
    np.testing.assert_array_equal(again.returned.cross_fitted, found.returned.cross_fitted[::-1])
    np.testing.assert_array_equal(again.chances, found.chances[::-1])
    np.testing.assert_allclose(of_networks(found), log_p[0] - log_p[0].mean(axis=1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(found.noisy_clean, np.exp(log_p[1]), atol=1e-5)


def _taken(rows, order):
    return replace(rows, **{name: getattr(rows, name)[order] for name in ("index", "labels", "clean_labels")})


def test_a_class_without_a_clean_row_is_left_to_the_networks():
    problem, truth = toy(n=300, m=60, noise=0.1)
    known = problem.clean.clean_labels != 2
    clean = replace(
        problem.clean,
        **{name: getattr(problem.clean, name)[known] for name in ("index", "labels", "clean_labels")},
    )
    found = held_out(replace(problem, clean=clean), beliefs="all", warm_up=8)
    third = truth.train_labels == 2
    assert (found.train.argmax(axis=1) == 2)[third].mean() > 0.6


def test_the_global_random_states_are_left_alone():
    problem, _ = toy()
    before = torch.get_rng_state()
    held_out(problem)
    assert torch.equal(torch.get_rng_state(), before)


# --- what they find --------------------------------------------------------------------------------------------------


def test_the_first_correction_is_bayes_rule_and_better_than_the_given_labels():
    problem, truth = toy(n=600, m=60, noise=0.4)
    found = held_out(problem, warm_up=6)
    np.testing.assert_allclose(found.chances.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found.train.sum(axis=1), 1, atol=1e-5)
    right = (found.train.argmax(axis=1) == truth.train_labels).mean()
    assert right > (problem.train.labels == truth.train_labels).mean() + 0.1
    kept = found.chances[np.arange(60), problem.clean.clean_labels]
    assert np.abs(kept - 0.6).max() < 0.2


def test_a_paired_row_keeps_its_label_and_others_are_drawn_from_the_matrix():
    problem, _ = toy(n=300, m=300, paired=100)
    found = held_out(problem)
    assert (found.labels[:100] == problem.clean.labels[:100]).all()
    for true in range(3):
        mine = 100 + np.flatnonzero(problem.clean.clean_labels[100:] == true)
        shares = np.bincount(found.labels[mine], minlength=3) / len(mine)
        np.testing.assert_allclose(shares, found.chances[mine].mean(axis=0), atol=0.2)


def test_noise_that_follows_the_row_is_drawn_and_corrected_as_such():
    problem, truth = toy(n=900, m=90, noise=0.0)
    left = problem.train.inputs[:, 0] < np.median(problem.train.inputs[:900, 0])
    labels = np.where(left[problem.train.index], 0, problem.train.labels)  # a rule that knows one column
    ruled = replace(problem, train=replace(problem.train, labels=labels))
    by_class, by_row = (held_out(ruled, simulation=each, warm_up=4) for each in ("transition", "by_row"))
    rights = [(found.train.argmax(axis=1) == truth.train_labels).mean() for found in (by_class, by_row)]
    assert rights[1] > rights[0]
    ruled_clean = left[problem.clean.index] & (problem.clean.clean_labels != 0)
    assert by_row.chances[ruled_clean, 0].mean() > by_class.chances[ruled_clean, 0].mean()


def test_rows_without_a_label_are_corrected_by_the_networks_alone():
    problem, truth = toy(n=400, unlabelled=50, noise=0.2)
    found = held_out(problem, warm_up=6)
    assert (found.train[-50:].argmax(axis=1) == truth.train_labels[-50:]).mean() > 0.7


def test_draws_follow_their_rows():
    rng, chances = np.random.default_rng(0), np.array([[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    drawn = draw_labels(np.repeat(chances, 2000, axis=0), rng)
    assert (drawn[:2000] == 1).mean() == pytest.approx(0.8, abs=0.03)
    assert (drawn[:2000] < 2).all()
    assert (drawn[2000:] == 2).all()


def test_every_pass_of_the_correction_network_draws_anew_but_for_paired_rows():
    problem, _ = toy(m=80, paired=30)
    found = held_out(problem)
    redraw = redraw_of(problem.clean, found)
    first, second = redraw(np.random.default_rng(1)), redraw(np.random.default_rng(2))
    assert (first[:30] == one_hot(problem.clean.labels[:30], 3)).all()
    assert (second[:30] == first[:30]).all()
    assert (first[30:] != second[30:]).any()
    assert redraw_of(problem.clean, None) is None


def test_it_survives_a_checkpoint():
    found = held_out(toy()[0])
    again = HeldOut.from_arrays(*found.to_arrays())
    for name in ("chances", "labels", "train", "clean", "noisy_clean"):
        assert np.array_equal(getattr(found, name), getattr(again, name))
    for name in ("train", "cross_fitted", "expected_right", "train_scores", "clean_scores"):
        assert np.array_equal(getattr(found.returned, name), getattr(again.returned, name), equal_nan=True)
    assert again.returned.guard == found.returned.guard


def test_few_clean_rows_and_few_rows_are_no_error():
    problem, _ = toy(n=6, m=5)
    found = held_out(problem)
    assert np.isfinite(found.train).all()
    assert np.isfinite(found.chances).all()


# --- in the loop -----------------------------------------------------------------------------------------------------


def run(problem, truth=None, **changes):
    runtime = quiet(truth=truth)
    return fit(problem, tiny_config(problem, **(TRANSITION | changes)), runtime), runtime


def test_the_half_networks_are_the_warm_up_and_their_time_is_recorded():
    result, runtime = run(*toy(), epochs=9, warm_up=3)
    assert len(runtime.history) == 9
    assert "halves" in runtime.history[0]["seconds"]
    assert all("halves" not in row["seconds"] for row in runtime.history[1:])
    assert [entry["epoch"] for entry in result.rounds] == [2, 4]  # not 6 and 8: labels stand after 0.6 of the epochs


def test_the_first_targets_are_the_first_labels(monkeypatch):
    problem, _ = toy(unlabelled=20)
    seen, train_epoch = [], loop.train_epoch

    def watch(model, rows, targets, *rest):
        seen.append(targets.copy())
        return train_epoch(model, rows, targets, *rest)

    monkeypatch.setattr(loop, "train_epoch", watch)
    run(problem)
    np.testing.assert_array_equal(seen[0], held_out(problem).train)


def test_a_row_without_a_label_keeps_its_first_label_in_place_of_a_noisy_one():
    problem, _ = toy(unlabelled=20)
    found, config = held_out(problem), tiny_config(problem)
    on_train, _, _ = look(new_classifier(config, problem, 0), problem, found, quiet())
    view = noisy_view(problem.train.labels, on_train)
    np.testing.assert_array_equal(view[-20:], found.train[-20:])
    np.testing.assert_array_equal(view[:-20], one_hot(problem.train.labels[:-20], 3))


@pytest.mark.parametrize("paired", [0, 15])
def test_no_round_is_worse_on_clean_val_than_any_component_the_half_networks_among_them(paired):
    result, _ = run(*toy(paired=paired), epochs=12)
    assert len(result.rounds) >= 2
    for number, entry in enumerate(result.rounds, start=1):
        assert len(entry["component_losses"]) == len(entry["weights"]) == number + 1
        assert entry["components"][0] == "first labels"
        assert entry["clean_val_loss"] <= min(entry["component_losses"]) + 1e-9


def test_the_posterior_of_the_noisy_label_is_that_of_the_half_networks():
    result, _ = run(*toy(unlabelled=10))
    assert result.first_clean is not None
    problem, _ = toy(unlabelled=10)
    np.testing.assert_array_equal(result.first_clean.noisy_posterior, held_out(problem).noisy_clean)
    np.testing.assert_allclose(result.targets.sum(axis=1), 1, atol=1e-5)


def test_a_component_for_clean_rows_is_bayes_rule_for_their_simulated_label():
    problem, _ = toy()
    found = held_out(problem)
    assert found.clean.shape == (40, 3)
    swapped = np.exp(-np.abs(found.labels[:, None] - np.arange(3)))
    assert not np.allclose(found.clean, found.noisy_clean)
    assert (found.clean * swapped).sum() > (found.noisy_clean * swapped).sum()  # drawn to the simulated label


def test_one_network_of_each_half_is_kept_as_it_was_at_its_best(monkeypatch):
    """An epoch that ruins the network does not count: what it said of unseen labels was better before."""
    problem, _ = toy()
    train_epoch = halves.train_epoch

    def ruin(model, *rest):
        loss = train_epoch(model, *rest)
        if rest[-1] == 3:
            with torch.no_grad():
                model.head.weight.mul_(-50)
        return loss

    first = held_out(problem, warm_up=2, learning_rate_drops=())
    monkeypatch.setattr(halves, "train_epoch", ruin)
    ruined = held_out(problem, warm_up=3, learning_rate_drops=())
    np.testing.assert_array_equal(of_networks(first), of_networks(ruined))


@pytest.mark.parametrize(
    ("when", "early", "late"),
    [("never", 0, 0), ("always", 40, 40), ("after_last_correction", 0, 40)],
)
def test_when_clean_rows_train(when, early, late):
    problem, _ = toy()
    config = tiny_config(problem, epochs=10, warm_up=2, correct_every=2, clean_rows_train=when, correct_until=0.5)
    assert config.last_correction() == 4
    noisy = one_hot(problem.train.labels, 3)
    for epoch, extra in ((4, early), (5, late)):
        rows, targets, _, _ = rows_to_train_on(problem, noisy, noisy, config, epoch)
        assert len(rows) == len(targets) == 120 + extra
    assert (problem.train.labels != MISSING).all()


def test_only_the_value_transition_leaves_row_dependent_noise_out(monkeypatch):
    problem, _ = toy()
    asked, relabel = [], first_labels_file.relabel

    def watch(*arguments, by_row, **others):
        asked.append(by_row)
        return relabel(*arguments, by_row=by_row, **others)

    monkeypatch.setattr(first_labels_file, "relabel", watch)
    for simulation in ("transition", "by_row", "posterior"):  # the last is asked after the loop, for labels to return
        networks_know_nothing(problem, simulation=simulation)
    assert asked == [False, True, True]


def test_only_the_value_all_teaches_learners_again(monkeypatch):
    problem, _ = toy()
    asked, relabel = [], first_labels_file.relabel

    def watch(*arguments, inputs, **others):
        asked.append(None if inputs is None else inputs.again)
        return relabel(*arguments, inputs=inputs, **others)

    monkeypatch.setattr(first_labels_file, "relabel", watch)
    for beliefs in ("networks", "once", "all"):
        networks_know_nothing(problem, beliefs=beliefs)
    assert asked == [None, False, True]


def test_the_soft_label_of_a_paired_row_does_not_know_its_own_pair():
    """Also with too few pairs to learn from, a pair counts in the estimate of the noise, but not for its own row."""
    problem, _ = toy(n=60, m=40, paired=10)
    log_p = [np.full((len(rows), 3), -np.log(3), np.float32) for rows in (problem.train, problem.clean)]
    config = tiny_config(problem, simulation="transition", beliefs="networks")
    found = first_labels(problem, Correction(*log_p), config, 0)
    answer = first_labels_file.relabel(
        np.zeros((100, 3), np.float32), np.concatenate([problem.train.labels, problem.clean.labels]),
        np.concatenate([np.full(60, MISSING), problem.clean.clean_labels]), 3, by_row=False,
    )  # fmt: skip
    paired = answer.noise.validation.given != MISSING
    whole = answer.noise.posterior_given(answer.q_oof, np.where(paired, answer.noise.validation.given, 0))
    assert paired.sum() == 10
    np.testing.assert_array_equal(answer.of_validation(found.labels)[paired], answer.noise_only.oof[paired])
    assert (np.abs(whole[paired] - answer.noise_only.oof[paired]).max(axis=1) > 1e-6).any()


def test_a_checkpoint_of_an_older_version_is_refused_in_words_unless_it_has_no_half_networks():
    old = Checkpoint(3, {}, {}, {"targets": np.eye(2), "start": np.ones(1)}, [], {"rounds": []})
    assert LoopState.restored(old, np.eye(2)).held_out is None
    with pytest.raises(DataError, match=r"older version.*--overwrite"):
        LoopState.restored(replace(old, arrays=old.arrays | {"held_out_gap": np.ones(1)}), np.eye(2))
    guarded = replace(old, values={"rounds": [], "guard": {}}, arrays=old.arrays | {"held_out_train": np.eye(2)})
    with pytest.raises(DataError, match=r"older version.*--overwrite"):  # with a guard, but other first labels
        LoopState.restored(guarded, np.eye(2))


@pytest.mark.parametrize(("clean", "share"), [(5, 0.25), (20, 1.0)])
def test_with_few_clean_rows_the_predictions_speak_as_they_are(clean, share):
    """As if each clean row that is missing to 20 had chosen the geometric mean of the sources' predictions."""
    problem, _ = toy(n=80, m=clean)
    rng = np.random.default_rng(0)
    log_p = [np.log(rng.dirichlet(np.ones(3), len(rows))).astype(np.float32) for rows in (problem.train, problem.clean)]
    config = tiny_config(problem, beliefs="networks", simulation="transition")
    found = first_labels(problem, Correction(*log_p), config, 0)
    order = np.argsort(np.concatenate([problem.train.index, problem.clean.index]))
    scores = np.concatenate(log_p)[order]
    given, verified = (
        np.concatenate([getattr(problem.train, name), getattr(problem.clean, name)])[order]
        for name in ("labels", "clean_labels")
    )
    answer = first_labels_file.relabel(
        first_labels_file.side_by_side([scores], np.float32), given, verified, 3, by_row=False
    )
    place = np.argsort(order)
    shown = one_hot(np.concatenate([problem.train.labels, found.labels]), 3)
    validation = np.searchsorted(answer.noise.validation.rows, place[80:])
    labels = np.empty_like(found.labels)
    labels[validation] = found.labels
    said = np.concatenate([answer.posterior.final[place[:80]], answer.of_validation(labels)[validation]])
    mixed = share * said + (1 - share) * np.exp(np.concatenate(log_p))
    weights = fit_simplex_weights([shown[80:], mixed[80:].astype(np.float32)], problem.clean.clean_labels)
    np.testing.assert_allclose(found.train, (weights[0] * shown + weights[1] * mixed)[:80], atol=1e-3)

"""What clean rows show about changes: whether they fix more labels than they break, with all choices accounted for.

The margin t above which labels are changed is chosen by counts of clean rows, so the same counts would be optimistic.
Each clean row is therefore counted with a margin chosen without its fold, and changes are made only if these counts
pass a test at ALPHA. With pairs, this is the sign test of W labels fixed against L broken. Without pairs, it is a test
of the gains expected with simulated given labels, which assumes that the estimated noise is right. Where that fails,
labels may be changed to the prediction from the inputs alone, if a bound that holds whatever the noise shows a gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, betaincinv

from labelloop.relabel.bounds import at_most
from labelloop.relabel.gains import ALPHA, UNINFORMED, Counts, Sample, Tested, cross_fit, sign_test, uninformed
from labelloop.relabel.guard import KEEP_ALL, RARE, Guard, is_kept, keep_given, margins
from labelloop.relabel.learners.logistic import Array
from labelloop.relabel.noise_posterior import Noise
from labelloop.relabel.sample import differ, largest_if_absent
from labelloop.relabel.simulated_labels import RightShare, Simulated, Trial
from labelloop.relabel.stacking import Combined, ValidationRows
from labelloop.types import MISSING, Floats, Labels

FEW = 5  # clean rows of a class; one with fewer is protected as a rare one is
BORROWED = 8  # good labels that a class with few clean rows, but not a rare one, borrows from all classes together
MOST_LOST = 0.05  # of the rows of a class: labels that changes may break on balance
MOST_BROKEN = 0.2  # of the good labels of a class; one that may lose more is protected
GRID = 50  # margins that the bound is tried at
UNLIKE = 0.01  # the probability, at most, that pairs differ from noisy rows by chance


@dataclass(frozen=True)
class Evidence:
    """The validation rows, and what changes would do to them.

    Attributes:
        labels: Clean labels [M].
        fold: Their folds [M].
        weight: Of each row, over all trials together: 1, and 0 for a copy [M].
        trials: Their real or simulated given labels.
        counts: Changes to them in all trials.
    """

    labels: Labels
    fold: Labels
    weight: Array
    trials: Sequence[Trial]
    counts: Counts

    @classmethod
    def of(cls, validation: ValidationRows, trials: Sequence[Trial], classes: Labels, kept: Array) -> Evidence:
        """Counts the changes in all trials.

        Args:
            validation: The validation rows.
            trials: Their given labels.
            classes: Clean rows of every class [C].
            kept: As `kept_without` makes it [M, C].
        """
        labels, weight = validation.labels, validation.counted.astype(np.float64)  # [M], [M]
        parts: list[tuple[NDArray, ...]] = []
        for trial in trials:
            moved = Guard(classes).moves(trial.posterior, trial.given) & (trial.given != MISSING)
            moved &= ~is_kept(trial.posterior, trial.given, kept)
            right, wrong = trial.posterior.argmax(axis=1) == labels, trial.given == labels
            told = np.flatnonzero(moved & (right | wrong))
            lead = margins(trial.posterior, trial.given)[told]
            fixed, broken = weight[told] * right[told], weight[told] * wrong[told]
            slope, model = trial.slope * (fixed - broken), np.full(len(told), trial.model)
            parts.append((lead, trial.share * fixed, trial.share * broken, told, model, slope))
        counts = Counts(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        return cls(labels, validation.fold, weight, trials, counts)

    def guard(self, margin: float, classes: Labels, sizes: Array, rows: NDArray[np.bool_]) -> tuple[Guard, Array]:
        """The guard with this margin, the rest from some of the rows, and the share of good labels that it breaks [C].

        Args:
            margin: The margin.
            classes: Clean rows of every class [C].
            sizes: The estimated number of rows of every class [C].
            rows: The validation rows to count [M].
        """
        guard = replace(Guard(classes, margin), own_margin=self._own_margins(margin, len(classes), rows))
        good, broken = np.zeros(len(classes)), np.zeros(len(classes))
        for trial in self.trials:
            was_right = (trial.given == self.labels) & rows
            good += np.bincount(self.labels, trial.share * self.weight * was_right, len(good))
            lost = was_right & guard.changes(trial.posterior, trial.given)
            broken += np.bincount(self.labels, trial.share * self.weight * lost, len(good))
        erased = (broken + 0.5) / (good + 1)
        rare = sizes / sizes.sum() * len(sizes) < RARE
        most = np.where(broken < good, betaincinv(broken + 1, np.maximum(good - broken, 1e-9), 1 - ALPHA), 1.0)
        overall = (broken.sum() + 0.5) / (good.sum() + 1)
        lent = betaincinv(broken + BORROWED * overall, good - broken + BORROWED * (1 - overall), 1 - ALPHA)
        few = (classes < FEW) & (lent > MOST_BROKEN)
        protected = (classes == 0) | ((rare | few) & (most > MOST_BROKEN))
        return replace(guard.for_rare_classes(sizes, erased), protected=protected), erased

    def _own_margins(self, margin: float, classes: int, rows: NDArray[np.bool_]) -> Array:
        """Rule 6: of a class that loses too many labels, the least margin with which it would not; else 0 [C]."""
        counts = self.counts.among(rows)
        mine = counts.lead > margin
        label = self.labels[counts.row]
        won = np.bincount(label[mine], counts.fixed[mine], classes)
        lost = np.bincount(label[mine], counts.broken[mine], classes)
        counted = np.bincount(self.labels[rows], self.weight[rows], classes)
        allowed = won + MOST_LOST * counted
        found = np.zeros(classes)
        for k in np.flatnonzero(lost > allowed + 1e-6):
            hurt = np.flatnonzero(mine & (label == k) & (counts.broken > 0))
            hurt = hurt[np.argsort(-counts.lead[hurt], kind="stable")]
            too_many = counts.broken[hurt].cumsum() > allowed[k] + 1e-9
            found[k] = counts.lead[hurt][too_many][0]
        return found


def kept_without(validation: ValidationRows, posterior: Floats) -> Array:
    """For every validation row, how likely a given label of each class must be to be kept whatever else shows [M, C].

    The class of a clean row has at least one clean row: itself. Those of noisy rows may have none, and then keep their
    labels, or the likeliest ones if pairs show that there are fewer such rows than labels (rule 5 of the guard).
    Without its fold, a clean row is like a noisy one. Above 1 for a class of which a clean row is left.

    Args:
        validation: The validation rows.
        posterior: Soft labels of all rows before the guard [n, C].
    """
    observed, classes = validation.observed, posterior.shape[1]
    labels = np.bincount(observed.given[observed.given != MISSING], minlength=classes)  # [C]
    found = np.full((len(validation.rows), classes), 2.0)
    for k in np.unique(validation.fold):
        rest = validation.rows[validation.fold != k]
        most = np.ceil(largest_if_absent(observed, rest) * len(posterior)).astype(np.int64)  # [C]
        for g in np.flatnonzero(np.bincount(observed.clean[rest], minlength=classes) == 0):
            some = most[g] < labels[g]
            found[validation.fold == k, g] = np.sort(posterior[observed.given == g, g])[-most[g]] if some else 0.0
    return found


@dataclass(frozen=True)
class Bound:
    """Changes to h(x), what the inputs alone say, whose gain is bounded whatever the noise: gain >= c - 2 e.

    c is the share of noisy rows where h is more confident than t and differs from the given label. e is the share of
    rows where it is more confident than t and wrong. Where a label is changed, at most one of the two is right, and if
    h is right the change is a gain; a wrong h costs that gain, and at most one good label.

    Attributes:
        changed: Confidences of h in noisy rows where it differs from the given label, ascending [K].
        noisy: The number of noisy rows.
        wrong: Confidences of h, learnt without them, in validation rows where it is wrong; 0 where it is right [M].
            They are made as sure as those of noisy rows, since models are surer of rows that they learnt from.
        pairs: The same where h differs from their given label; 0 where it agrees, and NaN where there is none [M].
    """

    changed: Array
    noisy: int
    wrong: Array
    pairs: Array

    @classmethod
    def of(cls, validation: ValidationRows, q: Floats, q_oof: Floats, counted: NDArray[np.bool_]) -> Bound:
        """Compares h with given labels and clean labels.

        Args:
            validation: The validation rows.
            q: P(y | x) of all rows [n, C].
            q_oof: The same for the validation rows, learnt without them [M, C].
            counted: The validation rows to count: all but copies [M].
        """
        observed = validation.observed
        noisy = np.flatnonzero((observed.given != MISSING) & (observed.clean == MISSING))
        changed = noisy[q[noisy].argmax(axis=1) != observed.given[noisy]]
        alone, given = q_oof.argmax(axis=1)[counted], validation.given[counted]
        confidence = np.sort(q[changed].max(axis=1).astype(np.float64)) if len(changed) else np.zeros(0)
        known = as_sure(q_oof.max(axis=1)[counted], q[noisy].max(axis=1))
        wrong, differs = (np.where(alone == labels, 0.0, known) for labels in (validation.labels[counted], given))
        return cls(confidence, len(noisy), wrong, np.where(given == MISSING, np.nan, differs))

    def share(self, threshold: float) -> float:
        """c: the share of noisy rows that are changed with a confidence above this one."""
        return float(len(self.changed) - np.searchsorted(self.changed, threshold, "right")) / max(self.noisy, 1)

    def best_threshold(self, rows: NDArray[np.bool_]) -> float:
        """The t with the largest c - 2 e, with e at its upper bound, as counted on some validation rows [M]."""
        if not len(self.changed):
            return KEEP_ALL
        places = np.linspace(0, len(self.changed) - 1, GRID).round().astype(np.int64)
        tried = np.unique(np.append(0.0, self.changed[places]))
        count = int(rows.sum())
        wrong = np.array([(self.wrong[rows] > t).sum() for t in tried])
        upper = np.where(wrong < count, betaincinv(wrong + 1.0, np.maximum(count - wrong, 1e-9), 1 - ALPHA), 1.0)
        return float(tried[np.argmax([self.share(t) for t in tried] - 2 * upper)])

    def p_value(self, thresholds: Array) -> float:
        """The p-value of changes that do no good: if more than half of the changed noisy rows have a wrong h.

        P(X <= E) where h is wrong in E of the M validation rows, and these were drawn without replacement from
        themselves and the noisy rows. 1 if the few pairs are not like noisy rows: h differs from their labels more
        often than it can by chance, or less.

        Args:
            thresholds: A t for every validation row, chosen without it [M].
        """
        shares = {t: self.share(t) for t in np.unique(thresholds).tolist()}
        share = float(np.mean([shares[t] for t in thresholds.tolist()]))
        often, pairs = int((self.pairs > thresholds).sum()), int(np.isfinite(self.pairs).sum())
        if pairs and min(bdtr(often, pairs, share), bdtrc(often - 1, pairs, share)) < UNLIKE:
            return 1.0
        return few_wrong(int((self.wrong > thresholds).sum()), len(self.wrong), self.noisy * share, self.noisy)


def as_sure(few: Floats, many: Floats) -> Array:
    """Confidences raised to others' quantile at the same rank, so that as many are above any threshold [M]."""
    found = few.astype(np.float64)
    if len(few) and len(many):
        rank = np.arange(1, len(few) + 1) / len(few)
        order = np.argsort(found, kind="stable")
        found[order] = np.maximum(found[order], np.quantile(many.astype(np.float64), rank, method="higher"))
    return found


def few_wrong(wrong: int, rows: int, changed: float, noisy: int) -> float:
    """P(X <= wrong) of `rows` rows, if h is also wrong in more than half as many of the noisy rows as are changed."""
    if changed <= 0:
        return 1.0
    others = int(np.floor(changed / 2 + 1e-9)) + 1
    return float(at_most(wrong, rows, min(wrong + others, rows + noisy), rows + noisy))


@dataclass(frozen=True)
class Changes:
    """The guard, and how the labels that it returns do on the validation rows.

    Attributes:
        guard: Set by all validation rows.
        erased: The estimated share of good labels of every class that changes break [C].
        cross_fitted: Soft labels returned for them, learnt without them, by a guard set without them [M, C].
        expected_right: For those without a given label, the probability that the returned label is right, under each
            noise model [M, K]; NaN for the others, or if there are enough pairs.
        rows: How many validation rows count.
        given_right: The share of their given labels that are right.
        corrected_right: The share of their returned labels that are right.
    """

    guard: Guard
    erased: Array
    cross_fitted: Floats
    expected_right: Floats
    rows: int
    given_right: float
    corrected_right: float

    def given_back(self, posterior: Floats, given: Labels, least: Array) -> Changes:
        """The same where labels whose class has at least some probability were given back.

        Args:
            posterior: Soft labels of the validation rows before the guard, learnt without them [M, C].
            given: Their given labels [M], -1 where missing.
            least: The least probability of each class [C].
        """
        back = (given != MISSING) & (self.cross_fitted.argmax(axis=1) != given)
        back &= posterior[np.arange(len(given)), given] >= least[given]
        return replace(self, cross_fitted=keep_given(self.cross_fitted, np.flatnonzero(back), given))

    def record(self, posterior: Floats, targets: Floats, given: Labels, clean: Labels) -> dict[str, Any]:
        """The entry "guard" of run.json: how many labels were changed and kept, and the evidence for it.

        Args:
            posterior: Soft labels before the guard [n, C].
            targets: The soft labels returned [n, C].
            given: Given labels [n], -1 where missing.
            clean: Clean labels [n], -1 where missing.
        """
        noisy = (given != MISSING) & (clean == MISSING)
        changed = int((targets.argmax(axis=1) != given)[noisy].sum())
        held = int((posterior.argmax(axis=1) != given)[noisy].sum()) - changed
        simulated = bool(np.isfinite(self.expected_right).any())
        found = {
            "rows": int(noisy.sum()),
            "changed": changed,
            "held_back": held,
            "clean_rows": self.rows,
            "given_right": self.given_right,
            "corrected_right": self.corrected_right,
            "fixed": round(self.guard.fixed, 2),
            "broken": round(self.guard.broken, 2),
            "sure": self.guard.sure if changed and self.guard.how != "assumed" else None,
            "how": self.guard.how,
            "error_rate": ALPHA,
            "labels_simulated": simulated,
        }
        return {"line": guard_line(found), **found}


NOT_SURE = (
    "whether changes fix more than they break depends on the noise as estimated from the noisy rows, so no probability"
    " is given; clean rows that keep their given label would show it"
)


def guard_line(found: dict[str, Any]) -> str:
    """The guard's decision in one line."""
    how = "clean rows with simulated given labels" if found["labels_simulated"] else "clean rows with a given label"
    changes = f"{found['held_back']} change{'' if found['held_back'] == 1 else 's'}"
    held = f"; {changes} held back for lack of evidence" if found["held_back"] else ""
    if not found["changed"]:
        return f"all {found['rows']} given labels kept: {found['clean_rows']} {how} do not show that changes help{held}"
    if not found["clean_rows"]:
        return f"{found['changed']} of {found['rows']} given labels changed{held}; no clean row shows the effect"
    certain = NOT_SURE
    if found["sure"] is not None:
        sure = f"{100 * found['sure']:.1f}%" if found["sure"] <= 0.999 else "more than 99.9%"
        if_so = ", whatever the noise, if the clean rows are a random sample" if found.get("how") == "bounded" else ""
        certain = f"the probability that changes fix more than they break is {sure}{if_so}"
    return (
        f"{found['changed']} of {found['rows']} given labels changed{held}; on {found['clean_rows']} {how},"
        f" {100 * found['corrected_right']:.1f}% are right after correction and {100 * found['given_right']:.1f}% as"
        f" given; {certain}"
    )


def look_at_changes(
    noise: Noise,
    answer: Combined,
    noise_only: Combined,
    alone: Combined,
    posterior_given: Callable[[Labels], Floats],
    *,
    simulate: bool,
    rng: np.random.Generator,
) -> Changes:
    """Counts what changes would do to the validation rows.

    Args:
        noise: The estimated noise.
        answer: What would be returned without a guard.
        noise_only: The answer of the noise model alone.
        alone: P(y | x).
        posterior_given: Soft labels of the validation rows, learnt without them, if these were their given labels.
        simulate: Whether validation rows without a given label get simulated ones; if not, only paired ones count.
        rng: Draws the simulated labels.
    """
    validation = noise.validation
    labels, given = validation.labels, validation.given
    classes = np.bincount(labels, minlength=validation.observed.num_classes)
    trials, sample = [Trial(answer.oof, given)], None
    kept = kept_without(validation, answer.final)
    evidence = real = Evidence.of(validation, trials, classes, kept)
    if simulate:
        share = RightShare.of(validation, alone, noise.transition)
        simulated = Simulated.of(noise, posterior_given, share.value, rng)
        trials, sample = simulated.likely, Sample.of(validation, share.error)
        evidence = Evidence.of(validation, simulated.careful, classes, kept)
    passed, bounded = _tests(evidence, real, validation, alone, sample)
    sizes = answer.final.sum(axis=0, dtype=np.float64)
    guard, erased = evidence.guard(passed.all, classes, sizes, np.ones(len(labels), bool))
    fixed, broken = evidence.counts.above(passed.by_row)
    how, p = ("assumed" if simulate else "measured", passed.p_value)
    if bounded.all < KEEP_ALL:
        how, p = "bounded", bounded.p_value
    guard = replace(guard, fixed=fixed, broken=broken, alone_above=bounded.all, how=how, sure=1 - p)
    open_rows = (given == MISSING) & simulate
    expected = np.where(open_rows[:, None], np.zeros(1 + max(trial.model for trial in trials)), np.nan)
    cross_fitted, fold = np.empty_like(answer.oof), evidence.fold
    for k in np.unique(fold):
        mine = np.flatnonzero(fold == k)
        without = evidence.guard(float(passed.by_row[mine[0]]), classes, sizes, fold != k)[0]
        without = replace(without, alone_above=float(bounded.by_row[mine[0]]))
        returned = without.apply(answer.oof[mine], given[mine], noise_only.oof[mine], alone.oof[mine])
        held = is_kept(answer.oof[mine], given[mine], kept[mine])
        cross_fitted[mine] = keep_given(returned, np.flatnonzero(held), given[mine])
        own = mine[open_rows[mine]]
        for trial in trials if len(own) else ():
            handed = trial.returned(without, own, alone.oof, kept)
            expected[own, trial.model] += (handed == labels[own]) * expected.shape[1] * trial.share
    drawn = np.sum([trial.share * (trial.given == labels) for trial in trials], axis=0)
    counted = (given != MISSING) | simulate
    hits = np.where(open_rows, np.nan_to_num(expected).mean(axis=1), cross_fitted.argmax(axis=1) == labels)
    right = np.where(open_rows, drawn, given == labels)
    shares = (float(values[counted].mean()) if counted.any() else 0.0 for values in (right, hits))
    return Changes(guard, erased, cross_fitted, expected.astype(np.float32), int(counted.sum()), *shares)


def _tests(
    evidence: Evidence, real: Evidence, validation: ValidationRows, alone: Combined, sample: Sample | None
) -> tuple[Tested, Tested]:
    """The test of changes; and the bound, where given labels are simulated, that did not pass and rows are alike.

    Args:
        evidence: The validation rows, and what changes would do to them.
        real: The same with real given labels. Changes that break more of the few that there are do not pass.
        validation: The same rows.
        alone: P(y | x).
        sample: What the test of expected gains needs; None where given labels are real.
    """
    counts, fold, count, counted = evidence.counts, evidence.fold, len(evidence.labels), evidence.weight > 0
    if sample is None:
        passed = cross_fit(
            fold, lambda rows: counts.among(rows).best_margin(), lambda margins: sign_test(*counts.above(margins))
        )
    else:
        models = 1 + max(trial.model for trial in evidence.trials)
        vague = float(uninformed(alone.oof[counted], evidence.labels[counted]) > UNINFORMED)
        passed = cross_fit(
            fold,
            lambda rows: counts.among(rows).margin_of_gains(sample.among(rows)),
            lambda margins: max(vague, counts.p_of_gains(margins, models, sample), real.counts.contradict(margins)),
        )
    by_row = np.full(count, KEEP_ALL)
    if sample is None or passed.all < KEEP_ALL or differ(validation.observed, validation.rows):
        return passed, Tested(1.0, KEEP_ALL, by_row)
    bound = Bound.of(validation, alone.final, alone.oof, counted)
    bounded = cross_fit(fold[counted], bound.best_threshold, bound.p_value)
    for k in np.unique(fold[counted]):  # a copy is in the fold of its first row
        by_row[fold == k] = bounded.by_row[fold[counted] == k][0]
    return passed, replace(bounded, by_row=by_row)

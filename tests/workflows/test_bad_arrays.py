"""Arrays that cannot be used, given to `correct` and to the estimator: refused in words that say what and where."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import labelloop

TRUE = np.arange(120) % 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4)) + TRUE[:, None]
Y = np.where(RNG.random(120) < 0.3, (TRUE + 1) % 3, TRUE)
CLEAN = np.where(np.arange(120) < 40, TRUE, -1)
PROBS = np.where(np.arange(3) == Y[:, None], 0.8, 0.1)

LABELS = {
    "y of two columns": (np.stack([Y, Y], axis=1), CLEAN, r"shape \(120, 2\)"),
    "y_clean of two columns": (Y, np.stack([CLEAN, CLEAN], axis=1), r"clean.*shape \(120, 2\)"),
    "y too short": (Y[:-1], CLEAN, "120 rows of inputs, but 119 labels"),
    "y_clean too short": (Y, CLEAN[:-1], "120 rows of inputs, but 119 clean_labels"),
    "one clean row": (Y, np.where(np.arange(120) == 0, 0, -1), "only one clean row; verify more"),
    "no noisy row": (np.where(CLEAN >= 0, Y, -1), CLEAN, "no noisy row.*nothing to correct"),
}


@pytest.mark.filterwarnings("ignore:.*have no clean row")
@pytest.mark.parametrize("what", ["correct", "estimator"])
@pytest.mark.parametrize("case", LABELS)
def test_labels_that_cannot_be_used(what, case):
    y, y_clean, says = LABELS[case]
    calls = {
        "correct": lambda: labelloop.correct(y, y_clean, embeddings=X),
        "estimator": lambda: labelloop.LabelLoopClassifier(epochs=2).fit(X, y, y_clean=y_clean),
    }
    with pytest.raises(ValueError, match=says):
        calls[what]()


def test_probabilities_that_cannot_be_used():
    with pytest.raises(labelloop.DataError, match="row 0 sums to 2 and not to 1; 120 such rows"):
        labelloop.correct(Y, CLEAN, pred_probs=2 * PROBS)
    with pytest.raises(labelloop.DataError, match="120 rows, but 119 of embeddings"):
        labelloop.correct(Y, CLEAN, pred_probs=PROBS, embeddings=X[:-1])


def test_probabilities_that_repeat_the_labels_are_warned_of():
    with pytest.warns(UserWarning, match="repeat the given label in 100.0% of the rows"):
        labelloop.correct(Y, CLEAN, pred_probs=PROBS)


def test_a_class_that_only_clean_labels_have():
    clean = CLEAN.copy()
    clean[:9] = 3
    said = r"clean labels hold '3' \(9 times\), which never occur as given labels"
    wrong = pytest.raises(labelloop.DataError, match="3 columns, but there are 4 classes")
    with pytest.warns(UserWarning, match=said), wrong:
        labelloop.correct(Y, clean, pred_probs=PROBS)
    with pytest.warns(UserWarning, match=said):
        found = labelloop.correct(Y, clean, embeddings=X)
    assert found.classes.tolist() == [0, 1, 2, 3]
    assert (found.corrected_labels[:9] == 3).all()


def test_a_sparse_matrix_is_refused_in_words():
    with pytest.raises(labelloop.DataError, match=r"embeddings: a sparse matrix of shape \(120, 4\); .*toarray"):
        labelloop.correct(Y, CLEAN, embeddings=csr_matrix(X))
    with pytest.raises(labelloop.DataError, match=r"the given arrays: a sparse matrix of shape \(120, 4\)"):
        labelloop.fit(csr_matrix(X), Y, CLEAN)


DOORS = {
    "correct": lambda X, y, clean: labelloop.correct(y, clean, embeddings=X),
    "fit": lambda X, y, clean: labelloop.fit(X, y, clean, config={"epochs": 2, "rounds": 1}, progress=False),
    "estimator": lambda X, y, clean: labelloop.LabelLoopClassifier(epochs=2, warm_up=1).fit(X, y, y_clean=clean),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_mask_of_an_array_is_not_lost(door):
    masked = np.ma.masked_array(TRUE, mask=CLEAN < 0)
    hidden = np.ma.masked_array(X, mask=X > 2)
    for arrays in ((X, Y, masked), (hidden, Y, CLEAN)):
        with pytest.raises(labelloop.DataError, match=r"a masked array, whose mask would be lost; give `\.filled"):
            DOORS[door](*arrays)


@pytest.mark.parametrize("door", DOORS)
def test_labels_in_arrays_are_compared_as_those_of_a_file_are(door):
    names, clean = np.array(["ant", "bee", "cat"]), np.array(["Ant", "Bee", "Cat"])
    with pytest.raises(labelloop.DataError, match=r"share no class: .* differ only in how they are written"):
        DOORS[door](X, names[Y], np.where(CLEAN >= 0, clean[TRUE], ""))


def test_labels_that_are_no_array_are_counted():
    with pytest.raises(labelloop.DataError, match="120 rows of inputs, but 1 labels"):
        labelloop.correct(dict(enumerate(Y)), CLEAN, embeddings=X)

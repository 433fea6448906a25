"""The estimator inside scikit-learn's tools, and the inputs these hand it."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from estimator_rows import NO_CLEAN, papers, quick, three_clouds
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labelloop
from labelloop import DataError, LabelLoopClassifier, UsageError

pytestmark = pytest.mark.slow

ROWS = three_clouds()


@pytest.fixture(scope="module")
def fitted() -> LabelLoopClassifier:
    return quick().fit(ROWS.X, ROWS.y, ROWS.y_clean)


def test_in_a_pipeline_the_clean_labels_are_routed():
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), quick().set_fit_request(y_clean=True))
        pipeline.fit(ROWS.X, ROWS.y, y_clean=ROWS.y_clean)
    assert len(pipeline[-1].combination_weights_) == 2
    assert (pipeline.predict(ROWS.X) == ROWS.true).mean() > 0.9
    named = make_pipeline(StandardScaler(), quick()).fit(ROWS.X, ROWS.y, labelloopclassifier__y_clean=ROWS.y_clean)
    np.testing.assert_array_equal(named.predict_proba(ROWS.X), pipeline.predict_proba(ROWS.X))


def test_as_a_step_it_hands_on_its_features():
    with config_context(enable_metadata_routing=True):
        step = quick().set_fit_request(y_clean=True)
        pipeline = make_pipeline(step, PCA(2), LogisticRegression()).fit(ROWS.X, ROWS.true, y_clean=ROWS.y_clean)
    assert pipeline[0].transform(ROWS.X).shape == (150, 16)
    assert pipeline[0].get_feature_names_out()[:2].tolist() == ["labelloopclassifier0", "labelloopclassifier1"]
    assert pipeline.score(ROWS.X, ROWS.true) > 0.9


def test_grid_search_routes_and_slices_the_clean_labels():
    with config_context(enable_metadata_routing=True):
        asking = quick().set_fit_request(y_clean=True).set_score_request(y_clean=True)
        search = GridSearchCV(asking, {"epochs": np.array([4, 6]), "learning_rate": [1e-4, 0.05]}, cv=3)
        search.fit(ROWS.X, ROWS.y, y_clean=ROWS.y_clean)
    assert search.best_params_["learning_rate"] == 0.05
    assert len(search.best_estimator_.history_) == search.best_params_["epochs"]
    assert len(search.best_estimator_.combination_weights_) > 0
    verified = ROWS.y_clean[next(iter(StratifiedKFold(3).split(ROWS.X, ROWS.y)))[1]] >= 0
    right = search.cv_results_["split0_test_score"] * verified.sum()  # the clean rows of the fold alone count
    np.testing.assert_allclose(right, np.round(right))


@pytest.mark.parametrize("ask", [True, False])
def test_cross_validation(ask):
    with config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(y_clean=True) if ask else quick()
        scores = cross_val_score(model, ROWS.X, ROWS.y, params={"y_clean": ROWS.y_clean}, cv=3)
    assert scores.shape == (3,)
    assert (scores > 0.6).all()


def test_clone_and_pickle(fitted):
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    assert not hasattr(twin, "classes_")
    np.testing.assert_array_equal(
        twin.fit(ROWS.X, ROWS.y, ROWS.y_clean).predict_proba(ROWS.X), fitted.predict_proba(ROWS.X)
    )
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(ROWS.X), fitted.predict_proba(ROWS.X))
    np.testing.assert_array_equal(again.corrected_labels_, fitted.corrected_labels_)


def test_it_is_the_fit_of_the_library(fitted):
    config = fitted.config | {"epochs": 8, "batch_size": 32}
    result = labelloop.fit(ROWS.X, ROWS.y, ROWS.y_clean, config=config, seed=0, progress=False)
    np.testing.assert_array_equal(fitted.corrected_proba_, result.corrected_proba)
    np.testing.assert_array_equal(fitted.label_quality_, result.label_score)
    np.testing.assert_array_equal(fitted.predict_proba(ROWS.X), result.predicted_proba)
    assert fitted.stop_reason_ == result.stop_reason
    assert [row["loss"] for row in fitted.history_] == [row["loss"] for row in result.history]
    assert fitted.combination_weights_[-1].tolist() == result.rounds[-1]["weights"]
    np.testing.assert_allclose(fitted.combination_weights_.sum(axis=1), 1)


def test_a_recipe_of_the_paper_is_its_method():
    model = papers().fit(ROWS.X, ROWS.y, ROWS.y_clean)
    assert model.labels_from_ == "closed-loop"
    assert [len(row) for row in model.combination_weights_] == [4] * 3  # after epochs 3, 5 and 7; zeros at the end
    assert quick().fit(ROWS.X, ROWS.y, ROWS.y_clean).labels_from_ == "labelloop"


def test_the_random_state():
    def proba(random_state: object) -> np.ndarray:
        return quick(random_state=random_state, epochs=4).fit(ROWS.X, ROWS.y, ROWS.y_clean).predict_proba(ROWS.X)

    np.testing.assert_array_equal(proba(np.random.RandomState(3)), proba(np.random.RandomState(3)))
    assert (proba(None) != proba(None)).any()
    state = np.random.RandomState(3)
    assert (proba(state) != proba(state)).any()  # it moves on


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_is_dense(fitted, kind):
    X = kind(ROWS.X)
    model = quick().fit(X, ROWS.y, ROWS.y_clean)
    np.testing.assert_array_equal(model.corrected_proba_, fitted.corrected_proba_)
    np.testing.assert_allclose(model.predict_proba(X), fitted.predict_proba(ROWS.X), atol=1e-6)
    many = sparse.vstack([X] * 5).tocsr()
    np.testing.assert_allclose(model.transform(many)[-150:], fitted.transform(ROWS.X), atol=1e-5)


def test_a_sparse_matrix_that_would_fill_the_memory_is_refused():
    X = sparse.csr_matrix(([1.0], ([0], [0])), shape=(2000, 1_000_000))
    with pytest.raises(DataError, match="too large to be made dense"):
        quick().fit(X, np.arange(2000) % 2, np.arange(2000) % 2)


def test_a_data_frame_gives_its_names(fitted):
    names = ["width", "height", "depth", "weight"]
    frame = pa.table(dict(zip(names, (ROWS.X * [1, 10, 100, 1000]).T, strict=True)))
    model = quick().fit(frame, ROWS.y, ROWS.y_clean)
    assert model.feature_names_in_.tolist() == names
    assert model.n_features_in_ == 4
    assert not hasattr(fitted, "feature_names_in_")
    assert (model.predict(frame) == ROWS.true).mean() > 0.9  # columns with names are scaled one by one
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename_columns(["width", "height", "depth", "colour"]))
    with pytest.warns(UserWarning, match=NO_CLEAN):
        plain = quick().fit(frame, ROWS.true)
    assert plain.score(frame, ROWS.true) > 0.9


def test_images():
    images = np.random.default_rng(0).integers(0, 100, (60, 8, 8, 3), dtype=np.uint8)
    true = np.arange(60) % 3
    images[np.arange(60), :, :, true] += 120
    y_clean = np.where(np.arange(60) < 30, true, -1)
    model = quick(config={"network_options": {"widths": [4, 4, 4, 4]}}).fit(images, true, y_clean)
    assert model.model_.architecture["network"] == "small-cnn"
    assert model.predict_proba(images[:5]).shape == (5, 3)
    with pytest.raises(DataError, match="shape"):
        model.predict(images[:, :, :4])


def test_settings_are_checked():
    with pytest.raises(UsageError, match="warm_up is 3 and epochs only 3"):
        papers(epochs=3).fit(ROWS.X, ROWS.y, ROWS.y_clean)
    with pytest.raises(UsageError, match="unknown key warm_up"):  # of the default
        quick(warm_up=2).fit(ROWS.X, ROWS.y, ROWS.y_clean)
    with pytest.raises(UsageError, match="unknown recipe 'practica'"):
        quick(recipe="practica").fit(ROWS.X, ROWS.y, ROWS.y_clean)
    with pytest.raises(UsageError, match="unknown key learning_rat"):
        quick(config={"learning_rat": 1.0}).fit(ROWS.X, ROWS.y, ROWS.y_clean)
    with pytest.warns(UserWarning, match=NO_CLEAN), pytest.raises(UsageError, match="unknown key learning_rat"):
        quick(config={"learning_rat": 1.0}).fit(ROWS.X, ROWS.y)


def test_a_run_is_recorded_in_its_folder(tmp_path):
    model = quick(output_dir=tmp_path / "run").fit(ROWS.X, ROWS.y, ROWS.y_clean)
    assert {"run.json", "labels.parquet", "model.safetensors"} <= {path.name for path in (tmp_path / "run").iterdir()}
    loaded = labelloop.load_model(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict_proba(ROWS.X), model.predict_proba(ROWS.X))
    with pytest.raises(DataError, match="already holds a run"):
        model.fit(ROWS.X, ROWS.y, ROWS.y_clean)
    with pytest.warns(UserWarning, match="nothing is written to output_dir"):
        quick(output_dir=tmp_path / "plain").fit(ROWS.X, ROWS.y)
    assert not (tmp_path / "plain").exists()

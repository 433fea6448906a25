"""A trained classifier on its own: saved, loaded, and asked about inputs of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small_rows import NAMES, QUICK, quick_fit, same_result, small_images, small_rows

import labelloop

ROWS = small_rows()


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> labelloop.Result:
    y, y_clean = (np.append(NAMES, "")[labels] for labels in (ROWS.y, ROWS.y_clean))
    return quick_fit(ROWS, y=y, y_clean=y_clean, output_dir=tmp_path_factory.mktemp("model") / "run")


@pytest.fixture
def copy(result, tmp_path) -> Path:
    """The two files of the model, elsewhere."""
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).write_bytes((result.output_dir / name).read_bytes())
    return tmp_path


def test_a_loaded_model_says_what_the_fit_said(result, copy):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for folder in (result.output_dir, copy, str(copy)):
        loaded = labelloop.load_model(folder)
        assert loaded.classes.tolist() == ["ant", "bee", "cat"]
        assert loaded.column_names == result.model.column_names
        assert loaded.architecture == dict(result.model.architecture)
        np.testing.assert_array_equal(loaded.predict_proba(ROWS.X), result.predicted_proba)
        np.testing.assert_array_equal(loaded.predict(ROWS.X), NAMES[result.predicted_proba.argmax(axis=1)])
        np.testing.assert_array_equal(loaded.transform(ROWS.X), result.model.transform(ROWS.X))
    assert torch.equal(torch.get_rng_state(), before)


def test_saving_what_was_loaded_gives_the_same_files(copy, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    labelloop.load_model(copy).save(again)
    for name in ("model.json", "model.safetensors"):
        assert (again / name).read_bytes() == (copy / name).read_bytes()
    assert len(list(again.iterdir())) == 2


@pytest.mark.parametrize(
    ("labels", "kind"),
    [(lambda y: y, "i"), (lambda y: np.append([5, 50, 500], -1)[y], "i"), (lambda y: np.append(NAMES, "")[y], "U")],
    ids=["0, 1, 2", "5, 50, 500", "names"],
)
def test_predictions_are_in_the_users_own_labels(labels, kind, tmp_path):
    config = QUICK | {"epochs": 12}
    found = quick_fit(ROWS, y=labels(ROWS.y), y_clean=labels(ROWS.y_clean), config=config, output_dir=tmp_path / "run")
    for model in (found.model, labelloop.load_model(tmp_path / "run")):
        predicted = model.predict(ROWS.X)
        assert predicted.dtype.kind == kind
        assert set(predicted) <= set(labels(ROWS.true))
        assert (predicted == labels(ROWS.true)).mean() > 0.4


def test_images_are_loaded_with_their_normalisation(tmp_path):
    rows = small_images()
    config = QUICK | {"network": "small-cnn", "network_options": {}, "epochs": 3}
    found = quick_fit(rows, config=config, output_dir=tmp_path / "run")
    loaded = labelloop.load_model(tmp_path / "run")
    np.testing.assert_allclose(loaded.predict_proba(rows.X), found.predicted_proba, atol=1e-6)
    np.testing.assert_allclose(loaded.predict_proba(np.moveaxis(rows.X, 3, 1)), loaded.predict_proba(rows.X), atol=1e-6)
    with pytest.raises(labelloop.DataError, match=r"inputs of shape \(3, 7, 8\).*trained on \(3, 8, 8\)"):
        loaded.predict(rows.X[:, 1:])


def test_a_network_of_ones_own_is_made_again(tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n\n\ndef wide(input_shape, width=4):\n"
        "    return nn.Sequential(nn.Linear(input_shape[0], width), nn.ReLU())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = QUICK | {"network": "my_networks:wide", "network_options": {"width": 6}}
    found = quick_fit(ROWS, config=config, output_dir=tmp_path / "run")
    with pytest.raises(labelloop.DataError, match="names code to run, 'my_networks:wide'"):
        labelloop.load_model(tmp_path / "run")
    with pytest.warns(UserWarning, match="imports 'my_networks:wide', as trust_code allows"):
        loaded = labelloop.load_model(tmp_path / "run", trust_code=True)
    assert loaded.transform(ROWS.X).shape == (90, 6)
    np.testing.assert_array_equal(loaded.predict_proba(ROWS.X), found.predicted_proba)
    assert same_result(quick_fit(ROWS, config=config, output_dir=tmp_path / "run", resume=True), found)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (ROWS.X[:, :4], r"inputs of shape \(4,\), but the model was trained on \(5,\)"),
        (np.where(np.arange(5) == 2, np.nan, ROWS.X[:3]), r"x\[2\], row 0, 1, 2"),
        (np.zeros((0, 5)), "no row to predict"),
        (ROWS.X[0], r"inputs of shape \(5,\)"),
        ([["a"] * 5], "not numbers"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message, result):
    with pytest.raises(labelloop.DataError, match=message):
        result.model.predict(inputs)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(labelloop.DataError, match=r"model\.json is missing; is .* the folder of a finished run"):
        labelloop.load_model(tmp_path)
    (tmp_path / "labels.parquet").write_bytes(b"")  # a run of `labelloop correct` has labels alone
    with pytest.raises(labelloop.DataError, match="is a run without a model: `labelloop correct` trains none"):
        labelloop.load_model(tmp_path)


def test_weights_of_another_network_are_refused(copy):
    about = json.loads((copy / "model.json").read_text())
    (copy / "model.json").write_text(json.dumps(about | {"network_options": {"hidden": [9]}}))
    with pytest.raises(labelloop.DataError, match=r"the weights are not of the network"):
        labelloop.load_model(copy)


def test_truncated_weights_are_refused(copy):
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(labelloop.DataError, match=r"model\.safetensors is damaged"):
        labelloop.load_model(copy)

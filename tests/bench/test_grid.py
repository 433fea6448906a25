"""Grids: what becomes of a TOML file, and what is refused before anything runs."""

from __future__ import annotations

import functools
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import GRID, tiny

from labelloop.bench import pool as bench
from labelloop.bench.experiment import Experiment, check_experiments
from labelloop.bench.grid import KINDS, expand, read_grid
from labelloop.bench.pool import run_bench
from labelloop.data.datasets import DATASETS
from labelloop.errors import DataError, UsageError
from labelloop.workflows.noise import Corruption, make_noise_file


def write(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def no_process(monkeypatch):
    """A bench that would start a process fails the test."""

    def started(*_):
        raise AssertionError("a process was started")

    monkeypatch.setattr(bench, "_Worker", started)


def test_all_combinations_for_every_method(tmp_path):
    experiments = read_grid(write(tmp_path, GRID))
    assert len(experiments) == len({e.key for e in experiments}) == 8
    assert {(e.method, e.seed) for e in experiments} == {
        (method, seed)
        for method in ("closed-loop", "cross-entropy", "oracle", "logistic-corrector")
        for seed in range(2)
    }
    assert all(e.rate == 0.3 and e.clean == 60 and e.method_config.epochs == 4 for e in experiments)


def test_every_field_of_an_experiment_is_a_key():
    assert list(KINDS) == [field.name for field in fields(Experiment)]


def test_the_tables_of_settings_are_laid_over_one_another():
    content = {
        "config": {"epochs": 50, "corrector": {"hidden": 8}},
        "axes": {"config": [{}, {"warm_up": 3}], "seed": [0]},
        "methods": [{"method": "closed-loop", "config": {"corrector": {"max_epochs": 5}}}],
    }
    first, second = expand(content, "grid")
    for experiment in (first, second):
        config = experiment.method_config
        assert (config.epochs, config.corrector.hidden, config.corrector.max_epochs) == (50, 8, 5)
    assert (first.method_config.warm_up, second.method_config.warm_up) == (40, 3)
    assert content["config"] == {"epochs": 50, "corrector": {"hidden": 8}}


def test_a_rate_that_a_noise_does_not_have_makes_no_second_run():
    experiments = expand({"axes": {"noise": ["none", "symmetric"], "rate": [0.2, 0.4]}}, "grid")
    assert [(e.noise, e.rate) for e in experiments] == [("none", 0.2), ("symmetric", 0.2), ("symmetric", 0.4)]


def test_the_same_experiment_under_two_names_is_two_rows_of_one_run():
    experiments = expand({"methods": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "grid")
    assert [e.title for e in experiments] == ["a", "b"]
    assert len({e.key for e in experiments}) == 1


def test_the_key_is_that_of_the_whole_configuration():
    plain = tiny()
    assert tiny(name="another name").key == plain.key
    assert tiny(config={"momentum": 0.9}).key == plain.key  # the default, spelt out
    others = [
        tiny(seed=1), tiny(rate=0.2), tiny(clean=50), tiny(paired=True), tiny(noise="pair"), tiny(method="oracle"),
        tiny(recipe="paper"), tiny(config={"momentum": 0.8}), tiny(dataset_options={"limit": 299}),
        tiny(noise_options={"convention": "others"}),
    ]  # fmt: skip
    assert len({e.key for e in (plain, *others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datasett = 'digits'", "unknown key 'datasett'; did you mean 'dataset'"),
        ("[axes]\nsead = [1]", "unknown key 'sead'; did you mean 'seed'"),
        ("[[methods]]\nmethods = 'emlc'", "unknown key 'methods'; did you mean 'method'"),
        ("[axes]\nseed = []", "seed must be a list with at least one value"),
        ("[axes]\nseed = 3", "seed must be a list with at least one value"),
        ("axes = 3", "axes must be a table of lists"),
        ("methods = []", "methods is empty"),
        ("[methods]\nmethod = 'emlc'", r"methods must be \[\[methods\]\] entries"),
        ("seed = 1\n[axes]\nseed = [1]", r"seed is set in \[axes\] and outside it"),
        ("[axes]\nmethod = ['emlc']\n[[methods]]\nmethod = 'l2b'", r"method is set in \[axes\] and in \[\[methods\]\]"),
        ("dataset = 'digit'", "unknown data set 'digit'; did you mean 'digits'"),
        ("dataset = 3", "dataset must be a str, not 3"),
        ("noise = 'symetric'", "unknown noise 'symetric'; did you mean 'symmetric'"),
        ("method = 'closed-lop'", "unknown method 'closed-lop'; did you mean 'closed-loop'"),
        ("recipe = 'defalt'", "unknown recipe 'defalt'; did you mean 'default'"),
        ("config = { epoch = 3 }", "unknown key epoch; did you mean 'epochs'"),
        ("config = 3", "config must be a table, not 3"),
        ("[axes]\nconfig = [3]", "config must be a table, not 3"),
        ("config = { epochs = 'many' }", "epochs must be a whole number"),
        ("noise_options = { convetion = 'all' }", "no option 'convetion'; did you mean 'convention'"),
        ("noise = 'pair'\nnoise_options = { a = 1 }", "noise 'pair' has no option 'a'; it has none"),
        ("noise_options = { index = [1] }", "noise 'symmetric' has no option 'index'"),
        ("noise = 'none'\nnoise_options = { a = 1 }", "noise 'none' has no options"),
        ("noise = 'file'", "noise 'file' has one option, noise_options.path"),
        ("rate = 1.5", "rate must lie between 0 and 1"),
        ("rate = true", "rate must be a float"),
        ("clean = -1", "clean and seed must not be negative"),
        ("seed = 0.5", "seed must be a int, not 0.5"),
        ("paired = 'yes'", "paired must be a bool"),
        ("seed = ", "not valid TOML"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_when_it_is_read(text, message, tmp_path):
    with pytest.raises(UsageError, match=message) as raised:
        read_grid(write(tmp_path, text))
    assert "grid.toml" in str(raised.value)


def test_a_grid_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="no such configuration file"):
        read_grid(tmp_path / "grid.toml")


def test_a_noise_file_that_is_not_there(tmp_path):
    path = tmp_path / "labels.parquet"
    with pytest.raises(DataError, match=f"{re.escape(str(path))}: no such noise file"):
        read_grid(write(tmp_path, f"noise = 'file'\nnoise_options = {{ path = '{path}' }}"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset_options": {"limmit": 3}}, "no option 'limmit'; did you mean 'limit'"),
        ({"dataset_options": {"limit": 5000}}, "limit is 5000, but there are 1200"),
        ({"dataset": "embeddings", "dataset_options": {"root": "none.npz"}}, "no such file"),
        ({"dataset": "cifar10", "dataset_options": {"root": "none"}}, "cifar10: not found"),
        ({"clean": 300}, "num_clean is 300, but there are 300 labelled rows"),
        ({"clean": 1}, "one clean row is too few"),
        ({"clean": 0}, "names no clean rows of its own"),
        ({"noise": "asymmetric-cifar100"}, "made for the 100 classes"),
        ({"noise_options": {"convention": "some"}}, "no convention 'some'"),
        ({"noise": "matrix"}, "matrix noise needs a matrix"),
        ({"noise": "matrix", "noise_options": {"matrix": [[1.0]]}}, r"shape \(1, 1\)"),
        ({"noise": "recorded", "noise_options": {"path": "none.pt"}}, "none.pt"),
        ({"config": {"network": "resnet35"}}, "resnet35"),
        ({"config": {"network_options": {"hiden": [8]}}}, "hiden"),
        ({"config": {"weights": "none.safetensors"}}, "none.safetensors"),
    ],
)
def test_what_does_not_fit_the_data_is_refused_before_any_process_starts(
    changes, message, tmp_path, monkeypatch, no_process
):
    monkeypatch.chdir(tmp_path)
    bad = tiny(**changes)
    with pytest.raises((UsageError, DataError), match=message):
        run_bench([tiny(), bad], tmp_path / "bench", progress=False)
    assert not (tmp_path / "bench").exists()


def test_a_noise_file_of_another_data_set_is_refused_before_any_process_starts(tmp_path, no_process):
    inputs, labels = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 10
    np.savez(tmp_path / "rows.npz", x_train=inputs, y_train=labels, x_test=inputs, y_test=labels)
    make_noise_file("digits", tmp_path / "noise.parquet", Corruption(noise="symmetric", rate=0.4))
    options = {"noise": "file", "noise_options": {"path": str(tmp_path / "noise.parquet")}}
    limited = tiny(**options)
    with pytest.raises(DataError, match="was made from 1200 rows, but digits has 300: another data set"):
        run_bench([limited], tmp_path / "bench", progress=False)
    other = tiny(dataset="embeddings", dataset_options={"root": str(tmp_path / "rows.npz")}, clean=20, **options)
    with pytest.raises(DataError, match="another data set"):
        run_bench([other], tmp_path / "bench", progress=False)


def test_a_good_grid_passes_and_loads_its_data_once(tmp_path, monkeypatch):
    loaded = []
    real = DATASETS["digits"]

    @functools.wraps(real)
    def counted(*arguments, **options):
        loaded.append(options)
        return real(*arguments, **options)

    monkeypatch.setitem(DATASETS, "digits", counted)
    check_experiments(read_grid(write(tmp_path, GRID)))
    assert loaded == [{"limit": 300}]


def test_dry_run_checks_and_runs_nothing(command, tmp_path, no_process):
    code, out, _ = command("bench", write(tmp_path, GRID), "--output-dir", tmp_path / "bench", "--dry-run")
    assert code == 0
    assert len(out.splitlines()) == 8
    assert not (tmp_path / "bench").exists()
    bad = write(tmp_path, GRID.replace("limit = 300", "limit = 5000"))
    code, _, err = command("bench", bad, "--output-dir", tmp_path / "bench", "--dry-run")
    assert code == 2
    assert "limit is 5000" in err


def test_the_command_line_says_what_is_wrong(command, tmp_path, no_process):
    code, out, err = command("bench", write(tmp_path, "[axes]\nseed = []"), "--output-dir", tmp_path / "bench")
    assert (code, out) == (2, "")
    assert "seed must be a list with at least one value" in err
    code, _, err = command("bench", write(tmp_path, GRID), "--output-dir", tmp_path / "bench", "--jobs", 0)
    assert code == 2
    assert "--jobs must be at least 1" in err

"""What every method, noise and data set must keep to. New names are picked up by themselves.

That no method sees a true training label is shown in three ways. From the problem that a method is handed, nothing
that equals the true labels can be reached (and from the oracle's, it can: the search would find it). Handing the
recorder other true labels changes no method's network and no corrected label, bit for bit: the runtime holds them
under a private name, and whoever read them there would give a different result. And no file of the methods, or of
what they share in training, names them.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import quick_config, tiny, without_clocks
from toys import check_resume, toy_problem

import labelloop
from labelloop.bench.experiment import Experiment, check_experiments, run_experiment
from labelloop.config.base import TrainingConfig
from labelloop.config.build import build_config
from labelloop.data.datasets import DATASETS, load_dataset
from labelloop.data.datasets.labelled import labelled
from labelloop.errors import DataError, UsageError
from labelloop.methods import METHODS
from labelloop.noise import NOISES
from labelloop.training.runtime import Runtime
from labelloop.training.setup import resolve
from labelloop.types import Fitted, Truth
from labelloop.workflows.compose import noisy_problem, shown_to

pytestmark = pytest.mark.slow

SOURCE = Path(labelloop.__file__).parent
BLIND = [name for name in METHODS if not METHODS[name].is_oracle]
RECORDED = {
    "epoch", "loss", "test_accuracy", "given_label_accuracy", "corrected_label_accuracy", "changed_labels",
    "changed_label_accuracy", "good_labels_broken", "rarest_labels_broken", "corrected_label_nll",
    "corrected_label_ece", "seconds", "peak_memory_mib",
}  # fmt: skip


@functools.cache
def problem_and_truth():
    problem, truth, _ = noisy_problem(tiny(), load_dataset("digits", limit=300))
    return problem, truth


def fit(method: str, truth: Truth, seed: int = 0, **changes: float) -> tuple[Fitted, Runtime]:
    """A method on the tiny problem, with `truth` for the record."""
    problem = shown_to(method, problem_and_truth()[0], problem_and_truth()[1])
    plain = {"learning_rate": 0.05} | quick_config(method) | changes
    config = resolve(build_config(METHODS[method].config, plain), problem)
    runtime = Runtime(seed, "cpu", truth=truth, progress=False)
    return METHODS[method].fit(problem, config, runtime), runtime


@functools.cache
def fitted(method: str) -> tuple[Fitted, Runtime]:
    return fit(method, problem_and_truth()[1])


def same(first: Fitted, second: Fitted) -> bool:
    pairs = zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True)
    return bool((first.targets == second.targets).all()) and all(torch.equal(a, b) for a, b in pairs)


# --- methods ----------------------------------------------------------------------------------------------------------


def test_there_are_methods():
    assert len(METHODS) >= 12


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_a_frozen_configuration_a_function_and_a_few_words(method):
    found = METHODS[method]
    assert issubclass(found.config, TrainingConfig)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.config().epochs = 3
    assert 0 < len(found.clean_rows) < 50


@pytest.mark.parametrize("method", METHODS)
def test_a_method_hands_back_targets_and_records_every_epoch(method):
    result, runtime = fitted(method)
    problem = problem_and_truth()[0]
    assert result.targets.shape == (len(problem.train), problem.num_classes)
    np.testing.assert_allclose(result.targets.sum(axis=1), 1, atol=1e-4)
    assert (result.targets >= 0).all()
    assert result.stop_reason
    if result.returned is not None:
        assert result.returned.train.shape == result.targets.shape
        np.testing.assert_allclose(result.returned.train.sum(axis=1), 1, atol=1e-4)
        assert result.returned.labels_from
        assert "notes" in result.returned.estimate
    assert len(runtime.history) >= 2
    assert [row["epoch"] for row in runtime.history] == list(range(1, len(runtime.history) + 1))
    for row in runtime.history:
        assert set(row) >= RECORDED
    logits = result.model(torch.from_numpy(problem.train.inputs[:5])).logits
    assert logits.shape == (5, problem.num_classes)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_gives_the_same_again_and_leaves_the_random_state_alone(method):
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    again, _ = fit(method, problem_and_truth()[1])
    assert same(again, fitted(method)[0])
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == before_numpy).all()  # noqa: NPY002


INGREDIENTS = {"mixup": 0.7, "average_weights": 0.15}  # an average of few steps keeps a tenth or more of itself anyway


@pytest.mark.parametrize("key", ["mixup", "average_weights"])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_takes_what_training_offers(method, key):
    plain, _ = fitted(method)
    changed, _ = fit(method, problem_and_truth()[1], **{key: INGREDIENTS[key]})
    assert not same(changed, plain)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_continues_from_its_checkpoint_to_the_same_record(method, tmp_path, monkeypatch):
    """With mixup and averaged weights; the next test does without."""
    experiment = tiny(method, config=INGREDIENTS)
    whole = run_experiment(experiment, progress=False)
    epochs = len(whole["history"])
    save = Runtime.save
    for stop in sorted({1, epochs // 2, epochs - 1}):
        folder = tmp_path / str(stop)

        def save_and_stop(self, epoch, *arguments, stop=stop, **named):
            save(self, epoch, *arguments, **named)
            if epoch == stop:
                raise KeyboardInterrupt

        monkeypatch.setattr(Runtime, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, folder, progress=False)
        monkeypatch.setattr(Runtime, "save", save)
        assert without_clocks(run_experiment(experiment, folder, progress=False)) == without_clocks(whole)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_continues_with_rows_without_a_label(method, tmp_path):
    """On images with batch norm, or on numbers if it refuses those."""
    problem = toy_problem(images=True, unlabelled=7)
    plain = quick_config(method) | {"network": "small-cnn", "network_options": {"widths": [4, 6, 8, 8]}}
    config = resolve(build_config(METHODS[method].config, plain), problem)
    try:
        METHODS[method].check(problem, config)
    except UsageError:
        problem = toy_problem(unlabelled=7)
        config = resolve(build_config(METHODS[method].config, quick_config(method)), problem)
    check_resume(method, problem, config, (1,), tmp_path / "run")


# --- truth stays out --------------------------------------------------------------------------------------------------


def reachable_arrays(*roots: object) -> list[np.ndarray]:
    """Every array that one can get at from some objects, through attributes, containers, bases and closures."""
    arrays, seen, todo = [], {}, list(roots)
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | type | types.ModuleType):
            continue
        seen[id(thing)] = thing  # kept, or the id could be given to another object
        if isinstance(thing, np.ndarray):
            arrays.append(thing)
            todo.append(thing.base)
        elif isinstance(thing, dict):
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            todo += thing
        elif isinstance(thing, functools.partial):
            todo += [thing.func, thing.args, thing.keywords]
        elif isinstance(thing, types.FunctionType):
            todo += [thing.__closure__ or (), thing.__defaults__ or (), thing.__kwdefaults__ or ()]
        elif isinstance(thing, types.CellType):
            todo.append(thing.cell_contents)
        elif isinstance(thing, types.MethodType):
            todo.append(thing.__self__)
        todo += getattr(thing, "__dict__", {}).values()
    return arrays


def tells(array: np.ndarray, labels: np.ndarray, train_index: np.ndarray) -> bool:
    """Whether an array is the true labels: of the training rows or of all, as numbers or as one-hot rows."""
    if array.ndim == 2 and array.shape[1] == labels.max() + 1:
        array = array.argmax(axis=1)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        return False
    expected = {len(train_index): labels[train_index], len(labels): labels}.get(len(array))
    return expected is not None and bool((array == expected).mean() > 0.9)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("source", ["digits", "embeddings"])
def test_true_labels_cannot_be_reached_from_a_problem(source, paired, tmp_path):
    digits = load_dataset("digits")
    arrays = {"x_train": digits.inputs, "y_train": digits.labels, "x_test": digits.inputs, "y_test": digits.labels}
    np.savez(tmp_path / "rows.npz", **arrays)
    options = {"limit": 300} | ({"root": str(tmp_path / "rows.npz")} if source == "embeddings" else {})
    data = load_dataset(source, **options)
    problem, truth, _ = noisy_problem(tiny(paired=paired, noise="instance"), data)
    index = problem.train.index
    found = reachable_arrays(problem)
    assert len(found) >= 7  # inputs, and index, labels and clean labels of training and clean rows
    assert not any(tells(array, data.labels, index) for array in found)
    # The search can fail: it finds them in the oracle's problem, in the truth, and behind a function.
    assert any(tells(array, data.labels, index) for array in reachable_arrays(shown_to("oracle", problem, truth)))
    assert any(tells(array, data.labels, index) for array in reachable_arrays(truth))
    assert any(tells(array, data.labels, index) for array in reachable_arrays([lambda: data]))


@pytest.mark.parametrize("method", BLIND)
def test_no_result_depends_on_the_true_labels(method):
    _, truth = problem_and_truth()
    rng = np.random.default_rng(0)
    others = Truth(rng.permutation(truth.train_labels), truth.test)
    assert (others.train_labels != truth.train_labels).mean() > 0.5
    result, runtime = fit(method, others)
    assert same(result, fitted(method)[0])
    key = "corrected_label_accuracy"
    assert runtime.history[-1][key] != fitted(method)[1].history[-1][key]  # the recorder did look


def test_no_result_depends_on_the_test_rows():
    for method in BLIND:
        assert same(fit(method, Truth())[0], fitted(method)[0]), method


def test_only_the_recorder_names_the_truth():
    looked_at, found = 0, []
    for path in [*(SOURCE / "methods").rglob("*.py"), *(SOURCE / "training").rglob("*.py")]:
        looked_at += 1
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {getattr(node, "id", ""), getattr(node, "attr", "")}
            if isinstance(node, ast.ImportFrom):
                names |= {alias.name for alias in node.names}
            if names & {"Truth", "truth", "_truth", "train_labels", "is_oracle"}:
                found.append(path.relative_to(SOURCE).as_posix())
    assert looked_at > 20
    # methods/__init__.py says which method is the oracle, and no more.
    assert set(found) == {"training/runtime.py", "methods/__init__.py"}


# --- noises and data sets ---------------------------------------------------------------------------------------------


def data_for(noise: str, folder: Path) -> tuple[dict, object]:
    """Options and a data set on which a noise can be drawn."""
    classes = 100 if noise == "asymmetric-cifar100" else 10
    rng = np.random.default_rng(0)
    labels = np.arange(1000) % classes
    inputs = rng.integers(0, 256, (1000, 4, 4, 3), dtype=np.uint8)
    names = [str(n) for n in range(classes)]
    data = labelled("digits", "here", (inputs, labels), (inputs[:10], labels[:10]), names)
    options = {}
    if noise == "matrix":
        options = {"matrix": (0.7 * np.eye(10) + 0.03).tolist()}
    if noise == "recorded":
        human = {"clean_label": labels, "worse_label": np.where(rng.random(1000) < 0.4, (labels + 1) % 10, labels)}
        torch.save(human, folder / "human.pt")
        options = {"path": str(folder / "human.pt"), "key": "worse_label"}
    return options, data


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("noise", NOISES)
def test_a_noise_gives_every_method_the_same_labels_and_says_its_rate(noise, tmp_path):
    options, data = data_for(noise, tmp_path)
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    drawn = {
        (method, again): noisy_problem(
            Experiment(noise=noise, noise_options=options, rate=0.4, clean=100, method=method, seed=3), data
        )
        for method in ("labelloop", "cross-entropy")
        for again in range(2)
    }
    (problem, truth, noisy), *others = drawn.values()
    assert len(others) == 3
    for other, _, _ in others:
        assert (other.train.labels == problem.train.labels).all()
        assert (other.clean.index == problem.clean.index).all()
    wrong = (problem.train.labels != truth.train_labels).mean()
    assert 0.1 < wrong < 0.6
    assert 0 < noisy.rate < 1
    assert (noisy.matrix is None) == (noise in ("instance", "recorded"))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_data_set_that_is_not_there_is_known_before_anything_runs(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("LABELLOOP_DATA", str(tmp_path))
    experiment = Experiment(dataset=dataset, clean=100, method="cross-entropy")
    if dataset == "digits":
        check_experiments([experiment])
        return
    with pytest.raises((DataError, UsageError)) as raised:
        check_experiments([experiment])
    assert dataset in str(raised.value)
    with pytest.raises(UsageError, match="has no option 'lmit'"):
        load_dataset(dataset, lmit=3)


# --- one file, one line -----------------------------------------------------------------------------------------------

NEW_METHOD = '''
"""Says the most frequent label of every row."""

from dataclasses import dataclass

import numpy as np

from labelloop.config.base import TrainingConfig
from labelloop.training.setup import new_classifier
from labelloop.splits import one_hot
from labelloop.types import Fitted


@dataclass(frozen=True)
class Config(TrainingConfig):
    pass


def fit(problem, config, runtime):
    model = runtime.prepare(new_classifier(config, problem, runtime.seed))
    most = np.bincount(problem.train.labels).argmax()
    targets = one_hot(np.full(len(problem.train), most), problem.num_classes)
    for epoch in runtime.epochs(config.epochs):
        runtime.record(epoch, model, problem, targets, {"loss": 0.0})
    return Fitted(model, targets, (), "epoch limit")
'''

# One process imports torch and forks for every copy of the sources, each of which imports the package anew.
TRY_COPIES = """
import json, os, sys
import numpy, pyarrow.compute, pyarrow.csv, pyarrow.parquet, scipy.optimize, scipy.special, sklearn.datasets
import torch, torch._dynamo, tqdm

for copy, wanted, method in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        sys.path.insert(0, copy)
        import labelloop
        from labelloop.bench.experiment import Experiment, run_experiment
        from labelloop.bench.grid import expand
        from labelloop.methods import METHODS
        import labelloop.bench.pool, labelloop.workflows.demo, labelloop.cli

        assert labelloop.__file__.startswith(copy), labelloop.__file__
        assert sorted(METHODS) == sorted(wanted), sorted(METHODS)
        quick = {"epochs": 2, "network_options": {"hidden": [8]}}
        quick |= {"rounds": 0, "learners": "networks"} if method == "labelloop" else {}
        grid = {"dataset_options": {"limit": 200}, "clean": 50, "methods": [{"method": method, "config": quick}]}
        record = run_experiment(expand(grid, "grid")[0], progress=False)
        assert len(record["history"]) == 2
        print("fine", method, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, copy
"""


def copy_of(folder: Path, name: str) -> Path:
    shutil.copytree(SOURCE, folder / name / "labelloop")  # with what is compiled, which saves seconds
    return folder / name


def test_a_method_is_its_file_and_its_line(tmp_path):
    """A method's file and lines can be deleted, but for three that others need; one can be added."""
    listing = (SOURCE / "methods" / "__init__.py").read_text(encoding="utf-8").splitlines(keepends=True)
    lines: dict[str, list[str]] = {}
    for line in listing:
        if '": _method("' in line:
            lines.setdefault(line.split('_method("')[1].split('"')[0], []).append(line)
    assert sum(map(len, lines.values())) == len(METHODS)
    tried = []
    needed = ("labelloop", "closed_loop", "cross_entropy")  # the default, the one to refit, the plain one
    free = {module: own for module, own in lines.items() if module not in needed}
    assert len(free) == len(lines) - 3 >= 8
    for module, own in list(free.items())[::4]:  # that no method imports another is held by the architecture test
        copy = copy_of(tmp_path, f"without-{module}")
        place = copy / "labelloop" / "methods" / f"{module}.py"
        if place.is_file():
            place.unlink()
        else:
            shutil.rmtree(place.with_suffix(""))
        rest = "".join(line for line in listing if line not in own)
        (place.parent / "__init__.py").write_text(rest, encoding="utf-8")
        gone = {line.split('"')[1] for line in own}
        tried.append((str(copy), sorted(METHODS.keys() - gone), "cross-entropy" if tried else "labelloop"))
    copy = copy_of(tmp_path, "with-majority")
    methods = copy / "labelloop" / "methods"
    (methods / "majority.py").write_text(NEW_METHOD, encoding="utf-8")
    last = max(number for number, line in enumerate(listing) if '": _method("' in line) + 1
    added = [*listing[:last], '    "majority": _method("majority", "not used"),\n', *listing[last:]]
    (methods / "__init__.py").write_text("".join(added), encoding="utf-8")
    tried.append((str(copy), sorted({*METHODS, "majority"}), "majority"))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(TRY_COPIES), json.dumps(tried)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("fine labelloop") == 1  # one is enough to show that nothing of it is missed
    assert run.stdout.count("fine cross-entropy") == len(tried) - 2 >= 2
    assert run.stdout.count("fine majority") == 1

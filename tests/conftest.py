"""Settings for every test: one thread per process, and where the real data is, if it is anywhere."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")  # forked.py relies on it
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if BESIDE.is_dir():
    os.environ.setdefault("LABELLOOP_DATA", str(BESIDE))

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("tests", deadline=None)  # a busy machine is no error
settings.load_profile("tests")


CANDIDATES = ("TREES", "STRENGTHS", "ALIKE", "NOISE_MODELS", "CLEAN_LEARNERS")  # of labelloop.relabel.calibration


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with CIFAR-10 and the rest; the test is skipped where there is none."""
    place = os.environ.get("LABELLOOP_DATA")
    if place and Path(place).is_dir():
        return Path(place)
    pytest.skip("no real data here: set LABELLOOP_DATA to the folder that holds it")


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for each cache; pytest would list all folders of all tests to number another one."""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_cache(_caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds or leaves features in the user's own cache."""
    monkeypatch.setenv("LABELLOOP_CACHE", str(next(_caches)))


@pytest.fixture(scope="session")
def _relabellings() -> tuple[dict[str, Any], dict[str, Any]]:
    """What decides how long relabelling takes: as it is, and for small runs."""
    from labelloop.relabel import calibration
    from labelloop.relabel.learners import trees

    real = {f"{trees.__name__}.MOST_WORK": trees.MOST_WORK}
    real |= {f"{calibration.__name__}.{name}": getattr(calibration, name) for name in CANDIDATES}
    small = {f"{trees.__name__}.MOST_WORK": 6_000}
    for name, found in real.items():
        if isinstance(found, dict):
            small[name] = {family: candidates[:1] for family, candidates in found.items()}
        elif isinstance(found, tuple):
            small[name] = found[:1]
    return real, small | {f"{calibration.__name__}.TREES": 10}


@pytest.fixture(autouse=True, scope="module")
def _small_relabelling(request: pytest.FixtureRequest, _relabellings: Any) -> Iterator[None]:
    """Ten to twenty trees, and one candidate of each family, wherever a test is not about relabelling.

    Relabelling takes most of a small run. Fixtures of a module have the same as its tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in ("relabel", "properties"):
            _set(patch, _relabellings[1])
        yield


@pytest.fixture(autouse=True)
def _real_relabelling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _relabellings: Any) -> None:
    if request.node.get_closest_marker("real_relabelling"):
        _set(monkeypatch, _relabellings[0])


def _set(patch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    for name, value in values.items():
        patch.setattr(name, value)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the disk changes no file, only what a power cut leaves; the rooms that are about that do wait."""
    if request.path.parent.name not in ("runs", "torture", "trust"):
        monkeypatch.setattr("os.fsync", lambda handle: None)

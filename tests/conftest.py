"""Settings for every test: one thread per process, and where the real data is, if it is anywhere."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")  # forked.py relies on it
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if BESIDE.is_dir():
    os.environ.setdefault("LABELLOOP_DATA", str(BESIDE))

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("tests", deadline=None)  # a busy machine is no error
settings.load_profile("tests")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with CIFAR-10 and the rest; the test is skipped where there is none."""
    place = os.environ.get("LABELLOOP_DATA")
    if place and Path(place).is_dir():
        return Path(place)
    pytest.skip("no real data here: set LABELLOOP_DATA to the folder that holds it")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds or leaves features in the user's own cache."""
    monkeypatch.setenv("LABELLOOP_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _few_trees(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forests of ten to twenty trees wherever a test is not about relabelling: they take half of a small run."""
    if request.path.parent.name not in ("relabel", "properties") and not request.node.get_closest_marker("all_trees"):
        monkeypatch.setattr("labelloop.relabel.learners.trees.MOST_WORK", 6_000)
        monkeypatch.setattr("labelloop.relabel.calibration.TREES", 10)

"""The manifest: every finished run has one, every reader compares, and `labelloop verify` says what is wrong."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from strangers import ROWS, corrected_run, told

from labelloop.errors import DataError
from labelloop.runs.folder import RunFolder, read_metrics
from labelloop.runs.manifest import MANIFEST
from labelloop.runs.read import read_run
from labelloop.runs.result_files import read_preview
from labelloop.runs.reviews import REVIEWS, Answer, append_answers, read_answers
from labelloop.runs.run_json import RunRecord
from labelloop.runs.survey import survey
from labelloop.trained_model import load_model
from labelloop.training.checkpoint import WithinEpoch

PAPER = (
    "--recipe",
    "paper",
    *(f"--set={text}" for text in ("epochs=3", "warm_up=1", "correct_every=1", "network=mlp", "augment=none")),
)
RESULTS = {"run.json", "labels.parquet", "targets.npy", "features.npz", "preview.parquet"}
OF_FIT = RESULTS | {"metrics.jsonl", "model.json", "model.safetensors"}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fitted")
    (place / "rows.csv").write_text(ROWS)
    ended = told("fit", place / "rows.csv", "--output-dir", place / "run", "--quiet", *PAPER)
    assert ended.code == 0, ended.err
    return place / "run"


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def use(run: Path, name: str) -> None:
    """Reads a file of a run as the commands do."""
    if name in ("model.json", "model.safetensors"):
        load_model(run)
    elif name == "features.npz":
        read_run(run).row_arrays()
    elif name == "metrics.jsonl":
        read_metrics(run)
    elif name == "preview.parquet":
        read_preview(run)
    else:
        read_run(run)


def test_every_result_is_listed_and_whole(fitted: Path, tmp_path: Path) -> None:
    assert set(json.loads((fitted / MANIFEST).read_text())["files"]) == OF_FIT
    assert set(json.loads((corrected_run(tmp_path / "run") / MANIFEST).read_text())["files"]) == RESULTS
    ended = told("verify", fitted)
    assert ended.code == 0, ended.out
    assert ended.out.count("whole    ") >= len(OF_FIT)
    assert told("export", fitted, "--to", "model", "--output", tmp_path / "model").code == 0
    assert told("verify", tmp_path / "model").code == 0
    assert told("predict", tmp_path / "model", fitted.parent / "rows.csv").code == 0


@pytest.mark.parametrize("name", sorted(OF_FIT))
def test_no_flipped_bit_is_believed(fitted: Path, tmp_path: Path, name: str) -> None:
    """24 single bits of every file, each refused by its reader and by `verify`."""
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    whole = (run / name).read_bytes()
    for bit in np.random.default_rng(1).integers(0, 8 * len(whole), 24).tolist():
        flip(run / name, bit)
        with pytest.raises(DataError):
            use(run, name)
        (run / name).write_bytes(whole)
    flip(run / name, 4567)
    ended = told("verify", run)
    assert (ended.code, f"damaged  {name}" in ended.out) == (1, True)
    (run / name).write_bytes(whole)
    use(run, name)
    (run / name).unlink()
    with pytest.raises(DataError, match=r"missing|not a|no " if name != "run.json" else "no run.json"):
        use(run, name)
    assert told("verify", run).code == 1


def test_a_damaged_manifest_is_no_missing_one(fitted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    whole = (run / MANIFEST).read_bytes()
    for bit in np.random.default_rng(2).integers(0, 8 * len(whole), 200).tolist():
        flip(run / MANIFEST, bit)
        same = False
        with contextlib.suppress(ValueError):
            same = json.loads((run / MANIFEST).read_text()) == json.loads(whole)  # a space that became a tab
        if not same:
            with pytest.raises(DataError):
                read_run(run)
        (run / MANIFEST).write_bytes(whole)
    (run / MANIFEST).write_bytes(whole[:-9])
    assert told("verify", run).code == 1


def test_a_report_shows_nothing_of_a_damaged_file(fitted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    flip(run / "labels.parquet", 4321)
    found = survey(run)
    assert found.labels is None
    assert any("labels.parquet is damaged" in text for text in found.missing)
    assert told("export", run, "--to", "csv", "--output", tmp_path / "x.csv").code == 1
    assert told("refit", run, "--clean-file", tmp_path / "none.csv", "--output-dir", tmp_path / "new").code == 1


def test_foreign_files_are_named_and_no_error(fitted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    (run / "notes.txt").write_text("mine")
    ended = told("verify", run)
    assert (ended.code, "foreign  notes.txt" in ended.out) == (0, True)


def test_a_run_of_an_older_version_opens_with_a_word(fitted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    (run / MANIFEST).unlink()
    with pytest.warns(UserWarning, match="damage cannot be noticed"):
        read_run(run)
    load_model(run)
    assert any("damage cannot be noticed" in text for text in survey(run).missing)
    ended = told("verify", run)
    assert (ended.code, "an older version wrote it" in ended.out) == (0, True)


def test_an_unfinished_run_has_no_manifest(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_record(RunRecord(state="finished"))
    assert (tmp_path / "run" / MANIFEST).exists()
    folder.write_record(RunRecord(state="running"))
    assert not (tmp_path / "run" / MANIFEST).exists()
    ended = told("verify", tmp_path / "run")
    assert (ended.code, "not finished" in ended.out) == (0, True)


def test_no_flipped_bit_changes_a_decision(tmp_path: Path) -> None:
    said = [Answer(f"key-{k:08d}", k, f"r{k}", "ann", "label", "cat" if k % 2 else "dog", "now") for k in range(3)]
    append_answers(tmp_path, said)
    whole = (tmp_path / REVIEWS).read_bytes()
    assert read_answers(tmp_path)[0] == said
    believed = 0
    for bit in range(0, 8 * len(whole), 3):
        flip(tmp_path / REVIEWS, bit)
        try:
            found = read_answers(tmp_path)[0]
            believed += found not in (said, said[:-1])  # without its end, the last line was never confirmed
        except DataError:
            pass
        (tmp_path / REVIEWS).write_bytes(whole)
    assert believed == 0


def test_an_answer_that_a_crash_cut_short_does_not_count(tmp_path: Path) -> None:
    said = [Answer(f"key-{k:08d}", k, f"r{k}", "ann", "keep", "cat", "now") for k in range(3)]
    append_answers(tmp_path, said[:2])
    whole = (tmp_path / REVIEWS).read_bytes()
    for length in range(len(whole.split(b"\n")[0]) + 2, len(whole)):
        (tmp_path / REVIEWS).write_bytes(whole[:length])
        append_answers(tmp_path, said[2:])
        found = read_answers(tmp_path)[0]
        assert found in ([said[0], said[2]], said), length


def test_a_checkpoint_of_epochs_that_never_ran_is_refused(fitted: Path, tmp_path: Path) -> None:
    """`"epoch": 99` once skipped the training, and reported success."""
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    state = run / "checkpoint" / "state.json"
    command = ("fit", fitted.parent / "rows.csv", "--output-dir", run, "--quiet", "--resume", *PAPER)
    whole = json.loads(state.read_text())
    changes: list[dict[str, object]] = [{"epoch": 99}, {"epoch": 2}, {"values": {}}]
    for changed in changes:
        state.write_text(json.dumps({**whole, **changed}))
        ended = told(*command)
        assert (ended.code, "state.json" in ended.err) == (1, True), ended.err
    older = {key: value for key, value in whole.items() if key != "sha256"}
    state.write_text(json.dumps({**older, "epoch": 99}))
    ended = told(*command)
    assert (ended.code, "epoch is 99, but 3 is the last one" in ended.err) == (1, True), ended.err
    state.write_text(json.dumps(older))
    assert told(*command).code == 0


@pytest.mark.parametrize(
    "change",
    [
        {"values": {}},
        {"files": {}},
        {"optimizer": {"param_groups": [], "scalars": {}}},
    ],
)
def test_a_checkpoint_of_another_network_is_one_line(fitted: Path, tmp_path: Path, change: dict[str, object]) -> None:
    """As an older version wrote it, without a checksum: a stranger need not write one."""
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    state = run / "checkpoint" / "state.json"
    content = {key: value for key, value in json.loads(state.read_text()).items() if key != "sha256"}
    state.write_text(json.dumps({**content, **change}))
    ended = told("fit", fitted.parent / "rows.csv", "--output-dir", run, "--quiet", "--resume", *PAPER)
    assert (ended.code, ended.err.count("\n"), "state.json is damaged" in ended.err) == (1, 1, True), ended.err


def test_no_flipped_bit_within_an_epoch_is_believed(tmp_path: Path) -> None:
    """within.json says how many steps of an epoch are done; a damaged one costs the epoch, and changes nothing."""
    network = torch.nn.Linear(2, 2)
    place = WithinEpoch(tmp_path, network, torch.optim.SGD(network.parameters(), 0.1), every=0.0)
    place.after_step(1, 13, torch.tensor(1.0), network)
    whole = (tmp_path / "within.json").read_bytes()
    assert place.resume(1, network) == (13, 1.0)
    draw = random.Random(2)
    for _ in range(60):
        changed = bytearray(whole)
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        (tmp_path / "within.json").write_bytes(changed)
        assert place.resume(1, network) == (0, 0.0)
    content = {key: value for key, value in json.loads(whole).items() if key != "sum"}
    (tmp_path / "within.json").write_text(json.dumps({**content, "step": 17}))
    assert place.resume(1, network) == (0, 0.0)

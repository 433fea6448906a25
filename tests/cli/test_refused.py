"""A run that its method refuses leaves the folder free, and flags are written in full."""

from __future__ import annotations

import numpy as np


def write(path, paired: bool) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    given = np.where(np.arange(80) < 20, labels if paired else -1, labels)
    clean = np.where(np.arange(80) < 20, labels, -1)
    np.savez(path, X=rng.normal(size=(80, 3)) + labels[:, None], y=given, y_clean=clean)


def test_a_method_that_refuses_leaves_the_folder_free(labelloop, tmp_path):
    write(tmp_path / "rows.npz", paired=False)
    flags = ("fit", tmp_path / "rows.npz", "--output-dir", tmp_path / "run", "--method", "co-teaching", "--missing=-1")
    refused = labelloop(*flags, "--set", "epochs=2")
    assert refused.code == 2
    assert "noise_rate" in refused.err
    assert not (tmp_path / "run" / "run.json").exists()
    done = labelloop(*flags, "--set", "epochs=2", "--set", "noise_rate=0.2")
    assert done.code == 0, done.err


def test_a_flag_cut_short_is_refused(labelloop, tmp_path):
    write(tmp_path / "rows.npz", paired=True)
    ended = labelloop("fit", tmp_path / "rows.npz", "--output-dir", tmp_path / "run", "--label-colum", "y")
    assert ended.code == 2
    assert "--label-colum" in ended.err


def test_a_noise_file_without_clean_rows_keeps_those_of_the_table(labelloop, tmp_path):
    write(tmp_path / "rows.npz", paired=True)
    made = labelloop(
        "noise", tmp_path / "rows.npz", "--noise", "symmetric", "--rate", "0.2", "--output", tmp_path / "noise.parquet"
    )
    assert made.code == 0, made.err
    fitted = labelloop(
        *("fit", tmp_path / "rows.npz", "--noisy-labels", tmp_path / "noise.parquet", "--output-dir", tmp_path / "run"),
        *("--set", "epochs=4", "--set", "rounds=0"),
    )
    assert fitted.code == 0, fitted.err


def test_a_place_that_cannot_be_written_is_named_with_what_to_do(labelloop, tmp_path):
    write(tmp_path / "rows.npz", paired=True)
    data = tmp_path / "rows.npz"
    done = labelloop("fit", data, "--output-dir", data / "run", "--method", "cross-entropy", "--set", "epochs=2")
    assert (done.code, "Errno" in done.err) == (1, False)
    assert f"{tmp_path}" in done.err
    assert "check the path" in done.err


def test_what_is_read_is_never_written_over(labelloop, tmp_path):
    rng = np.random.default_rng(0)
    names = np.array(["ant", "bee"])[np.arange(80) % 2]
    lines = [f"{rng.normal():.3f},{name},{name if i % 4 == 0 else ''}" for i, name in enumerate(names)]
    (data := tmp_path / "rows.csv").write_text("\n".join(["x,label,clean_label", *lines]) + "\n")
    (link := tmp_path / "link.csv").symlink_to(data)
    (verified := tmp_path / "verified.csv").write_text("id,clean_label\n1,ant\n")
    before = data.read_bytes()
    for output in (data, link):
        ended = labelloop("correct", data, "--output", output, "--overwrite")
        assert (ended.code, ended.out) == (1, "")
        assert f"{output} is what is read here, and is never replaced; give another name" in ended.err
        ended = labelloop("predict", tmp_path / "run", data, "--output", output, "--overwrite")
        assert "is what is read here" in ended.err
    ended = labelloop("correct", data, "--clean-file", verified, "--output", verified, "--overwrite")
    assert "is what is read here" in ended.err
    assert (data.read_bytes(), verified.read_text()) == (before, "id,clean_label\n1,ant\n")


def test_an_empty_path_is_not_the_current_folder(labelloop, tmp_path, monkeypatch):
    write(tmp_path / "rows.npz", paired=True)
    monkeypatch.chdir(tmp_path)
    for command in ("fit", "correct"):
        ended = labelloop(command, "rows.npz", "--output-dir", "")
        assert ended.code == 2
        assert "--output-dir: the path is empty" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]

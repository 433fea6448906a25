"""Clothing1M: a tiny folder in exactly the official layout, and what can be wrong with one."""

from __future__ import annotations

import numpy as np
import pytest

from labelloop.data.datasets import load_dataset
from labelloop.errors import DataError, UsageError

NAMES = [
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker"),
    *("Jacket", "Down Coat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
]
COUNTS = {"noisy_train": 30, "clean_train": 28, "clean_val": 14, "clean_test": 15}
LABELS = {part: [(3 * i + k) % 14 for i in range(count)] for k, (part, count) in enumerate(COUNTS.items())}
KEYS = {
    part: [f"images/{i % 10}/{k}{i % 3}/{k}{i:04d},{i * 17 % 1000}.jpg" for i in range(count)]
    for k, (part, count) in enumerate(COUNTS.items())
}


@pytest.fixture
def folder(tmp_path):
    """The folder Clothing1M; each image is of one colour, so that it can be told which was read."""
    from PIL import Image

    folder = tmp_path / "Clothing1M"
    for k, keys in enumerate(KEYS.values()):
        for i, key in enumerate(keys):
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (30, 40), (8 * i, 60 * k, 128)).save(folder / key)
    (folder / "category_names_eng.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    for part, keys in KEYS.items():
        (folder / f"{part}_key_list.txt").write_text("\n".join(keys) + "\n", encoding="utf-8")
    # As published: shuffled, with noisy labels of some clean images too, and clean ones of all three clean parts.
    noisy = [f"{key} {label}" for key, label in zip(KEYS["noisy_train"], LABELS["noisy_train"], strict=True)]
    noisy += [f"{key} 13" for key in KEYS["clean_train"][::2]]
    clean = [f"{k} {y}" for part in list(COUNTS)[1:] for k, y in zip(KEYS[part], LABELS[part], strict=True)]
    for file, lines in (("noisy_label_kv.txt", noisy), ("clean_label_kv.txt", clean)):
        order = np.random.default_rng(0).permutation(len(lines))
        (folder / file).write_text("".join(lines[i] + "\n" for i in order), encoding="utf-8")
    return folder


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_official_layout(folder):
    data = load_dataset("clothing1m", folder.parent)
    assert (data.name, data.class_names) == ("clothing1m", tuple(NAMES))
    assert data.labels.tolist() == [-1] * 30 + LABELS["clean_train"]
    assert data.given_labels.tolist() == LABELS["noisy_train"] + [-1] * 28
    assert data.clean_index.tolist() == list(range(30, 58))
    assert data.test_labels.tolist() == LABELS["clean_test"]
    assert (len(data.inputs), len(data.test_inputs)) == (58, 15)
    assert data.inputs.path(2) == folder / KEYS["noisy_train"][2]
    assert data.inputs.path(31) == folder / KEYS["clean_train"][1]
    assert data.test_inputs.path(14) == folder / KEYS["clean_test"][14]
    assert data.inputs[0].shape == (3, 224, 224)
    assert data.fingerprint == load_dataset("clothing1m", folder).fingerprint


def test_the_clean_rows_come_from_the_part_that_is_asked_for(folder):
    data = load_dataset("clothing1m", folder, clean_source="clean_val")
    assert data.labels[data.clean_index].tolist() == LABELS["clean_val"]
    assert data.inputs.path(30) == folder / KEYS["clean_val"][0]


@pytest.mark.parametrize(("fraction", "each"), [(0.5, 1), (1, 2)])
def test_a_share_of_the_clean_rows_takes_every_class_alike(folder, fraction, each):
    data = load_dataset("clothing1m", folder, clean_fraction=fraction, seed=3)
    assert np.bincount(data.labels[data.clean_index]).tolist() == [each] * 14
    for row in data.clean_index:
        key = str(data.inputs.path(int(row)).relative_to(folder)).replace("\\", "/")
        assert data.labels[row] == LABELS["clean_train"][KEYS["clean_train"].index(key)]


def test_the_share_is_fixed_by_the_seed(folder):
    paths = []
    for seed in (0, 0, 1):
        data = load_dataset("clothing1m", folder, clean_fraction=0.1, seed=seed)
        assert len(data.clean_index) == 3
        paths.append([data.inputs.path(int(i)) for i in data.clean_index])
    assert paths[0] == paths[1] != paths[2]


def test_paired_clean_rows_keep_their_noisy_label_where_there_is_one(folder):
    data = load_dataset("clothing1m", folder, paired=True)
    assert data.given_labels[data.clean_index].tolist() == [13, -1] * 14


def test_limit_leaves_the_clean_and_the_test_rows(folder):
    data = load_dataset("clothing1m", folder, limit=4)
    assert data.given_labels[:4].tolist() == LABELS["noisy_train"][:4]
    assert (len(data), data.clean_index[0], len(data.test_labels)) == (32, 4, 15)
    with pytest.raises(UsageError, match="limit is 31, but there are 30"):
        load_dataset("clothing1m", folder, limit=31)


def test_missing_files_are_counted_and_named(folder):
    for key in KEYS["noisy_train"][:7]:
        (folder / key).unlink()
    first = KEYS["noisy_train"][0]
    with pytest.raises(DataError, match=f"7 images in the key lists are missing: {first}, .* and 2 more; unp"):
        load_dataset("clothing1m", folder)
    (folder / KEYS["clean_test"][0]).unlink()
    with pytest.raises(DataError, match="8 images"):
        load_dataset("clothing1m", folder)


@pytest.mark.parametrize("part", ["clean_train", "clean_val", "clean_test"])
def test_lists_must_not_overlap(folder, part):
    change(folder / f"{part}_key_list.txt", KEYS[part][1], KEYS["noisy_train"][5])
    with pytest.raises(DataError, match=f"1 images are in the key lists of both noisy_train and {part}: ima"):
        load_dataset("clothing1m", folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("clean_label_kv.txt", KEYS["clean_train"][3], "images/other.jpg", "has no label for 1 images in the key list"),
        ("clean_label_kv.txt", KEYS["clean_test"][3], "images/other.jpg", "has no label for 1 images in the key list"),
        (
            "noisy_label_kv.txt",
            KEYS["noisy_train"][2] + " 6",
            KEYS["noisy_train"][2] + " 14",
            "label 14 of row 2 is not",
        ),
        ("noisy_label_kv.txt", KEYS["noisy_train"][2] + " 6", KEYS["noisy_train"][2], "expected the path of an image"),
        ("noisy_label_kv.txt", KEYS["noisy_train"][2] + " 6", KEYS["noisy_train"][2] + " Suit", "line .* is 'images/"),
        ("category_names_eng.txt", "Underwear", "", "is not a class: there are 13"),
        ("clean_val_key_list.txt", KEYS["clean_val"][0], KEYS["clean_val"][1], "names 1 images more than once"),
    ],
)
def test_wrong_lines_are_refused(folder, file, old, new, message):
    change(folder / file, old, new)
    with pytest.raises(DataError, match=message):
        load_dataset("clothing1m", folder)


def test_a_missing_list_is_refused(folder):
    (folder / "clean_val_key_list.txt").unlink()
    with pytest.raises(DataError, match=r"clean_val_key_list.txt: cannot be read"):
        load_dataset("clothing1m", folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clean_source": "clean_trian"}, "unknown part 'clean_trian'; did you mean 'clean_train'"),
        ({"clean_source": "clean_test"}, "clean_source: unknown part 'clean_test'"),
        ({"clean_fraction": 0}, "clean_fraction is 0: give a number above 0"),
        ({"clean_fraction": 10}, "clean_fraction is 10"),
        ({"clean_fraction": "all"}, "clean_fraction is 'all'"),
        ({"clean_fraction": 0.001}, "leaves none of the 28 clean rows"),
        ({"paired": "no"}, "paired is 'no': give True or False"),
    ],
)
def test_bad_options_are_refused(folder, options, message):
    with pytest.raises(UsageError, match=message):
        load_dataset("clothing1m", folder, **options)


def test_where_there_is_none(tmp_path):
    with pytest.raises(DataError, match=r"clothing1m: not found in .*noisy_train_key_list.txt, .*clean_label_kv.txt"):
        load_dataset("clothing1m", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_the_closed_loop_trains_on_it_with_and_without_workers(folder, workers):
    """From files to a record: the images decode in workers, augment themselves, and the labels are corrected."""
    from labelloop.bench.experiment import Experiment, run_experiment

    experiment = Experiment(
        dataset="clothing1m",
        dataset_options={"root": str(folder)},
        clean=0,
        noise="none",
        method="closed-loop",
        recipe="paper-clothing1m",
        config={
            **{"network": "small-cnn", "network_options": {"widths": [4, 4]}},
            **{"epochs": 3, "warm_up": 1, "correct_every": 1, "batch_size": 16, "corrector": {"max_epochs": 2}},
        },
    )
    record = run_experiment(experiment, progress=False, workers=workers)
    assert record["config"]["augment"] == "own"
    assert record["train_rows"] == 30
    assert [row["epoch"] for row in record["history"]] == [1, 2, 3]
    assert len(record["rounds"]) == 2
    assert 0 <= record["history"][-1]["test_accuracy"] <= 1

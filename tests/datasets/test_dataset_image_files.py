"""Large images: what evaluation and training see, that views depend on (seed, epoch, index) alone, unreadable files."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from PIL import Image

from labelloop.data.image_files import ImageFiles, Resized
from labelloop.data.pillow import MEAN, STD, EvalTransform, TrainTransform, _turned, to_floats
from labelloop.errors import DataError, UsageError
from labelloop.training.batches import batches
from labelloop.types import MISSING, Rows


def plain(seed, **options):
    """A training transform with everything random turned off, but for what is asked for."""
    off = {"area": (1, 1), "ratio": (1, 1), "flip": 0, "brightness": 0, "contrast": 0, "saturation": 0}
    return TrainTransform(seed, **{**off, "hue": 0, "grey": 0, "size": 8, **options})


def pixels(floats):
    """[H, W, 3] as bytes again."""
    return np.round((floats.transpose(1, 2, 0) * STD + MEAN) * 255).astype(np.int64)


@pytest.fixture
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for i, (height, width) in enumerate([(300, 200), (200, 300), (64, 64), (40, 400)]):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(paths[-1])
    return paths


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (64, 64), (2000, 13), (1, 1)])
def test_evaluation_sees_the_centre(size):
    white = (np.ones(3) - MEAN) / STD
    out = EvalTransform()(Image.new("RGB", size, (255, 255, 255)))
    assert (out.shape, out.dtype, out.flags.c_contiguous) == ((3, 224, 224), np.float32, True)
    np.testing.assert_allclose(out, np.broadcast_to(white[:, None, None], out.shape), rtol=1e-5)


def test_evaluation_cuts_as_much_off_either_side():
    image = Image.new("RGB", (512, 256))
    image.paste((255, 0, 0), (144, 16, 368, 240))  # the centre, as it lies when the shorter side is 256
    red = pixels(EvalTransform()(image))
    np.testing.assert_array_equal(red, np.broadcast_to([255, 0, 0], red.shape))


def test_colours_keep_their_channel_and_rows_their_place(picture):
    np.testing.assert_array_equal(pixels(plain(0)(picture, 0, 0)), np.asarray(picture))


def test_every_level_is_scaled_as_the_formula_says():
    levels = np.arange(256, dtype=np.uint8)
    image = Image.fromarray(
        np.stack([levels.reshape(16, 16), levels[::-1].reshape(16, 16), levels.reshape(16, 16).T], 2)
    )
    worked = (np.asarray(image, dtype=np.float32) / 255 - MEAN) / STD
    assert to_floats(image).tobytes() == np.ascontiguousarray(worked.transpose(2, 0, 1)).tobytes()


@pytest.mark.parametrize("turn", [0.1, -0.1, 0.5])
def test_a_turn_adds_to_the_hue_and_goes_round(turn):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8))
    hue, saturation, value = image.convert("HSV").split()
    hue = hue.point([(level + round(256 * turn)) % 256 for level in range(256)])
    worked = Image.merge("HSV", (hue, saturation, value)).convert("RGB")
    assert _turned(image, turn).tobytes() == worked.tobytes()


def test_training_mirrors_half_of_the_time(picture):
    original, mirrored = np.asarray(picture), np.asarray(picture)[:, ::-1]
    seen = [pixels(plain(0, flip=0.5)(picture, 0, i)) for i in range(200)]
    flips = sum(np.array_equal(image, mirrored) for image in seen)
    assert flips + sum(np.array_equal(image, original) for image in seen) == 200
    assert 70 < flips < 130


def test_training_takes_out_colours_now_and_then(picture):
    seen = [pixels(plain(0, grey=0.2)(picture, 0, i)) for i in range(200)]
    grey = sum((image == image[..., :1]).all() for image in seen)
    assert 20 < grey < 65


@pytest.mark.parametrize(
    ("option", "low", "high"), [("brightness", 60, 140), ("contrast", 100, 100), ("saturation", 100, 100)]
)
def test_strengths_of_the_jitter(option, low, high):
    grey = Image.new("RGB", (8, 8), (100, 100, 100))  # contrast and saturation have nothing to change here
    levels = [pixels(plain(0, **{option: 0.4})(grey, 0, i)).mean() for i in range(100)]
    assert low - 1 <= min(levels) <= low + 5
    assert high - 5 <= max(levels) <= high + 1


def test_contrast_saturation_and_hue_change_a_picture(picture):
    for option in ("contrast", "saturation", "hue"):
        changed = pixels(plain(0, **{option: 0.4})(picture, 0, 0))
        assert not np.array_equal(changed, np.asarray(picture)), option
    red = Image.new("RGB", (8, 8), (255, 0, 0))
    hues = np.array([pixels(plain(0, hue=0.5)(red, 0, i))[0, 0] for i in range(50)])
    assert (hues.argmax(axis=1) == np.arange(3)[:, None]).any(axis=1).all()  # the whole circle
    assert (hues.max(axis=1) > 250).all()


def test_crops_stay_inside_and_cover_what_they_should():
    transform, rng = TrainTransform(0), np.random.default_rng(0)
    areas, ratios = [], []
    for size in [(300, 200), (64, 64), (10, 1000), (1, 1), (1000, 10)]:
        for _ in range(200):
            left, top, right, bottom = transform._box(size, rng)
            assert 0 <= left < right <= size[0]
            assert 0 <= top < bottom <= size[1]
            if size == (300, 200):
                areas.append((right - left) * (bottom - top) / 60_000)
                ratios.append((right - left) / (bottom - top))
    assert 0.07 < min(areas) < 0.2
    assert 0.8 < max(areas) <= 1
    assert 0.73 < min(ratios) < 0.8 < 1.25 < max(ratios) < 1.36


def test_views_depend_on_seed_epoch_and_index_alone(files):
    views = {}
    for seed in (0, 1):
        for epoch in (0, 1):
            images = ImageFiles([files[0], files[0]], TrainTransform(seed, size=16))
            images.epoch = epoch
            for index in (1, 0):
                views[seed, epoch, index] = images[index]
    assert len({view.tobytes() for view in views.values()}) == 8
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    again = ImageFiles([files[0], files[0]], TrainTransform(1, size=16))
    again.epoch = 1
    np.testing.assert_array_equal(again[0], views[1, 1, 0])
    np.testing.assert_array_equal(again[-1], views[1, 1, 1])
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_views_do_not_depend_on_the_worker(files):
    torch = pytest.importorskip("torch")
    images = ImageFiles(files).augmented(seed=5, epoch=2)
    batches = [
        list(torch.utils.data.DataLoader(images, batch_sampler=[[3, 1], [0, 2]], num_workers=workers))
        for workers in (0, 2)
    ]
    for alone, shared in zip(*batches, strict=True):
        assert (alone.shape, alone.dtype) == ((2, 3, 224, 224), torch.float32)
        assert torch.equal(alone, shared)
    assert torch.equal(batches[0][0][1], torch.from_numpy(images[1]))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_holds_what_its_images_hold_one_by_one(files, workers):
    """More batches than places in the shared memory, and all kept: none may be written over."""
    order = np.tile([2, 0, 3, 1, 3], 8)
    for images in (ImageFiles(files).augmented(seed=1), ImageFiles(files, Resized(5, 7))):
        none = np.full(len(order), MISSING)
        rows = Rows(images, order, none, none)
        kept = list(batches(rows, np.arange(len(order)), 3, workers=workers))
        assert [len(x) for _, x in kept] == [3] * 12 + [4]
        for position, x in kept:
            assert x.is_contiguous()
            np.testing.assert_array_equal(x.numpy(), np.stack([images[order[i]] for i in position]), strict=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_no_rows_are_no_batches(files, workers):
    none = np.full(0, MISSING)
    rows = Rows(ImageFiles(files), np.arange(0), none, none)
    assert list(batches(rows, np.arange(0), 3, workers=workers)) == []


def test_an_image_that_a_worker_cannot_read_is_named(files, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image")
    none = np.full(2, MISSING)
    rows = Rows(ImageFiles([files[0], broken], Resized(5, 7)), np.arange(2), none, none)
    with pytest.raises(DataError, match=r"broken\.jpg: cannot be read as an image"):
        list(batches(rows, np.arange(2), 1, workers=2))


def test_a_resized_image_is_what_pillow_makes_of_it(picture):
    expected = np.asarray(picture.resize((7, 5), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    np.testing.assert_array_equal(Resized(5, 7)(picture), expected)


@pytest.mark.parametrize("turn", [-0.4, 0.1])
def test_a_turned_hue_leaves_saturation_and_value(picture, turn):
    hue, saturation, value = (np.asarray(band) for band in picture.convert("HSV").split())
    bands = [Image.fromarray(band) for band in (hue + np.uint8(round(turn * 256) % 256), saturation, value)]
    expected = Image.merge("HSV", bands).convert("RGB")
    np.testing.assert_array_equal(np.asarray(_turned(picture, turn)), np.asarray(expected))


def test_an_augmented_view_leaves_the_store_as_it_is(files):
    images = ImageFiles(files)
    before = images[0]
    view = images.augmented(seed=0, epoch=3)
    assert (len(view), view.path(1), view.epoch, images.epoch) == (4, files[1], 3, 0)
    assert not np.array_equal(view[0], before)
    np.testing.assert_array_equal(images[0], before)


def test_it_can_be_sent_to_another_process(files):
    images = ImageFiles(files).augmented(seed=1, epoch=1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(images))[2], images[2])


def test_grey_and_transparent_images_are_read(tmp_path):
    for mode in ("L", "RGBA", "P", "CMYK", "1"):
        path = tmp_path / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}"
        Image.new(mode, (20, 20)).save(path)
        assert ImageFiles([path])[0].shape == (3, 224, 224)


def test_positions_outside_are_refused(files):
    with pytest.raises(IndexError):
        ImageFiles(files)[4]
    assert len(list(ImageFiles(files))) == 4


@pytest.mark.parametrize("content", [b"", b"no image", None, "cut"])
def test_unreadable_files_are_named(tmp_path, files, content):
    path = tmp_path / "bad.png"
    if content is not None:
        path.write_bytes(files[0].read_bytes()[:5000] if content == "cut" else content)
    with pytest.raises(DataError, match=r"bad.png: cannot be read as an image"):
        ImageFiles([files[0], path])[1]
    if content in (b"", b"no image"):
        with pytest.raises(DataError, match="in no known format"):  # and no address of an object
            ImageFiles([path])[0]


def test_unreadable_files_are_named_by_workers_too(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "bad.png"
    path.write_bytes(b"no image")
    loader = iter(torch.utils.data.DataLoader(ImageFiles([path]), num_workers=1))
    with pytest.raises(DataError, match=r"bad.png: cannot be read as an image"):
        next(loader)
    assert next(loader, None) is None  # a loader that is left before its end takes seconds to go


def test_image_files_need_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UsageError, match=r"needs more .*PIL.*labelloop\[images\]"):
        ImageFiles(["a.png"])

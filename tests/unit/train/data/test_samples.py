"""train/data/samples.py: the same pictures in the same order for any number of replicas and threads; broken files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bulkinfer.datasets import read_dataset
from bulkinfer.datasets.types import ArrayPictures, FilePictures
from bulkinfer.errors import PictureError, RunError
from bulkinfer.train import loop
from bulkinfer.train.data.made_up import generated_samples, synthetic_samples
from bulkinfer.train.data.opening import with_data_found
from bulkinfer.train.data.recipes import recipe_for
from bulkinfer.train.data.samples import (
    CachedSamples,
    LoadedSamples,
    Samples,
    Work,
    array_samples,
    file_samples,
)
from bulkinfer.train.defaults import with_defaults
from bulkinfer.train.loop import plan_work
from bulkinfer.train.ranks.group import ALONE
from bulkinfer.train.ranks.world import World
from bulkinfer.train.setup import set_up
from bulkinfer.train.training import Training

from tests import pictures
from tests.training import config_of


def arrays(count: int = 10, side: int = 8, channels: int = 3) -> ArrayPictures:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, side, side, channels), dtype=np.uint8)
    return ArrayPictures(images, np.arange(count) % 3, ("a", "b", "c"))


def whole(samples: Samples, epoch: int | None = None) -> torch.Tensor:
    everything = Work(0, epoch, np.arange(len(samples.labels)))
    ((_, images),) = samples.batches(iter([everything]))
    return images


OPTIONS: dict[str, Any] = {"num_threads": 2, "seed": 0, "crop_area": None}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 16])
def test_pictures_in_memory_equal_those_that_are_loaded(size: int, channels: int) -> None:
    data, recipe = arrays(channels=channels), recipe_for("cifar10", size, whole=True)
    cached = array_samples(data, recipe, cache_bytes=1 << 20, **OPTIONS)
    loaded = array_samples(data, recipe, cache_bytes=0, **OPTIONS)
    assert isinstance(cached, CachedSamples)
    assert isinstance(loaded, LoadedSamples)
    assert whole(cached).shape == (10, size, size, 3)
    assert torch.equal(whole(cached), whole(loaded))
    if size == 8:
        assert np.array_equal(whole(cached).numpy(), np.broadcast_to(data.images_NHWC, (10, 8, 8, 3)))


def test_crops_of_pictures_in_memory_differ_by_epoch_and_sample_alone() -> None:
    data, recipe = arrays(), recipe_for("cifar10", 8, whole=True)
    one = array_samples(data, recipe, cache_bytes=1 << 20, num_threads=1, seed=0, crop_area=(0.2, 0.5))
    three = array_samples(data, recipe, cache_bytes=1 << 20, num_threads=3, seed=0, crop_area=(0.2, 0.5))
    first = whole(one, 0)
    assert torch.equal(first, whole(three, 0))
    assert not torch.equal(first, whole(one, 1))
    assert not torch.equal(first, whole(one)), "validation is not cropped"
    ((_, again),) = three.batches(iter([Work(7, 0, np.array([4, 2]))]))
    assert torch.equal(again, first[[4, 2]])


def training_of(home: Path, world: World, **options: Any) -> Training:
    return set_up(with_defaults(with_data_found(config_of(home, epochs=2.0, steps=0, **options))), world, ALONE)[0]


def inputs(training: Training) -> dict[tuple[int, int], list[torch.Tensor]]:
    """By epoch and sample what the network gets: pixels and target."""
    found: dict[tuple[int, int], list[torch.Tensor]] = {}
    for work, images_NHWC in training.data.samples.batches(plan_work(training)):
        if len(images_NHWC):
            images, targets, _ = loop.make_input(training, work, images_NHWC)
            for index, sample in enumerate(work.samples):
                assert work.epoch is not None
                found[work.epoch, int(sample)] = [images[index], targets[index]]
    return found


def order_of(training: Training) -> list[list[int]]:
    """By update the samples that it takes."""
    steps: dict[int, list[int]] = {}
    for work in plan_work(training):
        steps.setdefault(work.step, []).extend(map(int, work.samples))
    return list(steps.values())


CUTS: list[dict[str, Any]] = [
    {"micro_batch_size": 8},
    {"micro_batch_size": 4, "gradient_accumulation": 2},
    {"micro_batch_size": 2, "gradient_accumulation": 4, "num_workers": 3, "cache_mb": 0},
]


@pytest.mark.parametrize("augment", ["flip_crop", "resized_crop"])
def test_order_and_pixels_are_the_same_however_the_work_is_cut(augment: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"augment": augment, "norm": "group", "mixup_alpha": 0.4, "cutmix_alpha": 1.0}
    first = training_of(tmp_path, World(), **options, **CUTS[0])
    expected, order = inputs(first), order_of(first)
    assert len(expected) == 80, "two epochs of 40 pictures, each once"
    assert [sorted(n for step in order[start : start + 5] for n in step) for start in (0, 5)] == [list(range(40))] * 2
    assert order[:5] != order[5:], "another order in the second epoch"
    assert not torch.equal(expected[0, 3][0], expected[1, 3][0]), "and other pixels"
    for cut in CUTS[1:]:
        other = training_of(tmp_path, World(), **options, **cut)
        assert order_of(other) == order
        assert_same(inputs(other), expected)
    shared = [training_of(tmp_path, World(rank, 2), **options, micro_batch_size=4) for rank in (0, 1)]
    assert [one + two for one, two in zip(*map(order_of, shared), strict=True)] == order
    assert_same({**inputs(shared[0]), **inputs(shared[1])}, expected)


def assert_same(found: dict[Any, list[torch.Tensor]], expected: dict[Any, list[torch.Tensor]]) -> None:
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert all(torch.equal(value, other) for value, other in zip(values, found[key], strict=True)), key


def test_b59_draws_differ_by_epoch_and_not_by_the_number_of_threads() -> None:
    """Made-up and cropped pictures alike: what a sample gets depends on seed, epoch and sample."""
    made = generated_samples(8, seed=3)
    samples = np.array([5, 17, 49_999])
    ((_, first),) = made.batches(iter([Work(0, 0, samples)]))
    ((_, second),) = made.batches(iter([Work(9, 1, samples)]))
    ((_, again),) = generated_samples(8, seed=3).batches(iter([Work(4, 0, samples[::-1])]))
    ((_, other),) = generated_samples(8, seed=4).batches(iter([Work(0, 0, samples)]))
    assert torch.equal(first, again.flip(0))
    assert len({bytes(picture.numpy()) for picture in [*first, *second, *other]}) == 9
    crops = [whole(array_samples(arrays(), recipe_for("cifar10", 8, whole=True), cache_bytes=0, num_threads=threads, seed=1,
                                 crop_area=(0.1, 1.0)), epoch) for threads, epoch in ((1, 0), (4, 0), (4, 1))]  # fmt: skip
    assert torch.equal(crops[0], crops[1])
    assert not torch.equal(crops[1], crops[2])


def test_synthetic_pictures_are_the_same_batch_again() -> None:
    made = synthetic_samples(8, seed=0)
    batches = [images for _, images in made.batches(iter([Work(0, 0, np.arange(4)), Work(1, 0, np.arange(4, 8))]))]
    assert batches[0] is batches[1]


def test_a_share_of_the_data_is_a_share_of_every_class(tmp_path: Path) -> None:
    training = training_of(tmp_path, World(), dataset_percentage=50.0)
    taken = {sample for step in order_of(training) for sample in step}
    assert sorted(taken) == list(range(0, 40, 2))


def test_a_replica_for_which_nothing_is_left_takes_part_all_the_same(tmp_path: Path) -> None:
    """42 pictures in updates of 40 leave 2, for 4 replicas."""
    pictures_of = [order_of(training_of(tmp_path, World(rank, 4), norm="group", micro_batch_size=9)) for rank in range(4)]
    assert [len(steps) for steps in pictures_of] == [4] * 4
    assert [len(steps[1]) for steps in pictures_of] == [1, 1, 1, 1]


def folder_of(home: Path) -> FilePictures:
    good = pictures.jpeg(seed=1)
    pictures.write_files(
        home, {f"{split}/{name}/{i}.jpg": good for split in ("train", "val") for name in "ab" for i in range(2)}
    )
    found = read_dataset("folder", home, "train")
    assert isinstance(found, FilePictures)
    return found


def test_a_broken_picture_is_one_sentence(tmp_path: Path) -> None:
    data = folder_of(tmp_path)
    bad = tmp_path / "train" / "b" / "0.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    samples = file_samples(data, recipe_for("folder", 8, whole=False), **OPTIONS)

    def work() -> Iterator[Work]:
        for step in range(100):
            yield Work(step, 0, np.arange(4))

    with pytest.raises(PictureError) as error:
        list(samples.batches(work()))
    assert str(error.value).startswith(f"{bad} cannot be used (decode: ")


def test_pictures_of_files_are_cut_out_as_in_serving(tmp_path: Path) -> None:
    recipe = recipe_for("folder", 32, whole=False)
    assert (recipe.resize, recipe.resize_size, recipe.height) == ("short_side", 37, 32)
    images = whole(file_samples(folder_of(tmp_path), recipe, **OPTIONS))
    assert images.shape == (4, 32, 32, 3)
    assert all(torch.equal(images[0], image) for image in images[1:])


def test_c27_training_refuses_pixel_data_that_end_early(tmp_path: Path) -> None:
    data = folder_of(tmp_path)
    bad = tmp_path / "train" / "b" / "0.jpg"
    bad.write_bytes(pictures.cut(pictures.jpeg(256, 256)) + pictures.EOI)
    samples = file_samples(data, recipe_for("folder", 8, whole=False), **OPTIONS)
    with pytest.raises(RunError, match=r"0\.jpg cannot be used \(decode: corrupt JPEG: premature end of data segment\)"):
        list(samples.batches([Work(0, 0, np.arange(4))]))

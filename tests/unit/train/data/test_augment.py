"""train/data/augment.py: whole batches augmented, compared with one picture at a time in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.data.augment import (
    Box,
    Mixing,
    _beta_quantile,
    crop_of_object,
    flip_and_crop,
    mix,
    mixing_of,
    normalise,
    random_resized_crops,
)
from bulkinfer.train.data.draws import Draw, uniform
from bulkinfer.train.options import TrainConfig
from torch.nn import functional

SAMPLES = np.array([5, 0, 17, 3, 88, 41])


def pictures(count: int = 6, size: int = 8) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(1, 256, (count, size, size, 3), dtype=np.uint8))


def test_flip_and_crop_is_what_one_does_to_each_picture() -> None:
    images = pictures()
    found = flip_and_crop(images, 1, 2, SAMPLES, flip=True, pad=2).numpy()
    flips = uniform(1, 2, SAMPLES, Draw.FLIP) < 0.5
    assert 0 < flips.sum() < 6, "both cases are here"
    tops, lefts = ((uniform(1, 2, SAMPLES, draw) * 5).astype(int) for draw in (Draw.CROP_Y, Draw.CROP_X))
    for index in range(6):
        padded = np.pad(images[index].numpy(), ((2, 2), (2, 2), (0, 0)))
        part = padded[tops[index] : tops[index] + 8, lefts[index] : lefts[index] + 8]
        assert (found[index] == (part[:, ::-1] if flips[index] else part)).all()


def test_a_picture_is_augmented_alike_in_any_batch() -> None:
    images = pictures()
    whole = flip_and_crop(images, 1, 2, SAMPLES, flip=True, pad=2)
    for one, other in ((0, 2), (2, 6)):
        assert (flip_and_crop(images[one:other], 1, 2, SAMPLES[one:other], flip=True, pad=2) == whole[one:other]).all()


def test_without_augmentation_nothing_moves() -> None:
    images = pictures()
    assert flip_and_crop(images, 1, 2, SAMPLES, flip=False, pad=0) is images


def test_normalise() -> None:
    images, mean, std = pictures(), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.6])
    found = normalise(images, mean, std, torch.float32)
    expected = (images.numpy().astype(np.float64) / 255 - mean.numpy()) / std.numpy()
    assert found.numpy() == pytest.approx(expected.transpose(0, 3, 1, 2), abs=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert normalise(images, mean, std, torch.bfloat16).dtype == torch.bfloat16


def test_random_resized_crops_lie_in_the_picture_and_have_the_share_asked_for() -> None:
    sizes = np.array([[640, 480], [30, 400], [500, 500]] * 200)
    boxes = random_resized_crops(0, 0, np.arange(600), sizes, (0.08, 1.0))
    for box, (width, height) in zip(boxes, sizes, strict=True):
        assert box.left >= 0
        assert box.top >= 0
        assert box.left + box.width <= width + 1e-6
        assert box.top + box.height <= height + 1e-6
        assert 3 / 4 - 1e-9 <= box.width / box.height <= 4 / 3 + 1e-9
    shares = [box.width * box.height / 250_000 for box in boxes[2::3]]
    assert 0.4 < np.mean(shares) < 0.6
    assert min(shares) >= 0.08 - 1e-9


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.4, 1.0, 2.0, 8.0])
def test_beta_quantiles(alpha: float) -> None:
    found = np.quantile(_beta_quantile((np.arange(100_000) + 0.5) / 100_000, alpha), (0.05, 0.25, 0.5, 0.9))
    expected = np.quantile(np.random.default_rng(0).beta(alpha, alpha, 400_000), (0.05, 0.25, 0.5, 0.9))
    assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("mixing", [Mixing(mixup=0.4), Mixing(cutmix=1.0), Mixing(mixup=0.2, cutmix=1.0)])
def test_mixing_weights_pictures_and_targets_alike(mixing: Mixing) -> None:
    """Pictures of one level each: what a picture has of its neighbour's level is what its target has of its class."""
    levels = torch.arange(6, dtype=torch.float32)
    images = levels[:, None, None, None].expand(6, 3, 16, 16)
    targets = functional.one_hot(torch.arange(6), 6).float()
    mixed, found = mix(images, targets, mixing, 0, 0, SAMPLES)
    assert found.sum(1).numpy() == pytest.approx(np.ones(6), abs=1e-6)
    assert mixed.mean((1, 2, 3)).numpy() == pytest.approx((found @ levels).numpy(), abs=1e-4)
    assert all(found[index, index ^ 1] <= 0.5 + 1e-6 for index in range(6)), "the own share is the larger one"
    assert (found[:, :2][2:] == 0).all(), "only neighbours mix"


def test_cutmix_keeps_a_share_between_two_numbers() -> None:
    count = 400
    images, targets = torch.zeros(count, 1, 64, 64), torch.eye(count)
    _, found = mix(images, targets, mixing_of(TrainConfig(cutmix_share=("0.6", "0.8"))), 0, 0, np.arange(count))
    kept = found.diagonal().numpy()
    assert 0.59 < kept.min() < 0.63, "the box has whole pixels"
    assert 0.77 < kept.max() < 0.81
    assert kept.mean() == pytest.approx(0.7, abs=0.01)
    _, fixed = mix(images, targets, mixing_of(TrainConfig(cutmix_share=("0.75", "0.75"))), 0, 0, np.arange(count))
    assert fixed.diagonal().numpy() == pytest.approx(0.75, abs=0.01)


def test_shares_of_cutmix() -> None:
    for off in (("0", "0"), ("1", "1"), ()):
        assert not mixing_of(TrainConfig(cutmix_share=off)).is_used
    for wrong in (("0.5",), ("0.8", "0.6"), ("-1", "0.5"), ("a", "b")):
        with pytest.raises(UsageError, match=r"--cutmix_share .*: give two numbers from 0 to 1, the smaller one first"):
            mixing_of(TrainConfig(cutmix_share=wrong))
    with pytest.raises(UsageError, match="both draw the share"):
        mixing_of(TrainConfig(cutmix_share=("0.5", "0.9"), cutmix_alpha=1.0))


def test_a_last_picture_without_neighbour_stays() -> None:
    images, targets = torch.rand(5, 3, 4, 4), functional.one_hot(torch.arange(5), 5).float()
    mixed, found = mix(images, targets, Mixing(mixup=0.4), 0, 0, SAMPLES[:5])
    assert (mixed[4] == images[4]).all()
    assert (found[4] == targets[4]).all()


def test_pairs_mix_alike_whatever_the_batch() -> None:
    images, targets = torch.rand(6, 3, 4, 4), functional.one_hot(torch.arange(6), 6).float()
    whole = mix(images, targets, Mixing(mixup=0.4, cutmix=1.0), 3, 4, SAMPLES)
    for one, other in ((0, 2), (2, 6)):
        part = mix(images[one:other], targets[one:other], Mixing(mixup=0.4, cutmix=1.0), 3, 4, SAMPLES[one:other])
        assert torch.equal(part[0], whole[0][one:other])
        assert torch.equal(part[1], whole[1][one:other])


def test_the_share_of_pairs_that_are_mixed() -> None:
    samples = np.arange(4000)
    images, targets = torch.zeros(4000, 1, 2, 2), functional.one_hot(torch.arange(4000) % 2, 2).float()
    _, found = mix(images, targets, Mixing(mixup=1.0, probability=0.25), 0, 0, samples)
    assert 0.22 < float((found.max(1).values < 1).float().mean()) < 0.28


def share_of(crop: Box, box: tuple[float, ...], size: tuple[int, int]) -> float:
    """The share of a box that lies in a crop, counted on a grid of a tenth of a pixel."""
    left, top, right, bottom = (value * side for value, side in zip(box, (*size, *size), strict=True))
    x, y = np.arange(left, right, 0.1) + 0.05, np.arange(top, bottom, 0.1) + 0.05
    inside_x = (x > crop.left) & (x < crop.left + crop.width)
    inside_y = (y > crop.top) & (y < crop.top + crop.height)
    return float(inside_x.mean() * inside_y.mean())


def test_a_crop_holds_a_tenth_of_a_box_if_one_of_ten_does() -> None:
    size, area, boxes = (64, 48), (0.05, 0.3), np.array([[0.7, 0.6, 0.95, 0.95], [0.0, 0.0, 0.1, 0.2]], np.float32)
    taken = []
    for sample in range(60):
        tries = [random_resized_crops(3, 1, np.array([sample]), np.array([size]), area, attempt)[0] for attempt in range(10)]
        fits = [max(share_of(crop, tuple(box), size) for box in boxes) for crop in tries]
        if any(0.09 < share < 0.11 for share in fits):
            continue  # too near for a grid
        first = next((number for number, share in enumerate(fits) if share > 0.1), 0)
        assert crop_of_object(3, 1, sample, size, area, boxes) == tries[first]
        taken.append(first)
    assert len(set(taken)) > 4, "of all kinds"
    assert tries[0] != tries[1]


@pytest.mark.parametrize("boxes", [np.zeros((0, 4)), np.array([[0.5, 0.5, 0.5, 0.9]]), np.array([[2.0, 2.0, 3.0, 3.0]])])
def test_without_a_box_it_is_the_plain_crop(boxes: np.ndarray) -> None:
    """No box, one without an area, one outside of the picture."""
    (plain,) = random_resized_crops(3, 1, np.array([7]), np.array([(64, 48)]), (0.08, 1.0))
    assert crop_of_object(3, 1, 7, (64, 48), (0.08, 1.0), boxes) == plain

"""Augmentation of whole batches on the device; draws.py decides what each sample gets.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bulkinfer.errors import UsageError
from bulkinfer.train.data.draws import Draw, Integers, uniform
from bulkinfer.train.options import TrainConfig

_MOST_ATTEMPTS = 10
_LEAST_SHARE = 0.1  # of a box that a crop must hold


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a picture, in its pixels, to be resized to the network's input."""

    left: float
    top: float
    width: float
    height: float


def random_resized_crops(
    seed: int, epoch: int, samples: Integers, sizes: np.ndarray, area: tuple[float, float], attempt: int = 0
) -> list[Box]:
    """A part of each picture: its share of the area uniform in `area`, its aspect ratio log-uniform in 3/4..4/3.

    `sizes` are N x 2: width and height. The recipe is that of Szegedy et al. (arXiv:1409.4842) as in torchvision's
    RandomResizedCrop, with one difference: torchvision draws again if the part does not fit into the picture; here it shrinks
    to fit and keeps its aspect ratio. Each `attempt` draws other parts.
    """
    draws = {draw: uniform(seed, epoch, samples, draw, attempt) for draw in (Draw.AREA, Draw.ASPECT, Draw.CROP_X, Draw.CROP_Y)}
    boxes = []
    for index, (width, height) in enumerate(np.asarray(sizes, np.float64)):
        pixels = width * height * (area[0] + (area[1] - area[0]) * draws[Draw.AREA][index])
        aspect = math.exp((2 * draws[Draw.ASPECT][index] - 1) * math.log(4 / 3))
        across, down = math.sqrt(pixels * aspect), math.sqrt(pixels / aspect)
        fit = min(1.0, width / across, height / down)
        across, down = (
            min(across * fit, width),
            min(down * fit, height),
        )  # Pillow refuses more
        boxes.append(
            Box((width - across) * draws[Draw.CROP_X][index], (height - down) * draws[Draw.CROP_Y][index], across, down)
        )
    return boxes


def crop_of_object(
    seed: int, epoch: int, sample: int, size: tuple[int, int], area: tuple[float, float], boxes_K4: np.ndarray
) -> Box:
    """The first of ten random parts of a picture of `size` that holds a tenth of one of its boxes; the first of all if none
    does.

    `boxes_K4` are left, top, right and bottom as shares of width and height. So tensorflow's sample_distorted_bounding_box
    draws, with min_object_covered 0.1, but that it takes the whole picture if no draw fits.
    """
    samples, sizes = np.array([sample]), np.array([size])
    boxes_K4 = boxes_K4.clip(0, 1) * np.array([*size, *size])
    extents_K2 = boxes_K4[:, 2:] - boxes_K4[:, :2]
    boxes_K4 = boxes_K4[(extents_K2 > 0).all(axis=1)]
    crops = [random_resized_crops(seed, epoch, samples, sizes, area)[0]]
    for attempt in range(1, _MOST_ATTEMPTS if len(boxes_K4) else 1):
        if _holds_a_tenth(crops[-1], boxes_K4):
            return crops[-1]
        crops += random_resized_crops(seed, epoch, samples, sizes, area, attempt)
    return crops[-1] if _holds_a_tenth(crops[-1], boxes_K4) else crops[0]


def _holds_a_tenth(crop: Box, boxes_K4: np.ndarray) -> bool:
    corner, extent = np.array([crop.left, crop.top]), np.array([crop.width, crop.height])
    low_K2, high_K2 = np.maximum(boxes_K4[:, :2], corner), np.minimum(boxes_K4[:, 2:], corner + extent)
    common_K = (high_K2 - low_K2).clip(0).prod(axis=1)
    return bool((common_K >= _LEAST_SHARE * (boxes_K4[:, 2:] - boxes_K4[:, :2]).prod(axis=1)).any())


def flip_and_crop(images_NHWC: Tensor, seed: int, epoch: int, samples: Integers, *, flip: bool, pad: int) -> Tensor:
    """Mirror each picture with probability 1/2; pad it with `pad` black pixels on every side and cut out its size at random.

    Takes and returns uint8 of the same shape.
    """
    count, height, width, _ = images_NHWC.shape
    device = images_NHWC.device
    rows_NH = torch.arange(height).expand(count, height)
    columns_NW = torch.arange(width).expand(count, width)
    if flip:
        mirrored = torch.from_numpy(uniform(seed, epoch, samples, Draw.FLIP) < 0.5)
        columns_NW = torch.where(mirrored[:, None], width - 1 - columns_NW, columns_NW)
    if pad:
        images_NHWC = functional.pad(images_NHWC, (0, 0, pad, pad, pad, pad))
        rows_NH = rows_NH + _offsets(uniform(seed, epoch, samples, Draw.CROP_Y), pad)
        columns_NW = columns_NW + _offsets(uniform(seed, epoch, samples, Draw.CROP_X), pad)
    if not flip and not pad:
        return images_NHWC
    picture_N = torch.arange(count, device=device)
    return images_NHWC[picture_N[:, None, None], rows_NH.to(device)[:, :, None], columns_NW.to(device)[:, None, :]]


def _offsets(draws: np.ndarray, pad: int) -> Tensor:
    return torch.from_numpy((draws * (2 * pad + 1)).astype(np.int64))[:, None]


def normalise(images_NHWC: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 N x H x W x C -> N x C x H x W in channels-last memory: (pixel / 255 - mean) / std, with C values of each."""
    scaled = images_NHWC.to(dtype if dtype == torch.float32 else torch.float32)
    scaled = scaled.mul_(1 / (255 * std)).sub_(mean / std)
    return scaled.to(dtype).permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class Mixing:
    """How pairs of pictures are mixed: pictures 2k and 2k+1 of a micro batch, each into the other.

    `mixup` and `cutmix` are the alphas of the Beta distributions (Zhang et al., arXiv:1710.09412; Yun et al.,
    arXiv:1905.04899); 0 means not used. `shares`, in place of `cutmix`, are the least and the largest share of itself that a
    picture keeps, drawn uniformly. A pair is mixed with probability `probability`; if both are used, by one of them, each with
    the same probability. A last picture without a partner stays as it is.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    probability: float = 1.0
    shares: tuple[float, float] | None = None

    @property
    def cuts(self) -> bool:
        """Whether cutmix is used."""
        return bool(self.cutmix or self.shares)

    @property
    def is_used(self) -> bool:
        """Whether anything is mixed."""
        return bool(self.mixup or self.cuts) and self.probability > 0


def mixing_of(config: TrainConfig) -> Mixing:
    """How the options mix pictures. Raises UsageError for a wrong --cutmix_share."""
    shares = None
    if config.cutmix_share:
        try:
            low, high = map(float, config.cutmix_share)
        except ValueError:
            low, high = 1.0, 0.0
        if not 0 <= low <= high <= 1:
            raise UsageError(
                f"--cutmix_share {' '.join(config.cutmix_share)}: give two numbers from 0 to 1, the smaller one first"
            )
        if config.cutmix_alpha:
            raise UsageError("--cutmix_alpha and --cutmix_share both draw the share of cutmix: leave one out")
        shares = None if (low, high) in ((0, 0), (1, 1)) else (low, high)
    return Mixing(config.mixup_alpha, config.cutmix_alpha, config.mix_probability, shares)


def mix(
    images_NCHW: Tensor, targets_NK: Tensor, mixing: Mixing, seed: int, epoch: int, samples: Integers
) -> tuple[Tensor, Tensor]:
    """The batch and its targets (probabilities of K classes), mixed in pairs; the first sample of a pair decides its draws."""
    pairs = len(samples) // 2
    if not pairs:
        return images_NCHW, targets_NK
    first = samples[: 2 * pairs : 2]
    kind, share = uniform(seed, epoch, first, Draw.MIX_KIND), uniform(seed, epoch, first, Draw.MIX_SHARE)
    is_mixed = kind < mixing.probability
    both = bool(mixing.mixup and mixing.cuts)
    is_cut = kind < mixing.probability / 2 if both else np.full(pairs, mixing.cuts)
    kept = np.where(is_cut, _cut_share(share, mixing), _larger(_beta_quantile(share, mixing.mixup or 1.0)))
    kept = np.where(is_mixed, kept, 1.0)
    height, width = images_NCHW.shape[2:]
    mask_PHW, kept = _cut_masks(is_cut & is_mixed, kept, first, (height, width), seed, epoch)
    device, dtype = images_NCHW.device, images_NCHW.dtype
    own = torch.from_numpy(np.where((is_cut & is_mixed)[:, None, None], mask_PHW, kept[:, None, None])).to(device, dtype)
    own_NHW = own.repeat_interleave(2, 0)[:, None]
    neighbour = torch.arange(2 * pairs, device=device) ^ 1
    mixed = images_NCHW.clone()
    mixed[: 2 * pairs] = images_NCHW[: 2 * pairs] * own_NHW + images_NCHW[neighbour] * (1 - own_NHW)
    weight_N1 = torch.from_numpy(kept).to(device, targets_NK.dtype).repeat_interleave(2)[:, None]
    targets = targets_NK.clone()
    targets[: 2 * pairs] = targets_NK[: 2 * pairs] * weight_N1 + targets_NK[neighbour] * (1 - weight_N1)
    return mixed, targets


def _cut_share(draws: np.ndarray, mixing: Mixing) -> np.ndarray:
    """The share of itself that each picture keeps in cutmix, for uniform draws."""
    if mixing.shares:
        return mixing.shares[0] + (mixing.shares[1] - mixing.shares[0]) * draws
    return _larger(_beta_quantile(draws, mixing.cutmix or 1.0))


def _larger(shares: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(shares, 1 - shares))


def _cut_masks(
    is_cut: np.ndarray, kept: np.ndarray, first: Integers, size: tuple[int, int], seed: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each pair a mask H x W, 1 where a picture keeps its pixels and 0 where it takes its partner's, and the share kept.

    The box lies inside the picture. Targets are weighted by the box's real share of the pixels, not by the drawn share.
    """
    height, width = size
    masks = np.ones((len(first), height, width))
    centre_y, centre_x = uniform(seed, epoch, first, Draw.MIX_Y), uniform(seed, epoch, first, Draw.MIX_X)
    kept = kept.copy()
    for pair in np.flatnonzero(is_cut):
        side = math.sqrt(1 - kept[pair])
        down, across = round(height * side), round(width * side)
        top, left = round(centre_y[pair] * (height - down)), round(centre_x[pair] * (width - across))
        masks[pair, top : top + down, left : left + across] = 0
        kept[pair] = 1 - down * across / (height * width)
    return masks, kept


def _beta_quantile(draws: np.ndarray, alpha: float) -> np.ndarray:
    """Beta(alpha, alpha) numbers from uniform ones, by the inverse of the distribution function on a grid of 4,097 points."""
    if alpha == 1.0:
        return draws
    log_grid = np.linspace(-40 / min(alpha, 1.0), 0.0, 4097)  # the two halves are symmetric: a grid on 0..1/2, fine near 0
    grid = np.exp(log_grid) / 2
    density = np.exp((alpha - 1) * (np.log(grid) + np.log1p(-grid)) + np.log(grid))  # of log x
    cumulative = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(log_grid))])
    cumulative *= 0.5 / cumulative[-1]
    lower = np.interp(np.minimum(draws, 1 - draws), cumulative, grid)
    return np.asarray(np.where(draws < 0.5, lower, 1 - lower))

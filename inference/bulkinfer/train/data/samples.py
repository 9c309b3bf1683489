"""Samples of a data set as prepared batches: from memory, read and decoded by threads ahead of the loop, or made up.

Shape letters: N batch, H height, W width, C channels (always RGB, as in serving).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bulkinfer.datasets.boxes import BoxTable
from bulkinfer.datasets.types import ArrayPictures, FilePictures, short_hash
from bulkinfer.errors import PictureError, RecordError, RunError
from bulkinfer.images.decode import decode, prepare_decoder
from bulkinfer.images.preprocess import prepare
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.place import place_name
from bulkinfer.records.read_place import read_place
from bulkinfer.train.data.augment import crop_of_object, random_resized_crops
from bulkinfer.train.data.draws import Integers

log = logging.getLogger("bulkinfer")

_CHECKED_AT_ONCE = 4096  # pictures
_AHEAD = 4  # micro batches prepared in advance
_MAX_PIXELS, _MAX_BYTES = 1 << 28, 1 << 30


@dataclass(frozen=True, slots=True)
class Work:
    """One micro batch to prepare: its samples, in order, and the epoch that decides their crops (None: no random crops)."""

    step: int
    epoch: int | None
    samples: Integers
    ends_step: bool = True


class Samples(Protocol):
    """Prepared pictures of a data set by sample index."""

    labels: np.ndarray
    class_names: tuple[str, ...]

    def move_to(self, device: torch.device) -> None:
        """Move what is kept in memory to this device."""

    def batches(self, work: Iterable[Work]) -> Iterator[tuple[Work, Tensor]]:
        """Each micro batch as uint8 N x H x W x C, in order, and its work, whose samples are those that can be used.

        Raises PictureError for a picture that cannot be used, unless such pictures are left out.
        """

    def faults(self, samples: Integers, /) -> Iterator[str]:
        """A sentence for each of these samples that cannot be used; reads them all."""

    def digest(self) -> str:
        """A hash that differs for other pictures: of their names if they are files, else of their pixels."""


class CachedSamples:
    """All prepared pictures in memory; a batch is cut out by index."""

    def __init__(self, images_NHWC: Tensor, labels: np.ndarray, class_names: tuple[str, ...]) -> None:
        self._images_NHWC, self.labels, self.class_names = images_NHWC, labels, class_names

    def move_to(self, device: torch.device) -> None:
        """Move the pictures to the memory of this device."""
        self._images_NHWC = self._images_NHWC.to(device)

    def batches(self, work: Iterable[Work]) -> Iterator[tuple[Work, Tensor]]:
        for item in work:
            yield item, self._images_NHWC[torch.from_numpy(item.samples).to(self._images_NHWC.device)]

    def faults(self, _samples: Integers, /) -> Iterator[str]:
        return iter(())

    def digest(self) -> str:
        return short_hash(self._images_NHWC.cpu().numpy())


class LoadedSamples:
    """Pictures that threads prepare a few micro batches in advance, one sample per task.

    With `skips_bad`, a picture that cannot be used is left out of its batch, and named once. With `boxes` the parts that are
    cut out hold some of an object.
    """

    def __init__(
        self,
        picture: Callable[[int], Image.Image],
        pictures: FilePictures | ArrayPictures,
        *,
        recipe: Recipe,
        num_threads: int,
        seed: int,
        crop_area: tuple[float, float] | None,
        skips_bad: bool = False,
        boxes: BoxTable | None = None,
    ) -> None:
        self.picture, self.labels, self.class_names = picture, pictures.labels, pictures.class_names
        self._boxes = boxes
        self._recipe, self.num_threads, self._seed, self._crop_area = recipe, num_threads, seed, crop_area
        self._skips_bad, self._named, self._pictures = skips_bad, set[int](), pictures

    def with_picture(self, picture: Callable[[int], Image.Image]) -> LoadedSamples:
        """The same samples from other pictures, which have the same indices."""
        other = copy(self)
        other.picture = picture
        return other

    def move_to(self, device: torch.device) -> None:
        """Does nothing: no pictures are kept."""

    def batches(self, work: Iterable[Work]) -> Iterator[tuple[Work, Tensor]]:
        size = (self._recipe.height, self._recipe.width, 3)
        waiting: deque[tuple[Work, np.ndarray, list[Future[None]]]] = deque()
        with ThreadPoolExecutor(self.num_threads, thread_name_prefix="loader") as pool:
            try:
                for item in work:
                    slots_NHWC = np.empty((len(item.samples), *size), np.uint8)
                    tasks = [
                        pool.submit(self._fill, int(sample), item.epoch, slot)
                        for sample, slot in zip(item.samples, slots_NHWC, strict=True)
                    ]
                    waiting.append((item, slots_NHWC, tasks))
                    if len(waiting) > _AHEAD:
                        yield self._ready(*waiting.popleft())
                while waiting:
                    yield self._ready(*waiting.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def _ready(self, item: Work, slots_NHWC: np.ndarray, tasks: list[Future[None]]) -> tuple[Work, Tensor]:
        kept = []
        for slot, task in enumerate(tasks):
            error = task.exception()
            if error is None:
                kept.append(slot)
            elif isinstance(error, PictureError) and self._skips_bad:
                self._name(int(item.samples[slot]), error)
            else:
                raise error
        if len(kept) == len(tasks):
            return item, torch.from_numpy(slots_NHWC)
        if len(kept) == 1 and item.epoch is not None:  # batch norm has no variance over one sample
            kept = []
        return replace(item, samples=item.samples[kept]), torch.from_numpy(slots_NHWC[kept])

    def _name(self, sample: int, error: PictureError) -> None:
        if sample not in self._named:
            self._named.add(sample)
            log.warning(f"warning: {error}: left out")

    def faults(self, samples: Integers) -> Iterator[str]:
        def fault(sample: int) -> str:
            try:
                self.picture(sample)
            except PictureError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(self.num_threads, thread_name_prefix="checker") as pool:
            for start in range(0, len(samples), _CHECKED_AT_ONCE):
                found = pool.map(fault, map(int, samples[start : start + _CHECKED_AT_ONCE]))
                yield from filter(None, found)

    def digest(self) -> str:
        return self._pictures.digest()

    def _fill(self, sample: int, epoch: int | None, slot_HWC: np.ndarray) -> None:
        image = self.picture(sample)
        if epoch is None or self._crop_area is None:
            prepare(image, self._recipe, slot_HWC)
            return
        if self._boxes is not None:
            box = crop_of_object(self._seed, epoch, sample, image.size, self._crop_area, self._boxes[sample])
        else:
            (box,) = random_resized_crops(self._seed, epoch, np.array([sample]), np.array([image.size]), self._crop_area)
        size = (self._recipe.width, self._recipe.height)
        corners = (box.left, box.top, box.left + box.width, box.top + box.height)
        slot_HWC[:] = np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=corners))


def array_samples(
    pictures: ArrayPictures,
    recipe: Recipe,
    *,
    cache_bytes: int,
    num_threads: int,
    seed: int,
    crop_area: tuple[float, float] | None,
) -> Samples:
    """Samples of pictures that are in memory: prepared once, if that fits into `cache_bytes`, else each time."""
    images_NHWC = pictures.images_NHWC

    def picture(sample: int) -> Image.Image:
        return to_image(images_NHWC[sample])

    if crop_area or len(images_NHWC) * recipe.height * recipe.width * 3 > cache_bytes:
        return LoadedSamples(
            picture,
            pictures,
            recipe=recipe,
            num_threads=num_threads,
            seed=seed,
            crop_area=crop_area,
        )
    prepared = np.empty((len(images_NHWC), recipe.height, recipe.width, 3), np.uint8)
    if images_NHWC.shape[1:3] == prepared.shape[1:3]:
        prepared[:] = images_NHWC  # one channel is repeated
    else:
        for sample, slot_HWC in enumerate(prepared):
            prepare(picture(sample), recipe, slot_HWC)
    return CachedSamples(torch.from_numpy(prepared), pictures.labels, pictures.class_names)


def to_image(image_HWC: np.ndarray) -> Image.Image:
    """A picture of one or three channels as Pillow's RGB, as decode() gives it."""
    return Image.fromarray(image_HWC[..., 0] if image_HWC.shape[2] == 1 else image_HWC).convert("RGB")


@dataclass(frozen=True, slots=True)
class PictureFiles:
    """Picture files by sample index, as a recipe decodes them. Raises PictureError for one that cannot be used."""

    pictures: FilePictures
    recipe: Recipe

    def __call__(self, sample: int) -> Image.Image:
        return self.decode(sample, self.read(sample))

    def read(self, sample: int) -> bytes:
        """The bytes of the file."""
        with self._naming(sample):
            return read_place(self.pictures.places[sample], _MAX_BYTES)

    def decode(self, sample: int, data: bytes) -> Image.Image:
        """The picture in the bytes of the file."""
        recipe = self.recipe
        with self._naming(sample):
            return decode(
                data, orientation=recipe.orientation, max_pixels=_MAX_PIXELS, colour=recipe.colour, alpha_over=recipe.alpha_over
            ).image

    @contextmanager
    def _naming(self, sample: int) -> Iterator[None]:
        try:
            yield
        except RecordError as error:
            kind = RunError if "memory" in error.message else PictureError  # the lack of memory is not the picture's fault
            name = place_name(self.pictures.places[sample])
            raise kind(f"{name} cannot be used ({error.stage}: {error.message})") from error


def file_samples(
    pictures: FilePictures,
    recipe: Recipe,
    *,
    num_threads: int,
    seed: int,
    crop_area: tuple[float, float] | None,
    skips_bad: bool = False,
) -> Samples:
    """Samples of picture files. Those that cannot be used are named, by a PictureError or, with `skips_bad`, by a warning."""
    prepare_decoder()
    return LoadedSamples(
        PictureFiles(pictures, recipe),
        pictures,
        recipe=recipe,
        num_threads=num_threads,
        seed=seed,
        crop_area=crop_area,
        skips_bad=skips_bad,
        boxes=pictures.boxes,
    )

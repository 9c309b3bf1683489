"""The input of a training in parts that can be run alone, to measure them: reading, decoding and cropping, batches, and all.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from bulkinfer.train.data.samples import LoadedSamples, PictureFiles, Samples, Work
from bulkinfer.train.loop import make_input, plan_work
from bulkinfer.train.training import Training

READ, DECODE, BATCH, TOGETHER = "read", "decode and crop", "batch", "together"
_KEPT_BYTES = 1 << 28  # of pictures that are decoded from memory

Counts = Iterator[int]  # the pictures of each batch, when it is ready


def parts_of(training: Training) -> dict[str, Callable[[], Counts]]:
    """What is measured of a training: for each part, a function that begins it. Data in memory are not read or decoded."""
    samples, parts = training.data.samples, dict[str, Callable[[], Counts]]()
    if isinstance(samples, LoadedSamples):
        if isinstance(files := samples.picture, PictureFiles):
            parts[READ] = lambda: _read(training, files, samples.num_threads)
            parts[DECODE] = lambda: _decode(training, samples, files)
        else:
            parts[DECODE] = lambda: _ready(samples, plan_work(training))
    parts[BATCH] = lambda: _make_inputs(training)
    parts[TOGETHER] = lambda: _run_together(training)
    return parts


def _read(training: Training, files: PictureFiles, num_threads: int) -> Counts:
    with ThreadPoolExecutor(num_threads, thread_name_prefix="loader") as pool:
        for work in plan_work(training):
            yield len(list(pool.map(files.read, map(int, work.samples))))


def _decode(training: Training, samples: LoadedSamples, files: PictureFiles) -> Counts:
    """The first batches again and again, from memory."""
    kept, num_bytes, some = dict[int, bytes](), 0, list[Work]()
    for work in plan_work(training):
        kept |= {sample: files.read(sample) for sample in map(int, work.samples)}
        some.append(work)
        num_bytes = sum(map(len, kept.values()))
        if num_bytes > _KEPT_BYTES or len(kept) == training.plan.epochs.num_samples:
            break
    return _ready(samples.with_picture(lambda sample: files.decode(sample, kept[sample])), itertools.cycle(some))


def _ready(samples: Samples, work: Iterable[Work]) -> Counts:
    for _, images_NHWC in samples.batches(work):
        yield len(images_NHWC)


def _make_inputs(training: Training) -> Counts:
    """Inputs of the first batch, again and again."""
    work, images_NHWC = next(iter(training.data.samples.batches(plan_work(training))))
    while True:
        yield _input(training, work, images_NHWC)


def _run_together(training: Training) -> Counts:
    for work, images_NHWC in training.data.samples.batches(plan_work(training)):
        yield _input(training, work, images_NHWC)


def _input(training: Training, work: Work, images_NHWC: Tensor) -> int:
    """Make an input; returns its pictures when the device has it."""
    images_NCHW, _, _ = make_input(training, work, images_NHWC)
    if images_NCHW.is_cuda:
        torch.cuda.synchronize(images_NCHW.device)
    return len(images_NCHW)

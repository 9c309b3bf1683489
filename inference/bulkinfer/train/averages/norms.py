"""Batch norm of averaged weights: its averages are estimated again, from training pictures without augmentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from bulkinfer.train.checkpoint import Checkpoint
from bulkinfer.train.data.augment import normalise
from bulkinfer.train.data.draws import order, spread
from bulkinfer.train.data.opening import open_data
from bulkinfer.train.data.samples import Samples, Work
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import micro_batches
from bulkinfer.train.setup import device_of


def has_batch_norm(network: nn.Module) -> bool:
    """True if the network has averages of batch norm."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats for m in network.modules())


def estimate_norms(network: nn.Module, found: Checkpoint, options: TrainConfig, batches: int) -> str:
    """Set the averages of batch norm to the means over up to `batches` batches; returns a sentence that says of what.

    They are the first micro batches of the first epoch of the run that `found` belongs to, whose options are `options`. The
    network is in float32, on any device; it is moved to that of the options.
    """
    device = device_of(options)
    data = open_data(replace(options, augment="none", validation="none"))
    size = options.micro_batch_size or min(found.state["global_batch"], 128)
    num_samples = found.state["num_samples"]
    samples = spread(num_samples, len(data.train.labels))[order(options.seed, 0, num_samples)]
    pieces = micro_batches(0, num_samples, size)[:batches]
    work = [Work(0, None, samples[start:end]) for start, end in pieces]
    mean, std = (torch.tensor(values, device=device) for values in (data.recipe.mean, data.recipe.std))
    torch.manual_seed(options.seed)  # of dropout
    update_bn(_pictures(data.train, work, mean, std), network.to(device))
    return f"batch norm: averages from {len(pieces)} batches of {size} training pictures without augmentation"


def _pictures(samples: Samples, work: list[Work], mean: Tensor, std: Tensor) -> Iterator[Tensor]:
    for _, images_NHWC in samples.batches(work):
        yield normalise(images_NHWC.to(mean.device), mean, std, torch.float32)

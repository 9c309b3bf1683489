"""Batch norm of averaged weights: its averages are estimated again, from training pictures without augmentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bulkinfer.train.checkpoints.checkpoint import Checkpoint
from bulkinfer.train.data.augment import normalise
from bulkinfer.train.data.draws import order, spread
from bulkinfer.train.data.opening import open_data
from bulkinfer.train.data.samples import Work
from bulkinfer.train.network.freezing import freeze, moving_norms
from bulkinfer.train.options import MICRO_BATCH, TrainConfig
from bulkinfer.train.plan import micro_batches
from bulkinfer.train.setup import device_of


def estimate_norms(network: nn.Module, found: Checkpoint, options: TrainConfig, batches: int) -> str:
    """Set the averages of batch norm to the means over up to `batches` batches; returns a sentence that says of what.

    They are the first micro batches of the first epoch of the run that `found` belongs to, whose options are `options`. The
    network is in float32; it is moved to the device of the options, and left in evaluation mode. Norms that the run has frozen
    stay as they are. Returns "" if no norm has averages that move.
    """
    network.train()
    freeze(network, train_only=options.train_only, train_from=options.train_from)
    norms = [norm for norm in moving_norms(network) if norm.track_running_stats]
    if not norms:
        return ""
    device = device_of(options)
    data = open_data(replace(options, augment="none", validation="none"))
    size = options.micro_batch_size or min(found.state["global_batch"], MICRO_BATCH)
    num_samples = found.state["num_samples"]
    samples = spread(num_samples, len(data.train.labels))[order(options.seed, 0, num_samples)]
    pieces = micro_batches(0, num_samples, size)[:batches]
    work = [Work(0, None, samples[start:end]) for start, end in pieces]
    mean, std = (torch.tensor(values, device=device) for values in (data.recipe.mean, data.recipe.std))
    torch.manual_seed(options.seed)  # of dropout
    pictures = (normalise(images.to(device), mean, std, torch.float32) for _, images in data.train.batches(work) if len(images))
    set_to_means(network.to(device), norms, pictures)
    return f"batch norm: averages from {len(pieces)} batches of {size} training pictures without augmentation"


@torch.no_grad()
def set_to_means(network: nn.Module, norms: Sequence[_BatchNorm], batches_NCHW: Iterable[Tensor]) -> None:
    """Set the averages of these norms to the means over batches; the network is in training mode, and in evaluation mode then.

    It is what torch.optim.swa_utils.update_bn does, which takes the frozen norms of a network as well.
    """
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # each batch counts the same
    for images_NCHW in batches_NCHW:
        network(images_NCHW)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    network.eval()

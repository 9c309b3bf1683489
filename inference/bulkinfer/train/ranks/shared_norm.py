"""--norm_span: batch norm with the statistics of the micro batches of several replicas together.

Shape letters: N batch, C channels, H height, W width.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_reduce  # differentiable; torch.distributed.nn's is deprecated
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from bulkinfer.train.network.freezing import moving_norms


def share_statistics(network: nn.Module, group: dist.ProcessGroup) -> None:
    """Let the batch norms of a network, but for frozen ones, take their statistics over the ranks of a group.

    Names, tensors and classes stay, so that checkpoints are those of plain batch norm. The ranks must make the same passes.
    """
    for norm in moving_norms(network):
        _share(norm, group)


def _share(norm: _BatchNorm, group: dist.ProcessGroup) -> None:
    plain, on_gpu = norm.forward, _sync_batch_norm(norm, group)

    def forward(inputs_NCHW: Tensor) -> Tensor:
        if not norm.training:
            outputs: Tensor = plain(inputs_NCHW)
            return outputs
        if inputs_NCHW.is_cuda:
            on_gpu.momentum = norm.momentum  # which --recompute changes
            outputs = on_gpu(inputs_NCHW)
        else:
            outputs = normalise(norm, inputs_NCHW, group)
        for name in ("drop", "act"):  # timm's batch norm contains both
            if (rest := getattr(norm, name, None)) is not None:
                outputs = rest(outputs)
        return outputs

    norm.forward = forward  # type: ignore[method-assign, assignment]


def normalise(norm: _BatchNorm, inputs_NCHW: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Normalise with mean and variance over all ranks of a group, and count them in the averages; one message each way.

    Each rank sends its mean, variance and count in float32: sums of squares would lose the variance of values far from 0. A
    rank may have no pictures. The variances are put together as Chan, Golub and LeVeque do (1979, eq. 2.1).
    """
    values, channels = inputs_NCHW.float(), inputs_NCHW.shape[1]
    count = values.numel() // channels
    if count:
        variance, mean = torch.var_mean(values, (0, 2, 3), correction=0)
    else:
        variance, mean = (values.sum((0, 2, 3)) for _ in range(2))  # zeros that the backward pass reaches
    size, own = dist.get_world_size(group), dist.get_rank(group)
    message = functional.pad(torch.cat([mean, variance, mean.new_full((1,), count)])[None], (0, 0, own, size - own - 1))
    means, variances, counts = all_reduce(message, "sum", group).split([channels, channels, 1], dim=1)
    counts = counts.detach()
    total = counts.sum()
    shares = counts / total.clamp(min=1)
    mean = (shares * means).sum(0)
    variance = (shares * (variances + (means - mean).square())).sum(0)
    _follow(norm, mean.detach(), variance.detach() * total / (total - 1).clamp(min=1), total)
    scale = norm.weight.float() * torch.rsqrt(variance + norm.eps)
    shape = (1, -1, 1, 1)
    centred = values - mean.view(shape)
    return torch.addcmul(norm.bias.float().view(shape), centred, scale.view(shape)).to(inputs_NCHW.dtype)


def _follow(norm: _BatchNorm, mean: Tensor, variance: Tensor, count: Tensor) -> None:
    """Move the averages by the norm's momentum; the variance is the unbiased one. No pictures move nothing.

    No tensor has a gradient; torch.export, which makes stages, cannot take torch.no_grad() here.
    """
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None, "networks of the zoo have a momentum"
    norm.num_batches_tracked.add_(1)
    share = norm.momentum * (count > 0)
    for average, value in ((norm.running_mean, mean), (norm.running_var, variance)):
        assert average is not None
        average.lerp_(value.to(average.dtype), share.to(average.dtype))


def _sync_batch_norm(norm: _BatchNorm, group: dist.ProcessGroup) -> nn.SyncBatchNorm:
    """torch's module for GPUs, with the tensors of this one."""
    found = nn.SyncBatchNorm(norm.num_features, norm.eps, norm.momentum, process_group=group)
    found.weight, found.bias = norm.weight, norm.bias
    found.running_mean, found.running_var = norm.running_mean, norm.running_var
    found.num_batches_tracked = norm.num_batches_tracked
    return found

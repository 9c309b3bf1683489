"""--norm_span: batch norm with the statistics of the micro batches of several replicas together.

Shape letters: N batch, C channels, H height, W width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed.distributed_c10d import GroupName
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
    """Normalise with mean and variance over all ranks of a group, and count them in the averages; one message each way."""
    weight, bias = norm.weight.float(), norm.bias.float()
    outputs, mean, variance, total = _normalise(inputs_NCHW.float(), weight, bias, norm.eps, group.group_name)
    mean, variance, total = mean.detach(), variance.detach(), total.detach()
    _follow(norm, mean, variance * total / (total - 1).clamp(min=1), total)
    normalised: Tensor = outputs.to(inputs_NCHW.dtype)
    return normalised


# An operator of its own: left to autograd, with torch's differentiable messages, this takes three to seven times as long as
# torch's batch norm, and keeps more. torch.export, which makes stages, takes an operator as it is.
@torch.library.custom_op("bulkinfer::shared_norm", mutates_args=())
def _normalise(
    inputs_NCHW: Tensor, weight: Tensor, bias: Tensor, epsilon: float, group: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs, and mean, variance (the biased one) and number of values a channel over the ranks of a group; all in float32.

    Each rank sends its mean, variance and count: sums of squares would lose the variance of values far from 0. A rank may have
    no pictures. The variances are put together as Chan, Golub and LeVeque do (1979, eq. 2.1).
    """
    channels = inputs_NCHW.shape[1]
    count = inputs_NCHW.numel() // channels
    ranks = _resolve_process_group(GroupName(group))
    message = weight.new_zeros(ranks.size(), 2 * channels + 1)
    if count:
        mean, variance = torch.batch_norm_update_stats(inputs_NCHW, None, None, 0.0)
        message[ranks.rank()] = torch.cat([mean, variance, mean.new_full((1,), count)])
    dist.all_reduce(message, group=ranks)
    means, variances, counts = message[:, :channels], message[:, channels:-1], message[:, -1:]
    total = counts.sum()
    shares = counts / total.clamp(min=1)
    mean = (shares * means).sum(0)
    variance = (shares * (variances + (means - mean).square())).sum(0)
    return _scale(inputs_NCHW, mean, variance, weight, bias, epsilon), mean, variance, total


def _scale(inputs_NCHW: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """weight * (inputs - mean) / sqrt(variance + epsilon) + bias, in one pass."""
    if not inputs_NCHW.numel():
        return inputs_NCHW.clone()
    return functional.batch_norm(inputs_NCHW, mean, variance, weight, bias, training=False, eps=epsilon)


@_normalise.register_fake
def _(
    inputs_NCHW: Tensor, weight: Tensor, _bias: Tensor, _epsilon: float, _group: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(inputs_NCHW), torch.empty_like(weight), torch.empty_like(weight), weight.new_empty(())


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    values, weight, _, ctx.epsilon, ctx.group = inputs
    _, mean, variance, total = output
    ctx.save_for_backward(values, weight, mean, variance, total)


def _backward(ctx: Any, gradient_NCHW: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
    """Gradients of inputs, weight and bias.

    With x' the normalised inputs, s = weight / sqrt(variance + epsilon), n the number of values and sums over all ranks:
    s * (g - sum(g) / n - x' * sum(g * x') / n). (Ioffe and Szegedy 2015, section 3.) Those of weight and bias are this rank's
    sums, since gradients of ranks are added later.
    """
    inputs_NCHW, weight, mean, variance, total = ctx.saved_tensors
    return *_gradients(gradient_NCHW, inputs_NCHW, weight, mean, variance, total, ctx.epsilon, ctx.group), None, None


@torch.library.custom_op("bulkinfer::shared_norm_backward", mutates_args=())
def _gradients(
    gradient_NCHW: Tensor, inputs_NCHW: Tensor, weight: Tensor, mean: Tensor, variance: Tensor, total: Tensor,
    epsilon: float, group: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if inputs_NCHW.numel():
        found, products, sums = torch.ops.aten.native_batch_norm_backward(
            gradient_NCHW, inputs_NCHW, weight, mean, variance, None, None, False, epsilon, [True, True, True]
        )
    else:
        found, products, sums = torch.zeros_like(inputs_NCHW), torch.zeros_like(weight), torch.zeros_like(weight)
    message = torch.stack([products, sums])
    dist.all_reduce(message, group=_resolve_process_group(GroupName(group)))
    slopes, constants = message * (weight * torch.rsqrt(variance + epsilon) / total.clamp(min=1))
    return found.sub_(_scale(inputs_NCHW, mean, variance, slopes, constants, epsilon)), products, sums


@_gradients.register_fake
def _(gradient_NCHW: Tensor, _inputs: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(gradient_NCHW), torch.empty_like(weight), torch.empty_like(weight)


_normalise.register_autograd(_backward, setup_context=_keep)


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

"""One update: forward and backward passes over micro batches, the mean gradient of the window, then the optimiser.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bulkinfer.host.versions import NATIVE_HALVES, processor_features
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.ranks.group import ALONE, Ranks
from bulkinfer.train.update.loss import Loss, Part
from bulkinfer.train.update.updating import Updater

if TYPE_CHECKING:
    from bulkinfer.train.ranks.stages import Stage

log = logging.getLogger("bulkinfer")

Stop = Callable[[], int]  # asked in each update; an exit code other than 0 ends the run after it


def never() -> int:
    """Let a run go on to its end."""
    return 0


@dataclass(frozen=True, slots=True)
class Precision:
    """Arithmetic and weights. 32.32: all float32; 16.32: autocast with float32 weights; 16.16: weights in 16 bits as well.

    `half_type` is the type of 16 bits: bfloat16, or float16, which needs a loss scale because of its small range.
    """

    name: str
    device: str
    half_type: str = "bfloat16"

    @property
    def half(self) -> torch.dtype:
        return torch.float16 if self.half_type == "float16" else torch.bfloat16

    @property
    def weights(self) -> torch.dtype:
        return self.half if self.name == "16.16" else torch.float32

    @property
    def input(self) -> torch.dtype:
        """The type of the network's input."""
        return self.weights

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.name != "16.32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=self.half)


def warn_if_emulated(precision: Precision) -> None:
    """Log a warning if the processor computes in 16 bits only by emulation, which takes longer than 32 bits.

    It asks what infer_launch asks for --precision bf16, and whether oneDNN makes use of it.
    """
    if precision.name == "32.32" or precision.device != "cpu":
        return
    is_bfloat16 = precision.half_type == "bfloat16"
    ask = torch.ops.mkldnn
    is_used = ask._is_mkldnn_bf16_supported() if is_bfloat16 else ask._is_mkldnn_fp16_supported()
    if not (is_used and processor_features() & NATIVE_HALVES[precision.half_type]):
        sets = "AMX or AVX512-BF16" if is_bfloat16 else "AMX-FP16 or AVX512-FP16"
        log.warning(
            f"warning: --precision {precision.name}: no native {precision.half_type} on this processor ({sets}), it is "
            "emulated: --precision 32.32 is faster"
        )


@dataclass
class LossScale:
    """The loss is multiplied by this scale before the backward pass, and the gradients are divided by it afterwards.

    `static`: always `value`. `ramp`: doubles from `first` to `value`, which is a power of two times it, in equal parts of the
    run. `dynamic`: halved when a gradient is not finite, doubled after 2,000 updates in which all were finite (Micikevicius et
    al., arXiv:1710.03740).
    """

    kind: str
    value: float
    good_steps: int = 0
    first: float = 1.0

    def at(self, progress: float) -> float:
        """The scale at `progress` (0..1) of the run."""
        if self.kind != "ramp":
            return self.value
        doublings = int(math.log2(self.value / self.first))
        return float(self.first * 2 ** min(doublings, int(progress * (doublings + 1))))

    def after(self, finite: bool) -> None:
        """Adapt the scale after an update."""
        if self.kind != "dynamic":
            return
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.value = max(self.value / 2, 2.0**-24)
        elif self.good_steps == 2000:
            self.value, self.good_steps = min(self.value * 2, 2.0**24), 0


def loss_scale_of(config: TrainConfig) -> LossScale:
    """--loss_scaling in its mode; a dynamic scale starts high, since it falls fast and rises slowly."""
    first = 2.0**16 if config.loss_scaling_mode == "dynamic" else 1.0
    return LossScale(config.loss_scaling_mode, config.loss_scaling or first, first=config.loss_scaling_start)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an update: sums over this rank's samples, on the device.

    `finite`: the weights were updated. `stop` is 0, or the exit code with which the run ends after this update, on all ranks.
    """

    loss: Tensor
    correct: Tensor
    count: int
    finite: bool
    stop: int = 0


def targets_of(labels_N: Tensor, num_classes: int, smoothing: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Labels as probabilities, N x K: 1 - smoothing for the label, `smoothing` spread over all classes (as torch does)."""
    targets = torch.full((len(labels_N), num_classes), smoothing / num_classes, dtype=dtype, device=labels_N.device)
    return targets.scatter_(1, labels_N[:, None], 1 - smoothing + smoothing / num_classes)


def run_step(
    network: Callable[[Tensor], Tensor],
    updater: Updater,
    parts: Iterable[Part],
    *,
    window_size: int,
    step: int,
    rate: float,
    scale: float,
    precision: Precision,
    ranks: Ranks = ALONE,
    stop: Stop = never,
    buffers: Sequence[Tensor] = (),
    counts_correct: bool = True,
    stage: Stage | None = None,
) -> Outcome:
    """Update number `step` from the micro batches `parts`: pictures N x C x H x W, targets N x K, labels N.

    The gradient is that of the mean loss over the `window_size` samples of all ranks, for any number of parts. If a gradient is
    not finite on any rank, neither the weights nor the `buffers` (averages of batch norm) change. If `stop()` gives an exit
    code on any rank, all of them return it. Without `counts_correct` the outcome has no right answers. A rank that has a
    `stage` passes the parts through that, in place of the network.
    """
    before = [buffer.clone() for buffer in buffers]
    updater.forget_gradients()
    loss = Loss(scale / window_size, counts_correct=counts_correct)
    if stage is not None:
        stage.run(parts, loss)
    else:
        for images_NCHW, *answers in parts:
            with precision.autocast():
                logits_NK = network(images_NCHW)
            loss(logits_NK, answers).backward()  # type: ignore[no-untyped-call]
    gradients = updater.gradients(of_all=ranks.are_many)  # a rank without samples takes part, as the others have gradients
    code = stop()
    stopping = torch.tensor([float(code > 0)], device=gradients[0].device)  # how many ranks are to stop
    ranks.add_gradients([*gradients, stopping])
    if scale != 1:
        torch._foreach_mul_(gradients, 1 / scale)
    norms = torch.stack(torch._foreach_norm(gradients))
    flags = torch.stack([(~torch.isfinite(norms.sum())).float(), stopping[0].float()])
    if ranks.world.stages > 1:
        ranks.add([flags])  # of the other stages
    faults, stops = flags.tolist()
    finite = not faults
    if finite:
        updater.update(rate, step)
    else:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
    return Outcome(*loss.sums(gradients[0].device), loss.count, finite=finite, stop=ranks.largest(code) if stops else 0)

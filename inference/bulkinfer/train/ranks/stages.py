"""Stages: each rank of a replica has a part of the network, and the micro batches of an update pass through them in turn.

Shape letters: N batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from bulkinfer.train.network.recompute import modules_matching, wrap
from bulkinfer.train.ranks.group import Ranks
from bulkinfer.train.update.loss import Loss, Part

T = TypeVar("T")
Autocast = Callable[[], AbstractContextManager[object]]

_SCHEDULES: dict[str, Callable[..., PipelineScheduleSingle]] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "sequential": ScheduleGPipe,
}


def divide(
    network: nn.Module,
    splits: Sequence[str],
    example_NCHW: Tensor,
    ranks: Ranks,
    autocast: Autocast,
    *,
    schedule: str,
    recompute: tuple[str, ...] = (),
) -> Stage:
    """The part of the network that this rank has; the others begin, or end, with the modules of these names.

    torch.export makes the parts, for micro batches of the size of `example_NCHW`. It drops what is wrapped around a module, so
    the modules that `recompute` matches are wrapped in the part. The network stays, with the same parameters and buffers.
    """
    recomputed = modules_matching(network, recompute)
    with autocast():
        pipe = pipeline(network, (example_NCHW,), split_spec=dict.fromkeys(splits, SplitPoint.BEGINNING))
    parts = [pipe.get_stage_module(number) for number in range(pipe.num_stages)]
    own = parts[ranks.world.stage]
    inside = {name for name, _ in own.named_modules()}
    for name in recomputed:
        if name in inside:
            wrap(own.get_submodule(name))
    return Stage(network, parts, ranks, autocast, schedule)


class Stage:
    """The part of a network that this rank has.

    The network itself is whole from make_whole() to the next run(): between these the memory of the other parts is free.
    """

    def __init__(self, network: nn.Module, parts: Sequence[nn.Module], ranks: Ranks, autocast: Autocast, schedule: str) -> None:
        assert ranks.stages is not None
        self._group, self._stage, self._count = ranks.stages, ranks.world.stage, ranks.world.stages
        memory_format = torch.channels_last if is_channels_last(network) else torch.contiguous_format
        self._module, self._device = _Contiguous(parts[self._stage], memory_format, autocast), next(network.parameters()).device
        self._edges = _edges_of(parts)
        self._kind, self._schedules = schedule, dict[int, PipelineScheduleSingle]()
        self._loss: Loss | None = None  # of the update in run(): a schedule serves many updates
        tensors = dict(_tensors_of(network))
        # torch.export makes buffers of constants, which are none of the network's
        self._parts = [{name: tensors[name] for name, _ in _tensors_of(part) if name in tensors} for part in parts]
        others = [tensor for number, part in enumerate(self._parts) if number != self._stage for tensor in part.values()]
        self._others = [(tensor, tensor.untyped_storage().nbytes()) for tensor in others]
        self._is_whole = True

    @property
    def parameters(self) -> set[str]:
        """The names of the parameters of this part."""
        return {name for name, tensor in self._parts[self._stage].items() if isinstance(tensor, nn.Parameter)}

    @property
    def buffers(self) -> list[Tensor]:
        """The buffers of this part."""
        return [tensor for tensor in self._parts[self._stage].values() if not isinstance(tensor, nn.Parameter)]

    def run(self, micro_batches: Iterable[Part], loss: Loss) -> None:
        """Pass all micro batches of an update, which have one size, forward and backward; the last stage calls `loss`."""
        self._keep_own()
        is_first, is_last = self._stage == 0, self._stage == self._count - 1
        inputs, targets = list[tuple[Tensor, ...]](), list[tuple[Tensor, ...]]()
        for images_NCHW, *answers in micro_batches:
            inputs.append((images_NCHW,) if is_first else ())
            targets.append(tuple(answers))
        at_once = 1 if self._kind == "sequential" else len(inputs)
        self._loss = loss
        for start in range(0, len(inputs), at_once):
            schedule = self._schedules.get(at_once) or self._new_schedule(at_once, inputs[0])
            schedule.step(
                arg_mbs=inputs[start : start + at_once] if is_first else None,
                target_mbs=targets[start : start + at_once] if is_last else None,
                return_outputs=False,
            )

    def _new_schedule(self, count: int, first_input: tuple[Tensor, ...]) -> PipelineScheduleSingle:
        """The schedule for so many micro batches."""
        stage = PipelineStage(
            self._module,
            self._stage,
            self._count,
            self._device,
            input_args=first_input or self._edges[self._stage - 1],
            output_args=self._edges[self._stage],
            group=self._group,
        )
        made = _SCHEDULES[self._kind](stage, count, loss_fn=self._loss_of, scale_grads=False)
        self._schedules[count] = made
        return made

    def _loss_of(self, logits_NK: Tensor, answers: Sequence[Tensor]) -> Tensor:
        assert self._loss is not None, "schedules work within run()"
        return self._loss(logits_NK, answers)

    @torch.no_grad()
    def make_whole(self) -> None:
        """Send the parameters and buffers of all parts to all ranks of the replica, so that each has the whole network."""
        if self._is_whole:
            return
        for tensor, size in self._others:
            tensor.untyped_storage().resize_(size)
        for number, part in enumerate(self._parts):
            for tensor in part.values():
                dist.broadcast(tensor, group=self._group, group_src=number)
        self._is_whole = True

    def gather(self, value: T) -> list[T]:
        """The values of all stages of this replica, in the first of them; none in the others."""
        values: list[T | None] | None = [None] * self._count if self._stage == 0 else None
        dist.gather_object(value, values, group=self._group, group_dst=0)
        return values or []  # type: ignore[return-value]

    def _keep_own(self) -> None:
        """Free the memory of the other parts."""
        for tensor, _ in self._others:
            tensor.untyped_storage().resize_(0)
        self._is_whole = False


class _Contiguous(nn.Module):
    """A part between edges that are contiguous, as messages must be; between them it works in a memory format of its own."""

    def __init__(self, part: nn.Module, memory_format: torch.memory_format, autocast: Autocast) -> None:
        super().__init__()
        self._part, self._format, self._autocast = part, memory_format, autocast

    def forward(self, inputs_NCHW: Tensor) -> Tensor:
        if inputs_NCHW.ndim == 4:
            inputs_NCHW = inputs_NCHW.contiguous(memory_format=self._format)
        with self._autocast():
            outputs: Tensor = self._part(inputs_NCHW)
        return outputs.contiguous()


def is_channels_last(network: nn.Module) -> bool:
    """Whether the weights of the convolutions lie in channels-last memory."""
    weights = [weight for weight in network.parameters() if weight.ndim == 4 and min(weight.shape[1:]) > 1]
    return all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _edges_of(parts: Sequence[nn.Module]) -> list[Tensor]:
    """What each part gives to the next, and the last one to the loss: tensors without values."""
    found = list[Tensor]()
    for part in parts:
        (output,) = [node for node in part.graph.nodes if node.op == "output"]  # type: ignore[union-attr]
        value = output.args[0]
        assert not isinstance(value, tuple | list), "blocks follow each other, with one tensor between two of them"
        meta = value.meta["val"]
        found.append(torch.empty(meta.shape, dtype=meta.dtype, device="meta", requires_grad=True))
    return found

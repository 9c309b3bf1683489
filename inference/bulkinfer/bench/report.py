"""The arithmetic of bench and its report: medians with quartiles, the ideal, the bottleneck, where the time goes.

All three kinds of measurement come in rounds; the figure of a kind is the median over them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bulkinfer.bench.limits import Limits
from bulkinfer.bench.measurement import Measurement
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.host.number_text import rate_text

KINDS = {"decode": "decode ceiling", "inference": "inference ceiling", "end_to_end": "end to end"}
_IDLE = 0.85  # cores in use below this share cannot be explained by the border between two steps

# Of the wall time of each thread of a kind: stage as the meter calls it -> in words. `rows` turns outputs into columns.
_LOADERS = {"read": "read", "decode": "decode", "preprocess": "preprocess", "wait_for_slot": "wait for model"}
_STREAMS = {"wait_for_batch": "wait for data", "normalise": "normalise", "infer": "infer", "rows": "rows"}
_PUBLISHER = {"write": "write"}


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Median of several measurements, with the quartiles around it."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper)


@dataclass(frozen=True)
class Throughput:
    """The result of all rounds of one bench. `shared`: decoding and the network use the same processor.

    `threads` is how many threads share the stages: loaders and streams of all workers.
    """

    rate: dict[str, Quartiles]
    cpu_s: dict[str, Quartiles]  # CPU time per picture
    cores: int
    shared: bool
    busy: float  # share of the usable cores' time that end to end got
    wanted: float  # the share that its threads had work for
    split: dict[str, dict[str, float]]  # kind of thread -> stage in words -> share of wall time

    @property
    def ideal(self) -> float:
        """Pictures per second of a pipeline without losses."""
        if self.shared:
            return self.cores / (self.cpu_s["decode"].median + self.cpu_s["inference"].median)
        return min(self.rate["decode"].median, self.rate["inference"].median)

    @property
    def share_of_ideal(self) -> float:
        return self.rate["end_to_end"].median / self.ideal

    @property
    def cpu_over_parts(self) -> float:
        """CPU time of a picture end to end, over that of decoding and inference: the loss that bulkinfer itself causes.

        Other programs on the host hardly affect it.
        """
        return self.cpu_s["end_to_end"].median / (self.cpu_s["decode"].median + self.cpu_s["inference"].median)

    @property
    def _idle_loaders(self) -> str:
        """What to do where the loader threads of a process hinder each other, which share one interpreter."""
        share = self.rate["decode"].median * self.cpu_s["decode"].median / self.cores
        if share >= _IDLE:
            return ""
        return f"; its threads use {100 * share:.0f} % of the cores' time: --loader_processes N decodes in more processes"

    @property
    def bottleneck(self) -> str:
        """What a faster run needs most, in words."""
        decode, infer = (self.cpu_s[kind].median for kind in ("decode", "inference"))
        if not self.shared:
            slower, faster = sorted(("decode", "inference"), key=lambda kind: self.rate[kind].median)
            name = "decoding" if slower == "decode" else "the network"
            rates = f"{rate_text(self.rate[slower].median)}, the other side {self.rate[faster].median:.1f}"
            return f"{name}, which reaches {rates}{self._idle_loaders if slower == 'decode' else ''}"
        if self.busy < _IDLE:
            if self.wanted >= _IDLE:
                return (
                    f"other programs: the threads had work for all cores and got {100 * self.busy:.0f} % of their time; "
                    "measure again when the host is quiet"
                )
            waits = self.split["loaders"]["wait for model"], self.split["streams"]["wait for data"]
            side = "loader threads wait for the network" if waits[0] > waits[1] else "streams wait for pictures"
            return f"neither, {100 * (1 - self.busy):.0f} % of the cores' time is not used: the {side}"
        name = "decoding" if decode > infer else "the network"
        return f"{name}, {100 * max(decode, infer) / (decode + infer):.0f} % of the CPU time of a picture; all cores are in use"


def throughput(rounds: list[dict[str, Measurement]], plan: ThreadPlan, cores: int, *, shared: bool) -> Throughput:
    """Put the rounds together; every round holds each of KINDS once."""
    found = {kind: [measured[kind] for measured in rounds] for kind in KINDS}
    whole = found["end_to_end"]
    split = {
        "loaders": shares(whole, _LOADERS, plan.num_devices * plan.num_workers),
        "streams": shares(whole, _STREAMS, plan.num_devices * plan.streams),
        "publisher": shares(whole, _PUBLISHER, plan.num_devices),
    }
    preparing = (split["loaders"]["decode"] + split["loaders"]["preprocess"]) * plan.num_workers
    preparing += split["streams"].get("normalise", 0.0) * plan.streams
    inferring = split["streams"]["infer"] * plan.streams * plan.threads_per_stream if shared else 0.0
    return Throughput(
        rate={kind: Quartiles.of([one.images_per_s for one in several]) for kind, several in found.items()},
        cpu_s={kind: Quartiles.of([one.cpu_s_per_picture for one in several]) for kind, several in found.items()},
        cores=cores,
        shared=shared,
        busy=statistics.median(one.cpu_s / one.seconds / cores for one in whole),
        wanted=min(1.0, (preparing + inferring) * plan.num_devices / cores),
        split=split,
    )


def shares(several: list[Measurement], stages: dict[str, str], threads: int) -> dict[str, float]:
    """Median share of the wall time of `threads` threads that went into each stage.

    Normalising, which streams do for graphs that take float32, is left out where nothing did it.
    """
    return {
        words: statistics.median(one.stages.get(stage, 0.0) / (threads * one.seconds) for one in several)
        for stage, words in stages.items()
        if stage != "normalise" or any(stage in one.stages for one in several)
    }


def limit_lines(found: Throughput, limits: Limits, precision: str) -> list[str]:
    """How far each part is from what the machine does at most, for people."""
    rate, lines = found.rate["inference"].median, []
    if limits.operations and limits.peak:
        done = rate * limits.operations
        lines.append(
            f"  network: {limits.operations / 1e9:.2f} G operations a picture, {done / 1e9:.0f} G/s: "
            f"{100 * done / limits.peak:.0f} % of products of matrices in {precision} by the same library and threads, "
            f"{limits.peak / 1e9:.0f} G/s"
        )
    if limits.moved_bytes and limits.copied:
        lines.append(
            f"  memory: copies {limits.copied / 1e9:.1f} GB/s; the layers of a picture read and write "
            f"{limits.moved_bytes / 1e6:.1f} MB, at most {limits.copied / limits.moved_bytes:.0f} images/sec if none of it "
            "stayed in a cache"
        )
    if limits.turbo_cpu_s:
        share = limits.turbo_cpu_s / found.cpu_s["decode"].median
        lines.append(
            f"  decoding: libjpeg-turbo alone takes {1000 * limits.turbo_cpu_s:.2f} CPU ms for a JPEG, {100 * share:.0f} % of "
            "reading, decoding and preparing a picture"
        )
    return ["limits of this machine, each measured alone", *lines] if lines else []


def report(found: Throughput, plan: ThreadPlan) -> list[str]:
    """The lines for people."""
    lines = [f"{'':<20}{'images/sec':>10}  {'quartiles':<18}{'CPU ms a picture':>16}  quartiles"]
    for kind, name in KINDS.items():
        rate, cpu = found.rate[kind], found.cpu_s[kind]
        rates = f"{rate.lower:.1f} .. {rate.upper:.1f}"
        cpus = f"{1000 * cpu.lower:.2f} .. {1000 * cpu.upper:.2f}"
        lines.append(f"{name:<20}{rate.median:>10.1f}  {rates:<18}{1000 * cpu.median:>16.2f}  {cpus}")
    how = (
        f"{found.cores} usable cores over the CPU time of decoding and inference together"
        if found.shared
        else "the smaller ceiling, since they run on different hardware"
    )
    lines.append(f"ideal: {rate_text(found.ideal)}, {how}; end to end reaches {100 * found.share_of_ideal:.0f} % of it")
    lines.append(f"CPU time: a picture end to end takes {100 * found.cpu_over_parts:.0f} % of decoding and inference together")
    lines.append(f"bottleneck: {found.bottleneck}")
    names = {
        "loaders": f"{plan.num_devices * plan.num_workers} loader thread(s)",
        "streams": f"{plan.num_devices * plan.streams} stream(s)",
        "publisher": "publishing",
    }
    lines.append("end to end, share of the wall time of")
    for kind, stages in found.split.items():
        parts = ", ".join(f"{words} {100 * share:.1f} %" for words, share in stages.items())
        lines.append(f"  {names[kind] + ':':<20}{parts}")
    return lines

"""Where the time of a job went: thread-seconds by stage, and which side of the pipeline limits the rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bulkinfer.host.number_text import percent_text

# Kind of thread -> stages as the meter calls them (worker/metrics.py) -> words.
_THREADS = {
    "loader threads": {
        "read": "read", "decode": "decode", "preprocess": "resize and crop", "wait_for_slot": "wait for the network",
    },
    "streams": {
        "wait_for_batch": "wait for pictures", "normalise": "normalise", "infer": "run the network", "warm_up": "warm up",
        "rows": "make rows",
    },
    "publisher": {"write": "write results"},
}  # fmt: skip
_WAITS = ("wait_for_slot", "wait_for_batch")
_WITHOUT_WAITS = ("write",)  # how long the publisher has nothing to write is not measured
_LITTLE = 0.1  # share of waiting below which a side hardly waits


@dataclass(frozen=True)
class Stage:
    """One stage: its threads, its name in words, its thread-seconds, the share of its threads' time, and if it is a wait.

    The share is None where the time of the threads without work is not known.
    """

    threads: str
    name: str
    seconds: float
    share: float | None
    is_wait: bool


@dataclass(frozen=True)
class StageTimes:
    """All stages with a time, and a sentence that names what limits the rate."""

    stages: tuple[Stage, ...]
    bottleneck: str


def stage_times(thread_seconds: Mapping[str, float]) -> StageTimes | None:
    """The stages of a job by `stage_thread_seconds` of its summary; None if it holds none."""
    stages = []
    for threads, names in _THREADS.items():
        total = sum(thread_seconds.get(stage, 0.0) for stage in names)
        for stage, words in names.items():
            if total and stage in thread_seconds:
                seconds = thread_seconds[stage]
                share = seconds / total if stage not in _WITHOUT_WAITS else None
                stages.append(Stage(threads, words, seconds, share, stage in _WAITS))
    if not stages:
        return None
    return StageTimes(tuple(stages), _bottleneck(stages))


def _bottleneck(stages: list[Stage]) -> str:
    """What limits the rate: the side of the pipeline that waits less than the other."""
    waits = {each.threads: each.share or 0.0 for each in stages if each.is_wait}
    loaders, streams = waits.get("loader threads", 0.0), waits.get("streams", 0.0)
    if not any(each.threads == "loader threads" for each in stages):
        return "the network. This run prepared no pictures."
    measured = (
        f"The streams that run the network waited for pictures during {percent_text(streams, 0)} of their time. "
        f"The loader threads that prepare pictures waited for the network during {percent_text(loaders, 0)} of theirs."
    )
    if max(loaders, streams) < _LITTLE:
        return f"both sides at once. {measured}"
    if streams > loaders:
        work = [each for each in stages if each.threads == "loader threads" and not each.is_wait]
        most = max(work, key=lambda each: each.seconds)
        return f"preparing pictures, most of all: {most.name}. {measured}"
    return f"the network. {measured}"

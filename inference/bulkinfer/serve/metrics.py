"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from bulkinfer.serve.batcher import Observer

_SECONDS = tuple(base * 10.0**power for power in range(-3, 2) for base in (1, 2, 5))  # 1 ms to 50 s
_PICTURES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


class Watched(Protocol):
    """A network whose pictures are counted."""

    def count_on_the_way(self) -> int: ...


class Metrics:
    """The counters of one server; a registry of its own, so that several may be in one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "bulkinfer_requests",
            "Requests for answers, by HTTP status (of gRPC, the one that means the same)",
            ["model", "protocol", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "bulkinfer_request_seconds",
            "From the last byte of a request to its reply",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.pictures = Counter("bulkinfer_pictures", "Pictures in requests that were answered", ["model"], registry=registry)
        self._run_seconds = Histogram(
            "bulkinfer_run_seconds", "Time of a run of the network", ["model"], buckets=_SECONDS, registry=registry
        )
        self._batch = Histogram(
            "bulkinfer_run_pictures", "Pictures in a run of the network", ["model"], buckets=_PICTURES, registry=registry
        )
        self._on_the_way = Gauge(
            "bulkinfer_pictures_on_the_way", "Pictures accepted and not answered", ["model"], registry=registry
        )
        self._open = Gauge("bulkinfer_requests_open", "Requests that are being received or answered", registry=registry)

    def observer(self, model: str) -> Observer:
        """What a batcher calls after each run."""
        seconds, batch = self._run_seconds.labels(model), self._batch.labels(model)

        def observe(pictures: int, run_s: float, /) -> None:
            seconds.observe(run_s)
            batch.observe(pictures)

        return observe

    def watch(self, networks: Mapping[str, Watched], requests_open: Callable[[], int]) -> None:
        """Read the gauges from the networks and from `requests_open()` when somebody asks for them."""
        for name, network in networks.items():
            self._on_the_way.labels(name).set_function(network.count_on_the_way)
        self._open.set_function(requests_open)

    def text(self) -> bytes:
        """All of them."""
        return bytes(generate_latest(self._registry))

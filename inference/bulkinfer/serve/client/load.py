"""Threads that send requests and time the answers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bulkinfer.serve.client.payloads import Payloads
from bulkinfer.serve.client.server_facts import Client, ServerError
from bulkinfer.serve.messages import Reply, Request
from bulkinfer.serve.options import RequestConfig
from bulkinfer.serve.refusals import Reason

_CLASSES = "class_ids"
_BUSY = (Reason.BUSY.http_status, Reason.BUSY.grpc_status)
BUSY_S, _AGAIN_S = 10.0, 0.05  # how long a warm-up waits for a server that is busy, and for how long each time


@dataclass
class Measured:
    """What was measured: the time of each answer (seconds), in the order in which they came; seconds from first to last.

    `failed` counts the requests without an answer by the reason. With labels, `checked` pictures had one, `right` of them the
    first class. `cpu_s` is the processor time of this process.
    """

    latencies_s: list[float] = field(default_factory=list)
    pictures: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    right: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0


def send(
    config: RequestConfig,
    clients: list[list[Client]],
    payloads: Payloads,
    outputs: tuple[str, ...],
    is_right: Callable[[int, str], bool],
    say: Callable[[str], None],
) -> Measured:
    """Send what `config` says, after its warm-up; `say` gets the lines of --verbose.

    `clients` are those of each thread, one for each request that it may have under way.

    `outputs` are asked for; `is_right(class id, label)` judges a first class.
    """
    load = _Load(config, payloads, outputs, is_right, say)
    threads = [
        threading.Thread(
            target=load.run, args=(thread, stream, len(own), client), name=f"request-{thread}-{stream}", daemon=True
        )
        for thread, own in enumerate(clients)
        for stream, client in enumerate(own)
    ]
    load.ready = threading.Barrier(len(threads) + 1)
    for thread in threads:
        thread.start()
    load.ready.wait()  # all are warm
    began_cpu_s, load.began = time.process_time(), time.perf_counter()
    load.ready.wait()
    for thread in threads:
        thread.join()
    if load.error is not None:
        raise load.error
    load.measured.wall_s = time.perf_counter() - load.began
    load.measured.cpu_s = time.process_time() - began_cpu_s
    return load.measured


class _Load:
    def __init__(
        self,
        config: RequestConfig,
        payloads: Payloads,
        outputs: tuple[str, ...],
        is_right: Callable[[int, str], bool],
        say: Callable[[str], None],
    ) -> None:
        self._config, self._payloads, self._outputs, self._is_right, self._say = config, payloads, outputs, is_right, say
        self.measured = Measured()
        self.error: BaseException | None = None
        self.ready = threading.Barrier(1)
        self.began = 0.0
        self._lock = threading.Lock()
        self._due = self._schedule()

    def run(self, thread: int, stream: int, streams: int, client: Client) -> None:
        """Requests stream, stream + streams, ... of a thread; with a rate, those that come next of all threads."""
        config = self._config
        try:
            for number in range(config.warm_up):
                self._warm_up(client, number)
        except BaseException as error:  # send raises it
            self.error = error
        self.ready.wait()
        self.ready.wait()
        if self.error is not None:
            return
        try:
            if config.rate:
                self._send_when_due(client)
                return
            for number in range(stream, config.num_requests, streams):
                self._time(client, thread, number, time.perf_counter())
        except BaseException as error:  # send raises it
            self.error = error

    def _schedule(self) -> Iterator[tuple[int, int, float]]:
        """Thread and number of each request of all threads, and the second at which it is due: a Poisson process."""
        config, due_s, times = self._config, 0.0, random.Random(self._config.seed)
        for number in range(config.num_requests):
            for thread in range(config.num_threads):
                due_s += times.expovariate(config.rate)
                yield thread, number, due_s

    def _send_when_due(self, client: Client) -> None:
        """Send the requests that come next. Whoever is free sends: one that waits for its answer holds up no other."""
        while True:
            with self._lock:
                following = next(self._due, None)
            if following is None:
                return
            thread, number, due_s = following
            time.sleep(max(0.0, self.began + due_s - time.perf_counter()))
            self._time(client, thread, number, self.began + due_s)  # late sending counts as waiting

    def _warm_up(self, client: Client, number: int) -> None:
        """Send a request. A server that is busy, as with the warm-up of other threads, gets it again for a while."""
        request, deadline = self._request(number, number, self._config.batch_size), time.monotonic() + BUSY_S
        while True:
            try:
                client.infer(request)
            except ServerError as error:
                if error.status in _BUSY and time.monotonic() < deadline:
                    time.sleep(_AGAIN_S)
                    continue
                raise ServerError(error.status, f"the server does not answer the first request: {error}") from None
            return

    def _request(self, number: int, first: int, count: int) -> Request:
        return Request(self._config.model_name, "", str(number), (self._payloads.tensor(first, count),), self._outputs)

    def _time(self, client: Client, thread: int, number: int, since: float) -> None:
        config = self._config
        offset = number * config.batch_size
        first, count = thread * config.num_images + offset, min(config.batch_size, config.num_images - offset)
        request = self._request(number, first, count)
        try:
            reply = client.infer(request)
        except ServerError as error:
            with self._lock:
                self.measured.failed[str(error)] += 1
            return
        latency_s = time.perf_counter() - since
        checked, right = self._judge(reply, first, count)
        with self._lock:
            self.measured.latencies_s.append(latency_s)
            self.measured.pictures += count
            self.measured.checked += checked
            self.measured.right += right
        if config.verbose:
            self._say(f"thread {thread}, request {number}: {count} picture(s), {1000 * latency_s:.2f} ms")

    def _judge(self, reply: Reply, first: int, count: int) -> tuple[int, int]:
        """How many pictures of the reply have a label, and how many of these the first class is right for."""
        if not self._payloads.labels:
            return 0, 0
        values = next(tensor.values for tensor in reply.outputs if tensor.name == _CLASSES)
        found = [
            (int(row[0]), label)
            for row, index in zip(values, self._payloads.indices(first, count), strict=True)
            if (label := self._payloads.labels[index])
        ]
        return len(found), sum(self._is_right(number, label) for number, label in found)


def wanted_outputs(known: list[str]) -> tuple[str, ...]:
    """The outputs to ask for, of those of the server: the classes and their scores, else the first one."""
    return tuple(name for name in (_CLASSES, "scores") if name in known) or tuple(known[:1])

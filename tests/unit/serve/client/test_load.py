"""load.py: which pictures are sent, by whom, and what is counted; over clients that answer at once."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest
from bulkinfer.serve.client import load
from bulkinfer.serve.client.load import Measured, send, wanted_outputs
from bulkinfer.serve.client.payloads import Payloads
from bulkinfer.serve.client.server_facts import ServerError, ServerFacts
from bulkinfer.serve.messages import Reply, Request
from bulkinfer.serve.options import RequestConfig
from bulkinfer.serve.tensors import tensor_of

PAYLOADS = Payloads("x", "UINT8", [np.array([number], np.uint8) for number in range(7)], [str(n) for n in range(7)], "seven")


class FakeClient:
    """Answers with the pictures as classes; one in `fails` is refused. `seen` has the pictures of each request."""

    def __init__(self, fails: tuple[int, ...] = (), status: int = 429) -> None:
        self.fails, self.status, self.seen, self.lock = fails, status, list[list[int]](), threading.Lock()

    def facts(self, model: str) -> ServerFacts:
        raise AssertionError(model)

    def close(self) -> None:
        pass

    def infer(self, request: Request) -> Reply:
        values = np.asarray(request.inputs[0].values)
        with self.lock:
            self.seen.append(values[:, 0].tolist())
            if len(self.seen) in self.fails:
                raise ServerError(self.status, f"{self.status}: busy")
        return Reply("net", request.id, (tensor_of("class_ids", values.astype(np.int32)),))


def measure(clients: list[FakeClient], streams: int = 1, **options: object) -> Measured:
    config = RequestConfig(num_threads=len(clients), **options)  # type: ignore[arg-type]
    own = [[client] * streams for client in clients]
    return send(config, own, PAYLOADS, ("class_ids",), lambda number, label: label == str(number), lambda line: None)


def test_each_thread_sends_its_pictures_after_the_warm_up() -> None:
    clients = [FakeClient(), FakeClient()]
    found = measure(clients, num_images=5, batch_size=2, warm_up=1)
    assert clients[0].seen == [[0, 1], [0, 1], [2, 3], [4]]
    assert clients[1].seen == [[0, 1], [5, 6], [0, 1], [2]]
    assert (len(found.latencies_s), found.pictures) == (6, 10)
    assert (found.checked, found.right) == (10, 10)
    assert min(found.latencies_s) >= 0
    assert found.wall_s > 0


@pytest.mark.parametrize("streams", [1, 3])
def test_requests_of_a_thread_are_shared_by_its_streams(streams: int) -> None:
    client = FakeClient()
    found = measure([client], streams, num_images=14, batch_size=3, warm_up=0)
    assert found.pictures == 14
    assert Counter(number for each in client.seen for number in each) == dict.fromkeys(range(7), 2)


def test_requests_without_an_answer_are_counted_by_their_reason() -> None:
    found = measure([FakeClient(fails=(2, 4))], num_images=5, warm_up=0)
    assert found.failed == {"429: busy": 2}
    assert (len(found.latencies_s), found.pictures) == (3, 3)


def test_a_server_that_does_not_answer_the_warm_up_is_not_measured() -> None:
    client = FakeClient(fails=(1,), status=400)
    with pytest.raises(ServerError, match="does not answer the first request: 400: busy"):
        measure([client, FakeClient()], num_images=5)
    assert len(client.seen) == 1


def test_a_busy_server_gets_the_warm_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient(fails=(1, 2))
    monkeypatch.setattr(load, "BUSY_S", 60.0)
    assert measure([client], num_images=5, warm_up=1).pictures == 5
    assert client.seen == [[0], [0], [0], [0], [1], [2], [3], [4]]
    monkeypatch.setattr(load, "BUSY_S", 0.0)
    with pytest.raises(ServerError, match="does not answer the first request: 429: busy"):
        measure([FakeClient(fails=(1,))], num_images=5)


def test_a_rate_bounds_what_is_sent() -> None:
    """A thousand times as fast as it may: the time of all requests is that of the schedule."""
    found = measure([FakeClient()], num_images=20, warm_up=0, rate=1000.0)
    assert found.wall_s > 0.001
    assert len(found.latencies_s) == 20


def test_at_a_rate_a_late_answer_holds_up_no_other_request() -> None:
    others = threading.Event()

    class Slow(FakeClient):
        def infer(self, request: Request) -> Reply:
            assert others.wait(60), "the requests of the other thread have not come"
            return super().infer(request)

    class Quick(FakeClient):
        def infer(self, request: Request) -> Reply:
            reply = super().infer(request)
            if len(self.seen) >= 13:
                others.set()
            return reply

    clients = [Slow(), Quick()]
    found = measure(clients, num_images=7, warm_up=0, rate=1000.0)
    assert found.pictures == 14
    assert Counter(number for client in clients for each in client.seen for number in each) == dict.fromkeys(range(7), 2)


def test_what_is_asked_for() -> None:
    assert wanted_outputs(["logits", "scores", "class_ids"]) == ("class_ids", "scores")
    assert wanted_outputs(["embedding", "other"]) == ("embedding",)
    assert wanted_outputs([]) == ()

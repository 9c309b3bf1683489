"""batcher.py: pictures of many requests share runs, in order; each answer is of its own pictures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RunError
from bulkinfer.serve.batcher import Answer, Batcher, Work

PATIENCE_S = 60.0
FAILS = 255  # a picture that the network fails on
BREAKS = 254  # one after which it fails on everything


class FakeSession:
    """A network of batch 4 on one number a picture, which it multiplies by 10. `gate` holds runs up, `runs` has what ran."""

    batch_shape = (4, 1)
    dtype = np.dtype(np.uint8)

    def __init__(self) -> None:
        self.gate = threading.Semaphore(1_000_000)
        self.entered = threading.Semaphore(0)
        self.runs: list[list[int]] = []
        self.is_broken = False

    def hold(self) -> None:
        """Let no run end before release()."""
        self.gate = threading.Semaphore(0)

    def release(self, count: int = 1_000_000) -> None:
        self.gate.release(count)

    def pin(self, images: Any) -> Any:
        return images

    def run(self, images: Any) -> dict[str, Any]:
        self.entered.release()
        assert self.gate.acquire(timeout=PATIENCE_S)
        self.runs.append(images[:, 0].tolist())
        self.is_broken = self.is_broken or BREAKS in images
        if self.is_broken or FAILS in images:
            raise ValueError("this picture is not for me")
        return {"tenfold": 10.0 * images.astype(np.float32), "same": images[:, 0].astype(np.float32)}


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def batcher(session: FakeSession) -> Iterator[Batcher]:
    """One stream that waits for full batches as long as it takes."""
    made = make(session)
    yield made
    session.release()
    made.close()


def make(session: FakeSession, max_wait_s: float = 1e6, streams: int = 1, **more: Any) -> Batcher:
    seen: list[int] = []
    made = Batcher([session], streams, max_wait_s, observe=lambda pictures, seconds: seen.append(pictures), **more)
    made.seen = seen  # type: ignore[attr-defined]
    return made


def put(batcher: Batcher, *numbers: int) -> Work:
    """A request for these pictures."""
    work = Work(len(numbers))
    batcher.put(work, 0, np.array(numbers, np.uint8)[:, None])
    return work


def answer(work: Work) -> Answer:
    return work.future.result(PATIENCE_S)


def tenfold(work: Work) -> list[float]:
    return answer(work).outputs["tenfold"][:, 0].tolist()


def test_requests_share_a_full_batch(session: FakeSession, batcher: Batcher) -> None:
    first, second = put(batcher, 1), put(batcher, 2, 3, 4)
    assert tenfold(first) == [10]
    assert tenfold(second) == [20, 30, 40]
    assert session.runs == [[1, 2, 3, 4]]


def test_a_large_request_takes_several_batches_and_shares_the_last(session: FakeSession, batcher: Batcher) -> None:
    large, small = put(batcher, *range(1, 11)), put(batcher, 11, 12)
    assert tenfold(large) == [10 * number for number in range(1, 11)]
    assert tenfold(small) == [110, 120]
    assert session.runs == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert answer(large).outputs["same"].tolist() == list(range(1, 11))


def test_a_batch_does_not_wait_longer_than_it_may(session: FakeSession) -> None:
    batcher = make(session, max_wait_s=0.001)
    work = put(batcher, 7)
    assert tenfold(work) == [70]
    assert session.runs == [[7, 0, 0, 0]], "free slots are zeros"
    assert batcher.seen == [1]  # type: ignore[attr-defined]
    batcher.close()


def test_the_wait_counts_from_the_first_picture(session: FakeSession) -> None:
    """While the only stream is busy pictures wait as well, and afterwards no longer."""
    now = [0.0]
    batcher = make(session, max_wait_s=10.0, clock=lambda: now[0])
    session.hold()
    full = put(batcher, 1, 2, 3, 4)
    assert session.entered.acquire(timeout=PATIENCE_S)
    late = put(batcher, 5)
    now[0] = 10.0
    session.release()
    assert tenfold(full) == [10, 20, 30, 40]
    assert tenfold(late) == [50]
    batcher.close()


def test_what_waits_while_streams_are_busy_shares_the_next_run(session: FakeSession) -> None:
    batcher = make(session, max_wait_s=0.0)
    session.hold()
    first = put(batcher, 1)
    assert session.entered.acquire(timeout=PATIENCE_S)
    others = [put(batcher, number) for number in (2, 3, 4)]
    assert batcher.waiting() == 3
    session.release()
    assert [tenfold(work) for work in (first, *others)] == [[10], [20], [30], [40]]
    assert session.runs == [[1, 0, 0, 0], [2, 3, 4, 0]]
    batcher.close()


def test_streams_run_at_the_same_time(session: FakeSession) -> None:
    batcher = make(session, streams=2)
    session.hold()
    works = [put(batcher, *range(start, start + 4)) for start in (1, 5)]
    for _ in works:
        assert session.entered.acquire(timeout=PATIENCE_S)
    session.release()
    assert [tenfold(work) for work in works] == [[10, 20, 30, 40], [50, 60, 70, 80]]
    batcher.close()


def test_what_nobody_waits_for_is_left_out(session: FakeSession, batcher: Batcher) -> None:
    session.hold()
    running = put(batcher, 1, 2, 3, 4)
    assert session.entered.acquire(timeout=PATIENCE_S)
    gone = [put(batcher, 5, 6, 7, 8), put(batcher, 9)]
    kept = put(batcher, 10)
    gone.append(put(batcher, 11, 12))
    assert all(work.future.cancel() for work in gone)
    last = put(batcher, 13, 14, 15)
    session.release()
    assert tenfold(running) == [10, 20, 30, 40]
    assert tenfold(kept) == [100]
    assert tenfold(last) == [130, 140, 150]
    assert session.runs == [[1, 2, 3, 4], [10, 13, 14, 15]]
    assert batcher.waiting() == 0


def test_a_request_that_was_begun_may_still_be_cancelled(session: FakeSession, batcher: Batcher) -> None:
    session.hold()
    work = put(batcher, 1, 2, 3, 4)
    assert session.entered.acquire(timeout=PATIENCE_S)
    assert work.future.cancel()
    session.release()
    assert tenfold(put(batcher, 5, 6, 7, 8)) == [50, 60, 70, 80]


def test_a_picture_that_the_network_fails_on_leaves_the_others_alone(session: FakeSession, batcher: Batcher) -> None:
    good, bad = put(batcher, 1), put(batcher, 2, FAILS, 3)
    assert tenfold(good) == [10]
    found = answer(bad)
    assert found.errors == {1: ("infer", "ValueError: this picture is not for me")}
    assert found.outputs["tenfold"][[0, 2], 0].tolist() == [20, 30]
    assert batcher.broken is None


def test_a_network_that_fails_on_everything_ends_what_waits(session: FakeSession, batcher: Batcher) -> None:
    session.hold()
    running = put(batcher, 1, BREAKS, 2, 3)
    assert session.entered.acquire(timeout=PATIENCE_S)
    waiting = put(batcher, 4)
    session.release()
    for work in (running, waiting):
        with pytest.raises(RunError, match="fails on pictures, and on zeros as well"):
            answer(work)
    assert batcher.broken is not None
    with pytest.raises(RunError):
        answer(put(batcher, 5))


def test_failures_before_the_network_need_no_run(batcher: Batcher) -> None:
    work = Work(2)
    work.fail(1, "decode", "no picture")
    assert not work.future.done()
    work.fail(0, "read", "too large")
    assert answer(work) == Answer({}, {0: ("read", "too large"), 1: ("decode", "no picture")})


def test_work_that_has_ended_takes_no_more_rows(session: FakeSession, batcher: Batcher) -> None:
    work = Work(4)
    work.end(RunError("over"))
    work.end(RunError("over again"))
    batcher.put(work, 0, np.ones((4, 1), np.uint8))
    with pytest.raises(RunError, match=r"^over$"):
        answer(work)


def test_the_end_runs_what_waits_or_leaves_it(session: FakeSession) -> None:
    batcher = make(session)
    work = put(batcher, 1, 2)
    batcher.close()
    assert tenfold(work) == [10, 20]
    batcher = make(session)
    left = put(batcher, 3)
    batcher.close(abandon=True)
    assert not left.future.done()


@pytest.mark.parametrize("seed", range(3))
def test_many_requests_from_many_threads(session: FakeSession, seed: int) -> None:
    """Requests of random sizes: each gets the rows of its own pictures, and every picture runs once."""
    batcher = make(session, max_wait_s=0.0, streams=3)
    random = np.random.default_rng(seed)
    requests = [random.integers(1, 250, size).tolist() for size in random.integers(1, 12, 60)]
    works: list[Work] = [Work(1)] * len(requests)

    def send(part: int) -> None:
        for index in range(part, len(requests), 4):
            works[index] = put(batcher, *requests[index])

    threads = [threading.Thread(target=send, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for numbers, work in zip(requests, works, strict=True):
        assert tenfold(work) == [10 * number for number in numbers]
    batcher.close()
    assert sorted(number for run in session.runs for number in run if number) == sorted(n for each in requests for n in each)

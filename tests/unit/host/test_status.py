"""status.py: the rate of the last seconds, and the words for a status."""

from __future__ import annotations

from bulkinfer.host.status import (
    ENDED,
    FINISHED,
    RUNNING,
    STARTING,
    Pace,
    Status,
    WorkerStatus,
    line_of,
    rows_of,
)


def rates(*seen: tuple[float, int]) -> list[float]:
    """What a Pace says at each time."""
    pace = Pace()
    return [round(pace.add(now_s, done), 6) for now_s, done in seen]


def test_the_time_until_the_first_pictures_is_left_out() -> None:
    assert rates((0, 500), (40, 500), (41, 506), (42, 512), (43, 518)) == [0, 0, 0, 6, 6]


def test_the_rate_is_that_of_the_last_30_seconds() -> None:
    slow_then_fast = [(second, 10 * second) for second in range(100)] + [
        (100 + second, 1000 + 50 * second) for second in range(40)
    ]
    assert rates(*slow_then_fast)[99] == 10
    assert rates(*slow_then_fast)[-1] == 50


def test_steps_that_are_longer_than_that_keep_their_rate() -> None:
    """Between two of them nothing is late."""
    assert rates((0, 0), (1, 40), (41, 80), (60, 80), (80, 80), (81, 120), (120, 120)) == [0, 0, 1, 1, 1, 1, 1]


def test_a_worker_that_hangs_lowers_it() -> None:
    assert rates((0, 0), (1, 10), (2, 20), (3, 20), (12, 20)) == [0, 0, 10, 10, 1]


def test_rows_that_are_lost_with_a_worker_were_never_done() -> None:
    assert rates((0, 0), (1, 10), (2, 20), (3, 12), (4, 22)) == [0, 0, 10, 10, 6.666667]


def test_percent_is_100_only_at_the_end() -> None:
    assert [Status(done=done, total=10_000).percent for done in (0, 9_999, 10_000)] == [0.0, 99.9, 100.0]
    assert Status(total=0).percent == 0.0


def test_a_status_in_words() -> None:
    workers = {0: WorkerStatus(RUNNING), 1: WorkerStatus(STARTING), 2: WorkerStatus(RUNNING)}
    status = Status(
        done=31_204, total=69_000, images_per_s=123.1, errors={"read": 1, "decode": 2}, workers=workers,
        waiting_for_pictures=0.123, waiting_for_device=0.7,
    )  # fmt: skip
    assert rows_of(status) == [
        ["31,204 of 69,000 pictures", "123.1 images/sec", "5 min 8 s left"],
        ["3 errors (2 decode, 1 read)", "12 % waiting for pictures", "70 % waiting for the device"],
        ["workers: 2 running, 1 starting"],
    ]
    assert line_of(status) == (
        "running: 31,204 of 69,000 pictures (45.2 %), 123.1 images/sec, 5 min 8 s left, 3 errors (2 decode, 1 read)"
    )


def test_before_the_first_pictures() -> None:
    starting = Status(done=7, total=69, workers={0: WorkerStatus(STARTING)})
    assert line_of(starting) == "running: 7 of 69 pictures (10.1 %), starting workers, no errors"
    ready = Status(total=69, workers={0: WorkerStatus(RUNNING), 1: WorkerStatus(STARTING)})
    assert line_of(ready) == "running: 0 of 69 pictures (0.0 %), first batches, no errors"
    unknown = Status(workers={0: WorkerStatus(STARTING)})
    assert rows_of(unknown) == [["0 pictures", "starting workers"], ["no errors"], ["workers: 1 starting"]]


def test_a_run_that_has_ended_has_nothing_left() -> None:
    status = Status(state=FINISHED, done=69, total=69, images_per_s=19.77, errors={"read": 1}, workers={0: WorkerStatus(ENDED)})
    assert line_of(status) == "finished: 69 of 69 pictures (100.0 %), 19.8 images/sec, 1 error (1 read)"

"""step_queue.py: how long steps are, order, two steps in hand, what happens to those of dead workers, how a killer is found."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.launch.step_queue import (
    MAX_BATCHES_PER_STEP,
    StepQueue,
    batches_per_step,
    split_step,
    steps_without_pictures,
)
from bulkinfer.types import Step
from hypothesis import given, settings
from hypothesis import strategies as st

ONE, TWO, THREE = (Step(0, n, n + 10) for n in (0, 10, 20))


def test_steps_come_in_order_and_a_worker_holds_two() -> None:
    queue = StepQueue.of([ONE, TWO, THREE])
    assert queue.take([]) == ONE
    assert queue.take([ONE]) == TWO
    assert queue.take([ONE, TWO]) is None, "a worker holds its running step and the next one"
    assert queue.take([TWO]) == THREE
    assert queue.take([]) is None
    assert queue.take([THREE]) is None


def test_a_worker_that_has_its_own_partition_gets_only_that() -> None:
    steps = [Step(partition, start, start + 5) for start in (0, 5) for partition in (0, 1)]
    queue = StepQueue.of(steps)
    assert queue.take([], only_partition=1) == Step(1, 0, 5)
    assert queue.take([], only_partition=1) == Step(1, 5, 10)
    assert queue.take([], only_partition=1) is None
    assert queue.take([], only_partition=0) == Step(0, 0, 5)


def test_steps_of_a_dead_worker_come_back_in_front_and_in_order() -> None:
    queue = StepQueue.of([ONE, TWO, THREE])
    held = [queue.take([]), queue.take([ONE])]
    assert queue.give_back([step for step in held if step], 1, []) == []
    assert list(queue.pending) == [ONE, TWO, THREE]
    assert not queue.suspects, "one death with nothing in hand accuses nobody"
    assert queue.take([]) == ONE
    assert queue.take([ONE]) == TWO


def test_only_what_was_in_hand_becomes_suspect() -> None:
    queue = StepQueue.of([])
    in_hand = [Step(0, 5, 6), Step(0, 2, 4), Step(0, 6, 7), Step(0, 9, 12), Step(1, 0, 20)]
    assert queue.give_back([ONE, TWO], 2, in_hand) == []
    pieces = [(0, 2), (2, 4), (4, 5), (5, 7), (7, 9), (9, 10), (10, 12), (12, 20)]
    assert list(queue.pending) == [Step(0, *piece) for piece in pieces]
    assert set(queue.suspects) == {Step(0, 2, 4), Step(0, 5, 7), Step(0, 9, 10), Step(0, 10, 12)}


def test_a_suspect_runs_alone() -> None:
    queue = StepQueue.of([TWO])
    queue.give_back([ONE], 4, [ONE])
    assert queue.take([]) == ONE
    assert queue.take([ONE]) is None, "nothing runs beside a suspect"
    queue.pending.appendleft(ONE)
    assert queue.take([TWO]) is None, "and a suspect beside nothing"


def test_a_suspect_that_kills_alone_is_narrowed_to_what_was_in_hand_and_else_halved() -> None:
    queue = StepQueue.of([])
    queue.give_back([ONE], 4, [ONE])
    assert queue.take([]) == ONE
    queue.give_back([ONE], 4, [Step(0, 4, 8)])
    assert list(queue.pending) == [Step(0, 0, 4), Step(0, 4, 8), Step(0, 8, 10)]
    assert set(queue.suspects) == {Step(0, 4, 8)}
    queue.take([])
    assert queue.take([]) == Step(0, 4, 8)
    queue.give_back([Step(0, 4, 8)], 4, [Step(0, 4, 8)])
    assert list(queue.pending) == [Step(0, 4, 6), Step(0, 6, 8), Step(0, 8, 10)]
    assert set(queue.suspects) == {Step(0, 4, 6), Step(0, 6, 8)}


def test_deaths_that_nothing_in_hand_explains_make_the_whole_step_suspect_at_the_second() -> None:
    queue = StepQueue.of([])
    queue.give_back([ONE], 2, [])
    assert not queue.suspects
    queue.pending.clear()
    queue.give_back([ONE], 2, [])
    assert set(queue.suspects) == {ONE}
    queue.pending.clear()
    queue.give_back([ONE], 2, [])
    assert list(queue.pending) == [Step(0, 0, 4), Step(0, 4, 10)], "alone, with nothing in hand: halved"


def test_a_single_record_must_kill_twice_alone() -> None:
    queue, one = StepQueue.of([]), Step(0, 3, 4)
    assert queue.give_back([one], 2, [one]) == [], "in company"
    assert queue.take([]) == one
    assert queue.give_back([one], 2, [one]) == [], "may have been somebody's kill -9"
    assert queue.take([]) == one
    assert queue.give_back([one], 2, [one]) == [one]
    assert not queue.pending
    assert not queue.suspects


def test_two_deaths_in_company_condemn_nobody() -> None:
    queue = StepQueue.of([ONE, TWO])
    for _ in range(5):
        assert queue.give_back([ONE, TWO], 1, []) == []
        queue.pending.clear()
        queue.suspects.clear()


def test_halves_are_cut_between_batches_while_there_are_several() -> None:
    def halves(step: Step, batch_size: int) -> list[Step]:
        queue = StepQueue.of([])
        queue.suspects[step] = 0
        assert queue.give_back([step], batch_size, [step]) == []
        return list(queue.pending)

    assert halves(Step(1, 100, 142), 6) == [Step(1, 100, 118), Step(1, 118, 142)]
    assert halves(Step(1, 0, 7), 6) == [Step(1, 0, 6), Step(1, 6, 7)]
    assert halves(Step(1, 0, 5), 6) == [Step(1, 0, 2), Step(1, 2, 5)]
    assert halves(Step(1, 0, 12), 6) == [Step(1, 0, 6), Step(1, 6, 12)]
    assert halves(Step(1, 0, 2), 6) == [Step(1, 0, 1), Step(1, 1, 2)]


class Plant:
    """Workers that die of certain records, as the engine drives them: one worker, a step and the next one in hand.

    `in_hand(step, killer)` is what their threads work on when they die.
    """

    def __init__(
        self, steps: list[Step], batch_size: int, deadly: set[int], in_hand: Callable[[Step, int], list[Step]]
    ) -> None:
        self.queue, self.batch_size, self.deadly = StepQueue.of(steps), batch_size, deadly
        self.in_hand = in_hand
        self.done: list[int] = []
        self.killers: list[Step] = []
        self.deaths = 0

    def run(self, most_deaths: int) -> None:
        held: list[Step] = []
        while True:
            while (step := self.queue.take(held)) is not None:
                held.append(step)
            if not held:
                return
            running = held[0]
            if killers := self.deadly & set(range(running.start, running.end)):
                self.deaths += 1
                assert self.deaths <= most_deaths, self.queue.suspects
                self.killers += self.queue.give_back(held, self.batch_size, self.in_hand(running, min(killers)))
                held = []
            else:
                self.done += range(running.start, running.end)
                held.pop(0)


def all_of_it(step: Step, _killer: int) -> list[Step]:
    """As little as can be known."""
    return [step]


def decoding(step: Step, killer: int) -> list[Step]:
    """Two loader threads: the killer's and that of its neighbour; the other batch is inside the network."""
    both = [Step(step.partition, n, n + 1) for n in (killer, killer + 1) if n < step.end]
    return [*both, Step(step.partition, max(step.start, killer - 12), max(step.start, killer - 6))]


def running(step: Step, killer: int) -> list[Step]:
    """The killer's batch of 6 inside the network, the loaders ahead."""
    start = step.start + (killer - step.start) // 6 * 6
    return [Step(step.partition, start, min(start + 6, step.end)), Step(step.partition, min(start + 14, step.end), step.end)]


def deaths_without_knowledge(step_size: int, batch_size: int) -> int:
    """Up to two for the suspicion, one for each halving (first of the batches, then of one), two for the proof."""
    batches = -(-step_size // batch_size)
    return 4 + math.ceil(math.log2(batches)) + math.ceil(math.log2(min(batch_size, step_size)))


@pytest.mark.parametrize(("size", "batch_size"), [(64, 8), (64, 1), (1, 6), (256, 16), (1024, 4)])
def test_a_killer_is_found_in_log2_deaths_even_if_all_was_in_hand(size: int, batch_size: int) -> None:
    for deadly in {0, size // 2, size - 1}:
        plant = Plant([Step(0, 0, size)], batch_size, {deadly}, all_of_it)
        plant.run(math.ceil(math.log2(size)) + 4)
        assert plant.killers == [Step(0, deadly, deadly + 1)]
        assert sorted(plant.done) == [n for n in range(size) if n != deadly], "all others exactly once"


def test_who_was_not_in_hand_is_never_proven_to_kill() -> None:
    """Workers die again and again while nothing is in hand, as of a disk that hangs: that is nobody's fault of the records."""
    queue, held = StepQueue.of([]), [Step(0, 0, 60)]
    for _ in range(40):
        assert queue.give_back(held, 6, []) == []
        assert sorted(n for step in queue.pending for n in range(step.start, step.end)) == list(range(60))
        held = [queue.pending.popleft()]
    assert len(held[0]) == 1


@pytest.mark.parametrize("deadly", [0, 1, 3, 4499, 8993, 8999])
@pytest.mark.parametrize(("in_hand", "most"), [(decoding, 4), (running, 6)])
def test_a_killer_in_a_large_step_is_found_in_fewer_than_log2_deaths(
    in_hand: Callable[[Step, int], list[Step]], most: int, deadly: int
) -> None:
    plant = Plant([Step(0, 0, 9000)], 6, {deadly}, in_hand)
    plant.run(most)
    assert most < math.log2(9000)
    assert plant.killers == [Step(0, deadly, deadly + 1)]
    assert sorted(plant.done) == [n for n in range(9000) if n != deadly], "all others exactly once"


@settings(max_examples=150)
@given(st.integers(1, 400), st.integers(1, 20), st.integers(1, 100), st.booleans(), st.data())
def test_every_killer_is_found_and_all_others_run_once(
    total: int, batch_size: int, size: int, known: bool, data: st.DataObject
) -> None:
    deadly = data.draw(st.sets(st.integers(0, total - 1), max_size=3))
    plant = Plant(split_step(Step(0, 0, total), size), batch_size, deadly, decoding if known else all_of_it)
    plant.run(len(deadly) * deaths_without_knowledge(min(size, total), batch_size))
    assert sorted(step.start for step in plant.killers) == sorted(deadly)
    assert all(len(step) == 1 for step in plant.killers)
    assert sorted(plant.done) == [n for n in range(total) if n not in deadly]


# -- the plan ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(0, 300), st.integers(1, 50))
def test_split_step(start: int, length: int, size: int) -> None:
    pieces = split_step(Step(4, start, start + length), size)
    assert [n for piece in pieces for n in range(piece.start, piece.end)] == list(range(start, start + length))
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(0 < len(piece) <= size and piece.partition == 4 for piece in pieces)


def cut(todo: list[Step], size: int) -> list[Step]:
    """The steps that a queue hands out."""
    queue, steps = StepQueue.of(todo), []
    while (step := queue.take([], most_records=size)) is not None:
        steps.append(step)
    return steps


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(1, 60)), max_size=5), st.integers(1, 20))
def test_what_is_taken_is_cut_and_nothing_is_lost(gaps: list[tuple[int, int, int]], size: int) -> None:
    todo = [Step(partition, start, start + length) for partition, start, length in gaps]
    assert cut(todo, size) == [step for gap in todo for step in split_step(gap, size)]


def test_the_length_may_change_and_what_comes_back_is_in_front() -> None:
    queue = StepQueue.of([Step(0, 0, 100), Step(1, 0, 3)])
    first, second = queue.take([], most_records=4), queue.take([ONE], most_records=4)
    assert (first, second) == (Step(0, 0, 4), Step(0, 4, 8))
    assert queue.take([], most_records=40) == Step(0, 8, 48)
    assert queue.give_back([Step(0, 0, 4), Step(0, 4, 8)], 2, []) == []
    taken = [queue.take([], most_records=40) for _ in range(5)]
    assert taken == [Step(0, 0, 4), Step(0, 4, 8), Step(0, 48, 88), Step(0, 88, 100), Step(1, 0, 3)]


def test_a_suspect_is_not_cut() -> None:
    queue = StepQueue.of([])
    queue.give_back([ONE], 4, [ONE])
    assert queue.take([], most_records=3) == ONE


@pytest.mark.parametrize(
    ("rate", "batches"),
    [(60.0, 100), (0.1, 1), (0.0, 1), (1e6, MAX_BATCHES_PER_STEP), (math.inf, MAX_BATCHES_PER_STEP)],
)
def test_a_step_takes_ten_seconds(rate: float, batches: int) -> None:
    todo = [Step(0, 0, 100_000), Step(1, 7, 1007)]
    assert batches_per_step(LaunchConfig(batch_size=6), 1, todo, rate) == batches


@given(st.integers(1, 9), st.integers(1, 8), st.integers(1, 3000), st.floats(0, 1e5))
def test_every_worker_gets_its_share_of_steps(num_devices: int, batch_size: int, records: int, rate: float) -> None:
    """However fast the network: steps are so short that each worker can have four, or they are of one batch."""
    todo = [Step(0, 0, records // 3), Step(2, 5, 5 + records - records // 3)]
    batches = batches_per_step(LaunchConfig(batch_size=batch_size), num_devices, todo, rate)
    assert 1 <= batches <= MAX_BATCHES_PER_STEP
    assert batches == 1 or (batches - 1) * batch_size * num_devices * 4 < records


def test_the_length_that_was_asked_for_is_taken_as_it_is() -> None:
    config, todo = LaunchConfig(batch_size=4, batches_per_step=2000), [Step(0, 0, 9000)]
    assert batches_per_step(config, 8, todo, 1.0) == 2000
    assert cut(todo, 8000) == [Step(0, 0, 8000), Step(0, 8000, 9000)]


def test_large_outputs_make_short_steps() -> None:
    """A worker holds the outputs of a step until it is published."""
    row_bytes = 21 * 520 * 520 * 4
    todo, config = [Step(0, 0, 100_000)], LaunchConfig(batch_size=6)
    assert 1 <= batches_per_step(config, 1, todo, 50.0, row_bytes) * 6 * row_bytes <= 1 << 28
    assert batches_per_step(config, 1, todo, 50.0, 1 << 30) == 1, "one batch at least"
    assert batches_per_step(LaunchConfig(batch_size=6, batches_per_step=70), 1, todo, 50.0, row_bytes) == 70, "as asked"
    assert batches_per_step(config, 1, todo, 50.0, 4) == batches_per_step(config, 1, todo, 50.0)


def test_steps_of_a_synthetic_run() -> None:
    """Each worker has a partition of its own; a step takes 5 s; nobody waits for another's end, so there is no fair share."""
    steps = [Step(worker, start, start + 600) for start in (0, 600) for worker in (0, 1)]
    config = LaunchConfig(batch_size=6, synthetic=True, iterations=2)
    assert batches_per_step(config, 2, [], 120.0) == 100
    assert steps_without_pictures(config, 2, 100) == steps
    config = LaunchConfig(batch_size=6, synthetic=True, iterations=1, batches_per_step=3)
    assert batches_per_step(config, 1, [], 120.0) == 3
    assert steps_without_pictures(config, 1, 3) == [Step(0, 0, 18)]

"""How long a job takes on many devices, what it costs, and what limits it: a simulation of launchers, workers and a store.

    python -m tools.simulate_scale --pictures 100e6 --rate 100 --devices 1 10 100 1000
    python -m tools.simulate_scale --devices 1000 --launchers 125 --mtbf_h 500 --slow_share 0.05

A launcher hands out steps, one event at a time. A worker holds the step that it runs and the next one, publishes the rows of a
step beside the next one, and reports it then. A device that fails loses the step in hand, and both its steps run again. With
several launchers each has a fixed share of the steps (`infer_launch --shard`). docs/scale.md compares this with runs.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import simpy

LEASE_BEAT_S = 10.0  # a launcher writes to each of its locks so often (files/lease.py)
LOCKS = 2  # of a launcher: on its output and on its logs
BUSY = 0.8  # of what the launcher or the store can do: from here on it limits

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Scale:
    """A job, the machines, and measured costs. `rate` and `slow_factor` are of a device, `put_s` is what a part takes.

    `event_s` is the launcher's own work for a step: the report, the count, and the next one handed out. `mtbf_h` are hours of
    one device between failures, 0: it does not fail. Shares are from 0 to 1. `ready_s`, where given, has the start-up of each
    device in place of `startup_s`.
    """

    pictures: int = 100_000_000
    devices: int = 8
    launchers: int = 1
    rate: float = 100.0
    step_pictures: int = 1000
    startup_s: float = 20.0
    event_s: float = 0.0002
    put_s: float = 0.05
    puts_per_s: float = 1000.0
    picture_bytes: int = 100_000
    store_bytes_per_s: float = 10e9
    mtbf_h: float = 0.0
    restart_s: float = 30.0
    slow_share: float = 0.0
    slow_factor: float = 2.0
    price_per_h: float = 1.0
    seed: int = 0
    ready_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of a simulated job. `lost_s` are device-seconds of steps that had to run again. Shares are from 0 to 1."""

    seconds: float
    device_hours: float
    cost: float
    lost_s: float
    failures: int
    launcher_share: float
    store_share: float
    read_share: float
    idle_share: float

    @property
    def limit(self) -> str:
        """What a further device would wait for."""
        shares = {"launcher": self.launcher_share, "puts": self.store_share, "reads": self.read_share}
        name = max(shares, key=shares.__getitem__)
        return name if shares[name] >= BUSY else "devices"


class Job:
    """One simulated run."""

    def __init__(self, scale: Scale) -> None:
        self.scale, self.env, self._random = scale, simpy.Environment(), random.Random(scale.seed)
        steps = [scale.step_pictures] * (scale.pictures // scale.step_pictures)
        steps += [rest] if (rest := scale.pictures % scale.step_pictures) else []
        self._queues = [deque(steps[number :: scale.launchers]) for number in range(scale.launchers)]
        self._turns = [simpy.Resource(self.env) for _ in range(scale.launchers)]
        # requests that the store serves at once, so that it serves puts_per_s of put_s each
        self._store = simpy.Resource(self.env, max(1, round(scale.puts_per_s * scale.put_s)))
        self._running = [0] * scale.launchers  # steps that were handed out and are not published
        self._waiting: list[list[simpy.Event]] = [[] for _ in range(scale.launchers)]
        self._left = len(steps)
        self.lost_s, self.busy_s, self.failures, self.events = 0.0, 0.0, 0, 0
        self.end = self.env.event()
        for device in range(scale.devices):
            self.env.process(self._device(device, device * scale.launchers // scale.devices))

    def run(self) -> Outcome:
        """Simulate until the last part is published."""
        scale = self.scale
        self.env.run(until=self.end)
        seconds = self.env.now
        hours = seconds * scale.devices / 3600
        # a lease costs a write every ten seconds, beside a put for each step
        puts = self.events + scale.launchers * LOCKS * seconds / LEASE_BEAT_S
        return Outcome(
            seconds=seconds,
            device_hours=hours,
            cost=hours * scale.price_per_h,
            lost_s=self.lost_s,
            failures=self.failures,
            launcher_share=self.events * scale.event_s / scale.launchers / seconds,
            store_share=puts / scale.puts_per_s / seconds,
            read_share=scale.pictures * scale.picture_bytes / scale.store_bytes_per_s / seconds,
            idle_share=1 - (self.busy_s + self.lost_s) / (seconds * scale.devices),
        )

    def _device(self, device: int, launcher: int) -> Process:
        scale, env = self.scale, self.env
        slow = scale.slow_factor if self._random.random() < scale.slow_share else 1.0
        yield env.timeout(scale.ready_s[device] if scale.ready_s else scale.startup_s)
        held = simpy.Store(env)
        yield from self._begin(launcher, held)
        fails_in_s = self._lifetime_s()
        while True:
            pictures = yield held.get()
            takes_s = pictures * max(slow / scale.rate, scale.devices * scale.picture_bytes / scale.store_bytes_per_s)
            if takes_s > fails_in_s:
                yield env.timeout(fails_in_s)
                self.failures, self.lost_s = self.failures + 1, self.lost_s + fails_in_s
                self._give_back(launcher, [pictures, *held.items])
                held.items.clear()
                yield env.timeout(scale.restart_s)
                fails_in_s = self._lifetime_s()
                yield from self._begin(launcher, held)
                continue
            yield env.timeout(takes_s)
            fails_in_s -= takes_s
            self.busy_s += takes_s
            env.process(self._publish(launcher, held))

    def _begin(self, launcher: int, held: simpy.Store) -> Process:
        """Get the step to run; the next one comes when every other device has one to run."""
        yield from self._hand_out(launcher, held)
        self.env.process(self._hand_out(launcher, held))

    def _publish(self, launcher: int, held: simpy.Store) -> Process:
        """Put a part into the store, report it, and get the next step."""
        with self._store.request() as turn:
            yield turn
            yield self.env.timeout(self.scale.put_s)
        self._left -= 1
        if not self._left:
            self.end.succeed()
            return
        yield from self._hand_out(launcher, held)

    def _hand_out(self, launcher: int, held: simpy.Store) -> Process:
        """The launcher takes an event and answers it with the next step; a device waits where there is none."""
        with self._turns[launcher].request() as turn:
            yield turn
            yield self.env.timeout(self.scale.event_s)
            self.events += 1
        while not self._queues[launcher]:
            event = self.env.event()
            self._waiting[launcher].append(event)
            yield event
        yield held.put(self._queues[launcher].popleft())

    def _give_back(self, launcher: int, steps: Sequence[int]) -> None:
        """Steps of a device that failed run next, by whoever waits."""
        self._queues[launcher].extendleft(reversed(steps))
        waiting, self._waiting[launcher] = self._waiting[launcher], []
        for event in waiting:
            event.succeed()

    def _lifetime_s(self) -> float:
        hours = self.scale.mtbf_h
        return self._random.expovariate(1 / (hours * 3600)) if hours else float("inf")


def simulate(scale: Scale) -> Outcome:
    """One run of `scale`. Raises ValueError if there are fewer devices than launchers, or no pictures."""
    if not 1 <= scale.launchers <= scale.devices:
        raise ValueError(f"{scale.devices} devices cannot be shared by {scale.launchers} launchers")
    if scale.pictures < 1 or scale.step_pictures < 1:
        raise ValueError(f"{scale.pictures} pictures in steps of {scale.step_pictures} are no job")
    return Job(scale).run()


def most_devices(scale: Scale) -> dict[str, float]:
    """How many devices one launcher, the puts of the store, and its reads can keep busy."""
    step_s = scale.step_pictures / scale.rate
    return {
        "launcher": step_s / scale.event_s,
        "puts": scale.puts_per_s * step_s,
        "reads": scale.store_bytes_per_s / (scale.rate * scale.picture_bytes),
    }


def line(scale: Scale, found: Outcome) -> str:
    """One row of the table."""
    lost = f"{found.lost_s / 3600:.1f} h ({found.lost_s / 36 / found.device_hours:.2f} %)"
    shares = (found.launcher_share, found.store_share, found.read_share, found.idle_share)
    return (
        f"{scale.devices:>8,} {found.seconds / 3600:>9.2f} {found.cost:>10,.0f} {found.failures:>9,} {lost:>17} "
        + " ".join(f"{100 * share:>10.1f}" for share in shares)
        + f"  {found.limit}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print a table: a row for each number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 10, 100, 1000])
    kinds: dict[str, tuple[type[Any], str]] = {
        "pictures": (float, "pictures of the job"), "launchers": (int, "launchers; more than one: shards"),
        "rate": (float, "pictures per second of a device"), "step_pictures": (int, "pictures of a step"),
        "startup_s": (float, "start-up of a worker"), "event_s": (float, "launcher's work for a step"),
        "put_s": (float, "time to publish a part"), "puts_per_s": (float, "parts that the store takes in a second"),
        "picture_bytes": (int, "size of a picture file"), "store_bytes_per_s": (float, "bytes a second that the store reads"),
        "mtbf_h": (float, "hours between failures of a device; 0: none"), "restart_s": (float, "until it works again"),
        "slow_share": (float, "share of devices that are slow"), "slow_factor": (float, "how much slower they are"),
        "price_per_h": (float, "price of a device for an hour"), "seed": (int, "of failures and slow devices"),
    }  # fmt: skip
    for name, (kind, doc) in kinds.items():
        parser.add_argument(f"--{name}", type=kind, default=getattr(Scale, name), help=f"{doc} (default: %(default)s)")
    given = vars(parser.parse_args(argv))
    numbers = given.pop("devices")
    scale = Scale(**{**given, "pictures": int(given["pictures"])})
    most = ", ".join(f"{name} {number:,.0f}" for name, number in most_devices(scale).items())
    print(f"devices that can be kept busy by one launcher and the store: {most}")
    heads = ("launcher %", "puts %", "reads %", "idle %")
    first = f"{'devices':>8} {'hours':>9} {'cost':>10} {'failures':>9} {'lost work':>17}"
    print(first, *(f"{head:>10}" for head in heads), " limit")
    for devices in numbers:
        each = replace(scale, devices=devices, launchers=min(scale.launchers, devices))
        print(line(each, simulate(each)))


if __name__ == "__main__":
    main()

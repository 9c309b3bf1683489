"""Faults of a whole run, not of a point: kills and signals at any time, poisoned pictures, hangs, shortages, changed inputs."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests import pictures
from tests.commands import children, living
from tests.faults.points import LAUNCHER, Plan
from tests.faults.scene import NUM_PICTURES, Place, Scene, again, beside_loader_processes, colour_of, expect, key_of
from tests.models import tiny_graph, write_tiny_model

SLOW_S = 0.02  # at every picture: a launch lasts about a second more, and signals find it at work
STALL_S = 2  # a machine may be busy
STOPPED_S = 60  # after a signal; 5 s are promised, a machine may be busy
WholeRun = Callable[[Place, Path, random.Random], list[str]]
LONG = ("--num_workers=1",)


def slow(scene: Scene) -> Plan:
    """Nothing but slowness."""
    return Plan(str(scene.flag), slow_s=SLOW_S)


def held(scene: Scene) -> Plan:
    """The same, and once there is a part the launch cannot end: its ten steps are more than three workers have in hand."""
    return replace(slow(scene), held=str(scene.output))


def when_at_work(scene: Scene, process: subprocess.Popen[bytes], random_: random.Random) -> None:
    """Return at a random moment of the run, from its start to about its end."""
    if random_.random() < 0.25:  # while it starts
        time.sleep(random_.uniform(0.0, 0.6))
        return
    while process.poll() is None and not scene.parts():
        time.sleep(0.005)
    time.sleep(random_.uniform(0.0, 0.4))


def devices(random_: random.Random, most: int = 3) -> str:
    """How many workers."""
    return f"--num_devices={random_.randint(1, most)}"


# -- kills and signals ---------------------------------------------------------------------------------------------------


def workers_killed(place: Place, folder: Path, random_: random.Random) -> list[str]:
    """kill -9 of a worker, up to three times, at random moments: the launch itself replaces them and ends well."""
    scene, words = Scene(place, folder), (devices(random_), *LONG)
    process = scene.start(*words, plan=slow(scene))
    when_at_work(scene, process, random_)
    for _ in range(random_.randint(1, 3)):
        if found := [pid for pid in children(process.pid) if _is_ours(pid)]:
            _kill(random_.choice(found), signal.SIGKILL)
        time.sleep(random_.uniform(0.0, 0.3))
    return expect(scene.finish(process), (0,), "the launch") + scene.troubles() + again(scene, *words)


def launcher_killed(place: Place, folder: Path, random_: random.Random) -> list[str]:
    """kill -9 of the launcher at a random moment, up to twice: its workers go, and the same command does what is left."""
    scene, words = Scene(place, folder), (devices(random_), *LONG)
    for _ in range(random_.randint(1, 2)):
        process = scene.start(*words, plan=slow(scene))
        when_at_work(scene, process, random_)
        process.kill()
        if troubles := expect(scene.finish(process), (-9, 0), "the killed launch"):
            return troubles  # the next one starts at once, while workers may be about to end
    return again(scene, *words)


def stopped(*signals: signal.Signals) -> WholeRun:
    """Signals to the launcher, one right after the other."""

    def run(place: Place, folder: Path, random_: random.Random) -> list[str]:
        scene, words = Scene(place, folder), (devices(random_), *LONG)
        process = scene.start(*words, plan=held(scene))
        while process.poll() is None and not scene.parts():
            time.sleep(0.005)
        time.sleep(random_.uniform(0.0, 0.1))
        for number in signals:
            _kill(process.pid, number)
            time.sleep(random_.uniform(0.0, 0.02))
        scene.released.touch()
        began = time.monotonic()
        troubles = expect(scene.finish(process), (128 + signals[0],), "the launch that was stopped")
        troubles += [] if time.monotonic() - began < STOPPED_S else ["it took too long to stop"]
        return troubles + scene.orphans() + again(scene, *words)

    return run


def _is_ours(pid: int) -> bool:
    return _runs(pid, b"bulkinfer.worker.process")


def _runs(pid: int, module: bytes) -> bool:
    try:
        return module in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended by itself
        return


# -- loader processes ----------------------------------------------------------------------------------------------------


def beside_loaders(run: WholeRun) -> WholeRun:
    """The same where each worker has two loader processes."""
    return lambda place, folder, random_: run(beside_loader_processes(place), folder, random_)


def loaders_killed(place: Place, folder: Path, random_: random.Random) -> list[str]:
    """kill -9 of a loader process, up to three times, at random moments: its worker ends with it, and is replaced."""
    scene, words = Scene(place, folder), (devices(random_), *LONG)
    process = scene.start(*words, plan=slow(scene))
    when_at_work(scene, process, random_)
    for _ in range(random_.randint(1, 3)):
        if found := [pid for worker in children(process.pid) for pid in children(worker) if _is_loader(pid)]:
            _kill(random_.choice(found), signal.SIGKILL)
        time.sleep(random_.uniform(0.0, 0.3))
    return expect(scene.finish(process), (0,), "the launch") + scene.troubles() + again(scene, *words)


def loaders_end_with_their_worker(place: Place, folder: Path, random_: random.Random) -> list[str]:
    """kill -9 of a worker while its loader processes decode, or hang: they are soon gone."""
    scene, words = Scene(place, folder), ("--num_devices=1", "--batches_per_step=2")
    fault = random_.choice(("", "hang", "hang_holding_the_lock"))
    plan = Plan(str(scene.flag), "picture decoded", fault=fault, hit=7, slow_s=SLOW_S) if fault else held(scene)
    process = scene.start(*words, plan=plan)
    while process.poll() is None and not (scene.flag.exists() if fault else scene.parts()):
        time.sleep(0.005)
    workers = [pid for pid in children(process.pid) if _is_ours(pid)]
    loaders = [pid for worker in workers for pid in children(worker) if _is_loader(pid)]
    for worker in workers:
        _kill(worker, signal.SIGKILL)
    deadline = time.monotonic() + STOPPED_S
    while living(loaders) and time.monotonic() < deadline:
        time.sleep(0.01)
    troubles = [f"loader process {pid} outlived its worker" for pid in living(loaders)]
    troubles += [] if loaders else ["no loader process was at work"]
    scene.released.touch()
    return troubles + expect(scene.finish(process), (0,), "the launch") + scene.troubles() + again(scene, *words)


def _is_loader(pid: int) -> bool:
    return _runs(pid, b"bulkinfer.worker.loader_process")


# -- poison --------------------------------------------------------------------------------------------------------------


def poisoned(point: str, fault: str, count: int = 1, *, in_one_step: bool = False) -> WholeRun:
    """Random pictures, whoever touches them, kill, hang or fail: an error row each, and nothing else is lost."""
    stage = "infer" if point == "session run" else "decode"

    def run(place: Place, folder: Path, random_: random.Random) -> list[str]:
        scene = Scene(place, folder)
        half = NUM_PICTURES // 2
        start = random_.choice((0, half)) if in_one_step else 0
        numbers = random_.sample(range(start, start + (half if in_one_step else NUM_PICTURES)), count)
        poison = [",".join(map(str, colour_of(n))) if point == "session run" else key_of(n) for n in numbers]
        plan = Plan(str(scene.flag), point, fault=fault, poison=tuple(poison), hit=0)
        words = (
            devices(random_),
            *_steps(half if in_one_step else 4),
            *((f"--stall_timeout_s={STALL_S}",) if "hang" in fault else ()),
        )
        errors = {key_of(n): stage for n in numbers}
        troubles = expect(scene.launch(*words, plan=plan), (3,), "the launch with poison")
        return troubles or scene.troubles(errors=errors) or again(scene, *words, codes=(3,), errors=errors)

    return run


def network_broken(fault: str, words: str) -> WholeRun:
    """The network kills, or fails, on every picture and on zeros: one sentence and no row, and repaired it does all."""

    def run(place: Place, folder: Path, random_: random.Random) -> list[str]:
        scene, chosen = Scene(place, folder), (devices(random_),)
        poison = [",".join(map(str, colour)) for colour in ((0, 0, 0), *map(colour_of, range(NUM_PICTURES)))]
        launched = scene.launch(*chosen, plan=Plan(str(scene.flag), "session run", fault=fault, poison=tuple(poison), hit=0))
        troubles = expect(launched, (1,), "the launch with a broken network")
        troubles += [] if words in launched.output else [f"it does not say why: {launched.output}"]
        troubles += [f"{path.name} was published" for path in scene.parts()]
        scene.flag.with_name("off").touch()
        return troubles or again(scene, *chosen)

    return run


def _steps(size: int) -> Sequence[str]:
    return (f"--batches_per_step={-(-size // 4)}",)


def hung_once(fault: str, point: str = "picture decoded", hits: int = 8) -> WholeRun:
    """A worker hangs once, at one of the first `hits` hits of a point: it is ended, and its steps run again."""

    def run(place: Place, folder: Path, random_: random.Random) -> list[str]:
        scene, words = Scene(place, folder), (devices(random_), f"--stall_timeout_s={STALL_S}")
        plan = Plan(str(scene.flag), point, fault=fault, hit=random_.randint(1, hits))
        launched = scene.launch(*words, plan=plan)
        fired = [] if scene.flag.exists() else ["nothing hung"]
        return fired + expect(launched, (0,), "the launch with a hang") + scene.troubles() + again(scene, *words)

    return run


# -- shortages, and inputs that change -----------------------------------------------------------------------------------


def out_of_memory(place: Place, folder: Path, random_: random.Random) -> list[str]:
    """A picture too large for the memory that a worker may have: an error row for it, whoever died of it."""
    scene = Scene(place, folder, owns_input=True)
    number = random_.randrange(NUM_PICTURES)
    _file_of(scene, number).write_bytes(pictures.bit_png(9000, 9000))
    words = (devices(random_), "--num_workers=1")
    plan = Plan(str(scene.flag), memory_bytes=64 << 20)
    errors = {key_of(number): "decode"}
    troubles = expect(scene.launch(*words, plan=plan), (3,), "the launch without memory")
    return troubles or scene.troubles(errors=errors) or again(scene, *words, codes=(3,), errors=errors)


def model_replaced(*, kills: bool) -> WholeRun:
    """Another graph in place of the network: no row of it beside the old ones, and the old one back continues."""

    def run(place: Place, folder: Path, random_: random.Random) -> list[str]:
        scene, words = Scene(place, folder, owns_input=True), (devices(random_, 2),)
        graph = tiny_graph(4)
        graph.producer_name = "another"
        other = write_tiny_model(folder / "other", batch_sizes=(4,), graph=graph)
        model = folder / "models" / "tiny"
        shutil.copytree(model, folder / "kept")
        swaps = tuple((str(model / path.name), str(path)) for path in sorted(other.iterdir()))
        plan = Plan(str(scene.flag), "part directory fsync", fault="swap_and_kill" if kills else "swap", swaps=swaps)
        launched = scene.launch(*words, plan=plan)
        troubles = expect(launched, (1, 0) if kills else (0, 1), "the launch whose network was replaced")
        if launched.code:
            troubles += [] if "was replaced during the run" in launched.output else [f"it does not say why: {launched.output}"]
        troubles += expect(scene.launch(*words), (2,), "a launch with another network")
        shutil.rmtree(model)
        shutil.copytree(folder / "kept", model)
        return troubles + again(scene, *words)

    return run


def picture_changed(cut: bool) -> WholeRun:
    """A picture that is removed, or cut, while the run is on its way to it: an error row."""

    def run(place: Place, folder: Path, random_: random.Random) -> list[str]:
        scene, words = Scene(place, folder, owns_input=True), ("--num_devices=1", "--num_workers=1")
        number = NUM_PICTURES - 1 - random_.randrange(3)
        target = str(_file_of(scene, number))
        plan = Plan(
            str(scene.flag), "step noted", role=LAUNCHER, fault="swap", swaps=((target, "60" if cut else ""),), slow_s=SLOW_S
        )
        errors = {key_of(number): "decode" if cut else "read"}
        troubles = expect(scene.launch(*words, plan=plan), (3,), "the launch that lost a picture")
        return troubles or scene.troubles(errors=errors) or again(scene, *words, codes=(3,), errors=errors)

    return run


def _file_of(scene: Scene, number: int) -> Path:
    (found,) = (path for path in (scene.input / "datasets").rglob("*.png") if key_of(number) in path.name)
    return found


def clock_steps(place: Place, folder: Path, random_: random.Random) -> list[str]:
    """The clock of the launcher and its workers jumps by up to a year, back and forth; a worker is killed meanwhile."""
    scene, words = Scene(place, folder), (devices(random_), "--stall_timeout_s=30")
    plan = Plan(str(scene.flag), "part rename", fault="kill", is_clock_stepping=True)
    return expect(scene.launch(*words, plan=plan), (0,), "the launch") + scene.troubles() + again(scene, *words)


def disk_full(place: Place, folder: Path, random_: random.Random) -> list[str]:
    """A disk that has room for a part or two."""
    scene, words = Scene(place, folder), (devices(random_, 2),)
    scene.output.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(scene.output)], check=True)
    try:
        launched = scene.launch(*words)
        troubles = expect(launched, (1,), "the launch on a full disk")
        troubles += [] if "No space left on device" in launched.output else [f"it does not say why: {launched.output}"]
        subprocess.run(["mount", "-o", "remount,size=16m", str(scene.output)], check=True)
        troubles += again(scene, *words)
    finally:
        subprocess.run(["umount", "--lazy", str(scene.output)], check=True)  # a reader of ours may still be closing its file
    return troubles


WHOLE_RUNS: dict[str, WholeRun] = {
    "workers killed at random": workers_killed,
    "launcher killed at random": launcher_killed,
    "SIGTERM": stopped(signal.SIGTERM),
    "SIGINT": stopped(signal.SIGINT),
    "SIGINT twice": stopped(signal.SIGINT, signal.SIGINT),
    "decoder hangs once": hung_once("hang"),
    "decoder hangs once and holds the interpreter": hung_once("hang_holding_the_lock"),
    "network hangs once": hung_once("hang", "rows made", 2),
    "manifest hangs once": hung_once("hang", "manifest read again", 1),
    "disk hangs once": hung_once("hang", "part fsync", 2),
    "report hangs once": hung_once("hang", "report sent", 2),
    "command hangs once": hung_once("hang", "command read", 2),
    "end hangs once": hung_once("hang", "end sent", 1),
    "picture hangs the decoder": poisoned("picture read", "hang"),
    "picture kills the decoder": poisoned("picture read", "kill"),
    "two pictures of one step kill the decoder": poisoned("picture read", "kill", 2, in_one_step=True),
    "picture hangs the network": poisoned("session run", "hang"),
    "picture kills the network": poisoned("session run", "kill"),
    "two pictures of one step kill the network": poisoned("session run", "kill", 2, in_one_step=True),
    "network raises on a picture": poisoned("session run", "exception"),
    "network kills on everything": network_broken("kill", "workers die without getting anything done"),
    "network raises on everything": network_broken("exception", "the network fails on pictures, and on zeros as well"),
    "picture too large for memory": out_of_memory,
    "network replaced": model_replaced(kills=False),
    "network replaced and worker killed": model_replaced(kills=True),
    "picture removed": picture_changed(cut=False),
    "picture cut": picture_changed(cut=True),
    "clock steps": clock_steps,
    "disk full": disk_full,
    "loader processes killed at random": beside_loaders(loaders_killed),
    "loader processes end with their worker": beside_loaders(loaders_end_with_their_worker),
    "workers killed at random, beside loader processes": beside_loaders(workers_killed),
    "launcher killed at random, beside loader processes": beside_loaders(launcher_killed),
    "SIGTERM, beside loader processes": beside_loaders(stopped(signal.SIGTERM)),
    "SIGINT, beside loader processes": beside_loaders(stopped(signal.SIGINT)),
    "SIGINT twice, beside loader processes": beside_loaders(stopped(signal.SIGINT, signal.SIGINT)),
    "picture kills a loader process": beside_loaders(poisoned("picture read", "kill")),
    "two pictures of one step kill a loader process": beside_loaders(poisoned("picture read", "kill", 2, in_one_step=True)),
    "picture hangs a loader process": beside_loaders(poisoned("picture read", "hang")),
    "picture hangs a loader process and holds the interpreter": beside_loaders(
        poisoned("picture read", "hang_holding_the_lock")
    ),
    "loader process hangs once": beside_loaders(hung_once("hang")),
    "loader process hangs once and holds its lock": beside_loaders(hung_once("hang_holding_the_lock")),
}

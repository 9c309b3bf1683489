"""Several ranks through the commands: started, stopped, killed, continued with other numbers, on two hosts, with other data."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

import pytest

from tests import training
from tests.commands import children, command, living, wait_until_gone
from tests.forms import long
from tests.made_once import made_once
from tests.training import assert_same_weights, checkpoints, cut_back, runs_in, table, weights, write_digits

# Updates of 64 pictures, 5 an epoch, the last one of an epoch of 14. Their rate does not depend on the length of the run.
RUN = ["--dataset", "digits", "--model", "cifar_resnet8", "--image_size", 16, "--norm", "group", "--norm_groups", 4,
       "--global_batch_size", 64, "--lr_schedule", "constant", "--lr", 0.002, "--validation", "none",
       "--logs_per_epoch", 5, "--checkpoints_per_epoch", 5, "--keep_last", 0]  # fmt: skip
DATA = ["--data_dir", "data"]
PAIR = [*RUN, "--replicas", 2, "--micro_batch_size", 32]
ENDLESS = ["--steps", 100_000]  # of a run that something ends


def start(home: Path, *words: object, before: tuple[str, ...] = (), env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command, in a group of its own as a shell does."""
    return subprocess.Popen(
        [*before, *command("bulkinfer", "train", *words)],
        cwd=home, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines of stderr but for notes about the small data set."""
    out, err = process.communicate(timeout=600)
    return process.returncode, out, [line for line in err.splitlines() if ": note: " not in line]


def run_to_its_end(home: Path, *words: object) -> None:
    """Several ranks, which end well."""
    code, out, err = ended(start(home, *words))
    assert (code, err) == (0, []), out


def run_here(home: Path, *words: object) -> None:
    """One rank, in this process, which has loaded torch."""
    with chdir(home):
        assert training.command(*words) == 0


def until_update(process: subprocess.Popen[str], number: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"step: {number},"):
            return
    raise AssertionError(process.communicate())


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes of the ranks that a command has started."""
    return [pid for pid in children(process.pid) if b"ranks.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextmanager
def held(pid: int, number: signal.Signals) -> Iterator[None]:
    """Hold a process during the block, and from then on until it has got this signal."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
        deadline = time.monotonic() + 120
        while not is_pending(pid, number):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.kill(pid, signal.SIGCONT)


def is_pending(pid: int, number: signal.Signals) -> bool:
    """True if a process has got a signal that it has not handled yet."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(fields["ShdPnd"], 16) >> number - 1 & 1)


def last_update(run: Path) -> int:
    """That of the last checkpoint; a killed run may leave one beside it that is not complete."""
    return max(int(name[-8:]) for name in checkpoints(run) if re.fullmatch(r"step-\d{8}", name))


def differences(one: Path, other: Path) -> dict[str, float]:
    """Between the tensors of the last checkpoint of `other` and those of `one` after the same update."""
    name = f"step-{last_update(other):08d}"
    expected, found = weights(one, name), weights(other, name)
    assert expected.keys() == found.keys()
    return {key: float((expected[key].double() - found[key].double()).abs().max()) for key in expected}


def assert_near(one: Path, other: Path, reason: str) -> None:
    """As near as sums in another order lead: where a ReLU lets a value of 1e-8 through in one of them, momenta differ more."""
    found = differences(one, other)
    most = {name: 1e-2 if name.startswith("optimiser.") else 1e-4 for name in found}
    assert {name: value for name, value in found.items() if value > most[name]} == {}, reason


def assert_same(one: Path, other: Path, reason: str) -> None:
    """Bit for bit."""
    assert {name: value for name, value in differences(one, other).items() if value} == {}, reason


def free_port() -> str:
    """A port that the system gives to nobody who leaves the choice to it: ranks come to it seconds later."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return str(port)


def two_hosts(home: Path, *words: object, data: tuple[str, str], is_torchrun: bool) -> list[tuple[int, str, list[str]]]:
    """What ended() gives of two ranks, as on two hosts: of the agents of torchrun, or of the ranks, with its variables."""
    port = free_port()
    started = []
    for number, folder in enumerate(data):
        agent = (
            sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node_rank={number}", "--nproc_per_node=1",
            "--master_addr=127.0.0.1", f"--master_port={port}", "--no_python",
        )  # fmt: skip
        variables = {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
        before, env = agent if is_torchrun else (), {} if is_torchrun else variables
        started.append(start(home, *words, "--data_dir", folder, before=before, env=env))
    return [ended(process) for process in started]


def make_straight(home: Path) -> None:
    """Data, and 20 updates of two ranks that nothing disturbs, on two hosts with the data in another folder on one of them."""
    write_digits(home / "data", 270)
    shutil.copytree(home / "data", home / "other" / "place")
    found = two_hosts(home, *PAIR, "--steps", 20, "--log_path", "straight", data=("data", "other/place"), is_torchrun=True)
    assert [code for code, _, _ in found] == [0, 0], found


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this test's own in which make_straight() has been."""
    made = made_once(tmp_path_factory, "straight-ranks", make_straight)
    return shutil.copytree(made, tmp_path / "home", symlinks=True)


@pytest.fixture
def straight(home: Path) -> Path:
    """The run of two ranks that nothing disturbs."""
    (folder,) = runs_in(home / "straight")
    return folder


def straight_to(home: Path, straight: Path, update: int) -> Path:
    """That run, which goes on to this update if it has ended before."""
    if update > last_update(straight):
        run_to_its_end(home, "--resume", straight, "--steps", update)
    return straight


@long
def test_two_hosts_are_one_process(home: Path, straight: Path) -> None:
    run_here(home, *RUN, *DATA, "--steps", 20, "--micro_batch_size", 64, "--log_path", "one")
    (one,) = runs_in(home / "one")
    assert_near(one, straight, "after 20 updates")
    for row, other in zip(*(table(each, "training.csv", "loss", "accuracy") for each in (one, straight)), strict=True):
        assert float(row[0]) == pytest.approx(float(other[0]), rel=1e-4)
        assert row[1] == other[1]


@long
@pytest.mark.parametrize("starter", ["bulkinfer", "torchrun"])
def test_signals_stop_all_after_the_same_update(starter: str, home: Path, straight: Path) -> None:
    """At random updates, the second time in a run that goes on. It has the bits of the run that nothing disturbed.

    The second signal is that of a terminal, which the process that starts ranks gets with all others of its group.
    """
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--no_python")
    words, done = [*PAIR, *DATA, *ENDLESS, "--checkpoints_per_epoch", 0, "--log_path", home / "stopped"], 0
    for count, number in enumerate((signal.SIGTERM, signal.SIGINT), start=1):
        update = done + random.randrange(1, 6)
        process = start(home, *words, before=torchrun if starter == "torchrun" else ())
        until_update(process, update)
        (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)
        code, _, err = ended(process)
        (folder,) = runs_in(home / "stopped")
        assert len(checkpoints(folder)) == count
        done = last_update(folder)
        if starter == "torchrun":  # whose own lines are around these
            err = [line for line in err if line.startswith("bulkinfer train: ")]
        assert (code, err) == (
            1 if starter == "torchrun" else 128 + number,
            [
                "bulkinfer train: stopping after this update; a second signal stops at once",
                f"bulkinfer train: stopped by {number.name} after update {done}; "
                f"bulkinfer train --resume {folder} goes on from there",
            ],
        ), f"{number.name} at update {update}"
        assert done >= update
        assert_same(straight_to(home, straight, done), folder, f"{number.name} at update {update}")
        words = ["--resume", folder]


@long
def test_a_rank_that_is_killed_ends_the_run_which_goes_on_with_any_number(home: Path, straight: Path) -> None:
    """With one, and with four until the process that has started them is killed, which leaves none of them."""
    process, update = start(home, *PAIR, *DATA, *ENDLESS, "--log_path", "killed"), random.randrange(2, 10)
    until_update(process, update)
    ranks = ranks_of(process)
    assert len(ranks) == 2
    killed = f"rank 1 was killed at update {update}"
    with held(ranks[0], signal.SIGTERM):  # that of torch's launcher, which then comes before the loss is noticed
        os.kill(ranks[1], signal.SIGKILL)
    code, _, err = ended(process)
    (folder,) = runs_in(home / "killed")
    assert (code, err) == (
        1,
        [
            "bulkinfer train: rank 1 was ended by signal 9 (SIGKILL), which is what a system does that lacks memory: "
            f"bulkinfer train --resume {folder.relative_to(home)} goes on from the last checkpoint"
        ],
    ), killed
    assert living(ranks) == []
    done = last_update(folder)
    assert_same(straight_to(home, straight, done + 4), folder, killed)
    one, four = (shutil.copytree(folder, home / name) for name in ("continued-1", "continued-4"))
    run_here(home, "--resume", one, "--replicas", 1, "--steps", done + 4)
    assert last_update(one) == done + 4
    assert_near(straight, one, killed)
    process = start(home, "--resume", four, "--replicas", 4, "--micro_batch_size", 16)
    until_update(process, done + 2)
    ranks = children(process.pid)
    assert len(ranks_of(process)) == 4
    process.kill()
    process.communicate(timeout=300)  # ends when the last process has closed its end of the pipes, just before it is gone
    wait_until_gone(ranks)
    assert last_update(four) > done
    assert_near(straight_to(home, straight, last_update(four)), four, killed)


@long
def test_ranks_with_other_data_are_refused_on_all_hosts(home: Path) -> None:
    write_digits(home / "more", 280)
    words = [*PAIR, "--steps", 20, "--log_path", "refused"]
    for code, out, err in two_hosts(home, *words, data=("data", "more"), is_torchrun=False):
        (sentence,) = [line for line in err if line.startswith("bulkinfer train: ")]
        assert re.fullmatch(
            r"bulkinfer train: rank 1 on \S+ would train something else than rank 0 on \S+: it has other training pictures "
            r"\(280, \w{16}, not 270, \w{16}\), training labels: give all ranks the same data and options",
            sentence,
        )
        assert (code, "step: " in out) == (2, False)
    assert not (home / "refused").exists()


STAGES = ["--pipeline_splits", "layer2/0", "--pipeline_schedule", "1f1b", "--micro_batch_size", 8]


@long
def test_stages_go_on_as_one_process_and_back(tmp_path: Path) -> None:
    """A run of two replicas of two stages is killed, and continued by one process, and by two other stages."""
    write_digits(tmp_path / "even", 256)  # 4 updates an epoch
    words = [*RUN, "--data_dir", "even", "--validation", "after"]
    process = start(tmp_path, *words, *ENDLESS, *STAGES, "--replicas", 2, "--log_path", "staged")
    update, number = random.randrange(2, 10), random.randrange(4)
    until_update(process, update)
    ranks = ranks_of(process)
    assert len(ranks) == 4
    os.kill(ranks[number], signal.SIGKILL)
    code, _, err = ended(process)
    killed = f"process {number} was killed at update {update}"
    assert (code, len(err)) == (1, 1), (killed, err)
    assert living(ranks) == []
    (folder,) = runs_in(tmp_path / "staged")
    steps = last_update(folder) + 4
    run_here(tmp_path, *words, "--steps", steps, "--micro_batch_size", 8, "--log_path", "whole")
    (whole,) = runs_in(tmp_path / "whole")
    ((expected,),) = table(whole, "validation.csv", "accuracy")
    one, other = (shutil.copytree(folder, tmp_path / name) for name in ("one", "other"))
    run_here(tmp_path, "--resume", one, "--steps", steps, "--replicas", 1, "--pipeline_splits", "none")
    run_to_its_end(
        tmp_path, "--resume", other, "--steps", steps, "--replicas", 1, "--pipeline_splits", "layer3.0",
        "--pipeline_schedule", "gpipe",
    )  # fmt: skip
    for copy in (one, other):
        assert_near(whole, copy, killed)
        ((step, accuracy, count),) = table(copy, "validation.csv", "step", "accuracy", "count")
        assert (step, count) == (str(steps), "360")
        assert float(accuracy) == pytest.approx(float(expected), abs=0.01), killed


@long
def test_stages_that_drop_blocks_go_on_with_the_same_bits(tmp_path: Path) -> None:
    """What is left out is drawn in each update, in each stage, by its number: no state of random numbers is kept."""
    write_digits(tmp_path / "data", 64)  # 2 updates an epoch
    run_to_its_end(
        tmp_path, "--dataset", "digits", *DATA, "--model", "cifar_resnet8", "--image_size", 16, "--dropout", 0.3,
        "--block_survival", 0.5, "--micro_batch_size", 8, "--gradient_accumulation", 4, "--pipeline_splits", "layer3.0",
        "--pipeline_schedule", "1f1b", "--steps", 7, "--validation", "none", "--checkpoints_per_epoch", 2, "--keep_last", 0,
        "--log_path", "logs",
    )  # fmt: skip
    (whole,) = runs_in(tmp_path / "logs")
    cut = cut_back(whole, 3)
    run_to_its_end(tmp_path, "--resume", cut)
    assert checkpoints(cut) == checkpoints(whole)
    assert_same_weights(whole, cut)

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
from pathlib import Path

import pytest
import torch

from tests.commands import children, command, living, wait_until_gone
from tests.forms import long
from tests.training import assert_same_weights, checkpoints, runs_in, table, weights, write_digits

# 20 updates of 64 pictures, 5 an epoch, the last one of an epoch of 14: long enough that a signal comes in their midst
RUN = ["--dataset", "digits", "--data_dir", "data", "--model", "cifar_resnet8", "--image_size", 16, "--norm", "group",
       "--norm_groups", 4, "--global_batch_size", 64, "--steps", 20, "--lr", 0.02, "--validation", "none"]  # fmt: skip
EVERY = ["--logs_per_epoch", 5, "--checkpoints_per_epoch", 5, "--keep_last", 0]
PAIR = [*RUN, *EVERY, "--replicas", 2, "--micro_batch_size", 32]


def start(home: Path, *words: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start the command, in a group of its own as a shell does."""
    return subprocess.Popen(
        [*before, *command("bulkinfer", "train", *words)],
        cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines of stderr but for notes about the small data set."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out, [line for line in err.splitlines() if ": note: " not in line]


def run(home: Path, name: str, *words: object) -> Path:
    """The folder of a run that ends well."""
    code, out, err = ended(start(home, *words, "--log_path", name))
    assert (code, err) == (0, []), out
    (folder,) = runs_in(home / name)
    return folder


def until_update(process: subprocess.Popen[str], number: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"step: {number},"):
            return
    raise AssertionError(process.communicate())


def largest_difference(one: Path, other: Path, *, of_optimiser: bool = True) -> float:
    """Between the tensors of the last checkpoints of two runs."""
    expected, found = weights(one), weights(other)
    assert expected.keys() == found.keys()
    names = [name for name in expected if of_optimiser or not name.startswith("optimiser.")]
    return max(float((expected[name].double() - found[name].double()).abs().max()) for name in names)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    write_digits(folder / "data", 270)
    return folder


@pytest.fixture(scope="module")
def straight(home: Path) -> Path:
    """The run of two ranks that nothing disturbs."""
    return run(home, "straight", *PAIR)


@long
def test_two_ranks_are_one_process(home: Path, straight: Path) -> None:
    one = run(home, "one", *RUN, *EVERY, "--micro_batch_size", 64)
    assert largest_difference(one, straight) < 1e-5
    for row, other in zip(*(table(each, "training.csv", "loss", "accuracy") for each in (one, straight)), strict=True):
        assert float(row[0]) == pytest.approx(float(other[0]), rel=1e-4)
        assert row[1] == other[1]


@long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_after_the_same_update(number: signal.Signals, home: Path, straight: Path) -> None:
    """At a random update; what goes on from there has the bits of the run that nothing disturbed."""
    logs = home / number.name
    update = random.randrange(1, 10)
    process = start(home, *PAIR, "--checkpoints_per_epoch", 0, "--log_path", logs)
    until_update(process, update)
    process.send_signal(number)
    code, _, err = ended(process)
    (folder,) = runs_in(logs)
    assert code == 128 + number, (update, err)
    assert err[0] == "bulkinfer train: stopping after this update; a second signal stops at once"
    (name,) = checkpoints(folder)
    assert err[1:] == [
        f"bulkinfer train: stopped by {number.name} after update {int(name[-8:])}; "
        f"bulkinfer train --resume {folder} goes on from there"
    ]
    expected = weights(straight, name)
    assert [key for key, value in weights(folder).items() if not torch.equal(value, expected[key])] == []
    if number == signal.SIGTERM:
        code, out, err = ended(start(home, "--resume", folder))
        assert (code, err) == (0, []), out
        assert_same_weights(straight, folder)


@long
def test_a_rank_that_is_killed_ends_the_run_which_goes_on_with_any_number(home: Path, straight: Path) -> None:
    process = start(home, *PAIR, "--log_path", "killed")
    until_update(process, random.randrange(2, 10))
    ranks = [pid for pid in children(process.pid) if b"ranks.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    code, _, err = ended(process)
    (folder,) = runs_in(home / "killed")
    assert code == 1
    assert err == [
        "bulkinfer train: rank 1 was ended by signal 9 (SIGKILL), which is what a system does that lacks memory: "
        f"bulkinfer train --resume {folder.relative_to(home)} goes on from the last checkpoint"
    ]
    assert living(ranks) == []
    for count, sizes in ((1, []), (4, ["--micro_batch_size", 16]), (2, [])):
        copy = shutil.copytree(folder, home / f"continued-{count}")
        code, out, err = ended(start(home, "--resume", copy, "--replicas", count, *sizes))
        assert (code, err) == (0, []), out
        assert largest_difference(straight, copy) < 1e-5
    assert_same_weights(straight, copy)


@long
def test_a_launcher_that_is_killed_leaves_no_rank(home: Path) -> None:
    process = start(home, *PAIR, "--steps", 100_000, "--log_path", "left")
    until_update(process, 1)
    ranks = children(process.pid)
    process.kill()
    process.communicate(timeout=300)  # ends when the last process has closed its end of the pipes, just before it is gone
    wait_until_gone(ranks)


def two_hosts(home: Path, *words: object, data: tuple[str, str]) -> list[tuple[int, str, list[str]]]:
    """Exit code, stdout and stderr of two agents of torchrun with a rank each, as on two hosts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agents = [
        start(home, *words, "--data_dir", folder, before=(
            sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node_rank={number}", "--nproc_per_node=1",
            "--master_addr=127.0.0.1", f"--master_port={port}", "--no_python",
        ))
        for number, folder in enumerate(data)
    ]  # fmt: skip
    return [ended(agent) for agent in agents]


@long
def test_two_hosts(home: Path, straight: Path) -> None:
    """With the data in another folder on one of them."""
    shutil.copytree(home / "data", home / "other" / "place")
    words = [word for word in PAIR if word not in ("--data_dir", "data")]
    found = two_hosts(home, *words, "--log_path", "hosts", data=("data", "other/place"))
    assert [code for code, _, _ in found] == [0, 0], found
    (folder,) = runs_in(home / "hosts")
    assert_same_weights(straight, folder)


@long
def test_ranks_with_other_data_are_refused_on_all_hosts(home: Path) -> None:
    write_digits(home / "more", 280)
    words = [word for word in PAIR if word not in ("--data_dir", "data")]
    for code, out, err in two_hosts(home, *words, "--log_path", "refused", data=("data", "more")):
        (sentence,) = [line for line in err if line.startswith("bulkinfer train: ")]
        assert re.fullmatch(
            r"bulkinfer train: rank 1 on \S+ would train something else than rank 0 on \S+: it has other training pictures "
            r"\(280, \w{16}, not 270, \w{16}\), training labels: give all ranks the same data and options",
            sentence,
        )
        assert (code, "step: " in out) == (1, False), "of torchrun; the ranks' own is 2"
        assert "exitcode  : 2" in "\n".join(err)
    assert not (home / "refused").exists()


STAGES = ["--pipeline_splits", "layer2/0", "--pipeline_schedule", "1f1b", "--micro_batch_size", 8]


@long
def test_stages_go_on_as_one_process_and_back(home: Path) -> None:
    """A run of two replicas of two stages is killed, and continued by one process, and by two other stages."""
    write_digits(home / "even", 256)  # 4 updates an epoch
    words = [*RUN, *EVERY, "--data_dir", "even", "--lr", 0.002, "--validation", "after"]
    one = run(home, "whole", *words, "--micro_batch_size", 8)
    ((accuracy,),) = table(one, "validation.csv", "accuracy")
    expected = float(accuracy)
    process = start(home, *words, *STAGES, "--replicas", 2, "--log_path", "staged")
    until_update(process, random.randrange(2, 10))
    ranks = [pid for pid in children(process.pid) if b"ranks.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(ranks) == 4
    os.kill(random.choice(ranks), signal.SIGKILL)
    code, _, err = ended(process)
    assert (code, len(err)) == (1, 1), err
    assert living(ranks) == []
    (folder,) = runs_in(home / "staged")
    for name, sizes in (
        ("one", ["--replicas", 1, "--pipeline_splits", "none"]),
        ("stages", ["--replicas", 1, "--pipeline_splits", "layer3.0", "--pipeline_schedule", "gpipe"]),
    ):
        copy = shutil.copytree(folder, home / f"staged-{name}")
        code, out, err = ended(start(home, "--resume", copy, *sizes))
        assert (code, err) == (0, []), out
        assert largest_difference(one, copy) < 1e-2, "of momenta, where a ReLU lets a value of 1e-8 through in one of them"
        assert largest_difference(one, copy, of_optimiser=False) < 1e-4
        ((steps, accuracy, count),) = table(copy, "validation.csv", "step", "accuracy", "count")
        assert (steps, count) == ("20", "360")
        assert float(accuracy) == pytest.approx(expected, abs=0.01)

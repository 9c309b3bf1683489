"""Signals at any moment of a command's first seconds: one sentence or none, the signal's exit code, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands import command, run
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model

NOT_IGNORED = ["env", "--default-signal=INT,TERM,HUP"]  # as they may be for these tests, under nohup or in the background
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAUNCH = ["infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu", "--batch_size", "6"]
BUSY = {
    "infer_launch": [*LAUNCH, "--output", "results", "--num_devices", "2", "--overwrite"],
    "get_model": ["get_model", "--model_name", "efficientnet_lite0", "--model_path", "made"],
    "train": ["bulkinfer", "train", "--dataset", "generated", "--epochs", "50", "--micro_batch_size", "8"],
}
OTHERS = {
    "partition_dataset": ["partition_dataset", "--data_dir", "photos", "--output", "parts"],
    "validate": ["bulkinfer", "validate", "--model", "cifar_resnet20", "--generated_data"],
    "verify": ["bulkinfer", "verify", "done"],
    "seal": ["bulkinfer", "seal", "models/tiny/card.json"],
    "retry": ["bulkinfer", "retry", "done"],
    "watch": ["bulkinfer", "watch", "done"],
    "bench": ["bulkinfer", "bench", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu"],
    "get_dataset": ["bulkinfer", "get_dataset", "cifar10", "--url", "absent.tar.gz"],
    "help": ["bulkinfer", "help"],
}
# Where a signal may meet Python alone: while the interpreter starts, and in the script that pip has made, which imports ours.
# What stands in a function of bulkinfer comes after the first line of main(), which watches the signals.
BEFORE_US = ("init_sys_streams", "init_import_site", "in <module>\n")
OURS = re.compile(r'File ".*/bulkinfer/.*", line \d+, in (?!<module>)')


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a network, pictures, the results of a job, and a folder of its own for temporary files."""
    write_tiny_model(tmp_path / "models", batch_sizes=(1, 6))
    write_photos(tmp_path / "photos", 60)
    (tmp_path / "temporary").mkdir()
    assert run("infer_launch", *LAUNCH[1:], "--output", "done", cwd=tmp_path).returncode == 0
    return tmp_path


def assert_gone(group: int) -> None:
    """Raises AssertionError unless the last processes of the group end soon: children notice the end of their parent."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"processes of the group {group} are left")


def interrupted(place: Path, words: list[str], number: int, moment_s: float) -> tuple[int, str]:
    """Run a command, and send it a signal after `moment_s`; its exit code as a shell gives it, and what it says on stderr."""
    environment = {**os.environ, "TMPDIR": str(place / "temporary")}
    process = subprocess.Popen(
        [*NOT_IGNORED, *command(*words)], cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    time.sleep(moment_s)
    process.send_signal(number)
    _, told = process.communicate(timeout=300)
    assert_gone(process.pid)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode, told


def check(place: Path, words: list[str], number: int, moment_s: float) -> None:
    """Raises AssertionError unless the command ended as it should, by the signal or before it came."""
    code, told = interrupted(place, words, number, moment_s)
    where = f"{words}, {signal.Signals(number).name} after {moment_s:.3f} s: exit code {code}, {told}"
    if "Traceback" in told or "Fatal" in told:
        assert any(line in told for line in BEFORE_US), where
        assert not OURS.search(told), where
        return
    assert code in (0, 1, 2, 3, 128 + number), where
    assert code == 128 + number or "signal" not in told, where
    assert told.count("\n") <= 2, where  # a warning may come before the last sentence
    left = [path for pattern in ("**/_tmp-*", "**/_lock.json", "temporary/*") for path in place.glob(pattern)]
    left = [path for path in left if not path.name.startswith("torchinductor_")]  # the cache of torch
    assert not left, (where, left)


def moments(number: int, last_s: float = 3.0, count: int = 15) -> list[float]:
    """That many moments from 0 to `last_s` for a signal, others for each one."""
    apart_s = last_s / (count - 1)
    return [apart_s * (moment + SIGNALS.index(number) / len(SIGNALS)) for moment in range(count)]


@long
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", BUSY)
def test_c53_a_signal_in_the_first_seconds(place: Path, name: str, number: int) -> None:
    for moment_s in moments(number):
        check(place, BUSY[name], number, moment_s)


@long
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", OTHERS)
def test_c53_a_signal_to_the_other_commands(place: Path, name: str, number: int) -> None:
    for moment_s in (0.05, 0.2, 1.0):
        check(place, OTHERS[name], number, moment_s)

"""A long call outside of Python does not hold a stop signal back."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from bulkinfer.host.interruptible import interruptible

MOST_S = 300.0  # of what ends within a second; else the call was not interrupted
ONE_HOUR_IN_C = """
import hashlib
from bulkinfer.commands.outcome import exit_code_of, leave
from bulkinfer.host.interruptible import interruptible
from bulkinfer.host.stop_signals import watch_signals

def act():
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)

watch_signals("command")
leave(exit_code_of("command", lambda: interruptible(act)))
"""


def test_without_a_watch_it_is_a_call() -> None:
    assert interruptible(threading.current_thread) is threading.current_thread()
    with pytest.raises(KeyError, match="no"):
        interruptible(lambda: {}["no"])


@pytest.mark.parametrize(("act", "code", "said"), [("None", 0, ""), ("1 / 0", 1, "ZeroDivisionError")])
def test_with_a_watch_it_returns_and_raises(act: str, code: int, said: str) -> None:
    text = ONE_HOUR_IN_C.replace("interruptible(act)", f"interruptible(lambda: {act}) or 0")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=MOST_S)
    assert (done.returncode, said in done.stderr) == (code, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ONE_HOUR_IN_C], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            _, err = process.communicate(timeout=MOST_S)
        finally:
            process.kill()  # the end of the block waits for it
    assert process.returncode == 128 + number
    assert err.startswith("command: ")
    assert err.count("\n") == 1

"""ranks/process.py: what a rank says of its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from bulkinfer.errors import RankLostError
from bulkinfer.host.stop_signals import Stopped
from bulkinfer.train.ranks.process import lost_rank


def ended_by(signal_comes: bool) -> BaseException:
    """The exception that ends a rank which has lost another, while it tidies up."""
    try:
        try:
            raise RankLostError(": go on")
        finally:
            if signal_comes:
                raise Stopped(signal.SIGTERM)
    except BaseException as error:
        return error


def test_advice_is_kept_if_a_signal_comes_while_a_loss_is_reported() -> None:
    for signal_comes in (False, True):
        lost = lost_rank(ended_by(signal_comes))
        assert lost is not None
        assert lost.advice == ": go on"
    assert lost_rank(Stopped(signal.SIGTERM)) is None


SIGNALLED = """
import json, os, signal, sys
from pathlib import Path
from bulkinfer.errors import RankLostError
from bulkinfer.train.ranks import process

is_lost = False

def lose(options):
    global is_lost
    is_lost = True
    raise RankLostError(": go on")

def act(number, reply):
    # Be a rank that loses another, and gets a signal before the line with this number of those that run from then on.
    def count(frame, event, arg):
        nonlocal number
        number -= event == "line" and is_lost
        if number == 0:
            reply.with_suffix(".sent").touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return count
    process._train = lose
    os.environ[process.REPLY_FILE] = str(reply)
    sys.argv[1:] = [str(parent), "options.json"]
    sys.settrace(count)
    process.main()

folder, parent, number = Path(sys.argv[1]), os.getpid(), 1
while True:
    reply = folder / f"{number}.json"
    if not (child := os.fork()):
        act(number, reply)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ending = json.loads(reply.read_bytes())["ending"]
    print(code, ending["code"], "lost" if ending["is_lost"] else "stopped" if ending["is_stopped"] else ending)
    if not reply.with_suffix(".sent").exists():
        break
    number += 1
"""


def test_a_signal_that_comes_while_a_loss_is_reported_costs_no_reply(tmp_path: Path) -> None:
    """At every line. Torch's launcher sends one to the other ranks when it sees that one has ended, and reads their replies."""
    words = [sys.executable, "-c", SIGNALLED, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.splitlines()
    assert set(found) == {"143 143 stopped", "1 1 lost"}
    first = found.index("1 1 lost")  # of the lines from which on signals do nothing
    assert set(found[first:]) == {"1 1 lost"}
    assert len(found) - first > 20, "the reply was written by then"


UNHEARD = """
import os, sys
from bulkinfer.train.ranks import process
process._train = lambda options: {}
os.environ[process.REPLY_FILE] = sys.argv[1]
sys.argv[1:] = [str(os.getppid()), "options.json"]
process.main()
"""


def test_a_reply_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """The rank fails then, although its training did not: nobody would know what came of it."""
    reply = tmp_path / "gone" / "error.json"
    done = subprocess.run([sys.executable, "-c", UNHEARD, reply], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (1, f"bulkinfer train: No such file or directory: {reply}\n")

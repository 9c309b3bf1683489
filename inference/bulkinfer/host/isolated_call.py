"""Call a function in a separate process: if it crashes, hangs or takes too much memory, the caller goes on."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from bulkinfer.errors import BulkinferError, RunError, first_line
from bulkinfer.host.process_setup import die_with_parent

log = logging.getLogger("bulkinfer")


class NoAnswer(str):
    """The sentence of a call that was ended, or whose process died, before it answered: asked again, it may well answer."""

    __slots__ = ()


class Failure(NoAnswer):
    """The same where the process crashed or hung, and nobody ended it: asked again, it will most likely do the same."""

    __slots__ = ()


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)  # of a user, or of a system that needs memory
_ANSWER = "answer: "
_TRACEBACK = "Traceback (most recent call last)"
# Errors that mean a bug when bulkinfer's code raises them. Reporting them as an answer would blame the network for our bug.
# When a library raises them, the cause is the input.
_BUGS = (AssertionError, AttributeError, LookupError, NameError, TypeError)
_LIMIT_S = 300.0  # a large network on a slow disk takes long to open; more than this is a hang


def ask(module: str, question: dict[str, Any], subject: str, *, limit_s: float = _LIMIT_S) -> Any:
    """The JSON answer of `python -m module`, which calls answer(); if that fails, a sentence about `subject`, a flag.

    The sentence is a NoAnswer if the process did not come to answer, and a Failure if the process itself was the cause.

    The process is ended with this one, and after `limit_s` seconds. Raises RunError for a bug of bulkinfer in it, after logging
    the traceback.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            input=json.dumps(question), capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Failure(f"{subject} took more than {limit_s:.0f} s to open and run")
    lines = [line for line in ended.stdout.splitlines() if line.startswith(_ANSWER)]  # libraries may print other lines
    if ended.returncode > 0 and _TRACEBACK in ended.stderr:
        for line in ended.stderr.rstrip().splitlines():
            log.error(line)
        last = ended.stderr.strip().splitlines()[-1]
        raise RunError(f"{subject}: internal error in {module}, {last[:300]}; the lines before have the details")
    if ended.returncode or not lines:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        kind = NoAnswer if -ended.returncode in _ENDING else Failure
        return kind(f"{subject} ends its process: {last[:300]}")
    return json.loads(lines[-1].removeprefix(_ANSWER))


def answer(find: Callable[[dict[str, Any]], Any], subject: Callable[[dict[str, Any]], str]) -> None:
    """Print the result of `find` for the question on stdin, or a sentence about subject(question), and end the process.

    It ends by os._exit, as a worker does, since threads of libraries may outlive the interpreter. A bug of bulkinfer is not an
    answer: its traceback goes to stderr.
    """
    die_with_parent(int(sys.argv[1]))
    question = json.load(sys.stdin)
    result: Any
    try:
        result = find(question)
    except BulkinferError as error:
        result = str(error)
    except Exception as error:  # of the runtime, which documents no classes, or of the host: the caller goes on
        if isinstance(error, _BUGS) and _is_raised_here(error):
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        result = f"{subject(question)}: {type(error).__name__}: {first_line(error)}"
    print(f"\n{_ANSWER}{json.dumps(result)}", flush=True)
    os._exit(0)


def _is_raised_here(error: BaseException) -> bool:
    """True if the innermost Python frame of the error is in bulkinfer."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__"))
    return module == "__main__" or module.partition(".")[0] == __name__.partition(".")[0]

"""A question put to a process of its own: one that crashes, hangs or takes memory for ever does so alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from bulkinfer.errors import BulkinferError, RunError, first_line
from bulkinfer.host.process_setup import die_with_parent

_ANSWER = "answer: "
_TRACEBACK = "Traceback (most recent call last)"
# What our own mistakes raise, where our code does. A network that is refused by one of them would be called unfit for our
# mistake; out of a library's code they come of what it was given.
_FAULTS = (AssertionError, AttributeError, LookupError, NameError, TypeError)
_LIMIT_S = 300.0  # opening a large network on a slow disk takes its time; more than this is a hang


def ask(module: str, question: dict[str, Any], subject: str, *, limit_s: float = _LIMIT_S) -> Any:
    """The JSON answer of `python -m module`, which calls answer(); where it fails, a sentence about `subject`: the flag that
    the question is about.

    The process ends with this one, and after `limit_s` seconds. Raises RunError for a fault of ours in it, which says nothing
    about what was asked; its details go to stderr.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            input=json.dumps(question), capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{subject} took more than {limit_s:.0f} s to open and run"
    lines = [line for line in ended.stdout.splitlines() if line.startswith(_ANSWER)]  # libraries may print beside it
    if ended.returncode > 0 and _TRACEBACK in ended.stderr:
        print(ended.stderr.rstrip(), file=sys.stderr)
        last = ended.stderr.strip().splitlines()[-1]
        raise RunError(f"{subject}: internal error in {module}, {last[:300]}; the lines before have the details")
    if ended.returncode or not lines:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        return f"{subject} ends its process: {last[:300]}"
    return json.loads(lines[-1].removeprefix(_ANSWER))


def answer(find: Callable[[dict[str, Any]], Any], subject: Callable[[dict[str, Any]], str]) -> None:
    """Print what `find` makes of the question on stdin, or a sentence about subject(question); ends the process, as a worker
    does, since threads of libraries may outlive the interpreter. A fault of ours is no answer: it goes to stderr.
    """
    die_with_parent(int(sys.argv[1]))
    question = json.load(sys.stdin)
    told: Any
    try:
        told = find(question)
    except BulkinferError as error:
        told = str(error)
    except Exception as error:  # of the runtime, which documents no classes, or of the host: the asker goes on
        if isinstance(error, _FAULTS) and _is_of_our_code(error):
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        told = f"{subject(question)}: {type(error).__name__}: {first_line(error)}"
    print(f"\n{_ANSWER}{json.dumps(told)}", flush=True)
    os._exit(0)


def _is_of_our_code(error: BaseException) -> bool:
    """Whether the innermost frame, where it was raised or a compiled function called that raised it, is one of ours."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__"))
    return module == "__main__" or module.partition(".")[0] == __name__.partition(".")[0]

"""A question put to a process of its own: one that crashes, hangs or takes memory for ever does so alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from inference.errors import BulkinferError, first_line
from inference.lifeline import die_with_parent

_ANSWER = "answer: "
_LIMIT_S = 300.0  # opening a large network on a slow disk takes its time; more than this is a hang


def ask(module: str, question: dict[str, Any], subject: str, *, limit_s: float = _LIMIT_S) -> Any:
    """The JSON answer of `python -m module`, which calls answer(); where it fails, a sentence about `subject`: the flag that
    the question is about.

    The process ends with this one, and after `limit_s` seconds.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            input=json.dumps(question), capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{subject} took more than {limit_s:.0f} s to open and run"
    lines = [line for line in ended.stdout.splitlines() if line.startswith(_ANSWER)]  # libraries may print beside it
    if ended.returncode or not lines:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        return f"{subject} ends its process: {last[:300]}"
    return json.loads(lines[-1].removeprefix(_ANSWER))


def answer(find: Callable[[dict[str, Any]], Any], subject: Callable[[dict[str, Any]], str]) -> None:
    """Print what `find` makes of the question on stdin, or a sentence about subject(question); ends the process, as a worker
    does, since threads of libraries may outlive the interpreter.
    """
    die_with_parent(int(sys.argv[1]))
    question = json.load(sys.stdin)
    told: Any
    try:
        told = find(question)
    except BulkinferError as error:
        told = str(error)
    except Exception as error:  # whatever it is, the asker goes on
        told = f"{subject(question)}: {type(error).__name__}: {first_line(error)}"
    print(f"\n{_ANSWER}{json.dumps(told)}", flush=True)
    os._exit(0)

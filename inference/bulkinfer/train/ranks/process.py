"""The process of one rank that start.py has started: `python -m bulkinfer.train.ranks.process PID OPTIONS`.

PID is that of the process that started it, without which it ends; OPTIONS is a file with the options of the run. What comes of
it goes to the reply file of torch's launcher: the result of train(), or the sentence that the command would end with.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bulkinfer.errors import RankLostError
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.host.console import make_printing_safe, naming_command, print_log_lines, say_last
from bulkinfer.host.failure import sentence_and_code
from bulkinfer.host.process_setup import die_with_parent, hide_wandb, keep_freed_memory, spin_briefly
from bulkinfer.host.stop_signals import ignore_signals, stopping_signal, watch_signals, work_begins
from bulkinfer.train.ranks.world import is_first_rank
from bulkinfer.train.stopping import COMMAND, stop_signals

REPLY_FILE = "TORCHELASTIC_ERROR_FILE"  # the variable in which torch's launcher names it


def main() -> None:
    """Train as one rank, and end this process."""
    parent, options = sys.argv[1:]
    watch_signals(COMMAND, says=False)  # the process that started this one reports it
    die_with_parent(int(parent))
    make_printing_safe()
    print_log_lines()
    code = number = 0
    try:
        try:
            work_begins()
            with naming_command(COMMAND):
                reply: dict[str, Any] = {"result": _train(Path(options))}
            sys.stdout.flush()
        finally:  # inside of the other try: a signal that is pending at this moment is raised by the call
            number = ignore_signals()
    except BaseException as error:
        ending = _ending(error, ignore_signals() or number)
        reply, code = {"ending": ending}, ending["code"]
    # the form that torch reads: a message, and the time in seconds
    reply["message"] = {"message": "", "extraInfo": {"timestamp": str(int(time.time()))}}
    try:
        write_json(Path(os.environ[REPLY_FILE]), reply, is_durable=False)
    except OSError as error:  # as on a full disk
        sentence, code = sentence_and_code(COMMAND, error)
        say_last(sentence)
    os._exit(code)


def _train(options: Path) -> dict[str, Any]:
    spin_briefly()
    hide_wandb()
    keep_freed_memory()
    from bulkinfer.train.launch import train
    from bulkinfer.train.options import TrainConfig
    from bulkinfer.train.ranks.start import is_stopping

    given = read_json(options)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given["config"].items()
    }
    is_first = is_first_rank()
    if not is_first:
        logging.getLogger("bulkinfer").setLevel(logging.WARNING)
    stopping = partial(stop_signals, lambda: is_first and is_stopping(options))
    result = train(TrainConfig(**fields), stopping=stopping, shows_progress=is_first and given["shows_progress"])
    return {name: os.fspath(value) if isinstance(value, Path) else value for name, value in asdict(result).items()}


def _ending(error: BaseException, after_signal: int) -> dict[str, Any]:
    """The fields of the Ending of a rank that fails with `error`; a bug of bulkinfer is printed with its traceback."""
    lost = lost_rank(error)
    sentence, code = sentence_and_code(COMMAND, error, after_signal)
    if not sentence:
        traceback.print_exception(error)
    return {
        "code": code,
        "time": time.time(),
        "sentence": sentence.removeprefix(f"{COMMAND}: "),
        "advice": lost.advice if lost else "",
        "is_lost": isinstance(error, RankLostError),
        "is_stopped": bool(stopping_signal(error)),
    }


def lost_rank(error: BaseException | None) -> RankLostError | None:
    """The loss of a rank that was being reported when `error` came: torch's launcher then ends the other ranks by signals."""
    while error is not None and not isinstance(error, RankLostError):
        error = error.__context__
    return error


if __name__ == "__main__":
    main()

"""Run a command: parse its words, call its action, and turn every failure that a user can cause into one sentence on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from bulkinfer.commands.parse import Config, HelpRequested, parse, parse_values
from bulkinfer.errors import BulkinferError, os_error_sentence
from bulkinfer.host.console import make_printing_safe, print_log_lines


def run_command(
    command: str,
    config_class: type[Config],
    action: Any,
    argv: Sequence[str] | None,
    *,
    positional: str = "",
    defaults_of: Callable[[Any], Mapping[str, Any]] | None = None,
    translate: Callable[[Sequence[str]], tuple[list[str], list[str]]] | None = None,
) -> int:
    """Parse the command line, run `action(config)`, which returns the exit code, and return that code.

    `defaults_of(values)` returns other defaults, for example from a file that an option names; flags that are given override
    them. `translate(argv)` replaces the spellings of other programs, and returns notes to print.
    Without `argv` the words are those of this process, and the process ends here (see leave).
    """
    make_printing_safe()
    print_log_lines()
    words, notes = list(sys.argv[1:] if argv is None else argv), list[str]()
    if translate is not None:
        words, notes = translate(words)
    try:
        for note in notes:
            print(note)
        code = _guarded(command, config_class, action, words, positional, defaults_of)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of stdout has ended, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"{command}: stopped, since nobody reads its output any more", file=sys.stderr)
        code = 1
    return code if argv is not None else leave(code)


def leave(code: int) -> NoReturn:
    """End this process with `code`, without shutting the interpreter down.

    A thread of Arrow may still hold a Python object at that time. If it takes the interpreter's lock during the shutdown, the
    process aborts: commands that had done all their work ended with exit code 134.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _one_line(text: str) -> str:
    """The text with line breaks and other control characters escaped; file names may hold them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _guarded(
    command: str,
    config_class: type[Config],
    action: Any,
    argv: Sequence[str],
    positional: str,
    defaults_of: Callable[[Any], Mapping[str, Any]] | None,
) -> int:
    try:
        try:
            defaults: Mapping[str, Any] = {}
            if defaults_of is not None:  # the given values may be valid only together with these
                defaults = defaults_of(SimpleNamespace(**parse_values(command, config_class, argv, positional=positional)))
            config = parse(command, config_class, argv, positional=positional, defaults=defaults)
        except HelpRequested as text:
            print(text, flush=True)
            return 0
        code: int = action(config)
        return code
    except BulkinferError as error:
        print(f"{command}: {_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None:
            raise
        print(f"{command}: {os_error_sentence(error)}", file=sys.stderr)
        return 1
    except MemoryError:
        print(f"{command}: out of memory: free some, or raise the limit of this shell (ulimit -v)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{command}: interrupted", file=sys.stderr)
        return 130

"""Run a command: parse its words, call its action, and turn every failure that a user can cause into one sentence on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from bulkinfer.commands.outcome import exit_code_of, leave
from bulkinfer.commands.parse import Config, HelpRequested, parse, parse_values
from bulkinfer.errors import RunError, os_error_sentence
from bulkinfer.host.console import STDOUT, data_on_stdout, naming_command, print_log_lines, say, say_lines
from bulkinfer.host.stop_signals import is_own_process

Translate: TypeAlias = Callable[[Sequence[str]], tuple[list[str], list[str]]]


def run_command(
    command: str,
    config_class: type[Config],
    action: Any,
    argv: Sequence[str] | None,
    *,
    positional: str = "",
    first_word: str = "",
    defaults_of: Callable[[Any], Mapping[str, Any]] | None = None,
    translate: Translate | None = None,
    uses_arrow: bool | Callable[[Config], bool] = False,
) -> int:
    """Parse the command line, run `action(config)`, which returns the exit code, and return that code.

    `positional` and `first_word` name the field that plain words set (see parse_values). `defaults_of(values)` returns other
    defaults, for example from a file that an option names; flags that are given override them. `translate(argv)` replaces the
    spellings of other programs, and returns notes to print. An action that `uses_arrow` (for all configs, or those that a
    function names) starts sooner in a process of its own: pandas is hidden from pyarrow there.
    With --to - stdout is for data: every line that the action prints goes to stderr.
    Without `argv` the words are those of this process, and the process ends here (see leave).
    """
    print_log_lines()

    def act() -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        if translate is not None:
            words, notes = translate(words)
            for note in notes:
                say(note)
        try:
            defaults: Mapping[str, Any] = {}
            if defaults_of is not None:  # the given values may be valid only together with these
                given = parse_values(command, config_class, words, positional=positional, first_word=first_word)
                defaults = defaults_of(SimpleNamespace(**given))
            config = parse(command, config_class, words, positional=positional, first_word=first_word, defaults=defaults)
        except HelpRequested as text:
            say_lines(str(text))
            return 0
        if is_own_process() and (uses_arrow(config) if callable(uses_arrow) else uses_arrow):
            from bulkinfer.host.process_setup import hide_pandas

            hide_pandas()
        try:
            with data_on_stdout(getattr(config, "to", "") == STDOUT):
                return int(action(config))
        except OSError as error:
            from bulkinfer.commands.way_out import way_out

            if advice := way_out(config, error):
                raise RunError(f"{os_error_sentence(error)}: {advice}") from error
            raise

    with naming_command(command):
        code = exit_code_of(command, act)
    return code if argv is not None else leave(code)

"""The table of commands: `bulkinfer COMMAND` and `python -m bulkinfer COMMAND`."""

from __future__ import annotations

import sys

from bulkinfer.host.stop_signals import watch_signals  # nothing else: what is imported before main() cannot be interrupted well

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": "run a network over a folder of pictures, and make the network first if it is not there",
    "get_model": "turn a pretrained network into a fixed-batch ONNX model with its card",
    "partition_dataset": "split a folder of pictures into one directory per device",
    "infer_launch": "run a network over every picture, one worker process per device",
    "train": "train a network of the zoo",
    "validate": "accuracy of a run's checkpoints or of a network, or its speed",
    "average": "average the weights of a run's checkpoints, and validate the result",
    "verify": "check results folders, each and together: counts, keys, file hashes",
    "merge": "make one results folder of the shards that several launchers have done",
    "score": "score the rows of a job against known labels: accuracy, classes, confusion, calibration",
    "compare": "compare the rows of two jobs over the same pictures",
    "seal": "accept control files that were edited by hand, and show what changed in them",
    "retry": "run the error rows of a job again",
    "watch": "show how far a running job has come, from another terminal or host",
    "report": "write one HTML page about a job or a training run: figures, charts, sample pictures",
    "bench": "measure decoding, the network and both on this host, tune the plan of threads, or run benchmarks of a file",
    "serve": "serve networks over the Open Inference Protocol (REST and gRPC), or jobs over HTTP",
    "request": "send pictures to such a server, and measure it",
    "show": "show rows of a job: the first, the surest, the least sure, of a class, with errors",
    "rows": "write the rows of a job as CSV, JSON lines, a NumPy array, for COCO, Label Studio or FiftyOne",
    "jobs": "list the jobs in the folder of job logs",
    "clean": "remove results folders and log folders of jobs",
    "get_dataset": "fetch a data set: CIFAR, MNIST, Fashion-MNIST, COCO val2014",
    "doctor": "say what this machine can do, what is missing, and the command that brings it",
    "completion": "print a script that completes commands and options in bash, zsh or fish",
}


def usage() -> str:
    """The list of commands."""
    lines = [
        "bulkinfer: bulk offline inference over ONNX models, one row per picture",
        "",
        "usage: bulkinfer COMMAND [options]",
        "",
        "first steps:",
        "  bulkinfer doctor            what this machine can do",
        "  bulkinfer run photos        a network over every picture of a folder",
        "",
        "commands:",
    ]
    lines += [f"  {name:<20}{doc}" for name, doc in COMMANDS.items()]
    return "\n".join([*lines, "", "bulkinfer help COMMAND lists the options of a command, with examples."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Without `argv` the words are those of this process, which ends here."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0].replace("-", "_") if words else ""
    if argv is None:
        watch_signals(f"bulkinfer {name}" if name in COMMANDS else "bulkinfer")
    if name in COMMANDS:
        code = _run(f"bulkinfer {name}", name, words[1:])
    else:
        from bulkinfer.commands.outcome import exit_code_of

        code = exit_code_of("bulkinfer", lambda: _answer(words))
    if argv is None:
        from bulkinfer.commands.outcome import leave

        leave(code)
    return code


def _run(shown: str, name: str, words: Sequence[str] | None) -> int:
    """Import a command and run it; `shown` is its name in messages."""
    import importlib

    try:
        command = importlib.import_module(f"bulkinfer.commands.{name}")
    except ImportError as error:  # a package that all commands need is not installed
        from bulkinfer.commands.outcome import report_failure

        return report_failure(shown, error)
    return int(command.main(words))


def _answer(words: list[str]) -> int:
    """Answer words that name no command; returns the exit code."""
    from bulkinfer.host.console import say, say_lines

    if len(words) > 1 and words[0] in ("--help", "-help", "-h", "help"):
        words = words[1:]
        if (name := words[0].replace("-", "_")) in COMMANDS:
            return _run(f"bulkinfer {name}", name, ["--help"])
    if not words or words[0] in ("--help", "-help", "-h", "help"):
        say_lines(usage())
        return 0 if words else 2
    if words[0] in ("--version", "-version", "-v", "-V"):
        from bulkinfer import __version__

        say(f"bulkinfer {__version__}")
        return 0
    from bulkinfer.errors import UsageError

    near = _nearest_command(words[0])
    raise UsageError(f"unknown command {words[0]!r}; " + (f"did you mean {near}?" if near else "bulkinfer --help lists all"))


def _nearest_command(word: str) -> str:
    """The command that somebody who typed `word` most likely means, by its letters or a part of its name; '' if none is near.

    A folder stands for the pictures of `bulkinfer run`.
    """
    import difflib
    import os

    from bulkinfer.types import shell_word

    if os.path.isdir(word):
        return f"bulkinfer run {shell_word(word)}"
    parts = {part: name for name in COMMANDS for part in name.split("_") if part != "get"}
    known = parts | {name: name for name in COMMANDS}
    near = difflib.get_close_matches(word.replace("-", "_"), known, 1)
    return known[near[0]] if near else ""


def get_model() -> int:
    """The script get_model."""
    return _script("get_model")


def partition_dataset() -> int:
    """The script partition_dataset."""
    return _script("partition_dataset")


def infer_launch() -> int:
    """The script infer_launch."""
    return _script("infer_launch")


def _script(name: str) -> int:
    """Run the command of an installed script on the words of this process, which ends here."""
    watch_signals(name)
    return _run(name, name, None)


if __name__ == "__main__":
    sys.exit(main())

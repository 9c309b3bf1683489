"""The table of commands: `bulkinfer <command>` and `python -m bulkinfer <command>`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "get_model": "turn a pretrained network into a fixed-batch ONNX model with its card",
    "partition_dataset": "split a folder of pictures into one directory per device",
    "infer_launch": "run a network over every picture, one worker process per device",
    "train": "train a network of the zoo",
    "validate": "accuracy of a run's checkpoints or of a network, or its speed",
    "verify": "check output directories, each and together: counts, keys, file hashes",
    "seal": "accept control files that were edited by hand, and show what changed in them",
    "retry": "run the error rows of a job again",
    "bench": "measure decoding, the network and both on this host, or tune the plan of threads",
    "get_dataset": "fetch a data set: CIFAR, MNIST, Fashion-MNIST, COCO val2014",
}


def usage() -> str:
    """The list of commands."""
    lines = [
        "bulkinfer: bulk offline inference over ONNX models, one row per picture",
        "",
        "usage: bulkinfer <command> [flags]",
        "",
    ]
    lines += [f"  {name:<20}{doc}" for name, doc in COMMANDS.items()]
    return "\n".join([*lines, "", "bulkinfer <command> --help lists the flags of a command."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("--help", "-help", "-h", "help"):
        try:
            print(usage(), flush=True)
        except OSError as error:
            print(f"bulkinfer: {error.strerror}", file=sys.stderr)
            return 1
        return 0 if words else 2
    if words[0] == "--version":
        from bulkinfer import __version__

        print(f"bulkinfer {__version__}")
        return 0
    name = words[0].replace("-", "_")
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(COMMANDS)}"
        print(f"bulkinfer: unknown command {words[0]!r}; {hint}", file=sys.stderr)
        return 2
    try:
        code = int(importlib.import_module(f"bulkinfer.commands.{name}").main(words[1:]))
    except KeyboardInterrupt:  # during the import; from then on run_command handles it
        print(f"bulkinfer {name}: interrupted", file=sys.stderr)
        code = 130
    if argv is None:
        from bulkinfer.commands.run_command import leave

        leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""bulkinfer request: send pictures to a server of the Open Inference Protocol, and measure it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bulkinfer.commands.run_command import run_command
from bulkinfer.commands.words import asks_for_help, read_words
from bulkinfer.serve.options import NAMED_CONFIGS, RequestConfig
from bulkinfer.types import ForeignFlag

COMMAND = "bulkinfer request"
# Flags of send_request.py, the client of another serving example, that have no effect here -> why.
_LEFT_OUT = {"serving_bin_path": "the server is bulkinfer serve, which needs no other program"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 if every request had its answer, else 1."""
    return run_command(COMMAND, RequestConfig, _run, argv, first_word="model_name", defaults_of=_defaults, translate=_as_ours)


def _as_ours(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words as options of ours, and notes to print."""
    foreign = {name: ForeignFlag("one") for name in _LEFT_OUT}
    given = read_words(COMMAND, RequestConfig, argv, first_word="model_name", foreign=foreign)
    if asks_for_help(given):
        return [f"--{given[0].name}"], []
    notes = [f"note: {each.word}: {_LEFT_OUT[each.name]}" for each in given if each.name in _LEFT_OUT]
    return [f"--{each.name}={each.value}" for each in given if each.name not in _LEFT_OUT], notes


def _defaults(config: Any) -> Mapping[str, Any]:
    return NAMED_CONFIGS.get(config.config, {})


def _run(config: RequestConfig) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is counted, and said once
    from bulkinfer.commands.missing_network import make_missing_network
    from bulkinfer.serve.client.request import request

    return request(config, lambda asked: make_missing_network(asked.model_name, asked.model_path, asked.model_batch_size))


if __name__ == "__main__":
    sys.exit(main())

"""bulkinfer request: send pictures to a server of the Open Inference Protocol, and measure it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bulkinfer.commands.run_command import run_command
from bulkinfer.serve.options import NAMED_CONFIGS, RequestConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 if every request had its answer, else 1."""
    return run_command("bulkinfer request", RequestConfig, _run, argv, first_word="model_name", defaults_of=_defaults)


def _defaults(config: Any) -> Mapping[str, Any]:
    return NAMED_CONFIGS.get(config.config, {})


def _run(config: RequestConfig) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is counted, and said once
    from bulkinfer.commands.missing_network import make_missing_network
    from bulkinfer.serve.client.request import request

    return request(config, lambda asked: make_missing_network(asked.model_name, asked.model_path, asked.model_batch_size))


if __name__ == "__main__":
    sys.exit(main())

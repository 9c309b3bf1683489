"""A server that bulkinfer request starts for itself, and ends."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator

from bulkinfer.errors import RunError
from bulkinfer.host.process_setup import die_with_parent
from bulkinfer.serve.options import RequestConfig, ServeConfig

log = logging.getLogger("bulkinfer")

_READY = "ready: "
_END_S = 60.0  # for the server to end


@contextlib.contextmanager
def own_server(config: RequestConfig, port: int) -> Iterator[None]:
    """`bulkinfer serve` runs at `port` during the block, and answers from its beginning. Raises RunError if it does not."""
    with subprocess.Popen(
        _words(config, port), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="backslashreplace",
        preexec_fn=die_with_parent, start_new_session=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if line.startswith(_READY):
                    break
                log.info(f"server: {line.rstrip()}")
            else:
                _, said = server.communicate()
                raise RunError(
                    f"the server has ended before it was ready: {said.strip().splitlines()[-1] if said else 'silently'}"
                )
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                server.kill()


def _words(config: RequestConfig, port: int) -> list[str]:
    rest, grpc = (port, -1) if config.protocol == "rest" else (-1, port)
    given = {
        "model_path": config.model_path,
        "batch_size": config.model_batch_size,
        "device": config.device,
        "precision": config.precision,
        "max_wait_ms": config.max_wait_ms,
        "max_queue": max(ServeConfig.max_queue, config.most_in_flight),  # a refusal would measure nothing
        "host": config.host,
        "port": rest,
        "grpc_port": grpc,
    }
    options = [f"--{name}={value}" for name, value in given.items()]
    return [sys.executable, "-P", "-m", "bulkinfer", "serve", f"--model_name={config.model_name}", *options]

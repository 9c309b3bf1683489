"""Settings of bulkinfer serve and bulkinfer request."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import DECODE_MODES, LaunchConfig, check_values, option
from bulkinfer.errors import UsageError

TOKEN_VARIABLE = "BULKINFER_TOKEN"
_HIGHEST_PORT = 65535


@dataclass(frozen=True)
class ServeConfig:
    """Serve networks over the Open Inference Protocol (v2), REST and gRPC. Answers are the rows of a run, bit for bit."""

    model_name: tuple[str, ...] = option(
        (), "networks: folders of --model_path (also as plain arguments)", group="model", aliases=("model",), value="NAME"
    )
    model_path: str = option("models", "folder of model folders")
    batch_size: int = option(6, "pictures in each run of a network", aliases=("micro_batch_size",), minimum=1)
    precision: str = option(
        "auto", "arithmetic of the networks, as infer_launch takes it", choices=("auto", "fp32", "bf16", "fp16", "int8")
    )
    device: str = option("auto", "provider that runs the graphs, as infer_launch takes it", group="device")
    allow_cpu_nodes: bool = option(False, "let nodes the provider cannot run fall back to the cpu provider")
    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0: all of this host", group="network", is_text=True)
    port: int = option(8000, "port of REST; 0: a free one; -1: no REST", minimum=-1)
    grpc_port: int = option(8001, "port of gRPC; 0: a free one; -1: no gRPC", minimum=-1)
    token_file: str = option(
        "", f"file with the bearer token that clients must send; default ${TOKEN_VARIABLE}, else none is needed", value="FILE"
    )
    tls_cert: str = option("", "file of the certificate chain (PEM), for both protocols", value="FILE")
    tls_key: str = option("", "file of its private key (PEM)", value="FILE")
    top_k: int = option(5, "classes of the outputs class_ids, scores and class_names", minimum=1, group="answers")
    decode: str = option("exact", "JPEGs, as infer_launch takes it", choices=DECODE_MODES)
    max_wait_ms: float = option(
        5.0, "longest time that a picture waits for others to fill its batch, in milliseconds", minimum=0, group="limits"
    )
    max_queue: int = option(512, "pictures of one network that may wait or run; requests beyond them get 429", minimum=1)
    max_request_mb: int = option(64, "largest request, in MB", minimum=1)
    max_pixels: int = option(LaunchConfig.max_pixels, "larger encoded pictures are refused, in pixels", minimum=1)
    timeout_s: float = option(60.0, "a request must arrive, and must be answered, within this time, in seconds", minimum=0)
    drain_s: float = option(30.0, "after SIGTERM: longest time to answer what was accepted, in seconds", minimum=0)
    streams: int = option(0, "concurrent session runs per device; 0: from the thread plan", minimum=0, group="tuning")
    threads_per_stream: int = option(0, "threads of the network in each stream; 0: from the thread plan", minimum=0)
    num_workers: int = option(0, "threads per device that decode pictures; 0: from the thread plan", minimum=0)

    def __post_init__(self) -> None:
        check_values(self)
        if len(set(self.model_name)) < len(self.model_name):
            raise UsageError(f"--model_name {' '.join(self.model_name)} names a network twice: leave one out")
        for name in ("port", "grpc_port"):
            check_port(name, getattr(self, name))
        if self.port == self.grpc_port and self.port in (-1, *range(1, _HIGHEST_PORT + 1)):
            raise UsageError(
                "--port -1 --grpc_port -1 leaves nothing to serve: leave one out"
                if self.port < 0
                else f"--port and --grpc_port are both {self.port}: give two ports"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise UsageError("--tls_cert and --tls_key belong together: give both")
        if not self.timeout_s:
            raise UsageError("--timeout_s 0 leaves no time to answer: give some seconds")

    def launch_config(self, name: str) -> LaunchConfig:
        """The launch whose answers the network `name` gives."""
        same = ("model_path", "batch_size", "precision", "device", "allow_cpu_nodes", "top_k", "decode", "max_pixels")
        same += ("streams", "threads_per_stream", "num_workers")
        given = {option_name: getattr(self, option_name) for option_name in same}
        return LaunchConfig(**given, model_name=name, max_file_bytes=self.max_request_bytes)

    @property
    def max_request_bytes(self) -> int:
        """The size of the largest request, in bytes."""
        return self.max_request_mb * 1_000_000


def check_port(name: str, port: int) -> None:
    """Raises UsageError for a number that is no port."""
    if port > _HIGHEST_PORT:
        raise UsageError(f"--{name} {port}: ports end at {_HIGHEST_PORT}")

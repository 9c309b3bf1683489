"""Settings of bulkinfer serve and bulkinfer request."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import DECODE_MODES, LaunchConfig, check_values, option
from bulkinfer.errors import UsageError

TOKEN_VARIABLE = "BULKINFER_TOKEN"
_HIGHEST_PORT = 65535
_OF_LAUNCH = (  # options of serve that mean what they mean for infer_launch
    "model_path", "batch_size", "precision", "device", "allow_cpu_nodes", "top_k", "decode", "max_pixels", "streams",
    "threads_per_stream", "num_workers",
)  # fmt: skip


# Named sets of options of bulkinfer request: the loads that the TensorFlow 2 app of the reference systems names.
NAMED_CONFIGS: dict[str, dict[str, str | int]] = {
    "resnet50_infer_bs1": {"model_name": "resnet50", "model_batch_size": 1},
    "resnet50_infer_bs16": {"model_name": "resnet50", "model_batch_size": 16},
    "resnet50_infer_bs32": {"model_name": "resnet50", "model_batch_size": 32},
}


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
    jobs: str = option(
        "", "folder of jobs that users submit over HTTP, with its jobs.toml; networks may be left out then", group="jobs"
    )

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
        if self.jobs and self.port < 0:
            raise UsageError("--jobs needs the port of REST: leave out --port -1")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise UsageError("--tls_cert and --tls_key belong together: give both")
        if not self.timeout_s:
            raise UsageError("--timeout_s 0 leaves no time to answer: give some seconds")

    def launch_config(self, name: str) -> LaunchConfig:
        """The launch whose answers the network `name` gives."""
        given = {option_name: getattr(self, option_name) for option_name in _OF_LAUNCH}
        return LaunchConfig(**given, model_name=name, max_file_bytes=self.max_request_bytes)

    @property
    def max_request_bytes(self) -> int:
        """The size of the largest request, in bytes."""
        return self.max_request_mb * 1_000_000


def check_port(name: str, port: int) -> None:
    """Raises UsageError for a number that is no port."""
    if port > _HIGHEST_PORT:
        raise UsageError(f"--{name} {port}: ports end at {_HIGHEST_PORT}")


PROTOCOLS = ("grpc", "rest")
TENSORS, PICTURES = "tensors", "pictures"
_FIGURES = (".csv", ".json")  # endings of the files that hold them


@dataclass(frozen=True)
class RequestConfig:
    """Send pictures to a server of the Open Inference Protocol, and measure it. Without a server it starts one, and ends it."""

    config: str = option(
        "", f"named set of options, of {', '.join(NAMED_CONFIGS)}; those that are given win", group="server", value="NAME"
    )
    model_name: str = option("efficientnet_lite0", "network on the server", aliases=("model",))
    host: str = option("127.0.0.1", "host of the server", is_text=True)
    port: int = option(0, "port of the server; 0: 8001 for gRPC, 8000 for REST", minimum=0)
    protocol: str = option("grpc", "grpc or rest", choices=PROTOCOLS)
    tls_ca: str = option("", "file of certificates (PEM) that the server's must follow from; without it no TLS", value="FILE")
    token_file: str = option("", f"file with the bearer token of the server; default ${TOKEN_VARIABLE}", value="FILE")
    model_path: str = option(
        "models", "folder of model folders: for a server that is started, and for the names of classes", group="own server"
    )
    model_batch_size: int = option(6, "pictures in each run of the network, on a server that is started", minimum=1)
    device: str = option("auto", "provider of that server, as infer_launch takes it")
    precision: str = option(
        "auto", "arithmetic of that server, as infer_launch takes it", choices=("auto", "fp32", "bf16", "fp16", "int8")
    )
    max_wait_ms: float = option(5.0, "longest wait of that server for a full batch, in milliseconds", minimum=0)
    batch_size: int = option(1, "pictures in each request", aliases=("micro_batch_size",), minimum=1, group="load")
    num_threads: int = option(2, "threads that send requests", minimum=1)
    num_images: int = option(1000, "pictures that each thread sends", minimum=1)
    use_async: bool = option(False, "threads do not wait for an answer before the next request: see --in_flight")
    in_flight: int = option(8, "with --use_async: requests of each thread that may wait for an answer", minimum=1)
    rate: float = option(0.0, "requests per second of all threads, at random times; 0: each after the answer before", minimum=0)
    warm_up: int = option(2, "requests of each thread before those that are measured", minimum=0)
    timeout_s: float = option(60.0, "longest wait for an answer, in seconds", minimum=0)
    data_dir: str = option("", "pictures to send; without it random ones", aliases=("dataset_path",), group="pictures")
    send: str = option(
        "auto",
        "random tensors, or encoded pictures (random JPEGs without --data_dir); auto: pictures with --data_dir, else tensors",
        choices=("auto", TENSORS, PICTURES),
    )
    labels: str = option("", "right classes of a plain folder, for the accuracy: folders, or a table of file names and labels")
    seed: int = option(0, "seed of random pictures and times", minimum=0)
    verbose: bool = option(False, "print the time of each request", group="output")
    to: str = option("", "file for the figures: NAME.json or NAME.csv; or - for JSON on stdout", value="FILE")
    overwrite: bool = option(False, "replace a file that is there")

    def __post_init__(self) -> None:
        check_values(self)
        if self.config and self.config not in NAMED_CONFIGS:
            raise UsageError(f"--config {self.config}: known are {', '.join(NAMED_CONFIGS)}")
        check_port("port", self.port)
        if self.to and self.to != "-" and not self.to.endswith(_FIGURES):
            raise UsageError(f"--to {self.to}: the name must end with {' or '.join(_FIGURES)}")
        if self.data_dir and self.send == TENSORS:
            raise UsageError("--data_dir sends files of pictures: leave out --send tensors")
        if self.labels and not self.data_dir:
            raise UsageError("--labels are of the pictures of --data_dir: give that too")
        if not self.timeout_s:
            raise UsageError("--timeout_s 0 leaves no time to answer: give some seconds")

    @property
    def requests_in_flight(self) -> int:
        """Requests of each thread that may wait for an answer at once."""
        return self.in_flight if self.use_async else 1

    @property
    def most_in_flight(self) -> int:
        """Pictures of all threads that may wait for an answer at once."""
        return self.num_threads * self.requests_in_flight * self.batch_size

    @property
    def num_requests(self) -> int:
        """Requests that each thread sends; the last one may have fewer pictures."""
        return -(-self.num_images // self.batch_size)

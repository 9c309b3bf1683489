"""Settings of bulkinfer bench."""

from __future__ import annotations

from dataclasses import dataclass, fields

from bulkinfer.config import DECODE_MODES, LaunchConfig, check_values, option
from bulkinfer.errors import UsageError


@dataclass(frozen=True)
class BenchConfig:
    """Measure this host: decoding alone, the network alone, and both together; or find the fastest plan of threads (--tune)."""

    data_dir: str = option("", "partitions, or a plain folder of pictures; default datasets/, else $DATA_DIR", group="input")
    model_name: str = option("resnext101_32x4d", "network: a folder of --model_path, also as timm:NAME", group="model")
    model_path: str = option("models", "folder of model folders")
    batch_size: int = option(6, "pictures per batch, per device", aliases=("micro_batch_size",), minimum=1)
    precision: str = option(
        "auto", "arithmetic of the network, as infer_launch takes it", choices=("auto", "fp32", "bf16", "fp16", "int8")
    )
    device: str = option("auto", "provider that runs the graph, as infer_launch takes it", group="device")
    log_path: str = option("logs", "folder of job logs", group="output")
    write_flags: str = option("", "of --tune: the flag file; default tuned.flags in the log folder of this run", value="FILE")
    tune: bool = option(
        False, "compare plans of streams and threads instead, and write the winner to a flag file", group="tuning"
    )
    tune_s: int = option(120, "of --tune: begin no measurement that would end later than this, in seconds", minimum=1)
    streams: int = option(0, "concurrent session runs per worker; 0: from the thread plan", minimum=0)
    num_workers: int = option(0, "loader threads per worker; 0: from the thread plan", minimum=0)
    loader_processes: int = option(0, "processes per worker that decode, as infer_launch takes it", minimum=-1)
    decode: str = option("exact", "JPEGs, as infer_launch takes it", choices=DECODE_MODES)
    seconds: int = option(
        5, "length of each measurement, in seconds; start and warm-up come on top", minimum=1, group="measurement"
    )
    rounds: int = option(5, "rounds in which the measurements alternate; of --tune: the most rounds, at least 3", minimum=1)

    def __post_init__(self) -> None:
        check_values(self)
        if self.write_flags and not self.tune:
            raise UsageError("--write_flags belongs to --tune")

    def launch_config(self) -> LaunchConfig:
        """The launch that is measured: what both have takes the same values."""
        shared = {known.name for known in fields(self)} & {known.name for known in fields(LaunchConfig)}
        return LaunchConfig(**{name: getattr(self, name) for name in shared})

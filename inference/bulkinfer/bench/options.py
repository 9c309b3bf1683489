"""Settings of bulkinfer bench."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from bulkinfer.config import DECODE_MODES, LaunchConfig, check_values, option
from bulkinfer.errors import UsageError
from bulkinfer.train.options import MICRO_BATCH, TrainConfig


def _of_training(name: str, *, group: str = "") -> Any:
    """The option of bulkinfer train with this name."""
    facts = TrainConfig.__dataclass_fields__[name]
    return field(default=facts.default, metadata={**facts.metadata, "group": group})


@dataclass(frozen=True)
class BenchConfig:
    """Measure decoding, the network, and both; or the best plan of threads (--tune), the input of training, a file (--spec)."""

    data_dir: str = option("", "partitions, or a plain folder of pictures; default datasets/, else $DATA_DIR", group="input")
    model_name: str = option(
        "resnext101_32x4d", "network: a folder of --model_path, also as timm:NAME", group="model", aliases=("model",)
    )
    model_path: str = option("models", "folder of model folders, or s3://bucket/models, also of a web server")
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
    data_only: bool = option(
        False,
        "measure the input of bulkinfer train, without a network: reading, decoding and cropping, batches, and all together",
        group="input of training (--data_only)",
    )
    dataset: str = _of_training("dataset")
    class_order: str = _of_training("class_order")
    dataset_percentage: float = _of_training("dataset_percentage")
    image_size: int = _of_training("image_size")
    augment: str = _of_training("augment")
    crop_area: tuple[str, ...] = _of_training("crop_area")
    mixup_alpha: float = _of_training("mixup_alpha")
    cutmix_alpha: float = _of_training("cutmix_alpha")
    mix_probability: float = _of_training("mix_probability")
    cache_mb: int = _of_training("cache_mb")
    on_bad_picture: str = _of_training("on_bad_picture")
    seed: int = _of_training("seed")

    spec: str = option(
        "",
        "run the benchmarks of this YAML file, or those whose names are given as plain words, and write tables of results",
        group="benchmarks of a file (--spec)",
        value="FILE",
    )
    benchmark: tuple[str, ...] = option(
        (), "names of entries, or patterns such as 'resnet*'; default all", value="NAME-PATTERN", is_text=True
    )
    baseline: str = option(
        "", "an earlier benchmark_results.json: fail if a ratio is worse by more than its spread", value="FILE"
    )
    resume: bool = option(False, "go on with the last run of the file that was interrupted")
    quick: bool = option(False, "one round of each entry, which shows that all works")
    timeout_s: int = option(0, "longest time of a command, in seconds, beside that of its entry; 0: none", minimum=0)
    stop_on_error: bool = option(False, "run no further entry after one that failed")
    dry_run: bool = option(False, "check the file, say what would run and what cannot run here, and stop")

    def __post_init__(self) -> None:
        check_values(self)
        self._check_spec()
        if self.write_flags and not self.tune:
            raise UsageError("--write_flags belongs to --tune")
        for name in _OF_INFERENCE if self.data_only else _OF_TRAINING:
            if getattr(self, name) != getattr(type(self), name):
                how = "does not go with" if self.data_only else "belongs to"
                raise UsageError(f"--{name} {how} --data_only: leave {'one of them' if self.data_only else 'it'} out")

    def _check_spec(self) -> None:
        """Raises UsageError for options of --spec without it, or others with it."""
        if not self.spec:
            for name in _OF_SPEC:
                if getattr(self, name) != getattr(type(self), name):
                    raise UsageError(f"--{name} belongs to --spec FILE")
            return
        for known in fields(self):
            if known.name not in ("spec", "log_path", *_OF_SPEC) and getattr(self, known.name) != known.default:
                raise UsageError(f"--{known.name} does not go with --spec: the file says what is measured")
        if self.baseline and self.quick:
            raise UsageError("--baseline compares spreads, which one round does not have: leave out --quick")
        if self.resume and self.dry_run:
            raise UsageError("--resume goes on with a run, and --dry_run runs nothing: leave one of them out")

    def launch_config(self) -> LaunchConfig:
        """The launch that is measured: what both have takes the same values."""
        shared = {known.name for known in fields(self)} & {known.name for known in fields(LaunchConfig)}
        return LaunchConfig(**{name: getattr(self, name) for name in shared})

    def train_config(self) -> TrainConfig:
        """The training whose input is measured; it never ends by itself, and fetches nothing."""
        given = {name: getattr(self, name) for name in (*_OF_TRAINING, "data_dir", "num_workers", "device")}
        return TrainConfig(
            **given, model=self.model_name, micro_batch_size=self.batch_size, steps=_ENDLESS, download=False, validation="none"
        )


_OF_SPEC = ("benchmark", "baseline", "resume", "quick", "timeout_s", "stop_on_error", "dry_run")
_OF_INFERENCE = ("model_path", "precision", "write_flags", "tune", "tune_s", "streams", "loader_processes", "decode")
_OF_TRAINING = (
    "dataset", "class_order", "dataset_percentage", "image_size", "augment", "crop_area", "mixup_alpha", "cutmix_alpha",
    "mix_probability", "cache_mb", "on_bad_picture", "seed",
)  # fmt: skip
OF_TRAINING = {"model_name": TrainConfig.model, "batch_size": MICRO_BATCH}  # defaults with --data_only
_ENDLESS = 10**12  # updates

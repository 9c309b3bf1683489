"""Settings: one frozen dataclass per command. Each option is declared once, here, and becomes a flag of that command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bulkinfer.errors import UsageError
from bulkinfer.types import check_values, option

__all__ = [
    "DECODE_MODES",
    "ENGINES",
    "EXACT",
    "WEIGHTS_OF",
    "GetModelConfig",
    "LaunchConfig",
    "PartitionConfig",
    "RunConfig",
    "check_values",
    "option",
]

DECODE_MODES = ("exact", "fast")
PACKED = ("tar", "tfrecord")  # modes of partition_dataset that pack pictures into archives
WEIGHTS_OF = ("auto", "ema", "raw")
EXACT = "fp32"  # the precision that changes no answer, and that of a network of the zoo
ENGINES = {  # module:class of each; a new engine is one file and one line here
    "local": "bulkinfer.launch.engines.local:LocalEngine",
    "inline": "bulkinfer.launch.engines.inline:InlineEngine",
    "ray": "bulkinfer.launch.engines.ray_engine:RayEngine",
}


@dataclass(frozen=True)
class GetModelConfig:
    """Turn a pretrained network into models/<name>/: a graph of free batch, one of fixed batch, and the card."""

    model_name: str = option("resnext101_32x4d", "network: a name that --list prints, or timm:NAME", group="model")
    list: bool = option(False, "print the networks with origin, licence and size, and stop")
    weights: str = option(
        "auto",
        "auto (cache, package, hub, then URL), random, a file (pth or safetensors), or a URL",
        aliases=("url",),
        value="FILE",
    )
    weights_sha256: str = option(
        "", "sha256 (64 digits) that the weights file must have; empty: the prefix in its name", value="DIGITS"
    )
    checkpoint: str = option("", "instead of --model_name: a run of bulkinfer train, or one of its checkpoints", value="RUN")
    weights_of: str = option("auto", "of a run with --ema: the average, or the weights themselves (raw)", choices=WEIGHTS_OF)
    use_test_size: bool = option(False, "for a network of timm: pictures of the size at which its authors test it")
    batch_size: int = option(
        6, "pictures per batch of the fixed graph", aliases=("micro_batch_size",), minimum=1, group="graph"
    )
    input: str = option("uint8", "graph input: uint8 NHWC or float32 NCHW", choices=("uint8", "float32"))
    precision: str = option(
        EXACT,
        "arithmetic of the graph; fp16 and int8 add a variant in models/<name>/fp16/ or int8/",
        choices=("fp32", "fp16", "int8"),
    )
    calibration_dir: str = option(
        "", "for fp16 and int8: folder of pictures (or partitions) that judge the variant, and calibrate int8"
    )
    model_path: str = option("models", "folder of model folders, or s3://bucket/models", group="output")
    onnx: str = option("", "adopt this ONNX file instead of a network of the list", group="your own ONNX file", value="FILE")
    name: str = option("", "for an adopted file or a checkpoint: its folder below --model_path")
    recipe: str = option(
        "", "for an adopted file: JSON file with the recipe, or a network of the list with the same recipe", value="FILE"
    )
    labels: str = option(
        "",
        "for an adopted file: class names, as text (one a line) or JSON (list, object, config.json of Hugging Face)",
        value="FILE",
    )
    output_name: str = option("", "for an adopted file: the output with the class values, if there are several outputs")
    scores: str = option(
        "auto",
        "for an adopted file: what the class values are; none: it has no class values",
        choices=("auto", "logits", "probabilities", "none"),
    )
    golden: str = option(
        "", "for an adopted file: folder of your own inputs and outputs (npz, or npy pairs) to check it with", value="FOLDER"
    )
    licence: str = option("", "for an adopted file or a checkpoint: its licence, for the card")

    def __post_init__(self) -> None:
        check_values(self)
        given = [name for name in ("name", "recipe", "labels", "output_name", "golden", "licence") if getattr(self, name)]
        given += ["scores"] if self.scores != "auto" else []
        of_checkpoint = ("name", "licence") if self.checkpoint else ()
        if (wrong := [name for name in given if name not in of_checkpoint]) and not self.onnx:
            raise UsageError(f"--{wrong[0]} belongs to --onnx FILE")
        if self.checkpoint and (self.onnx or self.weights != "auto" or self.model_name != type(self).model_name):
            raise UsageError("--checkpoint names network and weights: leave out --onnx, --weights and --model_name")
        if self.onnx and not (self.name and self.recipe):
            raise UsageError("--onnx FILE needs --name NAME and --recipe FILE.json (or a network of --list that has the same)")
        if self.onnx and self.model_name != type(self).model_name:
            raise UsageError("--model_name chooses from the list, --onnx takes a file that --name names: leave one out")
        if self.onnx and (self.weights != "auto" or self.weights_sha256):
            raise UsageError("--weights belongs to networks of the list: an ONNX file holds its own weights")
        if self.weights_of != "auto" and not self.checkpoint:
            raise UsageError(f"--weights_of {self.weights_of} belongs to --checkpoint RUN")
        if self.use_test_size and (self.onnx or self.checkpoint):
            raise UsageError("--use_test_size belongs to networks of timm")
        if self.calibration_dir and self.precision == EXACT:
            raise UsageError("--calibration_dir belongs to --precision int8 or fp16")
        if self.output_name and self.scores == "none":
            raise UsageError(
                "--output_name names the output with the class values, --scores none says that there is none: give one of them"
            )


@dataclass(frozen=True)
class PartitionConfig:
    """Split a folder of pictures into one directory per device, with links and a manifest each."""

    data_dir: str = option("", "folder or s3://bucket/folder of pictures or archives; default $DATA_DIR", group="input")
    list_file: str = option(
        "", "paths of the pictures, relative to --data_dir or absolute, or addresses: one per line, CSV, JSON Lines or Parquet"
    )
    annotations: str = option("", "COCO annotation file (instances JSON): names, ids and categories", value="FILE")
    labels: str = option(
        "",
        "fills the column label of the rows: folders (the class folders of --data_dir), annotations (pictures with one "
        "category of --annotations), or a table of file names and labels (CSV, or separated by tabs or blanks)",
    )
    image_column: str = option("", "column of pictures in Parquet and Arrow files, of paths in --list_file", value="NAME")
    label_column: str = option("", "column of the labels there; default by its name", value="NAME")
    include_hidden: bool = option(False, "include hidden files and folders")
    output: str = option("datasets", "folder that gets the partitions 0, 1, ...", group="output", value="FOLDER")
    partitions: int = option(8, "number of partitions", minimum=1)
    mode: str = option(
        "symlink",
        "how pictures get into a partition; manifest: they stay where they are; tar, tfrecord: packed into archives, without "
        "partitions",
        choices=("symlink", "hardlink", "copy", "manifest", *PACKED),
    )
    balance: str = option(
        "count", "what each partition gets an equal share of: pictures, or bytes of their files", choices=("count", "bytes")
    )
    archive_mb: int = option(256, "largest size of an archive of --mode tar or tfrecord, in MB", minimum=1)

    def __post_init__(self) -> None:
        check_values(self)
        if self.labels == "annotations" and not self.annotations:
            raise UsageError("--labels annotations takes the categories of --annotations FILE: give that too")
        if self.annotations and self.list_file:
            raise UsageError("--annotations and --list_file both name the pictures: give only one of them")
        if self.mode in PACKED and (self.partitions != type(self).partitions or self.balance != "count"):
            raise UsageError(f"--mode {self.mode} packs archives and makes no partitions: leave out --partitions and --balance")
        if self.mode not in PACKED and self.archive_mb != type(self).archive_mb:
            raise UsageError("--archive_mb belongs to --mode tar and --mode tfrecord")


@dataclass(frozen=True)
class LaunchConfig:
    """Run a network over every picture: one worker process per device, one row per picture."""

    command: ClassVar[str] = "infer_launch"  # as it is typed
    data_dir: str = option(
        "", "partitions, or folder, archive or s3://bucket/folder of pictures; default datasets/, else $DATA_DIR", group="input"
    )
    labels: str = option("", "for a plain folder: fills the column label, as partition_dataset --labels does")
    image_column: str = option("", "column of the pictures in Parquet and Arrow files; default by name or type", value="NAME")
    label_column: str = option("", "column of the labels there; default by its name", value="NAME")
    limit: int = option(0, "only the first N pictures; 0: all", minimum=0)
    skip_done: tuple[str, ...] = option(
        (),
        "results folders of earlier jobs: only pictures that have no ok row there, by name and file size, run",
        value="FOLDER",
    )
    synthetic: bool = option(False, "input made once in the worker: no reading, decoding or results")
    generated: bool = option(
        False, "random pictures through the loader threads and batches: no reading, decoding, resizing or results"
    )
    iterations: int = option(1, "steps per worker of a synthetic or generated run", minimum=1)
    model_name: str = option("resnext101_32x4d", "network: a folder of --model_path, also as timm:NAME", group="model")
    model_path: str = option("models", "folder of model folders, or s3://bucket/models, also of a web server")
    batch_size: int = option(6, "pictures per batch, per device", aliases=("micro_batch_size",), minimum=1)
    precision: str = option(
        "auto",
        "arithmetic of the network; auto: the cheapest one that the device has and that keeps the network's answers; int8, and "
        "fp16 on cuda: its variant, see get_model",
        choices=("auto", "fp32", "bf16", "fp16", "int8"),
    )
    device: str = option(
        "auto",
        "provider that runs the graph: auto, cpu, openvino, openvino:gpu, openvino:npu, cuda, tensorrt; cuda:1,3 picks",
        group="device",
    )
    num_devices: int = option(
        0, "worker processes, one per device; 0: what suits this machine", aliases=("num_ipus",), minimum=0
    )
    processes_per_device: int = option(0, "worker processes on each device; 0: one", minimum=0)
    allow_cpu_nodes: bool = option(False, "let nodes the provider cannot run fall back to the cpu provider")
    output: str = option(
        "", "folder of the results, or s3://bucket/folder; default <log_path>/<job>/results", group="output", value="FOLDER"
    )
    log_path: str = option("logs", "folder of job logs")
    save: tuple[str, ...] = option(
        ("topk",),
        "columns to save: topk, outputs of the network by name (logits, embedding), or none, which still accounts for every "
        "picture",
        words=True,
        value="COLUMN",
    )
    save_precision: str = option("fp32", "numbers of saved outputs: float32 or float16", choices=("fp32", "fp16"))
    top_k: int = option(5, "classes kept per picture", minimum=1)
    shard: str = option(
        "",
        "one of several launchers: 3/16 runs the third of 16 shards, into a folder of --output; slurm, kubernetes/16: its task",
        value="I/N",
    )
    overwrite: bool = option(False, "remove the results in --output first")
    dry_run: bool = option(False, "print plan, fingerprint and counts, and stop")
    batches_per_step: int = option(
        0,
        "batches per step, the unit of logging, publishing and resume; 0: about 10 s (synthetic 5 s), at most 1500",
        aliases=("device_iterations",),
        minimum=0,
        group="tuning",
    )
    num_workers: int = option(0, "loader threads per worker; 0: from the thread plan", minimum=0)
    loader_processes: int = option(0, "processes per worker that decode; 0: only beyond 5 loader threads; -1: none", minimum=-1)
    streams: int = option(0, "concurrent session runs per worker; 0: from the thread plan", minimum=0)
    threads_per_stream: int = option(0, "threads of the network in each stream; 0: from the thread plan", minimum=0)
    decode: str = option(
        "exact",
        "JPEGs: exactly Pillow's pixels, or nearly those, by decoding large ones at a reduced size",
        choices=DECODE_MODES,
    )
    tuned_for: str = option(
        "", "conditions of a flag file of bulkinfer bench --tune; a warning is logged if they differ", value="TEXT"
    )
    max_pixels: int = option(100_000_000, "larger pictures become error rows, in pixels", minimum=1, group="advanced")
    max_file_bytes: int = option(1 << 30, "larger picture files become error rows, in bytes", minimum=1)
    max_failures: int = option(0, "end the job if more pictures than this fail; 0: never", minimum=0)
    stall_timeout_s: int = option(
        300,
        "end a worker that finishes no picture or batch for this long, in seconds, and find what it hangs on; 0: never",
        minimum=0,
    )
    engine: str = option(
        "local", "what runs the workers: processes on this host, this process itself, or Ray actors", choices=tuple(ENGINES)
    )
    ray_address: str = option(
        "",
        "cluster of --engine ray: HOST:PORT, or local: one is started; default $RAY_ADDRESS, else that of this host",
    )

    def __post_init__(self) -> None:
        check_values(self)
        if "none" in self.save and set(self.save) != {"none"}:
            raise UsageError(f"--save: none cannot be combined with {', '.join(s for s in self.save if s != 'none')}")
        if self.skip_done and self.input != "pictures":
            raise UsageError(f"--skip_done is of pictures, and --{self.input} has none: leave one out")
        if self.synthetic and self.generated:
            raise UsageError("--synthetic and --generated both stand for the pictures: give one of them")
        for flag, most in (("num_devices", 1), ("processes_per_device", 1), ("loader_processes", 0)):
            if self.engine == "inline" and getattr(self, flag) > most:
                raise UsageError(f"--engine inline runs one worker: it cannot take --{flag} {getattr(self, flag)}")
        if self.engine == "inline" and self.stall_timeout_s not in (0, type(self).stall_timeout_s):
            raise UsageError(
                f"--stall_timeout_s {self.stall_timeout_s}: --engine inline has no process to end when it hangs: leave one out"
            )

    @property
    def input(self) -> str:
        """Where the network's input comes from: pictures, generated or synthetic; rows are written for pictures only."""
        return "synthetic" if self.synthetic else "generated" if self.generated else "pictures"


@dataclass(frozen=True)
class RunConfig(LaunchConfig):
    """Run a network over every picture, and make it first if it is not there. Takes every option of infer_launch."""

    command: ClassVar[str] = "bulkinfer run"

    labels: str = option(
        "",
        "the right classes, for the accuracy after the run: folder (the first folder of a key is its class), a table of file "
        "names and labels, or COCO annotations (JSON)",
    )
    model_name: str = option("efficientnet_lite0", "network: a name as get_model takes it", group="model", aliases=("model",))

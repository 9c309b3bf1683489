"""Options of validate: checkpoints or a network, pictures, batches."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import WEIGHTS_OF, check_values, option
from bulkinfer.errors import UsageError
from bulkinfer.train.options import HALF_TYPES, ON_BAD_PICTURE, PRECISIONS


@dataclass(frozen=True)
class ValidateConfig:
    """Accuracy of checkpoints, or of a network with its published weights, on validation pictures; or speed on made-up ones."""

    path: str = option(
        "",
        "a checkpoint, or a run: all of its checkpoints in ascending order (also as a plain argument)",
        group="input",
        value="RUN",
    )
    config: str = option("", "name of a set of options of train in --config_path, those that validate has; flags given now win")
    config_path: str = option("", "YAML file with named sets of options; default: the one of bulkinfer", value="FILE")
    again: bool = option(False, "validate again the checkpoints that are in validation.csv of the run")
    data_dir: str = option("", "folder of the data set; default: that of the run")
    image_column: str = option(
        "", "column of the pictures in Parquet and Arrow files; default: by name or type, or that of the run", value="NAME"
    )
    label_column: str = option("", "column of the labels there; default: by its name, or that of the run", value="NAME")
    dataset: str = option("", "without PATH: name of the data set, if --data_dir may hold several", aliases=("data",))
    on_bad_picture: str = option(
        "stop",
        "what happens at a picture that cannot be used; skip: it is not counted, as in a run that skips",
        choices=ON_BAD_PICTURE,
    )
    weights_of: str = option("auto", "of a run with --ema: the average, or the weights themselves (raw)", choices=WEIGHTS_OF)
    model: str = option(
        "",
        "without PATH: a network of the zoo with its weights, or any other with random ones",
        aliases=("model_name",),
        group="model",
    )
    model_size: str = option("", "size of the network, if --model names a family", aliases=("size",))
    weights: str = option("auto", "without PATH: those of the zoo (auto), random, a file or a URL", value="FILE")
    model_path: str = option("models", "without PATH: folder of model folders, where fetched weights are kept")
    image_size: int = option(0, "without PATH: side of the network's input, in pixels; 0: the network's own", minimum=0)
    device: str = option("auto", "cpu, cuda or auto", group="device")
    precision: str = option("32.32", "bits of arithmetic and of weights", choices=PRECISIONS)
    half_type: str = option("bfloat16", "the type of 16 bits in --precision", choices=HALF_TYPES)
    valid_batch_size: int = option(
        0, "pictures per batch; 0: the run's micro batch, else 128", minimum=0, aliases=("batch_size",), group="tuning"
    )
    num_workers: int = option(0, "threads that read and decode pictures; 0: what the cores allow", minimum=0)
    cache_mb: int = option(2048, "memory for prepared pictures, in MB", minimum=0)
    generated_data: bool = option(False, "random pictures: images/sec and latency instead of accuracy", group="speed")
    repeat: int = option(10, "passes over 100 batches of --generated_data, after one for warm-up", minimum=1)

    def __post_init__(self) -> None:
        check_values(self)
        if self.path and self.model:
            raise UsageError("a checkpoint names its network: leave out --model")
        if not self.path and not self.model and not self.model_size:
            raise UsageError("give a checkpoint or a run, or --model NAME for a network that was not trained here")
        if self.weights_of != "auto" and not self.path:
            raise UsageError(f"--weights_of {self.weights_of} is for a checkpoint or a run: leave it out")
        without_path = ("dataset", "weights", "model_path", "model_size", "image_size")
        for name in without_path if self.path else ("weights", "model_path"):
            if (self.path or self.generated_data) and getattr(self, name) != getattr(type(self), name):
                raise UsageError(f"--{name} is for the accuracy of a network that was not trained here: leave it out")

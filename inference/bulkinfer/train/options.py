"""Options of train: network, data, batches, updates, rate, checkpoints, validation, logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bulkinfer.config import check_values, option
from bulkinfer.errors import UsageError
from bulkinfer.train.option_checks import check_together

PRECISIONS = ("32.32", "16.32", "16.16")
HALF_TYPES = ("bfloat16", "float16")
# Optimisers, and the rate at its peak where none is given: with each of these rates a small ResNet learns.
DEFAULT_RATES = {"sgd": 0.1, "momentum": 0.1, "nesterov": 0.1, "adam": 0.003, "adamw": 0.003, "rmsprop": 0.003,
                 "rmsprop_tf": 0.01, "lars": 5.0}  # fmt: skip
OPTIMISERS = tuple(DEFAULT_RATES)
AUGMENTATIONS = ("auto", "none", "flip", "flip_crop", "resized_crop")
SHAPES = ("constant", "stepped", "cosine", "exponential", "polynomial")  # of the learning rate
ON_BAD_PICTURE = ("stop", "skip")
WARM_UPS = ("shift", "mask")
ROUNDINGS = ("auto", "on", "off")
MICRO_BATCH = 128  # where no option says more
AVERAGES = ("mean", "exponential")
PIPELINE_SCHEDULES = ("gpipe", "1f1b", "sequential")
LOSS_SCALINGS = ("static", "ramp", "dynamic")
LIKE = ("none", "popart", "poptorch", "tf1", "tf2")  # other trainers whose defaults a run can take
DEFAULT_EPOCHS, DEFAULT_L2 = 100.0, 0.0005


@dataclass(frozen=True)
class TrainConfig:
    """Train a network of the zoo; without flags, cifar_resnet20 on CIFAR-10."""

    config: str = option("", "name of a set of options in --config_path; flags given now win", group="saved options")
    config_path: str = option("", "YAML file with named sets of options; default: the one of bulkinfer", value="FILE")
    like: str = option("none", "take the defaults of another trainer; flags given now and those of --config win", choices=LIKE)
    model: str = option(
        "",
        "network to train, here or in timm; default: resnet18 for class folders, cifar_resnet20 for other data",
        aliases=("model_name",),
        group="model",
    )
    model_size: str = option("", "size of the network, if --model names a family")
    image_size: int = option(0, "side of the network's input, in pixels; 0: the network's own", minimum=0)
    input_channels: int = option(3, "channels of the network's input: 1 is grey, 4 has a channel of zeros", minimum=1)
    norm: str = option("batch", "normalisation layers", choices=("batch", "group", "none"))
    norm_groups: int = option(
        0,
        "groups of group norm; 0: the network's own",
        minimum=0,
    )
    norm_channels_per_group: int = option(
        0, "channels in each group of group norm, in place of --norm_groups", aliases=("channels_per_group",), minimum=0
    )
    norm_eps: float = option(0.0, "epsilon of normalisation; 0: the network's own", minimum=0)
    norm_momentum: float = option(0.0, "share of a new batch in batch norm's averages; 0: the network's own", minimum=0)
    zero_gamma: bool = option(False, "the last norm of each residual block starts at 0")
    shortcut_type: str = option("", "shortcuts of a ResNet: A pads, B projects where the shape changes, C always")
    cardinality: int = option(0, "groups of a ResNeXt's convolutions; 0: 32", minimum=0)
    width: int = option(0, "channels in each of those groups; 0: 4", aliases=("width_per_group",), minimum=0)
    expand_ratio: int = option(0, "expansion in an EfficientNet's blocks; 0: 6", minimum=0)
    group_width: int = option(1, "channels per group of an EfficientNet's convolutions", minimum=1)
    squeeze_excite: bool = option(True, "squeeze-and-excitation of an EfficientNet")
    relu: bool = option(False, "relu in place of an EfficientNet's swish")
    depth_factor: float = option(0.0, "depth of an EfficientNet; 0: its own", minimum=0)
    width_factor: float = option(0.0, "width of an EfficientNet; 0: its own", minimum=0)
    depth_divisor: int = option(8, "an EfficientNet's channels are multiples of this", minimum=1)
    top_width: int = option(0, "channels before an EfficientNet's classifier; 0: its own", minimum=0)
    dropout: float = option(-1.0, "probability before the classifier; -1: the network's own")
    block_survival: float = option(-1.0, "probability that the last block is kept; -1: the network's own")
    dataset: str = option(
        "",
        "cifar10, cifar100, mnist, fashion_mnist, digits, folder, generated, synthetic; default: --data_dir's, else cifar10",
        group="data",
    )
    data_dir: str = option("", "folder of the data set; default $DATA_DIR, else data")
    image_column: str = option("", "column of the pictures in Parquet and Arrow files; default by name or type", value="NAME")
    label_column: str = option("", "column of the labels there; default by its name", value="NAME")
    class_order: str = option("text", "order of class folders whose names are whole numbers", choices=("text", "number"))
    download: bool = option(True, "fetch a small data set that is missing")
    check_pictures: bool = option(False, "decode every picture before the first update, and name all that cannot be used")
    on_bad_picture: str = option(
        "stop", "what happens at a picture that cannot be used; skip: its batch does without it", choices=ON_BAD_PICTURE
    )
    dataset_percentage: float = option(100.0, "share of the training pictures that is used", minimum=0)
    augment: str = option(
        "auto", "augmentation of training pictures; auto: flip_crop up to 64 pixels, else resized_crop", choices=AUGMENTATIONS
    )
    crop_area: tuple[str, ...] = option(("0.08", "1"), "least and largest share of a picture that resized_crop takes")
    use_boxes: bool = option(False, "resized_crop takes parts that hold a tenth of an object's box, in data sets with boxes")
    label_smoothing: float = option(0.0, "share of a target spread over all classes", minimum=0)
    mixup_alpha: float = option(0.0, "alpha of mixup's Beta distribution; 0: no mixup", minimum=0)
    cutmix_alpha: float = option(0.0, "alpha of cutmix's Beta distribution; 0: no cutmix", minimum=0)
    cutmix_share: tuple[str, ...] = option(
        (),
        "cutmix: least and largest share of itself that a picture keeps, drawn uniformly, in place of --cutmix_alpha",
        words=True,
    )
    mix_probability: float = option(1.0, "share of the pairs of pictures that are mixed", minimum=0)
    num_workers: int = option(0, "threads that read and decode pictures; 0: what the cores allow", minimum=0)
    cache_mb: int = option(
        2048, "memory for prepared pictures, in MB; larger sets, and class folders, are prepared again in each epoch", minimum=0
    )
    micro_batch_size: int = option(
        0,
        "pictures per replica and forward pass; 0: from the other sizes, else 128",
        aliases=("batch_size",),
        minimum=0,
        group="batches",
    )
    gradient_accumulation: int = option(
        0,
        "forward passes per update; 0: from the other sizes, else 1",
        minimum=0,
    )
    replicas: int = option(
        0,
        "processes that share an update, started here unless torchrun, mpirun or srun has; 0: as many as there are",
        minimum=0,
    )
    global_batch_size: int = option(0, "pictures per update; 0: from the other sizes", minimum=0)
    norm_span: int = option(1, "batch norm takes its statistics over this many consecutive replicas", minimum=1)
    shards: int = option(
        0, "stages of the network, each with a process of its own for every replica; 0: as many as --pipeline_splits makes",
        minimum=0,
    )  # fmt: skip
    pipeline_splits: tuple[str, ...] = option((), "blocks with which the second and further stages begin, or none", words=True)
    pipeline_schedule: str = option("gpipe", "order of the passes through the stages", choices=PIPELINE_SCHEDULES)
    epochs: float = option(
        0.0,
        "length of the run in epochs; 0: from --steps, else 100",
        minimum=0,
        group="updates",
    )
    steps: int = option(0, "length of the run in updates, in place of --epochs", aliases=("max_steps",), minimum=0)
    updates_per_epoch: int = option(
        0,
        "updates that count as an epoch in lengths, rates, logs and checkpoints; 0: those of one pass over the pictures",
        minimum=0,
    )
    shuffle: bool = option(True, "another order of the pictures in each epoch")
    precision: str = option("32.32", "bits of arithmetic and of weights", choices=PRECISIONS)
    half_type: str = option("bfloat16", "the type of 16 bits in --precision", choices=HALF_TYPES)
    stochastic_rounding: str = option(
        "auto",
        "weights of 16 bits are rounded up or down at random, so that small changes count; auto: on with --precision 16.16",
        choices=ROUNDINGS,
    )
    loss_scaling: float = option(
        0.0, "loss scale: its value (static), its end (ramp) or its start (dynamic); 0: 1, or 65536 for dynamic", minimum=0
    )
    loss_scaling_start: float = option(1.0, "ramp: the first loss scale", minimum=0)
    loss_scaling_mode: str = option("static", "how the loss scale changes", choices=LOSS_SCALINGS)
    recompute: tuple[str, ...] = option(
        (),
        "modules whose activations are computed again in the backward pass: patterns of their names, blocks, or none",
        words=True,
    )
    channels_last: bool = option(True, "pictures and weights in channels-last memory")
    compile: bool = option(False, "compile the network with torch.compile first: faster updates after some tens of seconds")
    optimizer: str = option("nesterov", "rule that updates the weights", choices=OPTIMISERS, aliases=("optimiser",))
    momentum: float = option(0.9, "momentum of momentum, nesterov, rmsprop and lars", minimum=0)
    weight_decay: float = option(0.0, "decoupled: each update shrinks the weights by rate x this", minimum=0)
    l2: float = option(
        -1.0,
        "this x the weights is added to the gradient; -1: 0.0005, or 0 beside --weight_decay",
    )
    optimizer_eps: float = option(0.0, "epsilon of the optimiser; 0: its own", minimum=0)
    shard_optimizer: bool = option(False, "each replica keeps the optimiser's state of a part of the parameters only")
    rmsprop_decay: float = option(0.9, "decay of rmsprop's averages", minimum=0)
    lars_trust: float = option(0.001, "trust coefficient of lars", minimum=0)
    lars_skip: tuple[str, ...] = option(
        (),
        "parameters that lars neither scales nor decays: parts of names, or beta, gamma, bias; default: those of one dimension",
        words=True,
    )
    train_only: str = option("", "train only parameters whose names this pattern matches")
    train_from: str = option("", "train only this layer and those behind it, such as layer3", value="LAYER")
    init_checkpoint: str = option("", "start with the weights of this checkpoint or run")
    ema: float = option(
        0.0, "decay of an exponential moving average of the weights, saved and validated beside them; 0: none", minimum=0
    )
    on_nonfinite: str = option("stop", "what happens if the loss or a gradient is not finite", choices=("stop", "skip"))
    lr: float = option(
        0.0,
        "learning rate at its peak; 0: from --base_learning_rate, else that of the optimiser: 0.1 (sgd, momentum, nesterov), "
        "0.003 (adam, adamw, rmsprop), 0.01 (rmsprop_tf), 5 (lars)",
        minimum=0,
        group="learning rate",
    )
    base_learning_rate: str = option("", "x for a peak rate of 2^x times the global batch")
    lr_schedule: str = option("cosine", "shape of the learning rate over the run", choices=SHAPES)
    lr_drops: tuple[str, ...] = option(("0.5", "0.75"), "stepped: where in the run (0 to 1) the rate drops", words=True)
    lr_decay: float = option(
        0.1,
        "stepped: factor of each drop; exponential: factor per --lr_decay_epochs",
        minimum=0,
    )
    lr_multipliers: tuple[str, ...] = option(
        (), "stepped: parts of the peak before, between and after the drops, in place of --lr_decay", words=True
    )
    lr_decay_epochs: float = option(1.0, "exponential: epochs per factor", minimum=0)
    lr_decay_length: float = option(
        0.0, "cosine and polynomial: epochs until the last rate is reached; 0: up to the end of the run", minimum=0
    )
    lr_power: float = option(2.0, "power of polynomial", minimum=0)
    lr_end: float = option(0.0, "cosine and polynomial: the last rate as a share of the peak", minimum=0)
    lr_end_rate: float = option(0.0, "cosine and polynomial: the last rate itself, in place of --lr_end", minimum=0)
    warmup_epochs: float = option(0.0, "epochs over which the rate rises", aliases=("lr_warmup_epochs",), minimum=0)
    warmup_mode: str = option(
        "shift", "shift: the schedule starts after the warm-up; mask: the warm-up multiplies the schedule", choices=WARM_UPS
    )
    lr_staircase: bool = option(False, "the rate changes once an epoch")
    lr_updates_per_epoch: float = option(0.0, "changes of the rate per epoch; 0: at every update", minimum=0)
    checkpoints_per_epoch: float = option(1.0, "1/2: one every other epoch; 0: one at the end", minimum=0, group="checkpoints")
    first_checkpoint_epoch: float = option(0.0, "no checkpoint before this epoch", minimum=0)
    keep_last: int = option(2, "checkpoints to keep beside the best validated one; 0: all", minimum=0)
    average: str = option("none", "average of checkpoints, made when the run ends", choices=("none", *AVERAGES))
    average_last: int = option(0, "the newest N checkpoints are averaged; 0: all", minimum=0, value="N")
    average_decay: float = option(0.99, "decay of --average exponential", minimum=0)
    remove_checkpoints: bool = option(False, "remove the checkpoints of the run when it has ended; averages stay")
    resume: str = option("", "continue this run or checkpoint; its options stay, flags given now win")
    validation: str = option(
        "during",
        "during: every --validation_epochs and at the end; after: at the end only",
        choices=("none", "during", "after"),
        group="validation and logs",
    )
    validation_epochs: float = option(1.0, "epochs between validations; 0: only at the end", minimum=0)
    target_accuracy: float = option(
        0.0, "record the time until a validation has this top-1 accuracy, 0 to 1; 0: none", minimum=0
    )
    stop_at_target: bool = option(False, "end the run when it has --target_accuracy")
    valid_batch_size: int = option(0, "pictures per batch of validation; 0: the micro batch", minimum=0)
    log_path: str = option("logs", "folder of runs", aliases=("log_dir",))
    keep_run: bool = option(True, "without, the run goes to a new folder for temporary files in place of --log_path")
    name_suffix: str = option("", "end of the run's name")
    logs_per_epoch: float = option(16.0, "lines of training.csv per epoch; 0: one at the end of the run", minimum=0)
    log_updates: int = option(0, "updates between the lines of training.csv, in place of --logs_per_epoch", minimum=0)
    metrics: bool = option(True, "count right answers of training pictures; without, the accuracy in training.csv is nan")
    tensorboard: bool = option(False, "write TensorBoard events as well")
    wandb: bool = option(False, "send the rows of both tables to Weights & Biases as well; WANDB_MODE=offline keeps them here")
    wandb_project: str = option("bulkinfer", "wandb: the project")
    wandb_run_name: str = option("", "wandb: the name of the run; default: that of its folder")
    wandb_tags: tuple[str, ...] = option((), "wandb: tags of the run", words=True)
    profile: int = option(0, "profile N updates, after the first three, into the run's folder", minimum=0, value="N")
    seed: int = option(0, "seed of weights, order and augmentation", minimum=0)
    deterministic: bool = option(False, "refuse operations that are not deterministic on this device")
    device: str = option("auto", "cpu, cuda or auto")
    dry_run: bool = option(False, "print the resolved plan, and stop")

    @property
    def splits(self) -> tuple[str, ...]:
        """The blocks with which the second and further stages begin, as they were given; () also for `none`."""
        return () if self.pipeline_splits == ("none",) else self.pipeline_splits

    @property
    def stages(self) -> int:
        """How many parts the network is divided into; 1 if it is not."""
        return self.shards or len(self.splits) + 1

    def __post_init__(self) -> None:
        check_values(self)
        refuse_beside_resume(self)
        check_together(self)


def refuse_beside_resume(config: Any) -> None:
    """Raises UsageError for options of a new run beside --resume. `config` has the fields of a TrainConfig."""
    for name in ("config", "like", "init_checkpoint", "log_path", "name_suffix"):
        if config.resume and getattr(config, name) != getattr(TrainConfig, name):
            raise UsageError(f"--{name} is for a new run, and --resume continues one: leave one of them out")

"""Options of average: which checkpoints, how they are weighted, and what batch norm's averages come from."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import check_values, option
from bulkinfer.errors import UsageError
from bulkinfer.train.options import AVERAGES, ON_BAD_PICTURE


@dataclass(frozen=True)
class AverageConfig:
    """Average the weights of a run's checkpoints, and validate the result, which get_model exports like a checkpoint."""

    run: str = option(
        "",
        "folder of the run (also as a plain argument)",
        group="input",
        value="RUN",
        aliases=("restore_path", "checkpoint_path"),
    )
    last: int = option(0, "the newest N checkpoints; 0: all", minimum=0, value="N", aliases=("N",))
    discard_last: int = option(0, "leave out the newest N checkpoints first", minimum=0, value="N")
    mode: str = option(
        "mean",
        "mean, or exponential: from the oldest on, the average becomes decay x average + (1 - decay) x weights",
        choices=AVERAGES,
        group="average",
    )
    decay: float = option(0.99, "decay of --mode exponential", minimum=0)
    keep_norms: bool = option(False, "leave batch norm's averages as the averages of those in the checkpoints")
    batches: int = option(
        100, "batches of training pictures from which batch norm's averages are estimated again", minimum=1, value="N"
    )
    data_dir: str = option("", "folder of the data set; default: that of the run", group="data")
    on_bad_picture: str = option(
        "stop", "what happens at a picture that cannot be used; skip: it is left out", choices=ON_BAD_PICTURE
    )
    num_workers: int = option(0, "threads that read and decode pictures; 0: what the cores allow", minimum=0)
    cache_mb: int = option(2048, "memory for prepared pictures, in MB", minimum=0)
    device: str = option("auto", "cpu, cuda or auto", group="device")

    def __post_init__(self) -> None:
        check_values(self)
        if not self.run:
            raise UsageError("give the folder of a run of bulkinfer train, below logs/")
        if not 0 < self.decay < 1:
            raise UsageError(f"--decay {self.decay:g}: it must be above 0 and below 1")

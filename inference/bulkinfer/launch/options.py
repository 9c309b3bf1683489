"""Settings of the commands that go on with what launches have done, or check it."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.config import ENGINES, check_values, option
from bulkinfer.errors import STAGES


@dataclass(frozen=True)
class MergeConfig:
    """Make one output of the shards of a job. Files are linked, and copied only where the file system has no links."""

    shards: str = option(
        "", "folder of the shards: --output of their launches (also as a plain argument)", group="input", value="FOLDER"
    )
    output: str = option(
        "", "folder that gets the rows of all; default merged, in the folder of the shards", group="output", value="FOLDER"
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True)
class RetryConfig:
    """Run the records with error rows again, as the job began, with a plan for this machine; new ok rows replace them."""

    output: str = option(
        "",
        "results folder, log folder or name of a job (also as a plain argument); default the newest job",
        group="input",
        value="JOB",
    )
    stage: tuple[str, ...] = option(STAGES, "only errors of these stages", choices=STAGES)
    data_dir: str = option("", "where the pictures are now; default as the job began")
    model_path: str = option("", "folder of model folders; default as the job began")
    num_devices: int = option(
        0, "worker processes, one per device; 0: what suits this machine", aliases=("num_ipus",), minimum=0, group="device"
    )
    log_path: str = option("", "folder of job logs; default as the job began", group="output")
    dry_run: bool = option(False, "print how many error rows would be run again, and stop")
    num_workers: int = option(0, "loader threads per worker; 0: from the thread plan", minimum=0, group="tuning")
    streams: int = option(0, "concurrent session runs per worker; 0: from the thread plan", minimum=0)
    stall_timeout_s: int = option(300, "as infer_launch takes it, in seconds; 0: never", minimum=0, group="advanced")
    engine: str = option("local", "what runs the workers, as infer_launch takes it", choices=tuple(ENGINES))
    ray_address: str = option("", "cluster of --engine ray, as infer_launch takes it")


@dataclass(frozen=True)
class VerifyConfig:
    """Check results folders, each and together: counts, keys, file hashes. Needs neither network nor pictures."""

    output: tuple[str, ...] = option(
        (),
        "results folders, log folders or names of jobs (also as plain arguments); default the newest job",
        group="input",
        value="JOB",
    )
    log_path: str = option("logs", "folder of job logs, for names and the newest job")

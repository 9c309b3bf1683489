"""bulkinfer get_dataset NAME: fetch a data set for training or inference."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.train.data.options import GetDatasetConfig, training_data_dir
from bulkinfer.types import shell_word


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 if the data set is there."""
    return run_command("bulkinfer get_dataset", GetDatasetConfig, _run, argv, positional="dataset")


def _run(config: GetDatasetConfig) -> int:
    from pathlib import Path

    from bulkinfer.datasets.catalog import SETS
    from bulkinfer.datasets.fetch import Request, get_dataset
    from bulkinfer.errors import UsageError

    if not config.dataset:
        raise UsageError(f"no data set named; known are {', '.join(SETS)}, as in: bulkinfer get_dataset cifar10")
    data_dir = training_data_dir(config.data_dir)
    name = config.dataset.lower().replace("-", "_")
    request = Request(name, Path(data_dir), config.url, config.checksum, config.force, config.any_size)
    folder = get_dataset(request)
    say(f"{name}: {folder}")
    if SETS[name].reader:
        say(f"next: bulkinfer train --dataset {shell_word(name)} --data_dir {shell_word(data_dir)}")
    else:
        annotations = next(folder.glob("annotations/instances_val*.json"), None)
        also = ["--annotations", shell_word(annotations)] if annotations else []
        say(" ".join(["next: partition_dataset --data_dir", shell_word(folder / "val2014"), *also]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Memory of training: what recomputing saves, what a stage takes, and what the names of ImageNet cost.

    python tools/bench/train_memory.py [--scratch DIR]

Peak memory of `bulkinfer train` with resnet50 at 224 x 224 in batches of 16, plain and with `--recompute blocks`, less that of
batches of 2, is that of the activations of 14 pictures. The larger of two stages is compared with one process. 1,281,167 names
in 1,000 class folders are listed by a run of one update with 2 and with 16 loader threads, beside one with 2,000 names.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from footprint import MIB, jpeg, over, run, tell

SMALL, LARGE = 2, 16  # batches
SPLITS = ("layer1.1", "layer1.2", "layer2.0", "layer3.0")  # of resnet50 into two stages
IMAGENET, CLASSES = 1_281_167, 1_000  # training pictures


def measure_recomputing(scratch: Path) -> None:
    """The activations' share that --recompute blocks saves."""

    def peak(batch_size: int, *words: object) -> float:
        words = (
            "train",
            "--dataset",
            "synthetic",
            "--model",
            "resnet50",
            "--micro_batch_size",
            batch_size,
            "--steps",
            3,
            *words,
        )
        return run("bulkinfer", *words, "--checkpoints_per_epoch", 0, cwd=scratch)[1] / MIB

    kept, again = (peak(LARGE, *words) - peak(SMALL, *words) for words in ((), ("--recompute", "blocks")))
    print(f"activations of {LARGE - SMALL} pictures in resnet50: {kept:.0f} MiB, with --recompute blocks {again:.0f} MiB")
    tell("  share that is left", again / kept, "", 0.7)


def measure_stages(scratch: Path) -> None:
    """The larger of two stages beside one process, for updates of 64 pictures."""

    def peak(*words: object) -> float:
        every = ("train", "--dataset", "synthetic", "--model", "resnet50", "--steps", 2, "--checkpoints_per_epoch", 0)
        return run("bulkinfer", *every, "--validation", "none", *words, cwd=scratch)[1] / MIB

    parts = ("--micro_batch_size", 8, "--gradient_accumulation", 8)
    at_once, accumulated = peak("--micro_batch_size", 64), peak(*parts)
    print(f"64 pictures at once: {at_once:.0f} MiB, in micro batches of 8: {accumulated:.0f} MiB")
    for split in SPLITS:
        larger = peak(*parts, "--pipeline_splits", split, "--pipeline_schedule", "1f1b")
        print(f"the larger of two stages, split at {split}: {larger:.0f} MiB, {larger / accumulated:.2f} of the accumulated")
        tell(f"  split at {split}, of the one at once", larger / at_once, "", 0.75)


def make_folders(place: Path, names: int) -> Path:
    """Class folders of links to one picture, and a folder of validation with the same classes."""
    picture = place.with_suffix(".jpg")
    picture.write_bytes(jpeg(64, 48, 0))
    for number in range(names):
        folder = place / "train" / f"n{number % CLASSES:08d}"
        if number < CLASSES:
            folder.mkdir(parents=True)
            (place / "val" / folder.name).mkdir(parents=True)
            (place / "val" / folder.name / "0.jpg").symlink_to(picture)
        (folder / f"{folder.name}_{number:07d}.JPEG").symlink_to(picture)
    return place


def measure_names(scratch: Path) -> None:
    """Memory of a run on 1.28 million names over that on 2,000, whatever the number of threads."""
    few, many = make_folders(scratch / "few", 2 * CLASSES), make_folders(scratch / "many", IMAGENET)
    for threads in (2, 16):
        words = ("train", "--model", "cifar_resnet8", "--micro_batch_size", 8, "--steps", 1, "--num_workers", threads)
        peaks = [run("bulkinfer", *words, "--validation", "none", "--data_dir", place, cwd=scratch)[1] for place in (few, many)]
        tell(f"1,281,167 names with {threads} loader threads", (peaks[1] - peaks[0]) / 1e6, "MB", 400)


def main() -> None:
    """Measure all in a scratch folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", help="folder with room for 1.3 million links, removed at the end; default: the system's")
    folder = parser.parse_args().scratch
    with tempfile.TemporaryDirectory(dir=folder) as name:
        print(f"{os.cpu_count()} cores")
        measure_recomputing(Path(name))
        measure_stages(Path(name))
        measure_names(Path(name))
    if over:
        raise SystemExit(f"over their bounds: {'; '.join(over)}")


if __name__ == "__main__":
    main()

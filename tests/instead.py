"""Commands that the documents show and that tests do not run as they stand: why not, and what runs in their place.

Every other shown command runs in tests/e2e/test_pages.py. Where nothing runs in its place, its options are checked in
tests/rules/test_shown_commands.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Instead:
    """Why a command does not run as it stands, or on one page only, and what runs instead ({}: the command; empty: nothing)."""

    why: str
    run: str = ""
    only_on: str = ""  # the one page on which this runs; empty: on each


_TRAIN = "docs/how-to/train.md"
_GPU = Instead("it needs NVIDIA GPUs")
_INSTALLS = Instead("it installs packages; tests/e2e/test_wheel.py does that")
_TESTS = Instead("it runs these tests")
_MEASURES = Instead("it measures for minutes or hours")
_IMAGENET = Instead(
    "it trains on ImageNet for days; tests/e2e/test_half_resolution.py and tests/unit/train/test_archives.py use small sets"
)
_CLUSTER = Instead("it needs a cluster; tests/faults/test_shards.py runs shards as its machines would")
_BUCKET = Instead("it needs a bucket; tests/e2e/test_stores.py runs it on the loopback interface")
_RAY = Instead("it needs a Ray cluster; tests/faults/test_ray.py starts some, and runs launches on them")
_DOWNLOADS = Instead("it downloads 100 MB of weights; tests/e2e/test_get_model.py does the same on the loopback interface")
_TUNES = Instead("it measures for minutes; tests/e2e/test_bench.py runs both commands")
_LARGE = Instead("it takes long; another page has it at the default batch size")
_OPTION = Instead("it names options of a command, whose others are in a block of the page")

# The command as it is shown, where * is any text -> what is done with it
INSTEAD = {
    "pip install *": _INSTALLS,
    "python3 -m venv *": _INSTALLS,
    "./tools/demo": Instead("it makes an environment and downloads photographs; tests/e2e/test_demo.py runs it"),
    "./tools/test": _TESTS,
    "tools/test *": _TESTS,
    "BULKINFER_TEST_PLUGIN=absent tools/test": _TESTS,
    "pytest*": _TESTS,
    "mkdocs build *": Instead("tests/e2e/test_site.py runs it"),
    "python -m tools.reference_pages": Instead("it changes the checkout; see tests/rules/test_docs.py"),
    "python -m tools.errors_page": Instead("it changes the checkout; see tests/rules/test_errors_page.py"),
    "git worktree add *": Instead("it adds a folder to the checkout"),
    "apt-get download *": Instead("it downloads a package of Debian"),
    "bulkinfer get_dataset * --url dataset-fashion-mnist_*_all.deb": Instead(
        "it needs that package; tests/e2e/test_get_dataset.py reads a small one"
    ),
    "get_model --model_name timm:resnet50.a1_in1k": _DOWNLOADS,
    "infer_launch --model_name timm:resnet50.a1_in1k *": _DOWNLOADS,
    "get_model * --batch_size 64": _LARGE,
    "get_model * --batch_size 64 --precision fp16 *": _LARGE,
    "get_model --checkpoint logs/RUN --name fashion --batch_size 32": _LARGE,
    "infer_launch --model_name fashion --batch_size 32 *": _LARGE,
    "infer_launch * --device cuda*": _GPU,
    "bulkinfer bench * --device cuda *": _GPU,
    "bulkinfer get_dataset fashion_mnist --data_dir data": Instead("its data are used on one page", "{}", only_on=_TRAIN),
    "get_model --checkpoint logs/RUN --name fashion": Instead("it takes long", "{}", only_on=_TRAIN),
    "bulkinfer train --model resnet50 --data_dir imagenet *": _IMAGENET,
    "bulkinfer train --data_dir records": _IMAGENET,
    "bulkinfer average logs/RUN --last 5": Instead(
        "it needs five checkpoints", "bulkinfer average logs/RUN --last 2 --batches 1"
    ),
    "bulkinfer train --like tf1 *": Instead("it needs ImageNet; tests/unit/train/compat/test_command_line.py plans it"),
    "infer_launch --data_dir s3://*": _BUCKET,
    "bulkinfer verify s3://*": _BUCKET,
    "bulkinfer watch s3://*": _BUCKET,
    "infer_launch --model_name efficientnet_lite0 --model_path s3://*": _BUCKET,
    "get_model --model_name efficientnet_lite0 --model_path s3://*": _BUCKET,
    "partition_dataset --data_dir s3://*": _BUCKET,
    "partition_dataset --list_file addresses.txt *": _BUCKET,
    "bulkinfer serve *": Instead(
        "it serves until it is ended; tests/e2e/test_serve.py and tests/e2e/test_jobs_over_http.py start servers"
    ),
    "bulkinfer request --config resnet50_infer_*": Instead(
        "it makes a large network first; tests/e2e/test_serve_clients.py sends these loads to a small one"
    ),
    "srun *": _CLUSTER,
    "infer_launch * --engine ray": _RAY,
    "ray job submit *": _RAY,
    "RAY_USAGE_STATS_ENABLED=0 ray start *": _RAY,
    "bulkinfer merge /shared/out": _CLUSTER,
    "bulkinfer train --replicas 2 --micro_batch_size 64": Instead("it downloads CIFAR-10; tests/e2e/test_ranks.py runs it"),
    "bulkinfer train --model resnet50 --pipeline_splits *": Instead(
        "it trains on CIFAR-10; tests/e2e/test_ranks.py runs stages"
    ),
    "torchrun *": Instead("it downloads CIFAR-10; tests/e2e/test_train.py runs two replicas"),
    "python tools/demo_photos.py photos": Instead("it downloads photographs; tests/e2e/test_demo.py runs it"),
    "python tools/bench/*": _MEASURES,
    "python -m tools.bench.*": _MEASURES,
    "python -m tools.simulate_scale *": _MEASURES,
    "py-spy record *": _MEASURES,
    "tools/faults --runs *": _MEASURES,
    "tools/faults --list": Instead("it makes an environment first", "python tools/faults.py --list"),
    "tools/soak *": _MEASURES,
    "tools/fuzz *": Instead("it makes an environment first; tests/fuzz runs every target"),
    "bulkinfer bench --model_name efficientnet_lite0 --data_dir photos": Instead(
        "it measures for minutes; tests/e2e/test_bench.py runs it, and another page with one second"
    ),
    "bulkinfer bench * --tune --write_flags tuned.flags": _TUNES,
    "bulkinfer bench --spec *": Instead("it needs a file of benchmarks; tests/e2e/test_bench_spec.py runs some"),
    "python -m tools.bench_tables *": Instead("it changes the checkout; see tests/rules/test_bench_tables.py"),
    "infer_launch --flagfile tuned.flags *": _TUNES,
    "bulkinfer bench data --data_only *": Instead("it measures for a minute; tests/unit/bench/test_training_input.py does"),
    "bulkinfer bench * --seconds 3 --rounds 9 *": _MEASURES,
    "bulkinfer train --config fashion_resnet20 --data_dir data": Instead(
        "it trains for most of an hour", "{} --epochs 2", only_on=_TRAIN
    ),
    'bulkinfer train --config digits_resnet8 --data_dir "$digits"': Instead(
        "it trains long", "{} --epochs 2 --dataset_percentage 10"
    ),
    "import fiftyone*": Instead("it needs the package fiftyone, which is no dependency"),
    "import optuna*": Instead("it needs the package optuna, which is no dependency"),
    # between backticks
    "python -m bulkinfer COMMAND": Instead("it stands for every command"),
    "bulkinfer seal FILE...": Instead("it names a file", "bulkinfer seal models/efficientnet_lite0/card.json"),
    "bulkinfer validate logs/RUN --data_dir FOLDER": Instead(
        "it names a folder", "bulkinfer validate logs/RUN --data_dir digits"
    ),
    "bulkinfer validate logs/RUN/checkpoints/step-N": Instead(
        "it names a checkpoint", "bulkinfer validate logs/RUN/checkpoints/$(ls logs/RUN/checkpoints | tail -1)"
    ),
    "bulkinfer validate --model efficientnet_lite0 --data_dir FOLDER": Instead(
        "it names a folder", "bulkinfer validate --model efficientnet_lite0 --data_dir imagenet"
    ),
    "bulkinfer validate --model NAME --generated_data --repeat 10": Instead(
        "it names a network", "bulkinfer validate --model cifar_resnet8 --generated_data --repeat 1 --valid_batch_size 1"
    ),
    "get_model --checkpoint logs/RUN --name NAME": _OPTION,
    "bulkinfer bench --data_only": _OPTION,
    "bulkinfer bench --tune*": _OPTION,
    "bulkinfer bench --seconds 3 *": _OPTION,
    "bulkinfer train --average *": _OPTION,
    "bulkinfer train --config_path": _OPTION,
    "partition_dataset --mode tar": _OPTION,
    "bulkinfer train --tensorboard": _OPTION,
    "bulkinfer validate --generated_data --repeat": _OPTION,
    "get_model --checkpoint": _OPTION,
    "get_model --onnx": _OPTION,
    "get_model --onnx FILE": _OPTION,
    "get_model --recipe": _OPTION,
    "infer_launch --data_dir photos": _OPTION,
    "infer_launch --generated": _OPTION,
    "infer_launch --num_devices *": _OPTION,
    "infer_launch --overwrite": _OPTION,
    "infer_launch --shard *": _OPTION,
    "infer_launch --precision fp32": _OPTION,
    "infer_launch --skip_done JOB --output FOLDER": _OPTION,
    "infer_launch --synthetic*": _OPTION,
    "infer_launch --model_name tiny *": Instead("tools/bench/grow.py makes that network and runs the command"),
    "partition_dataset --list_file FILE *": Instead("tools/bench/grow.py makes that list and runs the command"),
}


def instead_of(command: str) -> Instead | None:
    """What is done with a shown command; None if it runs as it stands."""
    found = {entry for shown, entry in INSTEAD.items() if matches(shown, command)}
    assert len(found) < 2, f"{command} has several entries in tests/instead.py"
    return found.pop() if found else None


def matches(shown: str, command: str) -> bool:
    """True if an entry of INSTEAD is about this command."""
    return re.fullmatch(re.escape(shown).replace(r"\*", ".*"), command.partition("  #")[0], re.DOTALL) is not None

"""Two examples of each command for --help. Each works when it is typed; tests/e2e/test_examples.py types them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "get_model": (
        "get_model efficientnet_lite0",
        "get_model efficientnet_lite0 --batch_size 16 --model_path models",
    ),
    "partition_dataset": (
        "partition_dataset photos --partitions 2",
        "partition_dataset photos --partitions 2 --mode manifest --output parts",
    ),
    "infer_launch": (
        "infer_launch photos --model_name efficientnet_lite0",
        "infer_launch photos --model_name efficientnet_lite0 --batch_size 16 --limit 10 --output out",
    ),
    "bulkinfer run": (
        "bulkinfer run photos",
        "bulkinfer run photos --model efficientnet_lite0 --limit 10 --output first",
    ),
    "bulkinfer train": (
        "bulkinfer train --dataset generated --steps 2 --micro_batch_size 8",
        "bulkinfer train --dataset generated --model cifar_resnet20 --epochs 20 --dry_run",
    ),
    "bulkinfer validate": (
        "bulkinfer validate --model cifar_resnet20 --generated_data --repeat 1",
        "bulkinfer validate --model cifar_resnet20 --generated_data --repeat 1 --valid_batch_size 16",
    ),
    "bulkinfer average": (
        "bulkinfer average logs/latest",
        "bulkinfer average logs/latest --mode exponential --decay 0.9",
    ),
    "bulkinfer show": (
        "bulkinfer show out --least_sure 3",
        "bulkinfer show out --errors",
    ),
    "bulkinfer rows": (
        "bulkinfer rows out --to rows.csv",
        "bulkinfer rows out --format jsonl --to - | head -1",
    ),
    "bulkinfer score": (
        "bulkinfer score out --labels labels.csv",
        "bulkinfer score out --labels labels.csv --to score",
    ),
    "bulkinfer compare": (
        "bulkinfer compare out first",
        "bulkinfer compare out first --to compared",
    ),
    "bulkinfer report": (
        "bulkinfer report out --to report.html",
        "bulkinfer report out --to page.html --pictures 4",
    ),
    "bulkinfer watch": (
        "bulkinfer watch out",
        "bulkinfer watch out --once",
    ),
    "bulkinfer jobs": (
        "bulkinfer jobs",
        "bulkinfer jobs --log_path logs",
    ),
    "bulkinfer clean": (
        "bulkinfer clean first --yes",
        "bulkinfer clean out --what logs --yes",
    ),
    "bulkinfer verify": (
        "bulkinfer verify out",
        "bulkinfer verify logs/latest/results",
    ),
    "bulkinfer merge": (
        "bulkinfer merge shards",
        "bulkinfer merge shards --output whole",
    ),
    "bulkinfer seal": (
        "bulkinfer seal models/efficientnet_lite0/card.json",
        "bulkinfer seal .out.bulkinfer/_job.json",
    ),
    "bulkinfer retry": (
        "bulkinfer retry out",
        "bulkinfer retry out --stage read decode --dry_run",
    ),
    "bulkinfer bench": (
        "bulkinfer bench photos --model_name efficientnet_lite0 --seconds 1 --rounds 1",
        "bulkinfer bench photos --model_name efficientnet_lite0 --tune --tune_s 40",
    ),
    "bulkinfer serve": (
        "bulkinfer serve efficientnet_lite0",
        "bulkinfer serve efficientnet_lite0 --port 9000 --grpc_port -1 --max_wait_ms 10",
    ),
    "bulkinfer request": (
        "bulkinfer request efficientnet_lite0 --num_images 20",
        "bulkinfer request efficientnet_lite0 --protocol rest --data_dir photos --batch_size 4 --num_images 20",
    ),
    "bulkinfer get_dataset": (
        "bulkinfer get_dataset mnist",
        "bulkinfer get_dataset cifar10 --data_dir data",
    ),
    "bulkinfer doctor": (
        "bulkinfer doctor",
        "bulkinfer doctor --model_path models --log_path logs",
    ),
    "bulkinfer completion": (
        "bulkinfer completion bash > bulkinfer.bash",
        "bulkinfer completion fish > bulkinfer.fish",
    ),
}

"""The way of timm's train.py: its loader, optimiser and loss, one forward and backward pass and one update a batch."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from bulkinfer.train.network.networks import NetworkOptions, build
from laps import read_job, tree_cpu_s, write_result
from PIL import Image
from timm.data import create_dataset, create_loader
from timm.optim import create_optimizer_v2
from torchvision import transforms


class CifarFiles(torch.utils.data.Dataset[tuple[Any, int]]):
    """CIFAR-10 in python form as torchvision's class has it, without its checksums: all in memory, a Pillow image a sample."""

    def __init__(self, folder: Path) -> None:
        batches = [pickle.loads((folder / f"data_batch_{number}").read_bytes()) for number in range(1, 6)]
        self.images_NHWC = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.labels = [label for batch in batches for label in batch["labels"]]
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(np.ascontiguousarray(self.images_NHWC[index]))), self.labels[index]


def make_loader(job: dict[str, Any]) -> Any:
    """Batches of normalised pictures and labels. Small pictures are shifted and mirrored as people do it for CIFAR."""
    size = job["image_size"]
    is_cifar = job["kind"] == "cifar"
    dataset: Any = CifarFiles(Path(job["data_dir"])) if is_cifar else create_dataset("", job["data_dir"], split="train")
    loader = create_loader(
        dataset, input_size=(3, size, size), batch_size=job["batch_size"], is_training=True, color_jitter=0.0,
        interpolation="bilinear", num_workers=job["num_workers"], device=torch.device("cpu"), use_prefetcher=True,
    )  # fmt: skip
    if is_cifar:
        to_array = dataset.transform.transforms[-1]  # timm's own last step: uint8, planes first
        dataset.transform = transforms.Compose(
            [transforms.RandomCrop(size, padding=size // 8), transforms.RandomHorizontalFlip(), to_array]
        )
    return loader


def make_network(job: dict[str, Any]) -> torch.nn.Module:
    """timm's network, or for CIFAR's, which timm lacks, the same class that ours trains."""
    torch.manual_seed(0)
    if job["kind"] == "cifar":
        network = build(NetworkOptions(job["model"], job["num_classes"]))
    else:
        network = timm.create_model(job["model"], num_classes=job["num_classes"])
    return network.to(memory_format=torch.channels_last) if job["channels_last"] else network


def main() -> None:
    """Updates until there are enough; the first ones are not counted."""
    job = read_job()
    network = make_network(job).train()
    optimiser = create_optimizer_v2(network, opt="nesterov", lr=0.01, momentum=0.9, weight_decay=5e-4)
    loss_of = torch.nn.CrossEntropyLoss()
    layout = torch.channels_last if job["channels_last"] else torch.contiguous_format
    start_s, start_cpu_s = 0.0, 0.0
    for done, (images, labels) in enumerate(make_loader(job), 1):
        loss = loss_of(network(images.contiguous(memory_format=layout)), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if done % job["log_every"] == 0:
            loss.item()
        if done == job["warm_up"]:
            start_s, start_cpu_s = time.monotonic(), tree_cpu_s(os.getpid())
        if done == job["updates"]:
            break
    seconds, cpu_s = time.monotonic() - start_s, tree_cpu_s(os.getpid()) - start_cpu_s
    pictures = (job["updates"] - job["warm_up"]) * job["batch_size"]
    facts = {"num_workers": job["num_workers"], "threads": torch.get_num_threads(), "layout": str(layout)}
    write_result(job, {}, pictures=pictures, seconds=seconds, cpu_s=cpu_s, facts=facts)


if __name__ == "__main__":
    main()

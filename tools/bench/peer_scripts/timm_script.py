"""The way of timm's inference.py: its loader, the network in torch, torch.inference_mode."""

from __future__ import annotations

import contextlib
from typing import Any

import timm
import torch
from bulkinfer import zoo
from laps import Laps, read_job
from timm.data import create_dataset, create_loader

WORKERS_BY_DEFAULT = 2  # of timm's inference.py


def data_config(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe in timm's words; its mean and std are those of pictures scaled to 0..1."""
    low, high = recipe["value_range"]
    return {
        "input_size": (3, recipe["height"], recipe["width"]),
        "interpolation": recipe["interpolation"],
        "mean": tuple((value - low) / (high - low) for value in recipe["mean"]),
        "std": tuple(value / (high - low) for value in recipe["std"]),
        "crop_pct": recipe["crop_fraction"],
        "crop_mode": "squash" if recipe["resize"] == "exact" else "center",
    }


def build(job: dict[str, Any]) -> torch.nn.Module:
    """The network with its weights: timm's own, or the zoo's where timm has none that gives the same outputs."""
    source, name = job["network"]
    network = timm.create_model(name) if source == "timm" else zoo.build(name)
    network.load_state_dict(torch.load(job["state"], weights_only=True))
    return network.eval()


def main() -> None:
    """One pass over the pictures."""
    job = read_job()
    network = build(job)
    layout = torch.contiguous_format if job["defaults"] else torch.channels_last
    network = network.to(memory_format=layout)
    cast: Any = contextlib.nullcontext
    if job["precision"] == "bf16":
        cast = lambda: torch.autocast("cpu", torch.bfloat16)  # noqa: E731
    dataset, laps = create_dataset(root=job["pictures"], name=""), Laps()
    num_workers = WORKERS_BY_DEFAULT if job["defaults"] else job["cores"]
    size = (job["batch_size"], 3, job["recipe"]["height"], job["recipe"]["width"])
    swaps = job["recipe"]["channels"] == "BGR"
    config = data_config(job["recipe"])
    loader = create_loader(
        dataset, batch_size=size[0], num_workers=num_workers, device=torch.device("cpu"), use_prefetcher=True, **config
    )
    seen = 0
    with torch.inference_mode():
        with cast():
            network(torch.zeros(size).contiguous(memory_format=layout))
        for images, _ in loader:
            if swaps:
                images = images.flip(1)
            with cast():
                best = network(images.contiguous(memory_format=layout)).argmax(1)
            paths = [dataset.filename(index, absolute=True) for index in range(seen, seen + len(best))]
            seen += len(best)
            laps.done(paths, best.tolist())
    laps.write(
        job,
        num_workers=num_workers,
        threads=torch.get_num_threads(),
        layout=str(layout),
        network=job["network"],
    )


if __name__ == "__main__":
    main()

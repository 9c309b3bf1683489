"""The loop that most people write: a torch DataLoader of worker processes feeds a session of onnxruntime."""

from __future__ import annotations

from typing import Any

import torch
from laps import Laps, picture_paths, read_job
from PIL import Image
from recipe import Graph, Preparation
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset[Any]):
    """Prepared pictures with their numbers."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.paths = picture_paths(job)
        self._prepare = Preparation(job)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        with Image.open(self.paths[index]) as image:
            return torch.from_numpy(self._prepare(image).copy()), index


def main() -> None:
    """One pass over the pictures."""
    job = read_job()
    graph = Graph(job, spins=job["spins"])
    pictures, laps = Pictures(job), Laps()
    loader = DataLoader(pictures, batch_size=job["batch_size"], num_workers=job["cores"], persistent_workers=True)
    for images, indices in loader:
        laps.done((pictures.paths[index] for index in indices.tolist()), graph.best_classes_of_some(images.numpy()))
    laps.write(job, num_workers=loader.num_workers, prefetch_factor=loader.prefetch_factor, spins=job["spins"])


if __name__ == "__main__":
    main()

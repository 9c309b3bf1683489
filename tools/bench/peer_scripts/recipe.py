"""A card's recipe as transforms of torchvision, and the graph in onnxruntime: what two of the peers share."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps
from torchvision import transforms
from torchvision.transforms import InterpolationMode


class Preparation:
    """Picture -> what the graph takes for it: uint8 H x W x 3 where it normalises by itself, else float32 3 x H x W."""

    def __init__(self, job: dict[str, Any]) -> None:
        recipe = job["recipe"]
        size, mode = recipe["resize_size"], InterpolationMode(recipe["interpolation"])
        resize = {"short_side": size, "exact": (size, size), "none": None}[recipe["resize"]]
        self._turns = recipe["orientation"] == "exif"
        self._is_uint8 = job["input"] == "uint8"
        self._resize_and_crop = transforms.Compose(
            [
                *([] if resize is None else [transforms.Resize(resize, mode)]),
                transforms.CenterCrop((recipe["height"], recipe["width"])),
            ]
        )
        low, high = recipe["value_range"]
        mean, std = ([(value - shift) / (high - low) for value in recipe[name]] for name, shift in (("mean", low), ("std", 0)))
        self._normalise = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])
        self._swaps = recipe["channels"] == "BGR"

    def __call__(self, image: Image.Image) -> np.ndarray[Any, Any]:
        if self._turns:
            image = ImageOps.exif_transpose(image)
        image = self._resize_and_crop(image.convert("RGB"))
        if self._is_uint8:
            return np.asarray(image)
        if self._swaps:
            image = Image.merge("RGB", image.split()[::-1])
        prepared: np.ndarray[Any, Any] = self._normalise(image).numpy()
        return prepared


class Graph:
    """The fixed-batch graph in a session of onnxruntime's processor provider, warm. `threads` 0: as many as it chooses."""

    def __init__(self, job: dict[str, Any], *, threads: int = 0, spins: bool = True) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        if not spins:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(job["graph"], options, providers=["CPUExecutionProvider"])
        given = self._session.get_inputs()[0]
        self._name, self._output = given.name, job["output"]
        self.best_classes(np.zeros(given.shape, job["input"]))
        self._batch_size = given.shape[0]

    def best_classes(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The best class of each picture of a whole batch."""
        best: np.ndarray[Any, Any] = self._session.run([self._output], {self._name: images})[0].argmax(1)
        return best

    def best_classes_of_some(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same of a batch that may be short: it is padded."""
        count = len(images)
        if count < self._batch_size:
            images = np.concatenate([images, np.zeros((self._batch_size - count, *images.shape[1:]), images.dtype)])
        return self.best_classes(images)[:count]

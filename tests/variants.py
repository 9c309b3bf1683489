"""models/net, adopted from a graph, with pictures to make a variant of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from bulkinfer.config import GetModelConfig
from bulkinfer.export.get_model import make_network
from bulkinfer.export.model_folder import ModelFolder
from bulkinfer.export.variants.request import check_request
from bulkinfer.export.variants.variant import make_variant

from tests import pictures
from tests.foreign_graphs import recipe_file, save
from tests.logged import logged


def write_photos(folder: Path, count: int = 150) -> Path:
    """Small pictures, no two alike."""
    pictures.write_files(folder, {f"{n:03d}.png": pictures.encode(pictures.photo(24, 20, seed=n)) for n in range(count)})
    return folder


def listing(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without those of its folders."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


class Home:
    """models/net in `folder`, what was said while its variant in `precision` was made, and where that one lies."""

    def __init__(self, folder: Path, photos: Path, precision: str) -> None:
        self.folder, self.photos, self.precision, self.said = folder, photos, precision, list[str]()
        self.network: ModelFolder | None = None

    @property
    def variant(self) -> Path:
        return self.folder / "models" / "net" / self.precision

    def config(self, **flags: Any) -> GetModelConfig:
        given = {"model_path": str(self.folder / "models"), "model_name": "net", "precision": self.precision}
        return GetModelConfig(**{**given, "calibration_dir": str(self.photos), **flags})

    def adopt(self, model: onnx.ModelProto, **flags: Any) -> None:
        path, recipe = save(model, self.folder), recipe_file(self.folder)
        places = {"model_path": str(self.folder / "models"), "onnx": str(path), "name": "net", "recipe": str(recipe)}
        self.network = make_network(GetModelConfig(**{**places, "scores": "logits", **flags}))

    def make(self, **flags: Any) -> ModelFolder:
        assert self.network is not None
        self.said = []
        config = self.config(**flags)
        check_request(config)
        return logged(self.said, make_variant, config, self.network)

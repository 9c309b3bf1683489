"""Graphs that are adopted in this process: what is said, what is refused, and what is left in the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import BulkinferError, UsageError
from bulkinfer.export.get_model import make_network
from bulkinfer.export.model_folder import ModelFolder

from tests.foreign_graphs import recipe_file, save
from tests.logged import logged


class Home:
    """A folder with a recipe, models/ and what was said last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = recipe_file(folder)
        self.said: list[str] = []

    def config(self, **flags: Any) -> GetModelConfig:
        given = {"model_path": str(self.folder / "models"), "onnx": str(self.folder / "m.onnx"), "name": "net"}
        return GetModelConfig(**{**given, "recipe": str(self.recipe), **flags})

    def adopt(self, model: onnx.ModelProto | None = None, **flags: Any) -> ModelFolder:
        if model is not None:
            save(model, self.folder)
        self.said = []
        return logged(self.said, make_network, self.config(**flags))

    def refusal(self, model: onnx.ModelProto, kind: type[BulkinferError] = UsageError, **flags: Any) -> str:
        with pytest.raises(kind) as caught:
            self.adopt(model, **flags)
        assert "\n" not in str(caught.value)
        assert not list(self.folder.glob("models/**/*.onnx"))
        return str(caught.value)

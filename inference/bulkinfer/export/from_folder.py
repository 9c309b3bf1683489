"""get_model --model_name of an adopted or trained network: its folder is enough to add a batch size, not to export again."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer import zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.model.card import CARD, ModelCard, read_card
from bulkinfer.model.graph_file import Export
from bulkinfer.model.made_with import made_again, made_again_from, unknown_source
from bulkinfer.model.names import named_folder
from bulkinfer.model.recipe import Recipe


@dataclass(frozen=True)
class ExistingNetwork:
    """An adopted or trained network of which only the folder is given."""

    config: GetModelConfig
    name: str
    card: ModelCard

    @property
    def kind(self) -> str:
        return self.card.source

    @property
    def recipe(self) -> Recipe:
        return self.card.recipe

    def differences(self, existing: ModelCard) -> list[str]:
        """Always empty. Raises UsageError for flags that would need another export."""
        config, made = self.config, "adopted" if existing.source == "onnx" else "made"
        if config.weights != "auto" or config.weights_sha256:
            has = existing.weights
            made_of = f"from {has.source}" if existing.source == "onnx" else f"of {has.origin}"
            raise UsageError(f"--weights: {existing.name} was {made} {made_of}, which has its own weights")
        if config.use_test_size:
            raise UsageError(f"--use_test_size belongs to networks of timm: {existing.name} was {made} with its own recipe")
        if config.input not in (existing.input, GetModelConfig.input):
            raise UsageError(f"--input {config.input}: {existing.name} was {made} with --input {existing.input}")
        if config.batch_size != (existing.fixed_batch or config.batch_size):
            raise UsageError(f"{existing.name} runs at batch {existing.fixed_batch} only: its graph fixes that batch inside")
        return []

    def export(self) -> tuple[ModelCard, Export]:
        """Never called: `instead` says what to do."""
        raise AssertionError(self.instead)

    @property
    def instead(self) -> str:
        return f"run {made_again(self.card, self.name).command(self.config.batch_size, self.config.model_path)}"


def find(config: GetModelConfig) -> ExistingNetwork | None:
    """The adopted or trained network of this name; None if there is none, so that the zoo is searched next.

    Raises UsageError for a damaged card unless the zoo has the name: only the file or the run could make that network again.
    """
    folder, _ = named_folder(config.model_path, config.model_name)
    if not (folder / CARD).is_file():
        return None
    try:
        card = read_card(folder / CARD)
    except RunError as error:
        if zoo.is_published(config.model_name):
            return None
        again = made_again_from(folder / CARD, folder.name)
        advice = unknown_source(folder.name)
        if again is not None and "--name" in again.named:  # one of the zoo would be found there
            advice = f"run {again.command(config.batch_size, config.model_path)}"
        raise UsageError(f"{error}: {advice}") from None
    return ExistingNetwork(config, folder.name, card) if card.source != "zoo" else None

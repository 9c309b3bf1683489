"""What the `next:` line of a command adds so that the command in it works when it is typed."""

from __future__ import annotations

import os
from pathlib import Path

_DATASET = Path("datasets")  # where partition_dataset puts partitions by default


def known_pictures() -> str:
    """The folder of pictures that infer_launch would take without --data_dir; empty if there is none."""
    if (_DATASET / "dataset.json").exists():
        return str(_DATASET)
    return os.environ.get("DATA_DIR", "")


def launch_words(data_dir: str, model_path: str = "models") -> list[str]:
    """The words of a command that runs a network over `data_dir`: one that is in `model_path`, else one that it makes.

    Taken is the network that infer_launch runs by default, else the one that was made last.
    """
    from bulkinfer.config import LaunchConfig
    from bulkinfer.model.card import CARD, readable_card

    made = sorted(Path(model_path).glob(f"*/{CARD}"), key=lambda card: card.stat().st_mtime)
    names = [card.parent.name for card in made]
    if not names:
        return ["bulkinfer", "run", "--data_dir", data_dir]
    name = LaunchConfig.model_name if LaunchConfig.model_name in names else names[-1]
    card = readable_card(Path(model_path) / name)
    words = ["infer_launch", "--data_dir", data_dir]
    words += [] if name == LaunchConfig.model_name else ["--model_name", name]
    if card is not None and card.fixed_batch not in (0, LaunchConfig.batch_size):
        words += ["--batch_size", str(card.fixed_batch)]
    return words

"""What the `next:` line of a command adds so that the command in it works when it is typed."""

from __future__ import annotations

from pathlib import Path


def known_pictures() -> str:
    """The pictures that infer_launch takes without --data_dir, else those in the working folder; empty if there are none."""
    from bulkinfer.files.user_path import find_data_dir
    from bulkinfer.records.data_dir import pictures_here

    return str(find_data_dir("") or pictures_here())


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

"""Make a network that a command needs, if it is not there."""

from __future__ import annotations

from bulkinfer.host.console import say
from bulkinfer.host.process_setup import hide_wandb, spin_briefly


def make_missing_network(model_name: str, model_path: str, batch_size: int) -> None:
    """Make the network as get_model does if there is no folder of it in `model_path`, unless that is in a store.

    Raises UsageError, before anything is made, if the name is none; RunError that names the command to type if a package is
    missing.
    """
    from bulkinfer.config import GetModelConfig
    from bulkinfer.files.addresses import address_of
    from bulkinfer.model.card import CARD
    from bulkinfer.model.names import named_folder

    if address_of(model_path):  # nothing is published in a store unless that is asked for
        return
    if (named_folder(model_path, model_name)[0] / CARD).exists():
        return
    from bulkinfer.zoo import find

    find(model_name)  # a wrong name is refused before anything is said to be made
    say(f"model: {model_name} is not in {model_path}: it is made first, as get_model does")
    spin_briefly()
    hide_wandb()
    from bulkinfer.export.get_model import make_network

    made = make_network(GetModelConfig(model_name=model_name, model_path=model_path, batch_size=batch_size))
    say(f"model: {made.folder} exported and checked in {made.seconds:.1f} s, licence: {made.card.licence}")

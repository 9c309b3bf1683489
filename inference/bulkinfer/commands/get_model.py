"""get_model: a pretrained network as a fixed-batch ONNX model with its card."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bulkinfer.commands.next_words import known_pictures
from bulkinfer.commands.run_command import run_command
from bulkinfer.config import EXACT, GetModelConfig
from bulkinfer.host.console import say
from bulkinfer.host.number_text import size_text
from bulkinfer.host.process_setup import hide_wandb, spin_briefly
from bulkinfer.types import explained, shell_word

if TYPE_CHECKING:
    from bulkinfer.export.model_folder import ModelFolder
    from bulkinfer.model.card import Calibration

_COMPARED_WITH = {"zoo": "torch", "checkpoint": "torch", "onnx": "the original"}  # by the source of a network
_MADE = {"int8": "calibrated", "fp16": "converted"}  # how a variant is made, by its precision


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("get_model", GetModelConfig, _get_model, argv, first_word="model_name")


def _get_model(config: GetModelConfig) -> int:
    if config.list:
        _print_networks()
        return 0
    spin_briefly()
    hide_wandb()
    from bulkinfer.export.get_model import make_model

    _print_result(config, make_model(config))
    return 0


def _print_networks() -> None:
    from bulkinfer.zoo import NETWORKS, NetworkSpec

    def source(spec: NetworkSpec) -> tuple[str, str, str]:
        where = f"package {spec.package.replace('_', '-')}" if spec.package else spec.urls[0].rpartition("/")[0] + "/"
        return spec.origin, spec.licence, where

    for (origin, licence, where), names in itertools.groupby(NETWORKS, key=lambda name: source(NETWORKS[name])):
        say(origin)
        say(f"  licence {licence}; weights from {where}")
        for name in names:
            spec = NETWORKS[name]
            side = f"{spec.recipe.width} x {spec.recipe.height} px"
            say(f"    {name}: {spec.num_parameters:,} parameters, {size_text(spec.size_bytes)}, {side}, {spec.weights_file}")
    say("any network of the package timm")
    say("    timm:NAME, such as timm:resnet50.a1_in1k, with timm's recipe and licence")


def _print_result(config: GetModelConfig, model: ModelFolder) -> None:
    card, folder = model.card, model.folder
    graph = model.graph.name
    took = f"in {model.seconds:.1f} s"
    if model.done == "exported":
        say(f"{_MADE[card.precision] if card.calibration else 'exported'} and checked {took}")
    elif model.done == "added":
        say(f"{card.name} was already there; added and checked {graph} {took}")
    else:
        say(f"{graph} is already there, and its files are as recorded (checked {took})")
    say(f"weights: {card.weights.source}, sha256 {card.weights.sha256}, {card.weights.origin}")
    if card.calibration:
        say(f"{card.precision}: {card.calibration['chosen']}{_pictures(card.calibration)}")
    source = f"the {card.precision} graph of each picture alone" if card.calibration else _COMPARED_WITH[card.source]
    for output, values in model.sidecar.parity.items():
        say(
            f"parity: {output} differ from {source} by at most {values['max_abs_difference']:.2g} "
            f"where the largest is {values['max_abs_value']:.3g}"
        )
    for path, meaning in (
        (model.graph, f"input {card.input}, batch {config.batch_size}, {card.precision}"),
        *([] if card.fixed_batch else [(folder / "model.onnx", "free batch")]),
        (folder / card.external_data, "weights, shared by all graphs here"),
        (folder / "card.json", f"recipe, {len(card.labels) or 'no'} labels, licence: {card.licence}"),
    ):
        say(f"{size_text(path.stat().st_size):>10}  {path}  ({meaning})")
    if card.weights.is_random:
        say("warning: random weights: use them only to measure throughput, the answers are meaningless")
    save = "" if card.classified else next(iter(card.outputs))
    say(f"next: {next_command(config, card.name, card.weights.is_random, save)}")


def _pictures(facts: Calibration) -> str:
    """The pictures that calibrated or judged a variant."""
    if facts["calibrated"]:
        return f", {facts['calibrated']} pictures to calibrate"
    return f", {facts['held_out']} pictures to judge" if facts["pictures_sha256"] else ", judged on the golden pictures only"


def next_command(config: GetModelConfig, name: str, is_random: bool, save: str = "") -> str:
    """The infer_launch command to type next; `save` is the output to save of a network without classes."""
    from bulkinfer.runtime.providers import PROVIDERS

    words = ["infer_launch", "--model_name", name, "--batch_size", str(config.batch_size)]
    if config.precision != EXACT:
        words += ["--precision", config.precision]
        runs_on = [name for name, provider in PROVIDERS.items() if config.precision in provider.variants]
        words += ["--device", *runs_on] if len(runs_on) == 1 else []
    if Path(config.model_path) != Path("models"):
        words += ["--model_path", config.model_path]
    words += ["--save", save] if save else []
    words += ["--synthetic"] if is_random else ["--data_dir", config.calibration_dir or known_pictures() or "PHOTOS"]
    return explained(" ".join(map(shell_word, words)))

"""Networks that were not trained here, for `bulkinfer validate`: with published weights from the zoo, or with random ones.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bulkinfer import zoo
from bulkinfer.datasets.folders import BY_NAME
from bulkinfer.datasets.types import ArrayPictures
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import public
from bulkinfer.model.card import RANDOM_WEIGHTS
from bulkinfer.model.recipe import Recipe
from bulkinfer.train.compat.network_spelling import spelled
from bulkinfer.train.data.opening import read_split, samples_of, with_data_found
from bulkinfer.train.data.recipes import recipe_for
from bulkinfer.train.data.samples import Samples
from bulkinfer.train.data.which import FAKE
from bulkinfer.train.network.network_names import find_trainable, image_size
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.update.step import Precision
from bulkinfer.train.validation.classes import RelabelledSamples, class_positions
from bulkinfer.train.validation.options import ValidateConfig
from bulkinfer.train.validation.scores import Scores, evaluate
from bulkinfer.zoo import state_dict, weights

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True, slots=True)
class Subject:
    """A network in evaluation mode, how its pictures are prepared, and the validation pictures."""

    name: str
    network: nn.Module
    recipe: Recipe
    held_out: Samples


class _Outputs(nn.Module):
    """The network as evaluate() needs it: takes RGB, returns N x K."""

    def __init__(self, network: nn.Module, *, is_bgr: bool) -> None:
        super().__init__()
        self.network, self._is_bgr = network, is_bgr

    def forward(self, images_NCHW: Tensor) -> Tensor:
        logits: Tensor = self.network(images_NCHW.flip(1) if self._is_bgr else images_NCHW)
        return logits.flatten(1)


def open_subject(config: ValidateConfig) -> Subject:
    """The network that --model names and the validation pictures of --data_dir.

    Raises UsageError if they do not fit together, RunError or DownloadError if the weights are not available.
    """
    if config.dataset.lower() in FAKE:
        raise UsageError(f"--dataset {config.dataset} has random labels: --generated_data measures the speed")
    name, is_of_zoo = resolve(config)
    is_random = config.weights == RANDOM_WEIGHTS or not is_of_zoo
    if is_random and config.weights not in ("auto", RANDOM_WEIGHTS):
        raise UsageError(
            f"--weights {public(config.weights)}: {name} is not in get_model --list; give what a run has trained as PATH"
        )
    options = TrainConfig(dataset=config.dataset, data_dir=config.data_dir, device=config.device,
                          num_workers=config.num_workers, cache_mb=config.cache_mb, download=is_random,
                          on_bad_picture=config.on_bad_picture, image_column=config.image_column,
                          label_column=config.label_column)  # fmt: skip
    options = with_data_found(options)
    return _random(name, config, options) if is_random else _published(name, config, options)


def resolve(config: ValidateConfig) -> tuple[str, bool]:
    """The network that --model and --model_size name, and whether it is one of those with published weights."""
    name = spelled(config.model, config.model_size)
    try:
        return zoo.find(name)[0], True
    except UsageError:
        return find_trainable(name), False


def network_for_speed(config: ValidateConfig) -> tuple[str, nn.Module, int]:
    """Name, network with random weights, and side of its pictures. A network that can be trained is preferred to the zoo's."""
    name, is_of_zoo = resolve(config)
    try:
        name = find_trainable(name)
    except UsageError:
        assert is_of_zoo, "resolve() has looked"
        spec = zoo.find(name)[1]
        return name, zoo.build(name), config.image_size or spec.recipe.height
    return name, build(NetworkOptions(name, 1000)).eval(), config.image_size or image_size(name)


def _random(name: str, config: ValidateConfig, options: TrainConfig) -> Subject:
    """A network with random weights, for the classes of the pictures."""
    name = find_trainable(name)
    pictures = read_split(options, "valid", BY_NAME)
    log.info(f"warning: {name}: RANDOM weights, its answers mean nothing; get_model --list prints the networks with weights")
    recipe = recipe_for(options.dataset, config.image_size or image_size(name), whole=isinstance(pictures, ArrayPictures))
    torch.manual_seed(0)
    network = build(NetworkOptions(name, len(pictures.class_names))).eval()
    return Subject(name, network, recipe, samples_of(pictures, recipe, options, None))


def _published(name: str, config: ValidateConfig, options: TrainConfig) -> Subject:
    """A network of the zoo with its weights, and pictures labelled with its classes."""
    if options.dataset != "folder":
        raise UsageError(
            f"the classes of {name} are not those of {options.dataset}: give --data_dir D with pictures in class folders "
            "in D/val, or --weights random"
        )
    network, recipe = _load_from_zoo(name, config)
    pictures = read_split(options, "valid", BY_NAME)
    names = zoo.labels(name)
    with torch.inference_mode():
        num_classes = network(torch.zeros(1, 3, recipe.height, recipe.width)).shape[1]
    positions = class_positions(pictures.class_names, names, num_classes)
    shown = names or tuple(map(str, range(num_classes)))
    held_out = RelabelledSamples(samples_of(pictures, recipe, options, None), positions[pictures.labels], shown)
    return Subject(name, network, recipe, held_out)


def _load_from_zoo(name: str, config: ValidateConfig) -> tuple[nn.Module, Recipe]:
    """The network with its weights, and its recipe."""
    name, spec = zoo.find(name)
    if not spec.has_classes:
        raise UsageError(f"--model: {name} gives an embedding, not classes: there is nothing to compare with labels")
    if config.image_size not in (0, spec.recipe.height):
        raise UsageError(f"--image_size {config.image_size}: {name} with its weights is for {spec.recipe.height} pixels")
    request = weights.Request(name, spec, config.weights, "", Path(config.model_path) / weights.CACHE)
    found = weights.find(request)
    assert found.path is not None, "random weights do not come here"
    network = zoo.build(name)
    state_dict.load(network, found.path, zoo.adapter(name))
    log.info(f"{name}: weights {found.path.name} ({found.origin})")
    return _Outputs(network, is_bgr=spec.recipe.channels == "BGR").eval(), spec.recipe


def validate_subject(subject: Subject, *, batch_size: int, precision: Precision, device: torch.device) -> Scores:
    """The scores of a network; every picture counts once."""
    recipe = subject.recipe
    std = [1 / (255 * scale) for scale in recipe.scale]
    mean = [-offset * each for offset, each in zip(recipe.offset, std, strict=True)]
    if recipe.channels == "BGR":  # recipes have the order of the network's channels; pictures are RGB
        mean, std = mean[::-1], std[::-1]
    network = subject.network.to(device, precision.weights).to(memory_format=torch.channels_last)
    return evaluate(
        network,
        subject.held_out,
        batch_size=batch_size,
        precision=precision,
        mean=torch.tensor(mean, device=device),
        std=torch.tensor(std, device=device),
    )

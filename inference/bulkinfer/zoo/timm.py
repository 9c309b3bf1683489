"""Any network of the package timm, as `timm:NAME`: its facts come from timm's own record of the pretrained weights."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bulkinfer.errors import RunError, UsageError
from bulkinfer.model.recipe import Recipe
from bulkinfer.zoo.spec import IMAGENET_LABELS, NetworkSpec

if TYPE_CHECKING:
    import torch

_CLASSES_IN_TAG = re.compile(r"in\d+k")  # of ImageNet, such as in12k_ft_in1k

PREFIX = "timm"  # before a colon where people write it, before an underscore in names of folders


def spec(architecture: str) -> NetworkSpec:
    """The facts of a network of timm, named with or without tag. Raises UsageError if it is unknown or no recipe fits it."""
    import timm

    try:
        facts = timm.get_pretrained_cfg(architecture) if timm.is_model(architecture) else None
    except RuntimeError:  # the name is known, the tag is not
        facts = None
    if facts is None:
        known = [*timm.list_models(), *timm.list_models(pretrained=True)]
        near = ", ".join(f"{PREFIX}:{name}" for name in difflib.get_close_matches(architecture, known, 3, 0))
        raise UsageError(f"--model_name: timm {timm.__version__} has no network {architecture!r}; nearest are {near}")
    full_name = f"{facts.architecture}.{facts.tag}" if facts.tag else str(facts.architecture)
    urls = (str(facts.url),) if facts.url and not facts.hf_hub_id else ()
    sources = [
        str(facts.hf_hub_id or facts.url or "no published weights"),
        str(facts.origin_url or ""),
        str(facts.paper_ids or ""),
    ]
    return NetworkSpec(
        builder="bulkinfer.zoo.timm:build",
        architecture=full_name,
        recipe=recipe(full_name, facts),
        labels=IMAGENET_LABELS if _is_imagenet(facts) else "",
        num_parameters=0,
        licence=str(facts.license or "not stated"),
        origin=f"timm {full_name} ({', '.join(source for source in sources if source)})",
        weights_file=urls[0].rpartition("/")[2] if urls else f"{PREFIX}_{full_name}.safetensors",
        hub=str(facts.hf_hub_id or ""),
        urls=urls,
        adapter="bulkinfer.zoo.timm:adapt",
        has_classes=not is_embedding(full_name, facts),
        test_recipe=_test_recipe(full_name, facts),
    )


def _is_imagenet(facts: Any) -> bool:
    """Whether the classes are those of ImageNet-1k: a thousand, and the tag of the weights does not say otherwise."""
    return facts.num_classes == 1000 and not facts.label_names and (not facts.tag or "in1k" in facts.tag)


def is_embedding(name: str, facts: Any) -> bool:
    """Whether the output describes a picture instead of classifying it: no classifier, or the head of a CLIP network.

    timm calls the width of such a head its number of classes. Where a CLIP network was fine-tuned, its tag names the classes.
    """
    is_clip = "clip" in name or "_pe_core_" in name
    return not facts.num_classes or (is_clip and not _CLASSES_IN_TAG.search(facts.tag or ""))


def _test_recipe(name: str, facts: Any) -> Recipe | None:
    """The recipe of the size at which the authors test, as timm has it with use_test_size; None if there is no such size."""
    if not facts.test_input_size and not facts.test_crop_pct:
        return None
    size, fraction = facts.test_input_size or facts.input_size, facts.test_crop_pct or facts.crop_pct
    return recipe(name, replace(facts, input_size=size, crop_pct=fraction))


def recipe(name: str, facts: Any) -> Recipe:
    """timm's evaluation transform for its record `facts`. Raises UsageError for a rule that a recipe cannot express."""
    channels, height, width = facts.input_size
    crop_mode, crop_fraction = facts.crop_mode or "center", facts.crop_pct or 0.875
    for is_so, reason in (
        (channels != 3, f"takes {channels} channels, pictures have 3"),
        (height != width, f"takes {width} x {height} pixels, which are not square"),
        (crop_mode not in ("center", "squash"), f"wants pictures with crop mode {crop_mode}, which no recipe expresses"),
    ):
        if is_so:
            raise UsageError(f"--model_name {PREFIX}:{name} {reason}; it cannot be used here")
    return Recipe(
        height=height,
        width=width,
        resize="exact" if crop_mode == "squash" else "short_side",
        resize_size=math.floor(height / crop_fraction),
        crop_fraction=crop_fraction,
        interpolation=facts.interpolation or "bilinear",
        mean=tuple(facts.mean),
        std=tuple(facts.std),
    )


def build(architecture: str) -> torch.nn.Module:
    """Build the network, untrained, with the layers that timm has for export.

    It takes float32 N x 3 x H x W, and gives N x classes logits or an embedding N x D.
    """
    import timm

    network: torch.nn.Module = timm.create_model(architecture, pretrained=False, exportable=True)
    return network


def adapt(architecture: str, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tensors of a published file under the names that timm uses today; timm knows how its names have changed.

    Raises RunError if they do not fit.
    """
    import timm

    if not state:
        raise RunError(f"there are no tensors for timm's {architecture}")  # without any, timm would fetch its own
    try:
        network = timm.create_model(architecture, pretrained=True, pretrained_cfg_overlay={"state_dict": dict(state)})
    except (RuntimeError, KeyError, AttributeError, ValueError, TypeError) as error:
        lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
        raise RunError(f"the weights do not fit timm's {architecture}: {' '.join(lines[:2])[:300]}") from error
    return dict(network.state_dict())

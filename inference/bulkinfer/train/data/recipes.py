"""How pictures for training and validation are prepared: their statistics and recipe."""

from __future__ import annotations

from bulkinfer.model.recipe import Recipe

STATISTICS = {  # mean and standard deviation of the training pictures, in 0..1
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "mnist": ((0.1307,) * 3, (0.3081,) * 3),
    "fashion_mnist": ((0.2860,) * 3, (0.3530,) * 3),
    "digits": ((0.3053,) * 3, (0.3760,) * 3),
}
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def recipe_for(dataset: str, size: int, *, whole: bool) -> Recipe:
    """How serving and validation prepare a picture: with `whole` it is resized to size x size, else its centre is cut out."""
    mean, std = STATISTICS.get(dataset, _IMAGENET)
    short_side = size if whole else round(size / 0.875)
    return Recipe(
        height=size,
        width=size,
        resize="exact" if whole else "short_side",
        resize_size=short_side,
        crop_fraction=size / short_side,
        interpolation="bilinear",
        mean=mean,
        std=std,
    )

"""What a recipe makes of black and white: numbers that are legal one by one may be impossible together."""

from __future__ import annotations

import logging

from bulkinfer.model.recipe import Recipe

log = logging.getLogger("bulkinfer")

_LEAST, _MOST = 0.2 * (1 - 1e-9), 300.0 * (1 + 1e-9)  # of white minus black: networks take 1 to 10, or 255 for plain pixels


def log_input_range(recipe: Recipe) -> None:
    """Log what black and white become, and a warning if no network can be made for that.

    mean 127 and std 128 belong to pixels of 0 to 255; with values of 0 to 1 every picture would be the same grey.
    """
    black, white = recipe.black_and_white
    log.info(f"after normalisation black is {_listed(black)} and white {_listed(white)} ({', '.join(recipe.channels)})")
    span = [abs(high - low) for low, high in zip(black, white, strict=True)]
    odd = min(span) if min(span) < _LEAST else max(span)
    if not _LEAST <= odd <= _MOST:
        log.warning(
            f"warning: after normalisation white minus black is {odd:.3g}, where networks take 1 to 10, or 255 for plain "
            "pixels: mean, std and value_range of the recipe seem not to belong together (mean and std of pixels need "
            "value_range [0, 255], those of values up to 1 need [0, 1])"
        )


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)

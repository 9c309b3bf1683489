"""train/validation/networks.py: pictures as the recipe prepares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from bulkinfer import zoo
from bulkinfer.images.preprocess import normalise
from bulkinfer.train.data.samples import Work
from bulkinfer.train.update.step import Precision
from bulkinfer.train.validation.networks import Subject, _Outputs, validate_subject


class Pictures:
    """Two random pictures, each of its own class."""

    labels, class_names = np.array([0, 1]), ("x", "y")

    def move_to(self, device: torch.device) -> None:
        """They are where they are."""

    def __init__(self, images_NHWC: np.ndarray) -> None:
        self._images_NHWC = torch.from_numpy(images_NHWC)

    def batches(self, work: Iterable[Work]) -> Iterator[tuple[Work, torch.Tensor]]:
        for item in work:
            yield item, self._images_NHWC[torch.from_numpy(item.samples)]


class Seen(torch.nn.Module):
    """Keeps what it gets; says class 1 to everything, as N x K x 1 x 1."""

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        self.images_NCHW = images_NCHW
        return torch.tensor([0.0, 1.0]).expand(len(images_NCHW), 2)[:, :, None, None]


@pytest.mark.parametrize("channels", ["RGB", "BGR"])
def test_pictures_come_as_the_recipe_says(channels: str) -> None:
    lite = zoo.NETWORKS["efficientnet_lite0"].recipe
    recipe = replace(
        lite, channels=channels, value_range=(-1.0, 255.0), mean=(10.0, 20.0, 30.0), std=(2.0, 3.0, 5.0), height=8, width=8
    )
    images_NHWC = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    seen = Seen()
    subject = Subject("x", _Outputs(seen, is_bgr=channels == "BGR"), recipe, Pictures(images_NHWC))
    scores = validate_subject(subject, batch_size=2, precision=Precision("32.32", "cpu"), device=torch.device("cpu"))
    assert (scores.count, scores.top1) == (2, 1)
    np.testing.assert_allclose(seen.images_NCHW.numpy(), normalise(images_NHWC, recipe), rtol=1e-5, atol=1e-4)

"""train/validation/networks.py: folders and classes, and pictures as the recipe prepares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from bulkinfer import zoo
from bulkinfer.errors import UsageError
from bulkinfer.images.preprocess import normalise
from bulkinfer.train.data.samples import Work
from bulkinfer.train.step import Precision
from bulkinfer.train.validation.networks import Subject, _Outputs, class_positions, validate_subject


@pytest.mark.parametrize(
    ("folders", "classes", "count", "found"),
    [
        (("a", "b", "c"), (), 3, [0, 1, 2]),
        (("a", "b", "c"), ("b", "c", "a"), 3, [2, 0, 1]),
        (("n01", "n02", "n03"), ("b", "c", "a"), 3, [0, 1, 2]),
        (("10", "2"), (), 11, [10, 2]),
        (("0", "2", "1"), (), 3, [0, 2, 1]),
        (("cat", "dog"), ("dog", "cow", "cat"), 3, [2, 0]),
    ],
)
def test_which_class_a_folder_is(folders: tuple[str, ...], classes: tuple[str, ...], count: int, found: list[int]) -> None:
    assert class_positions(folders, classes, count).tolist() == found


@pytest.mark.parametrize(("folders", "count"), [(("cat", "dog"), 3), (("0", "3"), 3), (("a", "b"), 1)])
def test_folders_that_are_no_classes(folders: tuple[str, ...], count: int) -> None:
    with pytest.raises(UsageError, match=f"are in 2 class folders, and the network has {count} classes: name the folders"):
        class_positions(folders, ("cow", "dog")[:count], count)


def test_a_name_of_two_classes() -> None:
    with pytest.raises(UsageError, match="crane is the name of two classes: name the folders by number"):
        class_positions(("crane", "dog"), ("crane", "dog", "crane"), 3)


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

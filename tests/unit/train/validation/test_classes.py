"""train/validation/classes.py: which class a folder is, for a network of the zoo and for the checkpoints of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.data.samples import CachedSamples, Work
from bulkinfer.train.validation.classes import class_positions, relabelled

from tests.logged import logged


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


def test_c45_folders_named_by_wordnet_ids() -> None:
    """The ten classes of imagenette, and one that ImageNet-1k lacks."""
    nette = (
        "n01440764",
        "n02102040",
        "n02979186",
        "n03000684",
        "n03028079",
        "n03394916",
        "n03417042",
        "n03425413",
        "n03445777",
    )
    assert class_positions(nette, ("tench",) * 1000, 1000).tolist() == [0, 217, 482, 491, 497, 566, 569, 571, 574]
    assert class_positions(nette, (), 1000)[-1] == 574, "also where the names of the classes are not known"
    with pytest.raises(UsageError, match="no classes are n00000001"):
        class_positions((*nette, "n00000001"), (), 1000)
    with pytest.raises(UsageError, match="the network has 1001 classes"):
        class_positions(nette, (), 1001)


@pytest.mark.parametrize(("folders", "count"), [(("cat", "dog"), 3), (("0", "3"), 3), (("a", "b"), 1)])
def test_folders_that_are_no_classes(folders: tuple[str, ...], count: int) -> None:
    with pytest.raises(UsageError, match=f"are in 2 class folders, and the network has {count} classes: name the folders"):
        class_positions(folders, ("cow", "dog")[:count], count)


def test_a_name_of_two_classes() -> None:
    with pytest.raises(UsageError, match="crane is the name of two classes: name the folders by number"):
        class_positions(("crane", "dog"), ("crane", "dog", "crane"), 3)


def test_c43_an_extra_folder_is_named_and_a_missing_one_noted() -> None:
    with pytest.raises(UsageError, match="no classes are ox"):
        class_positions(("cat", "dog", "ox"), ("dog", "cow", "cat"), 3)
    with pytest.raises(UsageError, match="no classes are 1000"):
        class_positions(("999", "1000"), (), 1000)
    said: list[str] = []
    assert logged(said, class_positions, ("cat", "dog"), ("dog", "cow", "cat"), 3).tolist() == [2, 0]
    assert said == ["note: 1 of the 3 classes of the network have no class folder"]


def of_classes(*names: str, labels: tuple[int, ...]) -> CachedSamples:
    images = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 2, 2, 3)
    return CachedSamples(images, np.array(labels), names)


def test_c43_pictures_of_a_run_by_the_names_of_its_classes() -> None:
    said: list[str] = []
    found = logged(said, relabelled, of_classes("dog", "ant", "bee", labels=(0, 2, 0)), ["ant", "bee", "cat", "dog"], "D")
    assert (found.class_names, found.labels.tolist()) == (("ant", "bee", "cat", "dog"), [3, 1, 3])
    assert said == ["warning: D has no pictures of 2 of the 4 classes: ant, cat"]
    assert [images[0, 0, 0, 0].tolist() for _, images in found.batches([Work(0, None, np.array([1]))])] == [1]
    with pytest.raises(UsageError, match="D: the run was trained on other classes: it does not know dog"):
        relabelled(of_classes("ant", "dog", labels=(1,)), ["ant", "bee"], "D")
    same = of_classes("ant", "bee", labels=(0, 1))
    assert relabelled(same, ["ant", "bee"], "D") is same

"""Class folders of validation pictures -> numbers of the classes that a network knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bulkinfer.datasets import imagenet
from bulkinfer.errors import UsageError
from bulkinfer.train.data.draws import Integers
from bulkinfer.train.data.samples import Samples, Work
from bulkinfer.types import printable

log = logging.getLogger("bulkinfer")


@dataclass(slots=True)
class RelabelledSamples:
    """Samples whose labels are numbers of the network's classes."""

    samples: Samples
    labels: np.ndarray
    class_names: tuple[str, ...]

    def move_to(self, device: torch.device) -> None:
        self.samples.move_to(device)

    def batches(self, work: Iterable[Work]) -> Iterator[tuple[Work, Tensor]]:
        return self.samples.batches(work)

    def faults(self, samples: Integers) -> Iterator[str]:
        return self.samples.faults(samples)

    def digest(self) -> str:
        return self.samples.digest()


def relabelled(samples: Samples, class_names: Sequence[str], where: str) -> Samples:
    """Validation pictures with the classes of a run, `class_names`, whatever the order of their own.

    A warning names the classes without pictures. Raises UsageError for pictures of a class that the run does not know.
    """
    used = [samples.class_names[label] for label in np.unique(samples.labels)]
    if unknown := [name for name in used if name not in class_names]:
        raise UsageError(f"{where}: the run was trained on other classes: it does not know {_first(unknown)}")
    if missing := [name for name in class_names if name not in used]:
        log.warning(f"warning: {where} has no pictures of {len(missing)} of the {len(class_names)} classes: {_first(missing)}")
    if samples.class_names == tuple(class_names):
        return samples
    numbers = {name: number for number, name in enumerate(class_names)}
    positions = np.array([numbers.get(name, -1) for name in samples.class_names])
    return RelabelledSamples(samples, positions[samples.labels], tuple(class_names))


def class_positions(folders: tuple[str, ...], class_names: tuple[str, ...], num_classes: int) -> np.ndarray:
    """For each class folder, the number of its class in the network's outputs.

    Folders are named by class numbers from 0, by class names, or, where there are 1000 classes, by WordNet ids of ImageNet.
    Otherwise there must be one for each class, in the order of the classes; a note says so. A note names classes without a
    folder. Raises UsageError if none of these holds, naming the folders that are no class where others are, or if two classes
    have the name of a folder; RunError if the package with the ids is needed and not installed.
    """
    if all(folder.isdecimal() and int(folder) < num_classes for folder in folders):
        _note_missing(len({int(folder) for folder in folders}), num_classes)
        return np.array([int(folder) for folder in folders])
    if len(folders) < num_classes == imagenet.NUM_CLASSES and imagenet.are_wnids(folders):
        class_names = imagenet.wnids()
    numbers = {name: number for number, name in enumerate(class_names)}
    if all(folder in numbers for folder in folders):
        _note_missing(len(folders), num_classes)
        if twice := [folder for folder in folders if class_names.count(folder) > 1]:
            raise UsageError(f"{twice[0]} is the name of two classes: name the folders by number of class, from 0")
        return np.array([numbers[folder] for folder in folders])
    are_numbers = all(folder.isdecimal() for folder in folders)
    unknown = [folder for folder in folders if (int(folder) >= num_classes if are_numbers else folder not in numbers)]
    if len(folders) == num_classes and (are_numbers or len(unknown) == len(folders)):
        log.info(f"note: the {num_classes} class folders are taken as the classes in order: {folders[0]} is class 0")
        return np.arange(num_classes)
    raise UsageError(
        f"the pictures are in {len(folders)} class folders, and the network has {num_classes} classes: name the folders "
        f"by number of class, from 0, or by name, or have one for each class; no classes are {_first(unknown)}"
    )


def _note_missing(there: int, num_classes: int) -> None:
    if there < num_classes:
        log.info(f"note: {num_classes - there} of the {num_classes} classes of the network have no class folder")


def _first(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name.encode("utf-8", "surrogateescape")) for name in names[:5])
    return shown + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")

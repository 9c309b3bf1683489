"""The data of a run: finds or fetches them, reads them, and decides how pictures are prepared and augmented."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from bulkinfer.datasets import find_reader, read_dataset
from bulkinfer.datasets.catalog import SETS
from bulkinfer.datasets.fetch import Request, folder_of, get_dataset
from bulkinfer.datasets.types import ArrayPictures, FilePictures
from bulkinfer.errors import UsageError
from bulkinfer.host.cores import core_budget
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.archives.archive_dataset import wanted_columns
from bulkinfer.train.compat.network_spelling import spelled
from bulkinfer.train.data.made_up import generated_samples, synthetic_samples
from bulkinfer.train.data.options import training_data_dir
from bulkinfer.train.data.recipes import STATISTICS, recipe_for
from bulkinfer.train.data.samples import Samples, array_samples, file_samples
from bulkinfer.train.data.which import FAKE, dataset_of
from bulkinfer.train.defaults import default_model
from bulkinfer.train.network.network_names import find_trainable, image_size
from bulkinfer.train.options import TrainConfig
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")

_SMALL = 64  # pixels: pictures up to this side are flipped and shifted, larger ones are cropped and resized
_DIGITS = ("mnist", "digits")  # a mirrored digit is no longer that digit


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How training pictures are augmented: mirrored, shifted by up to `pad` pixels, or cropped to a share of `crop_area`."""

    flip: bool = False
    pad: int = 0
    crop_area: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """The data sets of a run, and how their pictures are prepared."""

    name: str
    train: Samples
    held_out: Samples | None
    recipe: Recipe
    augmentation: Augmentation

    @property
    def size(self) -> int:
        """Side of the network's input, in pixels."""
        return self.recipe.height


def with_data_found(config: TrainConfig) -> TrainConfig:
    """The options with the name of the data set and the absolute path of --data_dir: a resume works from any folder.

    Fetches a small set that is missing, unless --nodownload is given. Raises UsageError for an unknown data set or network.
    """
    place = Path(training_data_dir(config.data_dir))
    name = dataset_of(config.dataset, config.data_dir)
    found = replace(config, dataset=name, data_dir=os.path.abspath(place))
    model_of(found)  # an unknown name is reported before anything is fetched
    if name in SETS and config.download and not find_reader(name).holds(place) and not folder_of(name, place):
        if config.dry_run:
            command = f"bulkinfer get_dataset {shell_word(name)} --data_dir {shell_word(place)}"
            raise UsageError(f"{name} is not in {place}, and --dry_run fetches nothing: run {command} first")
        get_dataset(Request(name, place))
    return found


def model_of(config: TrainConfig) -> str:
    """The name of the network, from any spelling; --model_size alone may name a family as well."""
    model = config.model or ("" if config.model_size else default_model(config.dataset))
    return find_trainable(spelled(model, config.model_size, config.dataset in STATISTICS))


def augmentation_of(config: TrainConfig, size: int) -> Augmentation:
    """What --augment means for pictures of `size` pixels. Raises UsageError for a wrong --crop_area."""
    kind = config.augment
    if kind == "auto":
        kind = "flip_crop" if size <= _SMALL else "resized_crop"
    flip = kind != "none" and not (config.augment == "auto" and config.dataset in _DIGITS)
    return Augmentation(
        flip, pad=size // 8 if kind == "flip_crop" else 0, crop_area=_area(config.crop_area) if kind == "resized_crop" else None
    )


def _area(words: tuple[str, ...]) -> tuple[float, float]:
    try:
        least, most = map(float, words)
    except ValueError:
        least, most = 0.0, 0.0
    if not 0 < least <= most <= 1:
        raise UsageError(f"--crop_area {' '.join(words)}: two numbers above 0 and up to 1 are needed, the smaller one first")
    return least, most


def open_data(config: TrainConfig, size: int = 0) -> Data:
    """Read the data set; `config` comes from with_data_found().

    Raises UsageError or RunError if the set is missing or broken.
    """
    size = config.image_size or size or image_size(model_of(config))
    augmentation = augmentation_of(config, size)
    if config.dataset in FAKE:
        recipe = recipe_for(config.dataset, size, whole=True)
        make = generated_samples if config.dataset == "generated" else synthetic_samples
        augmentation = replace(augmentation, crop_area=None) if config.dataset == "generated" else Augmentation()
        return Data(config.dataset, make(size, config.seed), None, recipe, augmentation)
    if config.use_boxes and augmentation.crop_area is None:
        raise UsageError("--use_boxes chooses the parts that --augment resized_crop cuts out: give that, or leave it out")
    pictures = read_split(config, "train", with_boxes=config.use_boxes)
    recipe = recipe_for(config.dataset, size, whole=isinstance(pictures, ArrayPictures))
    held_out = None if config.validation == "none" else samples_of(read_split(config, "valid"), recipe, config, None)
    return Data(config.dataset, samples_of(pictures, recipe, config, augmentation.crop_area), held_out, recipe, augmentation)


def open_held_out(config: TrainConfig, recipe: Recipe) -> Samples:
    """The validation pictures, prepared by a recipe. Raises UsageError if the data set has none."""
    if config.dataset in FAKE:
        raise UsageError(f"the run was trained on {config.dataset} pictures: it has no validation pictures")
    return samples_of(read_split(config, "valid"), recipe, config, None)


def read_split(
    config: TrainConfig, split: str, class_order: str = "", *, with_boxes: bool = False
) -> ArrayPictures | FilePictures:
    """Read the pictures of a split ("train" or "valid"), by default in the class order of the options.

    Raises UsageError if they are missing or broken.
    """
    folder = place = Path(config.data_dir)
    if config.dataset in SETS and not place.exists():
        command = f"bulkinfer get_dataset {shell_word(config.dataset)} --data_dir {shell_word(place)}"
        raise UsageError(f"{place} does not exist: {command} fills it")
    if config.dataset in SETS and not find_reader(config.dataset).holds(place):
        folder = folder_of(config.dataset, place) or place
    class_order = class_order or config.class_order
    columns = wanted_columns(config.image_column, config.label_column)
    return read_dataset(config.dataset, folder, split, class_order=class_order, with_boxes=with_boxes, columns=columns)


def samples_of(
    pictures: ArrayPictures | FilePictures, recipe: Recipe, config: TrainConfig, crop_area: tuple[float, float] | None
) -> Samples:
    """Samples of these pictures, from memory or read by threads."""
    threads = config.num_workers or core_budget().usable
    if isinstance(pictures, ArrayPictures):
        cache_bytes = config.cache_mb * 1_000_000
        return array_samples(
            pictures, recipe, cache_bytes=cache_bytes, num_threads=threads, seed=config.seed, crop_area=crop_area
        )
    return file_samples(
        pictures,
        recipe,
        num_threads=threads,
        seed=config.seed,
        crop_area=crop_area,
        skips_bad=config.on_bad_picture == "skip",
    )

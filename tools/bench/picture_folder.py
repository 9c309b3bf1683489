"""A folder of as many JPEGs as a measurement needs: links to those of another folder, again and again."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps

_ORIENTATION = 274  # tag of EXIF
_MAX_DIFFERENT = 2000  # spread evenly over the folder
_SIZE = 640, 480
_SUFFIXES = (".jpg", ".jpeg")


def usable_jpegs(folder: Path) -> tuple[list[Path], int]:
    """JPEGs that every contestant reads alike, and how many were left out.

    Left out are those that do not open, and those that their EXIF data says to turn: not every peer turns them.
    """
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    found = found[:: max(1, -(-len(found) // _MAX_DIFFERENT))]
    usable = [path.resolve() for path in found if _is_plain(path)]
    if not usable:
        raise SystemExit(f"--data_dir {folder}: there are no JPEGs (*.jpg, *.jpeg) in it that all peers read alike")
    return usable, len(found) - len(usable)


def _is_plain(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return image.format == "JPEG" and image.getexif().get(_ORIENTATION, 1) == 1
    except OSError:
        return False


def fill(folder: Path, pictures: list[Path], count: int) -> Path:
    """Make `folder` with `count` links, 000000.jpg and so on; returns it."""
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:06d}.jpg").symlink_to(pictures[number % len(pictures)])
    return folder


def of_one_size(folder: Path, pictures: list[Path]) -> Path:
    """Make `folder` with a JPEG of 640x480 for each picture, as most data sets for training have them; returns it.

    Scaled and cut around the middle, quality 90, 4:2:0. So decoding costs the same per picture whatever the photographs were.
    """
    folder.mkdir(parents=True)
    for number, path in enumerate(pictures):
        with Image.open(path) as image:
            fitted = ImageOps.fit(image.convert("RGB"), _SIZE, Image.Resampling.BICUBIC)
        fitted.save(folder / f"{number:06d}.jpg", quality=90, subsampling="4:2:0")
    return folder

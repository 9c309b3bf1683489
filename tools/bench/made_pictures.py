"""A folder of made-up JPEGs, for measurements on a machine without photographs. A folder that is there is left as it is.

python tools/bench/made_pictures.py FOLDER [--count 64] [--size 640 480]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from footprint import jpeg


def main() -> None:
    """Make the pictures, and the folder last: it is there as a whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--size", type=int, nargs=2, default=(640, 480), help="width and height in pixels")
    given = parser.parse_args()
    if given.folder.exists():
        print(f"{given.folder} is there")
        return
    making = given.folder.with_name(f"{given.folder.name}.making")
    making.mkdir(parents=True, exist_ok=True)
    for number in range(given.count):
        (making / f"{number:06d}.jpg").write_bytes(jpeg(*given.size, number))
    making.rename(given.folder)
    print(f"{given.folder}: {given.count} pictures")


if __name__ == "__main__":
    main()

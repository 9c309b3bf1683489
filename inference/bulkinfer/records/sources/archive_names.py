"""The names of archives: files that hold many pictures."""

from __future__ import annotations

import os
import re

COMPRESSED = "compressed"  # in place of a kind
INDEX_FILE = ".bulkinfer-index.parquet"  # what bulkinfer keeps beside archives

_ENDS = {
    b".tar": "tar", b".zip": "zip", b".tfrecord": "tfrecord", b".tfrecords": "tfrecord", b".tfrec": "tfrecord",
    b".parquet": "parquet", b".parq": "parquet", b".arrow": "arrow", b".feather": "arrow", b".ipc": "arrow",
}  # fmt: skip
_TAR_GZ = (b".tar.gz", b".tgz")
_COMPRESSED = re.compile(rb"(?P<bare>.+)\.(?:gz|bz2|xz|zst)|.+\.(?:tgz|tbz2|txz)", re.DOTALL | re.IGNORECASE)
# One of a set, as TensorFlow names them: train-00000-of-01024, x.tfrecord-00000-of-00010, x-00000-of-00012.tar, and with .gz.
COUNTED = re.compile(rb"(?P<stem>.+[-_.])(?P<number>[0-9]{5,})-of-(?P<count>[0-9]{5,})(?P<end>\.[a-z]+(?:\.gz)?)?", re.DOTALL)


# What bulkinfer writes: rows, manifests, times, indexes. Such files hold no pictures, wherever they lie.
_OWN = re.compile(rb"(?:part-[0-9]{5,}-[0-9]{10,}-[0-9]{10,}|manifest(?:-[0-9]{5,})?|_.*)\.parquet|\.bulkinfer-index.*")


def is_archive_name(name: str) -> bool:
    """Whether a file is called like an archive that can be read."""
    return kind_by_name(os.fsencode(name)) not in ("", COMPRESSED)


def kind_by_name(name: bytes) -> str:
    """The kind of an archive by the name of its file: of archives.KINDS, or COMPRESSED; empty if it is not called like an
    archive.

    Archives of TensorFlow often have no extension, as train-00000-of-01024.
    """
    lower = os.path.basename(name).lower()
    if _OWN.fullmatch(lower):
        return ""
    if lower.endswith(_TAR_GZ):
        return "tar.gz"
    if match := _COMPRESSED.fullmatch(lower):
        is_archive = match["bare"] is None or kind_by_name(match["bare"]) not in ("", COMPRESSED)
        return COMPRESSED if is_archive else ""
    for end, found in _ENDS.items():
        if lower.endswith(end):
            return found
    match = COUNTED.fullmatch(lower)
    return (kind_by_name(match["stem"].rstrip(b"-_.")) or "tfrecord") if match and match["end"] is None else ""

"""Data sets that can be fetched: where their files are published, their checksums, and their layout on disk."""

from __future__ import annotations

from dataclasses import dataclass

_CIFAR_HOST = "https://www.cs.toronto.edu/~kriz/"
_MNIST_HOSTS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
_FASHION_HOSTS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
_SLACK_BYTES = 16 << 20
_COCO_HOSTS = ("http://images.cocodataset.org/",)


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file to fetch: its path below the host, its size, and its possible checksums (md5 or sha256, in hex; none: unknown)."""

    path: str
    size_bytes: int
    checksums: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a set on disk: `folder` below --data_dir, with all of `contents`, which are files or folders in it.

    In an archive the contents lie together in any one folder. `extras` are kept if the archive has them.
    """

    folder: str
    contents: tuple[str, ...]
    extras: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """One data set: its hosts (the first that answers is used), its files, and its possible layouts.

    `unpacked_bytes` is about the size of all that an archive of the set holds. `are_archives`: the files are archives of the
    contents, not the contents themselves. `reader` is the name in READERS that must be able to read the set before it is
    published; empty if there is no reader.
    """

    hosts: tuple[str, ...]
    files: tuple[PublishedFile, ...]
    layouts: tuple[Layout, ...]
    unpacked_bytes: int
    are_archives: bool
    reader: str = ""

    @property
    def most_unpacked_bytes(self) -> int:
        """More than any archive of the set unpacks to; another form of it, or a file beside it, still fits."""
        return 2 * self.unpacked_bytes + _SLACK_BYTES

    def most_fetched_bytes(self, file: PublishedFile | None) -> int:
        """More than `file` has in any compression; for None, more than an archive of the whole set has."""
        size = file.size_bytes if file else max(self.unpacked_bytes, sum(each.size_bytes for each in self.files))
        return 2 * size + _SLACK_BYTES


def _idx_files(*facts: tuple[int, tuple[str, ...]]) -> tuple[PublishedFile, ...]:
    return tuple(PublishedFile(name, size, sums) for name, (size, sums) in zip(_IDX_NAMES, facts, strict=True))


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)

SETS = {
    "cifar10": PublishedSet(
        (_CIFAR_HOST,),
        (  # the second checksum is of the binary form
            PublishedFile(
                "cifar-10-python.tar.gz", 170_498_071, ("c58f30108f718f92721af3b95e74349a", "c32a1d4ab5d03f1284b67883e8d87530")
            ),
        ),
        (
            Layout("cifar-10-batches-py", (*_BATCHES, "test_batch"), ("batches.meta",)),
            Layout("cifar-10-batches-bin", (*(f"{name}.bin" for name in _BATCHES), "test_batch.bin"), ("batches.meta.txt",)),
        ),
        unpacked_bytes=187_000_000,
        are_archives=True,
        reader="cifar10",
    ),
    "cifar100": PublishedSet(
        (_CIFAR_HOST,),
        (
            PublishedFile(
                "cifar-100-python.tar.gz", 169_001_437, ("eb9058c3a382ffc7106e4002c42a8d85", "03b5dce01913d631647c71ecec9e9cb8")
            ),
        ),
        (
            Layout("cifar-100-python", ("train", "test"), ("meta",)),
            Layout("cifar-100-binary", ("train.bin", "test.bin"), ("fine_label_names.txt", "coarse_label_names.txt")),
        ),
        unpacked_bytes=187_000_000,
        are_archives=True,
        reader="cifar100",
    ),
    "mnist": PublishedSet(
        _MNIST_HOSTS,
        _idx_files(
            (9_912_422, ("f68b3c2dcbeaaa9fbdd348bbdeb94873",)),
            (28_881, ("d53e105ee54ea40749a09fcbcd1e9432",)),
            (1_648_877, ("9fb629c4189551a2d022fa330f9573f3",)),
            (4_542, ("ec29112dd5afa0611ce80d1b7f02629c",)),
        ),
        (Layout("mnist", _IDX_NAMES),),
        unpacked_bytes=67_000_000,
        are_archives=False,
        reader="mnist",
    ),
    "fashion_mnist": PublishedSet(
        _FASHION_HOSTS,
        _idx_files(  # the second checksum is of Debian's package, which compressed the files again
            (
                26_421_880,
                ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"),
            ),
            (29_515, ("25c81989df183df01b3e8a0aad5dffbe", "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056")),
            (
                4_422_102,
                ("bef4ecab320f06d8554ea6380940ec79", "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"),
            ),
            (5_148, ("bb300cfdad3c16e7a12a480ee83cd310", "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05")),
        ),
        (Layout("fashion_mnist", _IDX_NAMES),),
        unpacked_bytes=87_000_000,
        are_archives=False,
        reader="fashion_mnist",
    ),
    "coco_val2014": PublishedSet(
        _COCO_HOSTS,
        (
            PublishedFile("zips/val2014.zip", 6_645_013_297),
            PublishedFile("annotations/annotations_trainval2014.zip", 252_872_794),
        ),
        (Layout("coco_val2014", ("val2014",), ("annotations",)),),
        unpacked_bytes=7_600_000_000,
        are_archives=True,
    ),
}

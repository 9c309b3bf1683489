"""Data sets that can be fetched: where their files are published, their checksums, and their layout on disk."""

from __future__ import annotations

from dataclasses import dataclass

_CIFAR_HOST = "https://www.cs.toronto.edu/~kriz/"
_MNIST_HOSTS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
_FASHION_HOSTS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
_COCO_HOSTS = ("http://images.cocodataset.org/",)


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file to fetch: its path below the host, and its possible checksums (md5 or sha256, in hex; none: unknown)."""

    path: str
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

    `are_archives`: the files are archives of the contents, not the contents themselves. `reader` is the name in READERS that
    must be able to read the set before it is published; empty if there is no reader.
    """

    hosts: tuple[str, ...]
    files: tuple[PublishedFile, ...]
    layouts: tuple[Layout, ...]
    are_archives: bool
    reader: str = ""


def _idx_files(*checksums: tuple[str, ...]) -> tuple[PublishedFile, ...]:
    return tuple(PublishedFile(name, sums) for name, sums in zip(_IDX_NAMES, checksums, strict=True))


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
            PublishedFile("cifar-10-python.tar.gz", ("c58f30108f718f92721af3b95e74349a", "c32a1d4ab5d03f1284b67883e8d87530")),
        ),
        (
            Layout("cifar-10-batches-py", (*_BATCHES, "test_batch"), ("batches.meta",)),
            Layout("cifar-10-batches-bin", (*(f"{name}.bin" for name in _BATCHES), "test_batch.bin"), ("batches.meta.txt",)),
        ),
        are_archives=True,
        reader="cifar10",
    ),
    "cifar100": PublishedSet(
        (_CIFAR_HOST,),
        (PublishedFile("cifar-100-python.tar.gz", ("eb9058c3a382ffc7106e4002c42a8d85", "03b5dce01913d631647c71ecec9e9cb8")),),
        (
            Layout("cifar-100-python", ("train", "test"), ("meta",)),
            Layout("cifar-100-binary", ("train.bin", "test.bin"), ("fine_label_names.txt", "coarse_label_names.txt")),
        ),
        are_archives=True,
        reader="cifar100",
    ),
    "mnist": PublishedSet(
        _MNIST_HOSTS,
        _idx_files(
            ("f68b3c2dcbeaaa9fbdd348bbdeb94873",),
            ("d53e105ee54ea40749a09fcbcd1e9432",),
            ("9fb629c4189551a2d022fa330f9573f3",),
            ("ec29112dd5afa0611ce80d1b7f02629c",),
        ),
        (Layout("mnist", _IDX_NAMES),),
        are_archives=False,
        reader="mnist",
    ),
    "fashion_mnist": PublishedSet(
        _FASHION_HOSTS,
        _idx_files(  # the second checksum is of Debian's package, which compressed the files again
            ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"),
            ("25c81989df183df01b3e8a0aad5dffbe", "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"),
            ("bef4ecab320f06d8554ea6380940ec79", "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"),
            ("bb300cfdad3c16e7a12a480ee83cd310", "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"),
        ),
        (Layout("fashion_mnist", _IDX_NAMES),),
        are_archives=False,
        reader="fashion_mnist",
    ),
    "coco_val2014": PublishedSet(
        _COCO_HOSTS,
        (PublishedFile("zips/val2014.zip"), PublishedFile("annotations/annotations_trainval2014.zip")),
        (Layout("coco_val2014", ("val2014",), ("annotations",)),),
        are_archives=True,
    ),
}

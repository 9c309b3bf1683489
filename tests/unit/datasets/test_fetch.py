"""get_dataset: what counts as there, sources, checksums, and that nothing is published half."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.datasets import READERS, catalog, read_dataset
from bulkinfer.datasets import fetch as module
from bulkinfer.datasets.catalog import SETS
from bulkinfer.datasets.fetch import Request, folder_of, get_dataset
from bulkinfer.errors import BulkinferError, DownloadError, RunError, UsageError
from bulkinfer.files.archives import ArchiveError

from tests.data_sets import cifar10_python, deb, marked_rows, mnist_files, tar, write_files, zipped
from tests.http_server import Site, serving
from tests.logged import logged
from tests.temporaries import temporary_name

FASHION = mnist_files()


def fetched(request: Request) -> tuple[Path, list[str]]:
    said: list[str] = []
    folder = logged(said, get_dataset, request)
    assert not left(request.data_dir)
    return folder, said


def left(data_dir: Path) -> list[str]:
    """What does not belong there after a call that went well: temporaries, parts, locks."""
    return [path.name for path in data_dir.iterdir() if path.name.startswith(("_tmp-", "."))]


def refused(request: Request, error: type[BulkinferError]) -> str:
    with pytest.raises(error) as told:
        get_dataset(request)
    assert folder_of(request.name, request.data_dir) is None
    if request.data_dir.exists():
        assert all(name.endswith((".part", ".part.json")) for name in left(request.data_dir))
    return str(told.value)


def local(tmp_path: Path, data: bytes, name: str = "archive") -> str:
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


@pytest.fixture
def known_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of FASHION as if they were the published ones."""
    published = SETS["fashion_mnist"]
    files = tuple(replace(file, checksums=(hashlib.md5(FASHION[file.name]).hexdigest(),)) for file in published.files)
    monkeypatch.setitem(module.SETS, "fashion_mnist", replace(published, files=files))


def test_the_table_is_sound() -> None:
    for published in SETS.values():
        assert published.reader in {*READERS, ""}
        assert all(host.endswith("/") for host in published.hosts)
        for file in published.files:
            assert all(len(checksum) in (32, 64) for checksum in file.checksums)
            assert file.checksums or not published.reader


@pytest.mark.parametrize("pack", [tar, zipped, deb])
def test_a_local_archive(pack: object, tmp_path: Path) -> None:
    url = local(tmp_path, pack({f"any/where/{name}": data for name, data in FASHION.items()}))  # type: ignore[operator]
    folder, _ = fetched(Request("fashion_mnist", tmp_path / "data", url, "none"))
    assert folder == tmp_path / "data" / "fashion_mnist"
    assert {path.name for path in folder.iterdir()} == {*FASHION, "source.json"}
    assert read_dataset("fashion_mnist", tmp_path / "data", "train").labels.tolist() == [0, 1, 2, 3]
    source = json.loads((folder / "source.json").read_text())["files"][0]
    assert source["sha256"] == hashlib.sha256(Path(url).read_bytes()).hexdigest()
    assert Path(url).exists()


def test_what_is_in_an_archive_is_checked(known_checksums: None, tmp_path: Path) -> None:
    url = local(tmp_path, deb({f"usr/share/{name}": data for name, data in FASHION.items()}))
    fetched(Request("fashion_mnist", tmp_path / "good", url))
    other = {**FASHION, "t10k-labels-idx1-ubyte.gz": mnist_files(3)["t10k-labels-idx1-ubyte.gz"]}
    url = local(tmp_path, deb(other))
    told = refused(Request("fashion_mnist", tmp_path / "bad", url), DownloadError)
    assert f"t10k-labels-idx1-ubyte.gz in {url} is not the file asked for: its md5 is" in told
    assert "--checksum none accepts it as it is" in told


def test_a_folder_in_place_of_the_hosts(known_checksums: None, tmp_path: Path) -> None:
    write_files(tmp_path / "mirror", FASHION)
    folder, _ = fetched(Request("fashion_mnist", tmp_path / "data", str(tmp_path / "mirror")))
    assert (folder / "train-images-idx3-ubyte.gz").read_bytes() == FASHION["train-images-idx3-ubyte.gz"]
    (tmp_path / "mirror" / "t10k-labels-idx1-ubyte.gz").unlink()
    told = refused(Request("fashion_mnist", tmp_path / "other", str(tmp_path / "mirror")), UsageError)
    assert "mirror holds no t10k-labels-idx1-ubyte.gz" in told


def test_a_mirror(known_checksums: None, tmp_path: Path) -> None:
    site = Site(bodies={f"/pub/{name}": data for name, data in FASHION.items()})
    with serving(site):
        folder, said = fetched(Request("fashion_mnist", tmp_path, site.url("pub")))
        assert len(said) == 4
        asked = len(site.requests)
        _, said = fetched(Request("fashion_mnist", tmp_path, site.url("pub")))
    assert said == [f"fashion_mnist is there already: {folder} (--force fetches it again)"]
    assert len(site.requests) == asked


def test_a_cut_transfer_is_resumed_by_range(tmp_path: Path) -> None:
    body = tar(cifar10_python(3), "")
    site = Site(body, ["cut", "whole"])
    with serving(site):
        fetched(Request("cifar10", tmp_path, site.url("c.tar"), hashlib.md5(body).hexdigest()))
    assert [sent for _, _, sent in site.requests] == [len(body) // 2, len(body) - len(body) // 2]
    assert site.requests[1][1] == f"bytes={len(body) // 2}-"


def test_a_server_without_ranges_begins_again(tmp_path: Path) -> None:
    body = tar(cifar10_python())
    site = Site(body, ["cut", "whole"], etag="")
    with serving(site):
        fetched(Request("cifar10", tmp_path, site.url("c.tar.gz"), hashlib.sha256(body).hexdigest()))
    assert [sent for _, _, sent in site.requests] == [len(body) // 2, len(body)]


def test_what_a_killed_process_left_is_used_or_removed(tmp_path: Path) -> None:
    body = tar(cifar10_python())
    site = Site(body, ["cut", 404])
    (tmp_path / temporary_name("00") / "unpacked").mkdir(parents=True)
    request = Request("cifar10", tmp_path, "", "none")
    with serving(site):
        request = replace(request, url=site.url("c.tar.gz"))
        assert "404" in refused(request, DownloadError)
        assert left(tmp_path) == [name for name in left(tmp_path) if "part" in name], "the work folder of a dead process stays"
        site.script = ["whole"]
        fetched(request)
    assert site.requests[-1][1] == f"bytes={len(body) // 2 - 1}-"


def test_a_wrong_checksum(tmp_path: Path) -> None:
    site = Site(tar(cifar10_python()))
    with serving(site):
        told = refused(Request("cifar10", tmp_path, site.url("c.tar.gz")), DownloadError)
        assert "is not the file asked for" in told
        assert "expected was c58f30108f718f92721af3b95e74349a or" in told
        assert left(tmp_path) == [], "a wrong file must not be continued"
        told = refused(Request("cifar10", tmp_path, site.url("c.tar.gz"), "0" * 64), DownloadError)
    assert f"expected was {'0' * 64}" in told


def test_an_archive_that_reaches_outside(tmp_path: Path) -> None:
    site = Site(tar({**cifar10_python(), "../../evil": b"evil"}))
    with serving(site):
        told = refused(Request("cifar10", tmp_path / "data", site.url("c.tar.gz"), "none"), RunError)
    assert told.startswith(site.url("c.tar.gz"))
    assert "is not safe to unpack" in told
    assert not list(tmp_path.rglob("evil"))


def test_an_archive_of_something_else(tmp_path: Path) -> None:
    told = refused(Request("cifar10", tmp_path / "data", local(tmp_path, zipped({"a": b""})), "none"), RunError)
    assert "does not hold cifar10: no folder in it has data_batch_1, data_batch_2" in told
    files = cifar10_python()
    files["cifar-10-batches-py/data_batch_3"] = b"broken"
    told = refused(Request("cifar10", tmp_path / "data", local(tmp_path, zipped(files)), "none"), RunError)
    assert "what was fetched is not cifar10" in told
    assert "archive/cifar-10-batches-py/data_batch_3 is damaged" in told


def test_the_binary_form(tmp_path: Path) -> None:
    row = marked_rows(1)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    url = local(tmp_path, tar({f"cifar-10-batches-bin/{name}.bin": b"\1" + row for name in names}))
    folder, _ = fetched(Request("cifar10", tmp_path / "data", url, "none"))
    assert folder.name == "cifar-10-batches-bin"


def test_force_replaces(tmp_path: Path) -> None:
    first, second = (local(tmp_path, tar(mnist_files(count)), f"{count}.tar.gz") for count in (2, 3))
    request = Request("mnist", tmp_path / "data", first, "none")
    fetched(request)
    fetched(replace(request, url=second))
    assert len(read_dataset("mnist", tmp_path / "data", "train")) == 2
    fetched(replace(request, url=second, force=True))
    assert len(read_dataset("mnist", tmp_path / "data", "train")) == 3


def test_force_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    request = Request("mnist", tmp_path / "data", local(tmp_path, tar(mnist_files())), "none")
    fetched(request)
    with pytest.raises(RunError):
        get_dataset(replace(request, url=local(tmp_path, b"nothing"), force=True))
    assert len(read_dataset("mnist", tmp_path / "data", "train")) == 4


def test_half_a_folder_is_not_replaced_unasked(tmp_path: Path) -> None:
    write_files(tmp_path / "data" / "mnist", {"t10k-labels-idx1-ubyte.gz": b"mine"})
    request = Request("mnist", tmp_path / "data", local(tmp_path, tar(mnist_files())), "none")
    told = refused(request, UsageError)
    assert "mnist is there but lacks train-images-idx3-ubyte.gz" in told
    assert "let --force replace it" in told
    fetched(replace(request, force=True))


def test_coco_from_one_archive_or_a_mirror(tmp_path: Path) -> None:
    pictures = {f"val2014/COCO_val2014_{number:012}.jpg": b"jpeg" for number in range(3)}
    notes = {"annotations/instances_val2014.json": b"{}"}
    folder, _ = fetched(Request("coco_val2014", tmp_path / "one", local(tmp_path, zipped(pictures))))
    assert len(list((folder / "val2014").iterdir())) == 3
    bodies = {"/zips/val2014.zip": zipped(pictures), "/annotations/annotations_trainval2014.zip": zipped(notes)}
    with serving(Site(bodies=bodies)) as site:
        folder, _ = fetched(Request("coco_val2014", tmp_path / "two", site.url("")))
    assert (folder / "annotations" / "instances_val2014.json").is_file()
    with serving(Site(bodies={"/val2014.zip": zipped(pictures)})) as site:
        told = refused(Request("coco_val2014", tmp_path / "three", site.url("")), DownloadError)
    assert "annotations_trainval2014.zip: the server answered 404" in told


@pytest.mark.parametrize(
    ("name", "url", "checksum", "reason"),
    [
        ("cifar11", "", "", "unknown data set 'cifar11': get_dataset knows cifar10, cifar100"),
        ("cifar10", "gone.tar.gz", "", "--url gone.tar.gz: no such file or folder"),
        ("cifar10", "ftp://host/c.tar.gz", "", "is neither an http or https address"),
        ("cifar10", "a", "12ab", "--checksum needs the 32 hex digits of an md5"),
        ("mnist", ".", "0" * 32, "--checksum is for one file, but mnist has 4"),
    ],
)
def test_wrong_use(name: str, url: str, checksum: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        get_dataset(Request(name, tmp_path / "data", url, checksum))
    assert reason in str(error.value)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that small archives exceed."""
    monkeypatch.setattr(catalog, "_SLACK_BYTES", 1 << 10)
    monkeypatch.setattr(module, "_SMALL_BYTES", 1 << 10)
    for name in ("cifar10", "fashion_mnist"):
        files = tuple(replace(file, size_bytes=1 << 18) for file in SETS[name].files)
        monkeypatch.setitem(module.SETS, name, replace(SETS[name], files=files, unpacked_bytes=1 << 18))


@pytest.mark.parametrize("pack", [tar, zipped])
def test_c55_a_bomb_is_refused_in_one_sentence_and_nothing_is_left(pack: Any, small_bounds: None, tmp_path: Path) -> None:
    url = local(tmp_path, pack({"cifar-10-batches-py/data_batch_1": bytes(16 << 20)}))
    told = refused(Request("cifar10", tmp_path / "data", url, "none"), ArchiveError)
    assert f"{url} would unpack to 16,777,216 bytes or more, and " in told
    assert "are allowed for cifar10 from an archive of its size (--any_size takes it)" in told
    assert not list((tmp_path / "data").iterdir())
    told = refused(Request("cifar10", tmp_path / "data", url, "none", any_size=True), RunError)
    assert "does not hold cifar10" in told


@pytest.mark.parametrize("script", ["whole", "unsized"])
def test_c55_a_download_ends_at_its_bound(script: str, small_bounds: None, tmp_path: Path) -> None:
    site = Site(bytes(4 << 20), [script])
    with serving(site):
        request = Request("cifar10", tmp_path / "data", site.url("set.tar.gz"), "none")
        told = refused(request, DownloadError)
    assert "set.tar.gz gives " in told
    assert "bytes or more, and 525,312 are allowed for cifar10 (--any_size takes it)" in told
    assert not list((tmp_path / "data").iterdir()), "no part is left that would be continued"


def test_c55_files_of_the_user_have_a_bound_too(small_bounds: None, tmp_path: Path) -> None:
    files = write_files(tmp_path / "mine", {**FASHION, "train-images-idx3-ubyte.gz": bytes(1 << 20)})
    told = refused(Request("fashion_mnist", tmp_path / "data", str(files)), UsageError)
    assert "train-images-idx3-ubyte.gz has 1,048,576 bytes, and 525,312 are allowed for fashion_mnist" in told
    url = local(tmp_path, bytes(4 << 20))
    assert "has 4,194,304 bytes" in refused(Request("fashion_mnist", tmp_path / "data", url, "none"), UsageError)


def test_c55_bounds_leave_room_for_what_is_published() -> None:
    for published in SETS.values():
        whole = sum(file.size_bytes for file in published.files)
        assert published.most_fetched_bytes(None) > whole
        assert published.most_unpacked_bytes > (published.unpacked_bytes if published.are_archives else whole)
        assert published.unpacked_bytes < module._MOST_RATIO * whole
        assert all(published.most_fetched_bytes(file) > file.size_bytes for file in published.files)

"""find_records.py: annotations, labels, lists and archives of pictures in a store give what they give for a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import BulkinferError, ObjectError, RecordError, RunError, UsageError
from bulkinfer.records.dataset import Dataset, open_dataset
from bulkinfer.records.partitions.make_partitions import partition_dataset
from bulkinfer.records.read_place import read_place

from tests import pictures
from tests.archives import write_tar
from tests.memory_store import MemoryStore, put_in_place

FILES = {f"{folder}/{n}.jpg": pictures.jpeg(40 + n, 30, n) for folder in ("a", "b") for n in range(4)}
COCO: dict[str, Any] = {
    "images": [{"id": n, "file_name": f"a/{n}.jpg"} for n in range(3)] + [{"id": 9, "file_name": "a/none.jpg"}],
    "annotations": [{"image_id": n, "category_id": 7 + n % 2} for n in range(3)],
    "categories": [{"id": 7, "name": "cat"}, {"id": 8, "name": "dog"}],
}
SET = "s3://bucket/set"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    found = put_in_place(monkeypatch, tmp_path / "cache")
    pictures.write_files(tmp_path / "set", FILES)
    found.put_folder(tmp_path / "set", "set")
    monkeypatch.chdir(tmp_path)
    return found


def facts(dataset: Dataset) -> list[tuple[Any, ...]]:
    """The records of a data set, without where they lie."""
    lines = [line for partition in dataset.partitions for line in partition.manifest.entries()]
    return [(each.key, each.size_bytes, each.label, each.category_ids, each.image_id) for each in lines]


def both(**options: Any) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The records of the folder and of the store with the same options, whose texts have SET for where the pictures lie."""
    made = []
    for number, where in enumerate(("set", SET)):
        given = {name: value.replace(SET, where) if isinstance(value, str) else value for name, value in options.items()}
        made.append(facts(partition_dataset(where, partitions=2, output=f"out{number}", mode="manifest", **given)))
    return made[0], made[1]


@pytest.mark.parametrize("labels", ["", "annotations"])
def test_annotations(store: MemoryStore, labels: str) -> None:
    Path("set", "coco.json").write_text(json.dumps(COCO))
    store.objects["set/coco.json"] = Path("set", "coco.json").read_bytes()
    local, stored = both(annotations=f"{SET}/coco.json", labels=labels)
    assert stored == local
    assert [(key, image_id) for key, _, _, _, image_id in stored] == [
        (b"a/0.jpg", 0), (b"a/1.jpg", 1), (b"a/2.jpg", 2), (b"a/none.jpg", 9)
    ]  # fmt: skip


def test_a_table_of_labels(store: MemoryStore) -> None:
    text = b"file,label\na/0.jpg,dog\nb/1.jpg,cat\n"
    store.objects["set/labels.csv"] = text
    Path("set", "labels.csv").write_bytes(text)
    local, stored = both(labels=f"{SET}/labels.csv")
    assert stored == local
    assert {key: label for key, _, label, _, _ in stored if label is not None} == {b"a/0.jpg": 1, b"b/1.jpg": 0}


def test_the_address_above_a_single_picture_is_named(store: MemoryStore) -> None:
    for find in (partition_dataset, open_dataset):
        with pytest.raises(
            UsageError, match=r"^s3://bucket/set/a/1\.jpg is one object: give .* lies below, s3://bucket/set/a$"
        ):
            find(f"{SET}/a/1.jpg")
        with pytest.raises(UsageError, match=r"^s3://bucket/set/a/9\.jpg holds no pictures: give an address below which"):
            find(f"{SET}/a/9.jpg")


def test_a_list_with_a_bucket_that_does_not_exist_has_all_its_records(store: MemoryStore) -> None:
    names = [f"{SET}/a/1.jpg", "s3://nosuch/1.jpg", "s3://nosuch/2.jpg"]
    Path("list.txt").write_text("\n".join(names))
    found = partition_dataset(list_file="list.txt", mode="manifest", partitions=1)
    became = {}
    for record in found.partitions[0].manifest.records():
        try:
            became[record.key.decode()] = str(len(read_place(record.place, 1 << 20)))
        except RecordError as error:
            became[record.key.decode()] = f"{error.stage}: {error.message}"
    assert became == dict(
        zip(names, [str(len(FILES["a/1.jpg"])), "read: bucket not found", "read: bucket not found"], strict=True)
    )
    for data_dir in ("s3://nosuch", "s3://nosuch/a.tar"):
        with pytest.raises(BulkinferError, match="the bucket s3://nosuch does not exist") as caught:
            open_dataset(data_dir)
        assert caught.value.exit_code == 2, "as of an object that is missing"


def test_an_archive_that_cannot_be_read_is_named(store: MemoryStore) -> None:
    for name in ("0.tar", "1.tar"):
        store.objects[f"archives/{name}"] = write_tar(Path(name), FILES).read_bytes()

    def refuse(request: str) -> None:
        if request == "get archives/1.tar":
            raise ObjectError("the store refuses access to it (AccessDenied)")

    store.on_request = refuse
    scan = open_dataset("s3://bucket/archives").scan
    assert scan is not None
    assert [key for key, _ in scan.unreadable] == [b"1.tar"]


@pytest.mark.parametrize("option", ["annotations", "labels", "list_file"])
def test_a_missing_file_is_named(store: MemoryStore, option: str) -> None:
    options: dict[str, Any] = {option: "s3://bucket/none.json"}
    with pytest.raises(UsageError, match=r"s3://bucket/none\.json cannot be read: object not found: put it back"):
        partition_dataset(SET, **options)
    options = {option: "https://ann:hidden@host/none.json"}
    with pytest.raises(UsageError, match=r"https://host/none\.json holds a user or password") as caught:
        partition_dataset(SET, **options)
    assert "hidden" not in str(caught.value)


def as_table(names: list[str], write: Callable[[pa.Table, Path], object]) -> bytes:
    write(pa.table({"path": names, "label": [f"l{n % 2}" for n in range(len(names))]}), Path("table"))
    return Path("table").read_bytes()


LISTS: dict[str, Callable[[list[str]], bytes]] = {
    "list.txt": lambda names: "\n".join(names).encode(),
    "list.csv": lambda names: "\n".join(["path,label", *(f"{name},l{n % 2}" for n, name in enumerate(names))]).encode(),
    "list.jsonl": lambda names: "\n".join(
        json.dumps({"path": name, "label": f"l{n % 2}"}) for n, name in enumerate(names)
    ).encode(),
    "list.parquet": lambda names: as_table(names, lambda table, path: pq.write_table(table, path)),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_in_a_store(store: MemoryStore, name: str) -> None:
    content = LISTS[name]([*FILES])
    store.objects[f"set/{name}"] = content
    Path("set", name).write_bytes(content)
    local, stored = both(list_file=f"{SET}/{name}")
    assert stored == local
    assert len(stored) == len(FILES)
    assert (stored[1][2] is None) == (name == "list.txt")


@pytest.mark.parametrize("mode", ["tar", "tfrecord"])
def test_pictures_of_a_store_are_packed(store: MemoryStore, mode: str) -> None:
    for number, where in enumerate(("set", SET)):
        partition_dataset(where, output=f"packed{number}", mode=mode, labels="folders")
    local, stored = ({path.name: digest(path) for path in Path(f"packed{number}").iterdir()} for number in range(2))
    assert stored == local
    store.requests.clear()
    partition_dataset(SET, output="packed1", mode=mode, labels="folders")
    assert store.requests == ["list set"]  # nothing is fetched again


def digest(path: Path) -> str:
    """Of an archive; indexes hold times."""
    return "" if path.name.startswith(".") else hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_object_that_is_gone_ends_the_packing(store: MemoryStore) -> None:
    def remove(request: str) -> None:
        if request == "get set/b/1.jpg":
            store.objects.pop("set/b/1.jpg", None)

    store.on_request = remove
    with pytest.raises(RunError, match=rf"{SET}/b/1\.jpg cannot be read \(object not found\): repair or remove it, and run"):
        partition_dataset(SET, output="packed", mode="tar")
    assert not Path("packed").exists()
    store.on_request = lambda _request: None
    partition_dataset(SET, output="packed", mode="tar")


def test_archives_and_addresses_are_not_packed(store: MemoryStore) -> None:
    Path("list.txt").write_text(f"{SET}/a/0.jpg")
    with pytest.raises(UsageError, match="--mode tar is for pictures on this machine"):
        partition_dataset(list_file="list.txt", mode="tar", output="packed")
    with pytest.raises(UsageError, match="--mode copy is for pictures on this machine"):
        partition_dataset(SET, mode="copy", output="packed")

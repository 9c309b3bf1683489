"""coco.py: what annotation files say, how their names find files, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.sources.coco import (
    Annotations,
    EntriesByName,
    Image,
    image_id_from_name,
    image_ids_from_names,
    match_images,
    read_annotations,
)
from bulkinfer.records.sources.folder import Picture, Scan
from hypothesis import given, settings
from hypothesis import strategies as st

GOOD: dict[str, Any] = {
    "info": {"year": 2014},
    "images": [
        {"id": 42, "file_name": "COCO_val2014_000000000042.jpg", "height": 1},
        {"id": 7, "file_name": "./val/b.jpg"},
    ],
    "annotations": [
        {"id": 1, "image_id": 42, "category_id": 18, "segmentation": [[1.5, 2.5]], "iscrowd": 0},
        {"id": 2, "image_id": 42, "category_id": 1},
        {"id": 3, "image_id": 42, "category_id": 18},
        {"id": 4, "image_id": 99, "category_id": 18},
    ],
    "categories": [{"id": 18, "name": "dog"}],
}


def write(folder: Path, value: Any) -> Path:
    path = folder / "instances.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def read(path: Path) -> Annotations:
    return read_annotations(path, os.fsencode(path.parent / "pictures"))


def scan(*keys: str, root: str = "/nowhere") -> Scan:
    return Scan(root.encode(), [Picture(key.encode(), 10) for key in keys])


def images(*names: str) -> list[Image]:
    return [Image(name.encode(), number, (number,)) for number, name in enumerate(names)]


def test_image_id_from_name() -> None:
    assert image_id_from_name(b"val2014/COCO_val2014_000000000042.jpg") == 42
    assert image_id_from_name(b"COCO_train2014_000000581921.JPG") == 581921
    assert image_id_from_name(b"202401011230.jpg") is None
    assert image_id_from_name(b"COCO_val2014_000000000042.jpg/x.jpg") is None


NAME_PIECES = [b"COCO_", b"coco_", b"val2014_", b"val14_", b"000000000042", b"0042", b".jpg", b".", b"/", b"\n", b"\xe9"]


@settings(deadline=None)  # the first call loads tables of Arrow
@given(st.lists(st.lists(st.sampled_from(NAME_PIECES), max_size=8).map(b"".join), max_size=20))
def test_image_ids_of_many_names(names: list[bytes]) -> None:
    names += [b"COCO_val2014_000000000042.jpg", b"a/COCO_val2014_000000000007.PNG", b"a/COCO_val2014_000000000007.PNG\n"]
    expected = [image_id_from_name(name) for name in names]
    assert expected[-3:] == [42, 7, None]
    for kind in (pa.binary(), pa.large_binary()):
        assert image_ids_from_names(pa.array(names, kind)).to_pylist() == expected


def test_entries_by_name() -> None:
    entries = EntriesByName([Picture(b"COCO_val2014_000000000042.jpg", 5), Picture(b"x.jpg", None)])
    assert list(entries) == [Entry(b"COCO_val2014_000000000042.jpg", 5, image_id=42), Entry(b"x.jpg", None)]
    assert list(entries[1:]) == [Entry(b"x.jpg", None)]
    assert len(entries[1:]) == 1


def test_names_ids_and_distinct_sorted_categories(tmp_path: Path) -> None:
    annotations = read(write(tmp_path, GOOD))
    assert annotations.images == [Image(b"COCO_val2014_000000000042.jpg", 42, (1, 18)), Image(b"val/b.jpg", 7, ())]
    assert annotations.num_strays == 1
    assert len(annotations.sha256) == 64


def test_absolute_names_inside_the_data_folder_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    names = [tmp_path / "link" / "1.jpg", f"/{tmp_path}/real/a//2.jpg", tmp_path / "real" / "a" / "gone" / "3.jpg", "4.jpg"]
    path = write(tmp_path, {"images": [{"id": number, "file_name": str(name)} for number, name in enumerate(names)]})
    for spelling in ("real", "link", "link/../real/"):
        found = read_annotations(path, os.fsencode(tmp_path) + b"/" + spelling.encode())
        assert [image.name for image in found.images] == [b"1.jpg", b"a/2.jpg", b"a/gone/3.jpg", b"4.jpg"]
    with pytest.raises(UsageError, match=r"images\[0\] has a file_name outside the data folder: /.*/link/1\.jpg"):
        read_annotations(path, os.fsencode(tmp_path / "re"))
    with pytest.raises(UsageError, match=r"has a file_name that is the data folder itself: .*/link/1\.jpg"):
        read_annotations(path, os.fsencode(tmp_path / "link" / "1.jpg"))


def test_an_image_list_without_annotations_has_no_categories(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff" + json.dumps({"images": GOOD["images"]}))
    assert [image.category_ids for image in read(path).images] == [None, None]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], 'is not a COCO file: it has no list "images"'),
        ({"images": {}}, 'it has no list "images"'),
        ({"images": [], "annotations": {}}, '"annotations" is not a list'),
        ({"images": ["x"]}, r"images\[0\] is not an object"),
        ({"images": [{"file_name": "x"}]}, r"images\[0\] has no id that is a number or a text"),
        ({"images": [{"id": True, "file_name": "x"}]}, r"images\[0\] has no id that is a number or a text"),
        ({"images": [{"id": [1], "file_name": "x"}]}, r"images\[0\] has no id that is a number or a text"),
        ({"images": [], "annotations": [{"image_id": 1, "category_id": {}}]}, r"annotations\[0\] has no category_id that is"),
        ({"images": [], "annotations": [7]}, r"annotations\[0\] is not an object"),
        ({"images": [], "categories": {}}, '"categories" is not a list'),
        ({"images": [], "categories": [{"name": "cat"}]}, r"categories\[0\] has no id"),
        ({"images": [{"id": 1}]}, r"images\[0\] has no file_name"),
        ({"images": [{"id": 1, "file_name": "../../etc/x.jpg"}]}, "outside the data folder"),
        ({"images": [{"id": 1, "file_name": "/etc/x.jpg"}]}, "outside the data folder"),
        ({"images": [{"id": 1, "file_name": "a\0b"}]}, r"images\[0\] has a file_name with a NUL character: a\\x00b"),
        ({"images": [{"id": 1, "file_name": "./"}]}, r"has a file_name that is the data folder itself: \./"),
        (
            {"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]},
            r"images\[1\] repeats the id 1 for another file",
        ),
        ({"images": [{"id": 1, "coco_url": "http://host/.."}]}, "outside the data folder"),
    ],
)
def test_malformed_files_get_a_sentence(tmp_path: Path, value: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        read(write(tmp_path, value))
    assert "\n" not in str(caught.value)


def test_c38_ids_as_texts_join_their_annotations(tmp_path: Path) -> None:
    value = {
        "images": [
            {"id": "42", "file_name": "a.jpg"},
            {"id": "left-7", "file_name": "b.jpg"},
            {"id": 1 << 63, "file_name": "c.jpg"},
        ],
        "annotations": [
            {"image_id": 42, "category_id": "3"},
            {"image_id": "left-7", "category_id": 5},
            {"image_id": 1 << 63, "category_id": 3.0},
        ],
    }
    found = read(write(tmp_path, value))
    assert found.images == [Image(b"a.jpg", 42, (3,)), Image(b"b.jpg", None, (5,)), Image(b"c.jpg", None, (3,))]
    assert (found.num_strays, found.num_without_category, found.num_repeated, found.category_texts) == (0, 0, 0, ())


def test_c38_categories_that_are_no_integers_are_numbered(tmp_path: Path) -> None:
    value = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "annotations": [{"image_id": 1, "category_id": "dog"}, {"image_id": 1, "category_id": "owl"}],
        "categories": [{"id": "cat", "name": "Cat"}, {"id": "dog"}],
    }
    found = read(write(tmp_path, value))
    assert found.images == [Image(b"a.jpg", 1, (1, 2))]
    assert found.categories == {0: "Cat", 1: "dog"}
    assert found.category_texts == ("cat", "dog", "owl")


def test_c38_a_file_under_two_ids_is_one_record_with_all_categories(tmp_path: Path) -> None:
    value = {
        "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "./a.jpg"}, {"id": 2, "file_name": "a.jpg"}],
        "annotations": [{"image_id": 2, "category_id": 9}, {"image_id": 1, "category_id": 4}],
    }
    found = read(write(tmp_path, value))
    assert found.images == [Image(b"a.jpg", 1, (4, 9))]
    assert (found.num_repeated, found.num_strays) == (1, 0)


def test_c38_the_name_is_the_last_part_of_the_url(tmp_path: Path) -> None:
    urls = ["http://images.cocodataset.org/train2017/000000391895.jpg", "https://host/a%20b.jpg?size=1#x"]
    value = {"images": [{"id": number, "coco_url": url} for number, url in enumerate(urls)]}
    assert [image.name for image in read(write(tmp_path, value)).images] == [b"000000391895.jpg", b"a b.jpg"]


def test_c38_captions_have_no_categories(tmp_path: Path) -> None:
    value = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "A dog."}] * 2}
    found = read(write(tmp_path, value))
    assert found.images == [Image(b"a.jpg", 1, None)], "unknown, which is not the same as none"
    assert (found.num_without_category, found.num_strays) == (2, 0)


def test_c38_a_null_category_is_counted_beside_the_others(tmp_path: Path) -> None:
    value = {
        "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
        "annotations": [{"image_id": 1, "category_id": 3}, {"image_id": 2, "category_id": None}, {"image_id": None}],
        "categories": None,
    }
    found = read(write(tmp_path, value))
    assert found.images == [Image(b"a.jpg", 1, (3,)), Image(b"b.jpg", 2, ())]
    assert (found.num_without_category, found.num_strays) == (2, 1)


@given(
    st.dictionaries(
        st.sampled_from(["images", "annotations", "categories"]),
        st.lists(
            st.dictionaries(
                st.sampled_from(["id", "file_name", "coco_url", "image_id", "category_id", "name"]),
                st.none() | st.integers(-3, 3) | st.sampled_from(["1", "a", "a/../..", "b\\c", 1.0, 1.5, True, [], {}]),
            ),
            max_size=4,
        ),
    )
)
def test_c38_any_file_is_taken_or_gets_a_sentence(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = write(tmp_path_factory.mktemp("coco"), value)
    try:
        names = [image.name for image in read(path).images]
    except UsageError as error:
        names = [str(error).encode()]
    assert len(set(names)) == len(names)


def test_c39_names_from_windows_find_their_files() -> None:
    matched = match_images(
        images("sub\\a.jpg", "C:\\data\\img\\x.jpg", "lit\\eral.jpg", "..\\out.jpg", "gone\\b.jpg"),
        scan("sub/a.jpg", "img/x.jpg", "lit\\eral.jpg", "lit/eral.jpg"),
    )
    assert [(entry.key, entry.size_bytes, entry.image_id) for entry in matched.entries] == [
        (b"..\\out.jpg", None, 3),
        (b"gone\\b.jpg", None, 4),
        (b"img/x.jpg", 10, 1),
        (b"lit\\eral.jpg", 10, 2),
        (b"sub/a.jpg", 10, 0),
    ]
    assert matched.extra == [b"lit/eral.jpg"]
    with pytest.raises(UsageError, match=r"a/1\.jpg could be "):
        match_images(images("a\\1.jpg", "C:\\a\\1.jpg"), scan("a/1.jpg"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(tmp_path / "x.json")
    with pytest.raises(UsageError, match="is a folder, not a file"):
        read(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"images": "\xe9"}')
    with pytest.raises(UsageError, match="is not JSON"):
        read(tmp_path / "latin.json")


def test_match_by_path_missing_and_extra() -> None:
    matched = match_images(images("b.jpg", "a.jpg", "gone.jpg"), scan("a.jpg", "b.jpg", "c.jpg", "d/e.jpg"))
    assert matched.entries == [
        Entry(b"a.jpg", 10, None, (1,), 1),
        Entry(b"b.jpg", 10, None, (0,), 0),
        Entry(b"gone.jpg", None, None, (2,), 2),
    ]
    assert matched.missing == [b"gone.jpg"]
    assert matched.extra == [b"c.jpg", b"d/e.jpg"]


def test_match_by_the_end_of_the_path_or_a_unique_base_name() -> None:
    matched = match_images(images("1.jpg", "val/2.jpg", "x/3.jpg"), scan("sub/1.jpg", "2.jpg", "y/3.jpg"))
    assert [entry.key for entry in matched.entries] == [b"2.jpg", b"sub/1.jpg", b"y/3.jpg"]
    assert not matched.missing
    matched = match_images(images("a/1.jpg", "b/1.jpg"), scan("set/a/1.jpg", "set/b/1.jpg", "set/c/1.jpg"))
    assert [(entry.key, entry.image_id) for entry in matched.entries] == [(b"set/a/1.jpg", 0), (b"set/b/1.jpg", 1)]
    assert matched.extra == [b"set/c/1.jpg"]


def test_nothing_is_guessed() -> None:
    matched = match_images(images("a/1.jpg", "b/1.jpg"), scan("a/1.jpg"))
    assert matched.missing == [b"b/1.jpg"]
    matched = match_images(images("c/1.jpg"), scan("a/1.jpg", "b/1.jpg"))
    assert matched.missing == [b"c/1.jpg"]
    with pytest.raises(UsageError, match=r"1\.jpg could be a/1\.jpg or b/1\.jpg: give as --data_dir"):
        match_images(images("1.jpg"), scan("a/1.jpg", "b/1.jpg"))
    with pytest.raises(UsageError, match=r"1\.jpg could be a/1\.jpg or b/1\.jpg"):
        match_images(images("a/1.jpg", "b/1.jpg"), scan("1.jpg"))


def test_an_annotated_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "odd.dat").write_bytes(b"12345")
    matched = match_images(images("odd.dat"), scan("other/odd.dat", root=os.fspath(tmp_path)))
    assert matched.entries == [Entry(b"odd.dat", 5, None, (0,), 0)]

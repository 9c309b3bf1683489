"""What jobs may read: what is listed, and what lies below, after all links."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.serve.jobs.places import require_listed
from bulkinfer.serve.refusals import InvalidError

STORES = ("s3://bucket/photos", "https://host/data")


def test_paths_are_compared_without_links(tmp_path: Path) -> None:
    (tmp_path / "photos" / "inner").mkdir(parents=True)
    (tmp_path / "photos2").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "photos" / "inner")
    (tmp_path / "photos" / "out").symlink_to(tmp_path / "photos2")
    listed = [str(tmp_path / "photos")]
    for inside in ("photos", "photos/", "photos/inner", "photos/none", "link", "photos2/../photos/inner", "photos//inner"):
        found = require_listed(f"{tmp_path}/{inside}", "data_dir", listed)
        assert Path(found) == (tmp_path / inside).resolve()
    for outside in ("", "photos2", "photos/out", "photos/../photos2", "photos/inner/../..", "none"):
        with pytest.raises(InvalidError, match=r"data_dir .* is not in a folder or store that jobs may read"):
            require_listed(f"{tmp_path}/{outside}", "data_dir", listed)
    for relative in ("photos", "./photos", "", "~"):
        with pytest.raises(InvalidError, match="is a relative path"):
            require_listed(relative, "data_dir", listed)


@pytest.mark.parametrize(
    "address", ["s3://bucket/photos", "s3://bucket/photos/2024/", "https://host/data/a b", "s3:/bucket/photos/x"]
)
def test_addresses_below_a_listed_one(address: str) -> None:
    assert require_listed(address, "data_dir", STORES) == address.rstrip("/").replace("s3:/b", "s3://b")


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/photos2", "s3://bucket", "s3://bucket/other", "s3://other/photos", "gs://bucket/photos", "http://host/data",
        "https://host/database", "https://host@evil/data", "https://host/data@evil/x", "s3://bucket/photos/../other",
        "https://host/data/%2e%2e/x", "https://host/data/.%252e/x", "https://host/data/..\\x", "https://host/data?x=/y",
        "https://host/data#/x", "https://host:1/data",
    ],
)  # fmt: skip
def test_other_addresses(address: str) -> None:
    with pytest.raises(InvalidError, match="is not in a folder or store that jobs may read"):
        require_listed(address, "data_dir", STORES)


def test_an_address_shows_no_password() -> None:
    with pytest.raises(InvalidError) as refusal:
        require_listed("https://ann:secret@host/data", "data_dir", STORES)
    assert "secret" not in str(refusal.value)


def test_a_path_is_in_no_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        require_listed(str(tmp_path), "data_dir", STORES)
    with pytest.raises(InvalidError):
        require_listed("s3://bucket/photos", "data_dir", ["/"])

"""files/addresses.py: no part of a password is shown, however wrongly it is written."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from bulkinfer.commands import get_dataset, get_model, validate
from bulkinfer.files.addresses import AddressPath, address_of, place_path, public, secret_in, whole_path


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a/b.pth", "https://host/a/b.pth"),
        ("https://ann:secret@host:8080/a/b.pth", "https://host:8080/a/b.pth"),
        ("https://ann:secret@host:8080/a@b.pth", "https://..."),  # or is the password secret@host:8080/a?
        ("https://host/a@b.pth", "https://host/a@b.pth"),
        ("https://token@host", "https://host"),
        ("https://host/a?X-Signature=secret#part", "https://host/a?..."),
        ("https://host?a=b@c/d", "https://host?..."),
        ("ftp://ann:secret@host/a", "ftp://host/a"),
    ],
)
def test_what_of_an_address_is_shown(url: str, shown: str) -> None:
    assert public(url) == shown


WRITTEN = [
    "{}",
    "x{}",
    "x/{}",
    "x?{}",
    "x#{}",
    "x@{}",
    "x@y/{}",
    "1/{}",
    "1/x:{}",
    "x/y@{}",
    "{}/x",
    "{}?x",
    "{}#x",
    "{}@x",
    "1?{}",
]
PLACES = ("host/x.pth", "host:80/a/b.pth", "host", "1.2.3.4/x?y=1")


@pytest.mark.parametrize(("password", "place"), [*itertools.product(WRITTEN, PLACES)])
def test_c52_no_part_of_a_password_is_shown(password: str, place: str) -> None:
    for scheme in ("http://", "https://", "ftp://", "http:/", "//"):
        assert "s3cr3t" not in public(f"{scheme}ann:{password.format('s3cr3t')}@{place}")


ADDRESSES = [
    "http://ann:pa/s3cr3t@localhost/x.pth",
    "http://ann:s3cr3t@localhost:99999/x.pth",
    "http://ann:s3cr3t#@localhost/x.pth",
    "http://ann:s3cr3t@[/x.pth",
    "http:/ann:s3cr3t@localhost/x.pth",
    " http://ann:s3cr3t@localhost/x.pth",
    "ftp://ann:s3cr3t@localhost/x.pth",
    "http://ann:s3cr3t@127.0.0.1:9/x.pth",
    "http://ann:1/s3cr3t@127.0.0.1",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_c52_no_command_prints_a_password(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = ["--model_path", str(tmp_path / "models")], ["--data_dir", str(tmp_path / "data")]
    (tmp_path / "data" / "val" / "0").mkdir(parents=True)
    codes = [
        get_model.main(["--model_name", "efficientnet_lite0", "--weights", address, *model]),
        get_model.main(["--model_name", "efficientnet_lite0", f"--weihgts={address}", *model]),
        get_model.main(["--model_name", "efficientnet_lite0", address, *model]),
        validate.main(["--model", "efficientnet_lite0", "--weights", address, *data, *model]),
        validate.main(["--model", "cifar_resnet8", "--weights", address, *data, *model]),
        get_dataset.main(["mnist", "--url", address, *data]),
    ]
    told = capsys.readouterr()
    assert 0 not in codes
    assert "s3cr3t" not in told.out + told.err
    assert not [path for path in tmp_path.rglob("*") if "s3cr3t" in path.name]


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("s3://bucket/a", "s3://bucket/a"),
        (b"gs://bucket/a/", "gs://bucket/a/"),
        (Path("az://container/a"), "az://container/a"),  # a Path has one slash
        (Path("https://host/a?w=1"), "https://host/a?w=1"),
        ("/s3://bucket", ""),
        ("s3", ""),
        ("s3:a", ""),
        ("s3:///a", ""),
        ("ftp://host/a", ""),
        ("photos/s3://a", ""),
    ],
)
def test_what_is_an_address(place: str | bytes | Path, address: str) -> None:
    assert address_of(place) == address


def test_whole_paths() -> None:
    assert whole_path(Path("s3://bucket/a/")) == b"s3://bucket/a"
    assert whole_path("a/../b") == os.fsencode(Path.cwd() / "b")


def test_an_address_is_joined_and_shown_like_a_path() -> None:
    path = place_path(Path("s3://bucket/a//b/"))
    assert isinstance(path, AddressPath)
    assert (str(path), os.fspath(path / "c"), f"{path.parent.parent}") == (
        "s3://bucket/a/b",
        "s3://bucket/a/b/c",
        "s3://bucket",
    )
    assert (path.with_name("x"), path.resolve(), path.absolute()) == (AddressPath("s3://bucket/a/x"), path, path)
    assert path.relative_to(AddressPath("s3://bucket")) == Path("a/b")
    assert not isinstance(place_path("a/b"), AddressPath)


@pytest.mark.parametrize("ask", ["exists", "is_dir", "stat", "mkdir", "iterdir", "open", "unlink", "touch", "is_symlink"])
def test_an_address_is_no_file_of_this_machine(ask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="s3://bucket/a is no file of this machine"):
        getattr(AddressPath("s3://bucket/a"), ask)()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("https://host/a.jpg?w=640&h=480", ""),
        ("https://host/a@b.jpg", ""),
        ("s3://bucket/a:b@c?sig=d", ""),  # the key of an object
        ("https://token@host/a", "a user or password"),
        ("gs://user@bucket/a", "a user or password"),
        ("https://host/a?x=1&X-Goog-Signature=1", "a signature or key (X-Goog-Signature)"),
        ("https://host/a?AWSAccessKeyId=", "a signature or key (AWSAccessKeyId)"),
    ],
)
def test_what_must_not_be_stored(address: str, secret: str) -> None:
    assert secret_in(address) == secret

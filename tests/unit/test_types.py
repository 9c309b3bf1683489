"""types.py: what stands in commands of messages, and places as they are meant. Other types are tested where they are used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.parse import parse
from bulkinfer.config import GetModelConfig, LaunchConfig, PartitionConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.user_path import find_data_dir, user_path
from bulkinfer.types import explained, given_place


def test_what_a_reader_replaces_is_explained_behind_the_command() -> None:
    assert explained("bulkinfer run PHOTOS") == "bulkinfer run PHOTOS (PHOTOS: a folder of pictures)"
    assert explained("bulkinfer run 'my photos'") == "bulkinfer run 'my photos'"
    both = explained("get_model --checkpoint RUN --name MY_FILE, or get_model --onnx FILE")
    assert both.endswith("--onnx FILE (RUN: the folder of a training run; FILE: an ONNX file)")
    for own in ("bulkinfer verify MY-RUNS", "bulkinfer verify /data/RUN/x", "bulkinfer run 'my PHOTOS'"):
        assert explained(own) == own


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("S3://bkt/Out", "s3://bkt/Out"),
        ("S3:/bkt/out", "s3:/bkt/out"),  # as a pathlib.Path has it
        (" s3://bkt/out", "s3://bkt/out"),
        ("HTTPS://Host/x", "https://Host/x"),
        ("Gs://a/b", "gs://a/b"),
        ("s3://bkt/a b ", "s3://bkt/a b "),  # the key of an object may end with a blank
    ],
)
def test_addresses_are_mended_where_the_meaning_is_clear(given: str, meant: str) -> None:
    assert given_place(given, "--output") == meant


@pytest.mark.parametrize(
    "text",
    ["", "photos", "./s3//bkt", "/s3://x", "s3/bkt", "timm:resnet50", "a:b", "file", "ray://host:1", "C:/x", "my s3://x"],
)
def test_other_texts_stay(text: str) -> None:
    assert given_place(text, "--output") == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("s3//bkt/out", "--output begins with 's3//': write s3://bucket/folder, or ./s3//... for a path of this machine"),
        ("s3:bkt/out", "--output begins with 's3:': write s3://bucket/folder, or ./s3:... for a path of this machine"),
        ("S3://", "--output begins with 'S3://': write s3://bucket/folder, or ./S3://... for a path of this machine"),
        ("s3:///bkt", "--output begins with 's3:///': write s3://bucket/folder, or ./s3:///... for a path of this machine"),
        ("gcs://b/x", "--output begins with 'gcs://': write gs://bucket/folder, or ./gcs://... for a path of this machine"),
        ("az//b/x", "--output begins with 'az//': write az://container/folder, or ./az//... for a path of this machine"),
        ("http:host", "--output begins with 'http:': write http://host/folder, or ./http:... for a path of this machine"),
        ("file:///tmp/x", "--output begins with 'file:///': give the path alone, without 'file:'"),
        (
            "htps://ann:hidden@host/x",
            "--output begins with 'htps://', which is not read: give a path, or an address with s3://, gs://, az:// or https://",
        ),
    ],
)
def test_what_looks_like_an_address_and_is_none_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        given_place(text, "--output")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("config_class", "name"),
    [(LaunchConfig, "output"), (LaunchConfig, "data_dir"), (GetModelConfig, "model_path"), (PartitionConfig, "output")],
)
def test_every_command_and_python_caller_checks_them(config_class: Callable[..., Any], name: str) -> None:
    assert getattr(parse("x", config_class, [f"--{name}", "S3://bkt/x"]), name) == "s3://bkt/x"  # type: ignore[type-var]
    assert getattr(config_class(**{name: "S3://bkt/x"}), name) == "s3://bkt/x"
    with pytest.raises(UsageError, match=f"^--{name} begins with 's3//'"):
        parse("x", config_class, [f"--{name}", "s3//bkt/x"])
    with pytest.raises(UsageError, match=f"^{name} begins with 's3//'"):
        config_class(**{name: "s3//bkt/x"})


def test_paths_of_functions_and_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert user_path("S3://bkt/x", "output") == Path("s3:/bkt/x")
    monkeypatch.setenv("DATA_DIR", "s3:bkt/x")
    with pytest.raises(UsageError, match=r"^DATA_DIR begins with 's3:'"):
        find_data_dir("")

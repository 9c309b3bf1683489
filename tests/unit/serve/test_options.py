"""options.py: what serve and request take, and which launch the answers are those of."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.serve.options import NAMED_CONFIGS, RequestConfig, ServeConfig


def test_a_network_is_run_as_a_launch_of_the_same_options() -> None:
    config = ServeConfig(model_name=("a", "b"), batch_size=9, top_k=3, decode="fast", max_request_mb=2)
    launch = config.launch_config("b")
    assert (launch.model_name, launch.batch_size, launch.top_k, launch.decode) == ("b", 9, 3, "fast")
    assert launch.max_file_bytes == config.max_request_bytes == 2_000_000


def test_options_of_a_launch_have_its_defaults() -> None:
    launch = {field.name: field.default for field in dataclasses.fields(LaunchConfig)}
    for field in dataclasses.fields(ServeConfig):
        if field.name in launch and field.name != "model_name":
            assert field.default == launch[field.name], field.name


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"port": 65536}, "ports end at 65535"),
        ({"port": 8000, "grpc_port": 8000}, "are both 8000"),
        ({"port": -1, "grpc_port": -1}, "leaves nothing to serve"),
        ({"tls_key": "k"}, "give both"),
        ({"timeout_s": 0}, "leaves no time"),
        ({"model_name": ("a", "a")}, "names a network twice"),
    ],
)
def test_options_of_serve_that_cannot_be(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ServeConfig(**{"model_name": ("a",), **options})


def test_two_free_ports_are_two() -> None:
    assert ServeConfig(model_name=("a",), port=0, grpc_port=0).port == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"config": "other"}, "known are resnet50_infer_bs1"),
        ({"to": "figures.txt"}, "must end with .csv or .json"),
        ({"data_dir": "photos", "send": "tensors"}, "leave out --send tensors"),
        ({"labels": "folder"}, "give that too"),
        ({"timeout_s": 0}, "leaves no time"),
    ],
)
def test_options_of_request_that_cannot_be(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        RequestConfig(**options)


def test_named_sets_are_options() -> None:
    for name, options in NAMED_CONFIGS.items():
        assert RequestConfig(config=name, **options).model_name == "resnet50"  # type: ignore[arg-type]


@pytest.mark.parametrize(("images", "size", "requests"), [(1000, 1, 1000), (21, 4, 6), (20, 4, 5), (1, 8, 1)])
def test_the_last_request_may_be_smaller(images: int, size: int, requests: int) -> None:
    assert RequestConfig(num_images=images, batch_size=size).num_requests == requests

"""bench_spec.py: which entries run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from bulkinfer.bench.spec.bench_spec import chosen
from bulkinfer.bench.spec.entry import Entry, Variant
from bulkinfer.bench.spec.spec_file import Spec
from bulkinfer.errors import UsageError

NAMES = ("resnet_train", "resnet_infer", "resnet_train_conv")
SPEC = Spec(Path("f.yml"), tuple(Entry(name, "x", (Variant(name, {}),), ()) for name in NAMES))


def names(*patterns: str) -> list[str]:
    return [entry.name for entry in chosen(SPEC, patterns)]


def test_patterns(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bulkinfer")
    assert names() == ["resnet_train", "resnet_infer"]
    assert "resnet_train_conv: is left out, since it trains until it converges: name it to run it" in caplog.text
    assert names("*_train", "resnet_infer") == ["resnet_train", "resnet_infer"]
    assert names("*_conv") == ["resnet_train_conv"]


def test_a_pattern_without_a_match_names_the_entries() -> None:
    with pytest.raises(
        UsageError, match=r"no entry of f\.yml matches 'vgg\*'; there are resnet_train, resnet_infer, resnet_train_conv"
    ):
        names("resnet_train", "vgg*")

"""Recipes and labels in files: every form that is taken, and what is said about the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.export.onnx_import.user_files import read_labels, read_recipe, refuse_other_count
from bulkinfer.zoo import NETWORKS

from tests.foreign_graphs import SCALED, recipe_file, recipe_of


def test_a_recipe_comes_from_a_file_or_from_a_network(tmp_path: Path) -> None:
    assert read_recipe(str(recipe_file(tmp_path))) == recipe_of()
    assert read_recipe(str(recipe_file(tmp_path, {**SCALED, "format": 1, "channels": "BGR"}))).channels == "BGR"
    assert read_recipe("EfficientNet-Lite1") == NETWORKS["efficientnet_lite1"].recipe
    with pytest.raises(UsageError, match=r"--recipe: 'mine\.json' is neither a JSON file nor a network of get_model --list"):
        read_recipe("mine.json")


@pytest.mark.parametrize(("content", "told"), [
    ("{", "is no JSON that can be read"),
    ("[" * 100_000, r"is no JSON that can be read \(too deeply nested\)"),
    ('{"height": NaN}', r"is no JSON that can be read \(NaN is no number\)"),
    (json.dumps({**SCALED, "value_range": [1, 1]}), r"value_range \[1, 1\] makes black and white the same"),
    (json.dumps({**SCALED, "resize_size": 10**12}), "resize_size must be 1 to 65535 pixels"),
    (json.dumps({**SCALED, "std": [1e-40, 1, 1]}), "mean, std and value_range make inputs as large as"),
    (json.dumps({**SCALED, "mean": [0, 0, 0.5]}).replace("0.5]", "1e999]"), "fill and value_range must be finite numbers"),
    ("[1]", "holds no JSON object"),
    (json.dumps({**SCALED, "hight": 3, "crop": 1}), "has unknown keys: crop, hight; known are height, width, "),
    (json.dumps({"height": 3, "resize": "exact"}), "lacks width, resize_size, crop_fraction, interpolation, mean, std"),
    (json.dumps({**SCALED, "height": "8"}), "height is '8', not int"),
    (json.dumps({**SCALED, "std": [1, 0, 1]}), "no std may be 0"),
    (json.dumps({**SCALED, "interpolation": "magic"}), "interpolation is 'magic'; known are nearest, "),
])  # fmt: skip
def test_b62_recipes_that_are_none(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(content)
    with pytest.raises(UsageError, match=rf"^--recipe: .*{told}"):
        read_recipe(str(tmp_path / "recipe.json"))


@pytest.mark.parametrize(("name", "content"), [
    ("labels.txt", "cat\nbig dog\nÄrger\n"),
    ("labels.txt", "\ufeffcat\r\nbig dog \r\nÄrger\r\n\r\n"),
    ("labels", "cat\nbig dog\nÄrger"),
    ("labels.json", json.dumps(["cat", "big dog", "Ärger"])),
    ("labels.json", json.dumps({"2": "Ärger", "0": "cat", "1": "big dog"})),
    ("labels.JSON", json.dumps({"Ärger": 2, "big dog": 1, "cat": 0})),
])  # fmt: skip
def test_labels(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, "utf-8", newline="")
    assert read_labels(tmp_path / name) == ("cat", "big dog", "Ärger")


@pytest.mark.parametrize(("name", "content", "told"), [
    ("a.txt", b"", "holds no names"),
    ("a.txt", b"cat\n\ndog\n", r"line 2 of .* is empty"),
    ("a.txt", b"\xff\xfe", "is no text that can be read"),
    ("a.json", b"{", "is no JSON that can be read"),
    ("a.json", b'{"1": "cat", "3": "dog"}', "must number its names from 0 upwards, each number once"),
    ("a.json", b'{"cat": 0, "dog": 0}', "must number its names from 0 upwards, each number once"),
    ("a.json", b'{"0": ["n01", 3]}', "must hold a list of names, or an object of number and name"),
    ("a.json", b'{"0": []}', "must hold a list of names, or an object of number and name"),
    ("a.json", b'{"id2label": {"0": "cat", "2": "dog"}}', "must number its names from 0 upwards, each number once"),
    ("a.json", b"[]", "must hold a list of names"),
    ("a.json", b'["\\ud800"]', "has a name with half a surrogate pair"),
    ("a.json", b"[" * 100_000, "too deeply nested"),
    ("a.json", b"3", "must hold a list of names"),
])  # fmt: skip
def test_labels_that_are_none(name: str, content: Any, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=rf"^--labels: .*{told}"):
        read_labels(tmp_path / name)


@pytest.mark.parametrize(("name", "value"), [
    ("config.json", {"architectures": ["ViT"], "id2label": {"0": "cat", "1": "dog"}, "label2id": {"cat": 0, "dog": 1}}),
    ("config.json", {"hidden_size": 768, "label2id": {"dog": 1, "cat": 0}}),
    ("config.json", {"architecture": "resnet18", "num_classes": 2, "label_names": ["cat", "dog"]}),
    ("imagenet_class_index.json", {"0": ["n02123045", "cat"], "1": ["n02084071", "dog"]}),
    ("classes.json", [["n02123045", "cat"], ["n02084071", "dog"]]),
    ("classes.json", {"class_to_idx": {"dog": 1, "cat": 0}}),
    ("labels.txt", {"0": "cat", "1": "dog"}),
])  # fmt: skip
def test_c42_label_files_of_other_programs(name: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps(value))
    assert read_labels(tmp_path / name) == ("cat", "dog")


def test_c42_a_text_that_only_begins_like_json_is_text(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("[unused]\n{x\n")
    assert read_labels(tmp_path / "labels.txt") == ("[unused]", "{x")


def test_c42_names_that_lack_the_background_class(tmp_path: Path) -> None:
    names = tuple(map(str, range(1000)))
    refuse_other_count(names, 1000, "logits")
    with pytest.raises(UsageError, match=r"has 1,000 names, logits has 1,001 values: .* put background in front of the names"):
        refuse_other_count(names, 1001, "logits")
    refuse_other_count(("background", *names), 1001, "logits")
    with pytest.raises(UsageError, match=r"has 1,001 names, logits has 1,000 values: the first name is Background.* remove it"):
        refuse_other_count(("Background", *names), 1000, "logits")
    with pytest.raises(UsageError, match=r"has 1,000 names, logits has 21,843 values$"):
        refuse_other_count(names, 21843, "logits")
    (tmp_path / "a.json").write_text(json.dumps({str(number + 1): name for number, name in enumerate(names)}))
    with pytest.raises(UsageError, match="numbers its names from 1: number them from 0, or add background as number 0"):
        read_labels(tmp_path / "a.json")


def test_labels_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--labels: .*labels\.txt does not exist$"):
        read_labels(tmp_path / "labels.txt")
    os.mkfifo(tmp_path / "pipe")
    for name, told in (("pipe", "is a pipe or a device"), (".", "is a folder: give the file in it")):
        with pytest.raises(UsageError, match=told):
            read_labels(tmp_path / name)
    with pytest.raises(UsageError, match="is neither a JSON file nor a network"):
        read_recipe("x" * 5000)


def test_only_ends_of_lines_end_a_label(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\u2028b\nc\x0bd\x85e", "utf-8")
    assert read_labels(tmp_path / "labels.txt") == ("a\u2028b", "c\x0bd\x85e")

"""docs/pixels.md names every key of a recipe and every flag of a picture, and each rule has a test that exists."""

from __future__ import annotations

import ast
import re
from dataclasses import fields

from bulkinfer.images.colours import IGNORED_PROFILE, SCALED
from bulkinfer.model.recipe import COLOURS, ORIENTATIONS, RESIZE_MODES, Recipe

from tests.rules.source import ROOT, tree

TEXT = (ROOT / "docs/pixels.md").read_text()
HEAD = "| what | rule | option | test |"
RULES = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and line != HEAD
]
FILES = {letter: ROOT / path for letter, path in re.findall(r"`([A-Z])`\s(?:is\s)?`(tests/\S+\.py)`", TEXT)}


def test_every_rule_has_a_test_that_exists() -> None:
    assert len(RULES) > 30
    for what, rule, option, named in RULES:
        assert what, rule
        assert option, what
        letter, name = re.fullmatch(r"`([A-Z])::(test_\w+)`", named).groups()  # type: ignore[union-attr]
        tests = {node.name for node in tree(FILES[letter]).body if isinstance(node, ast.FunctionDef)}
        assert name in tests, (what, named)


def test_every_key_of_a_recipe_has_a_rule() -> None:
    options = {name for _, _, option, _ in RULES for name in re.findall(r"`(\w+)`", option)}
    assert options == {field.name for field in fields(Recipe)}


def test_every_value_and_flag_is_said() -> None:
    for value in (*ORIENTATIONS, *COLOURS, *RESIZE_MODES):
        assert f'"{value}"' in TEXT, value
    for flag in (SCALED, IGNORED_PROFILE):
        assert f"`{flag}`" in TEXT, flag

"""words.py: flags of other programs beside those of a command; test_parse.py has all other spellings."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from bulkinfer.commands.words import boolean, read_words
from bulkinfer.config import option
from bulkinfer.errors import UsageError
from bulkinfer.types import ForeignFlag, Given


@dataclass(frozen=True)
class Settings:
    """Do something."""

    batch_size: int = option(6, "pictures per batch", minimum=1)
    mode: str = option("during", "when", choices=("during", "after"))
    cut: tuple[str, ...] = option((), "where to cut")
    synthetic: bool = option(False, "no input")


FOREIGN = {
    "pipeline": ForeignFlag("none"),
    "shards": ForeignFlag("one"),
    "splits": ForeignFlag("many"),
    "cut": ForeignFlag("any"),
    "mode": ForeignFlag("optional"),
    "rounding": ForeignFlag("optional", ("ON", "OFF")),
}


def given(*words: str) -> list[tuple[str, str]]:
    return [(each.name, each.value) for each in read_words("act", Settings, words, foreign=FOREIGN)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--pipeline --shards 2", [("pipeline", "true"), ("shards", "2")]),
        ("--pipeline False --no-pipeline --nopipeline", [("pipeline", "false")] * 3),
        ("--shards=-1 --shards -1", [("shards", "-1")] * 2),
        ("--splits a b --synthetic", [("splits", "a,b"), ("synthetic", "true")]),
        ("--cut --cut a b --cut False --no-cut", [("cut", "true"), ("cut", "a,b"), ("cut", "false"), ("cut", "false")]),
        ("--mode --mode after --mode True", [("mode", "true"), ("mode", "after"), ("mode", "true")]),
        ("--rounding ON --rounding --rounding=OFF --no-rounding",
         [("rounding", "ON"), ("rounding", "true"), ("rounding", "OFF"), ("rounding", "false")]),
        ("--batch-size 3 --splits=a,b", [("batch_size", "3"), ("splits", "a,b")]),
    ],
)  # fmt: skip
def test_flags_of_other_programs(words: str, found: list[tuple[str, str]]) -> None:
    assert given(*words.split()) == found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--shards --synthetic", "--shards needs a value"),
        ("--shards --unheard", "--shards needs a value"),
        ("--shards", "--shards needs a value"),
        ("--splits --pipeline", "--splits needs at least one value"),
        ("--pipeline maybe", "word that belongs to no flag: 'maybe'; see act --help"),
        ("--pipeline=maybe", "--pipeline=maybe is a switch: give it alone, or with true or false"),
        ("--rounding 7", "word that belongs to no flag: '7'; see act --help"),
        ("--shard 2", "unknown flag: '--shard'; did you mean --shards?"),
    ],
)
def test_wrong_words(words: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        given(*words.split())
    assert str(error.value) == sentence


def test_the_word_is_kept_as_it_was_typed() -> None:
    assert read_words("act", Settings, ["--no-pipeline", "-shards=2"], foreign=FOREIGN) == [
        Given("pipeline", "false", "--no-pipeline"),
        Given("shards", "2", "-shards=2"),
    ]


def test_help_is_all_that_counts() -> None:
    assert given("--shards", "2", "--help", "--unheard") == [("help", "")]
    assert given("--version") == [("version", "")]


def test_truth_values() -> None:
    assert [boolean(word) for word in ("True", "1", "yes", "F", "no", "2", "")] == [True, True, True, False, False, None, None]

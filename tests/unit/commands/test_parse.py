"""parse.py: words -> config, on a config class of the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.parse import HelpRequested, parse
from bulkinfer.config import option
from bulkinfer.errors import UsageError
from bulkinfer.launch.options import RetryConfig, VerifyConfig


@dataclass(frozen=True)
class Settings:
    """Do something."""

    batch_size: int = option(6, "pictures per batch", aliases=("micro_batch_size",), minimum=1)
    offset: int = option(0, "first picture")
    data_dir: str = option("", "folder")
    device: str = option("auto", "provider", choices=("auto", "cpu"))
    synthetic: bool = option(False, "no input")
    splits: tuple[str, ...] = option((), "where to cut")
    save: tuple[str, ...] = option(("topk",), "columns", choices=("topk", "logits", "none"))
    key: str = option("", "pattern", is_text=True)


def parsed(*words: str, positional: str = "") -> Settings:
    return parse("act", Settings, words, positional=positional)


def refusal(*words: str, positional: str = "") -> str:
    with pytest.raises(UsageError) as caught:
        parsed(*words, positional=positional)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults() -> None:
    assert parsed() == Settings()


@pytest.mark.parametrize("words", [
    ("--batch_size", "16"), ("--batch-size", "16"), ("--batch_size=16",), ("--batch-size=16",), ("-batch-size", "16"),
    ("--micro_batch_size", "16"), ("--micro-batch-size=16",), ("--batch_size", "2", "--micro-batch-size", "16"),
])  # fmt: skip
def test_spellings_of_a_value(words: tuple[str, ...]) -> None:
    assert parsed(*words).batch_size == 16


@pytest.mark.parametrize(("words", "value"), [
    (("--synthetic",), True), (("--synthetic=true",), True), (("--synthetic", "True"), True), (("--synthetic", "1"), True),
    (("--nosynthetic",), False), (("--no-synthetic",), False), (("--no_synthetic",), False),
    (("--synthetic", "False"), False), (("--synthetic=false",), False), (("--synthetic=0",), False),
])  # fmt: skip
def test_spellings_of_a_switch(words: tuple[str, ...], value: bool) -> None:
    assert parsed("--synthetic", *words).synthetic is value
    assert parsed("--nosynthetic", *words).synthetic is value


@pytest.mark.parametrize("words", [
    ("--splits", "a", "b", "c"), ("--splits", "a,b,c"), ("--splits=a,b,c",), ("--splits", "a,", "b,", "c"),
    ("--splits", "a,b", "c"),
])  # fmt: skip
def test_spellings_of_a_list(words: tuple[str, ...]) -> None:
    assert parsed(*words).splits == ("a", "b", "c")
    assert parsed(*words, "--offset", "1") == Settings(splits=("a", "b", "c"), offset=1)


def test_values_may_start_with_a_dash() -> None:
    assert parsed("--offset", "-3").offset == -3
    assert parsed("--data_dir", "-photos").data_dir == "-photos"
    assert parsed("--data_dir", "--photos").data_dir == "--photos"
    assert parsed("--data-dir=--batch_size").data_dir == "--batch_size"
    assert parsed("--splits", "-1", "-x", "--offset", "2") == Settings(splits=("-1", "-x"), offset=2)


def test_values_are_kept_as_they_are() -> None:
    assert parsed("--data_dir", "a b=c,d").data_dir == "a b=c,d"
    assert parsed("--data_dir", "a\nb").data_dir == "a\nb"
    assert parsed("--device", "CPU").device == "cpu"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--data_dir=",), {}),
        (("--data_dir", ""), {}),
        (("",), {"positional": "data_dir"}),
        (("",), {"first_word": "data_dir"}),
        (("--offset", "1", "--", ""), {"first_word": "data_dir"}),
    ],
)
def test_an_empty_word_is_not_taken_as_not_given(words: tuple[str, ...], named: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        parse("act", Settings, words, **named)
    assert str(caught.value) == "--data_dir is empty, as a variable of the shell that is not set: give a value, or leave it out"


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert parsed("--data_dir=~/a").data_dir == parsed("~/a", positional="data_dir").data_dir == "/home/me/a"
    assert parsed("--splits", "~/a,./~/b").splits == ("/home/me/a", "./~/b")
    assert parsed("--key=~/*").key == "~/*"


def test_positional_word() -> None:
    assert parsed("photos", "--offset", "1", positional="data_dir") == Settings(data_dir="photos", offset=1)
    assert parsed("--synthetic", "photos", positional="data_dir") == Settings(data_dir="photos", synthetic=True)
    assert "'more'" in refusal("photos", "more", positional="data_dir")


@pytest.mark.parametrize(("words", "sentence"), [
    (("photos",), "word that belongs to no flag: 'photos'; did you mean --data_dir?"),
    (("holiday",), "word that belongs to no flag: 'holiday'; see act --help"),
    (("synthetik",), "word that belongs to no flag: 'synthetik'; did you mean --synthetic?"),
    (("--synthetic", "maybe"), "word that belongs to no flag: 'maybe'; see act --help"),
    (("--batchsize", "6"), "unknown flag: '--batchsize'; did you mean --batch_size?"),
    (("--nosynthetik",), "unknown flag: '--nosynthetik'; did you mean --nosynthetic?"),
    (("--save", "topk", "--sintetic"), "unknown flag: '--sintetic'; did you mean --synthetic?"),
    (("--",), "unknown flag: '--'; see act --help"),
    (("--batch_size",), "--batch_size needs a value"),
    (("--data_dir", "--synthetic"), "--data_dir needs a value"),
    (("--data_dir", "--help"), "--data_dir needs a value"),
    (("--save",), "--save needs at least one value"),
    (("--save", "--synthetic"), "--save needs at least one value"),
    (("--save=",), "--save=: at least one value is needed"),
    (("--batch_size", "six"), "--batch_size=six: not a whole number"),
    (("--batch_size", "1.5"), "--batch_size=1.5: not a whole number"),
    (("--batch_size=",), "--batch_size=: not a whole number"),
    (("--batch_size", "0"), "--batch_size=0: 0 is not a positive integer"),
    (("--device", "tpu"), "--device=tpu: value should be one of <auto|cpu>"),
    (("--save", "topk", "all"), "--save=topk,all: value should be one of <topk|logits|none>, not 'all'"),
    (("--synthetic=maybe",), "--synthetic=maybe is a switch: give it alone, or with true or false"),
    (("--nosynthetic=true",), "--nosynthetic=true is a switch: give it alone, or with true or false"),
])  # fmt: skip
def test_wrong_words(words: tuple[str, ...], sentence: str) -> None:
    assert refusal(*words) == sentence


def test_flagfile(tmp_path: Path) -> None:
    saved = tmp_path / "saved.flags"
    saved.write_text("# a saved configuration\n--batch-size=16\n--data_dir two words\n--save topk logits\n\n--no-synthetic\n")
    expected = Settings(batch_size=16, data_dir="two words", save=("topk", "logits"))
    assert parsed("--flagfile", str(saved)) == parsed(f"--flagfile={saved}") == expected
    assert parsed("--offset", "1", "--splits", "a", "b", f"--flagfile={saved}", "--batch_size", "7") == Settings(
        batch_size=7, offset=1, data_dir="two words", splits=("a", "b"), save=("topk", "logits")
    )


def test_flagfiles_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe--x")
    assert "No such file" in refusal("--flagfile", str(tmp_path / "none"))
    assert refusal("--flagfile", str(tmp_path / "binary")) == "--flagfile: the file is not a readable text file"
    assert refusal("--flagfile").startswith("--flagfile: ")
    (tmp_path / "wrong").write_text("--sintetic\n")
    assert "did you mean --synthetic" in refusal("--flagfile", str(tmp_path / "wrong"))


def test_version() -> None:
    with pytest.raises(HelpRequested, match=r"act \(bulkinfer \d+\.\d+"):
        parsed("--version")


def test_plain_words_of_a_list_are_one_value_each() -> None:
    assert parse("verify", VerifyConfig, ["a", "b,c", "d"], positional="output").output == ("a", "b,c", "d")
    assert parse("verify", VerifyConfig, ["--output", "a", "b"], positional="output").output == ("a", "b")
    assert parse("verify", VerifyConfig, [], positional="output").output == ()
    assert parse("retry", RetryConfig, ["a,b", "--streams", "2"], positional="output").output == "a,b"
    with pytest.raises(UsageError, match="word that belongs to no flag: 'b'"):
        parse("retry", RetryConfig, ["a", "b"], positional="output")


def test_a_plain_word_may_follow_a_list_of_known_words() -> None:
    """As in `bulkinfer retry --stage read decode OUTPUT`."""
    for words in (
        ("--stage", "read", "decode", "out"),
        ("out", "--stage", "read", "decode"),
        ("--stage", "read,decode", "out"),
    ):
        found = parse("bulkinfer retry", RetryConfig, words, positional="output")
        assert (found.output, found.stage) == ("out", ("read", "decode"))


@pytest.mark.parametrize(("words", "expected"), [
    (("photos",), Settings(data_dir="photos")),
    (("a,b", "--offset", "-1"), Settings(data_dir="a,b", offset=-1)),
    (("--save", "topk", "logits", "--", "photos"), Settings(data_dir="photos", save=("topk", "logits"))),
    (("--offset", "2", "--", "-photos"), Settings(data_dir="-photos", offset=2)),
    (("photos", "--splits", "a", "b"), Settings(data_dir="photos", splits=("a", "b"))),
    (("photos", "--"), Settings(data_dir="photos")),
    ((), Settings()),
])  # fmt: skip
def test_the_first_word(words: tuple[str, ...], expected: Settings) -> None:
    assert parse("act", Settings, words, first_word="data_dir") == expected


@pytest.mark.parametrize(("words", "sentence"), [
    (
        ("--offset", "2", "holiday"),
        "word that belongs to no flag: 'holiday'; one word is taken for --data_dir: the first, or the one behind a --",
    ),
    (("--offset", "2", "photos"), "word that belongs to no flag: 'photos'; did you mean --data_dir?"),
    (("photos", "--", "more"), "one word without a flag is taken, and there are 2: leave out 'more'"),
    (("photos", "--data_dir", "photos"), "'photos' stands for --data_dir, which is given as well: leave one of them out"),
    (("--data-dir=a", "--", "b"), "'b' stands for --data_dir, which is given as well: leave one of them out"),
    (("photos", "synthetic"), "word that belongs to no flag: 'synthetic'; did you mean --synthetic?"),
])  # fmt: skip
def test_other_plain_words_are_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse("act", Settings, words, first_word="data_dir")
    assert str(caught.value) == sentence


def test_a_plain_word_and_its_flag_are_not_both_taken() -> None:
    with pytest.raises(UsageError, match="'b' stands for --output, which is given as well"):
        parse("retry", RetryConfig, ["--output", "a", "b"], positional="output")

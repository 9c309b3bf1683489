"""errors.py: the first line of a message, and errors of the operating system as one printable line."""

from __future__ import annotations

import pytest
from bulkinfer.errors import (
    STAGES,
    DamagedError,
    LockedError,
    RecordError,
    RunError,
    advising,
    first_line,
    os_error_sentence,
)


def test_first_line() -> None:
    assert first_line(ValueError("\n one\n two")) == "one"
    assert first_line(RuntimeError()) == first_line(RuntimeError(" \n")) == "RuntimeError"
    assert first_line(KeyError("name")) == "'name'"
    assert len(first_line(ValueError("x" * 1000))) == 300


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(13, "Permission denied", "/x"), "Permission denied: /x"),
        (OSError(13, "Permission denied", b"/caf\xe9"), "Permission denied: /caf\\xe9"),
        (OSError(13, "Permission denied", "/caf\udce9"), "Permission denied: /caf\\xe9"),
        (OSError(13, "Permission denied", "/café"), "Permission denied: /café"),
        (OSError(13, "Permission denied", "/a\nb"), "Permission denied: /a\\nb"),
        (OSError(9, "Bad file descriptor", 7), "Bad file descriptor: file descriptor 7"),
        (OSError(18, "Invalid cross-device link", "/a", None, b"/b"), "Invalid cross-device link: /a -> /b"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("told in\ntwo lines"), "told in"),
        (OSError(), "OSError"),
    ],
)
def test_os_error_sentence(error: OSError, sentence: str) -> None:
    assert os_error_sentence(error) == sentence
    assert os_error_sentence(error).isprintable()


def test_stages_are_those_that_can_fail() -> None:
    assert STAGES == ("read", "decode", "preprocess", "infer")
    with pytest.raises(AssertionError):
        RecordError("write", "x")


def test_advice_comes_once_and_is_of_damage_only() -> None:
    with pytest.raises(RunError) as caught, advising("the outer"), advising("make it anew"):
        raise DamagedError("a.json is damaged (not JSON)")
    assert (type(caught.value), str(caught.value)) == (RunError, "a.json is damaged (not JSON): make it anew")
    with pytest.raises(LockedError, match=r"^held$"), advising("make it anew"):
        raise LockedError("held")

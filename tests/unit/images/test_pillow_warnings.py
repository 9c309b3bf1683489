"""pillow_warnings.py: counts by kind, and counts that go from a loader process to its worker."""

from __future__ import annotations

import pytest
from bulkinfer.images import pillow_warnings
from bulkinfer.images.pillow_warnings import add_counts, count_notice, take_counts, warning_counts


@pytest.fixture(autouse=True)
def nothing_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pillow_warnings, "_counts", pillow_warnings.Counter())


def test_messages_that_differ_in_numbers_are_one_kind() -> None:
    for text in ("tag 1 of 7", "tag 12  of 9", "another"):
        count_notice(text)
    assert warning_counts() == {"tag N of N": 2, "another": 1}


def test_counts_go_to_another_process_once() -> None:
    count_notice("tag 1")
    count_notice("tag 2")
    taken = take_counts()
    assert taken == {"tag N": 2}
    assert take_counts() == warning_counts() == {}
    add_counts(taken)
    add_counts({"tag N": 3, "another": 1})
    assert warning_counts() == {"tag N": 5, "another": 1}


def test_the_number_of_kinds_is_bounded() -> None:
    letters = [f"{first}{second}" for first in "abcdefgh" for second in "abcdefgh"]
    for text in letters:
        count_notice(text)
    add_counts({"one more kind": 4})
    found = warning_counts()
    assert len(found) == 51
    assert found["other decoder warnings"] == len(letters) - 50 + 4

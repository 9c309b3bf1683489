"""page_cache.py: pages are made once, also by several threads, and the last ones are kept."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from bulkinfer.records.page_cache import PageCache

PAGE = pa.array([bytes(1000)])


def test_the_last_pages_are_kept() -> None:
    cache, made = PageCache(3 * PAGE.get_total_buffer_size(), pa.Array.get_total_buffer_size), list[int]()

    def get(number: int) -> None:
        cache.get(number, lambda: made.append(number) or pa.array([bytes(1000)]))

    for number in (0, 1, 2, 0, 3, 0, 2, 1):
        get(number)
    assert made == [0, 1, 2, 3, 1]  # 1 was the one that was not used for the longest time


def test_two_pages_are_kept_however_large() -> None:
    cache, made = PageCache(0, pa.Array.get_total_buffer_size), list[int]()
    for number in (0, 1, 0, 1, 2, 1, 0):
        cache.get(number, lambda number=number: made.append(number) or PAGE)  # type: ignore[misc]
    assert made == [0, 1, 2, 0]


def test_threads_that_want_one_page_wait_for_it() -> None:
    cache, started, may_end, made = (
        PageCache(0, pa.Array.get_total_buffer_size),
        threading.Event(),
        threading.Event(),
        list[int](),
    )

    def make() -> pa.Array:
        made.append(1)
        started.set()
        may_end.wait()
        return PAGE

    found = list[pa.Array]()
    threads = [threading.Thread(target=lambda: found.append(cache.get("page", make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    may_end.set()
    for thread in threads:
        thread.join()
    assert (found, made) == ([PAGE] * 4, [1])


def test_a_page_that_cannot_be_made_is_tried_again() -> None:
    cache = PageCache(0, pa.Array.get_total_buffer_size)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache.get("page", lambda: 1 // 0)
    assert cache.get("page", lambda: PAGE) is PAGE

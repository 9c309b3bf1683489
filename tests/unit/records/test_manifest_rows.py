"""manifest_rows.py: keys as columns and as a hash, in blocks of any size."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from bulkinfer.records import manifest_rows as entries
from bulkinfer.records.manifest_rows import ROWS, Entry, add_keys, entries_table, hash_keys, key_columns
from bulkinfer.types import key_text
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.lists(st.binary(max_size=6).filter(lambda key: b"\0" not in key), max_size=20)


def table(keys: list[bytes], chunks: int = 1) -> pa.Table:
    text = [key.decode("utf-8", "backslashreplace") for key in keys]
    raw = [key if b"\xe9" in key else None for key in keys]
    parts = [pa.table({"key": pa.array(text[i::chunks], pa.string()), "key_bytes": pa.array(raw[i::chunks], pa.binary())})
             for i in range(chunks)]  # fmt: skip
    return pa.concat_tables(parts)


def test_keys_of_parts_add_up_to_those_of_the_manifest() -> None:
    keys = [b"a/1.jpg", b"caf\xe9", rb"caf\xe9", b"", b"b"]
    whole = hash_keys([table(keys)])
    assert hash_keys([table(keys[:2]), table([]), table(keys[2:])]) == whole
    assert hash_keys([table(keys).slice(0, 3), table(keys).slice(3)]) == whole
    assert hash_keys([table([keys[0], keys[2], keys[1]], chunks=2)]) == hash_keys([table([keys[0], keys[1], keys[2]])])
    others = [keys[::-1], keys[:-1], [b"a/1.jpgcaf\xe9", *keys[2:]], [*keys, b""], [b"a/1.jp", b"gcaf\xe9", *keys[2:]]]
    assert whole not in [hash_keys([table(other)]) for other in others]


@given(KEYS, st.integers(1, 7))
def test_the_hash_is_over_each_key_and_its_end(keys: list[bytes], size: int) -> None:
    """Whatever the blocks: this is what published parts carry, so it may never change."""
    expected = hashlib.sha256(b"".join(key + b"\0" for key in keys)).hexdigest()
    parts = [entries_table([Entry(key, 1) for key in keys[i : i + size]]) for i in range(0, len(keys), size)]
    assert hash_keys(parts) == expected
    digest = hashlib.sha256()
    for part in parts:
        add_keys(digest, part)
    assert digest.hexdigest() == expected


@given(KEYS)
def test_keys_as_columns(keys: list[bytes]) -> None:
    texts, raw = key_columns(pa.array(keys, pa.binary()))
    assert (texts.type, raw.type) == (pa.string(), pa.binary())
    assert texts.to_pylist() == [key_text(key) for key in keys]
    assert raw.to_pylist() == [None if key_text(key).encode() == key else key for key in keys]


def test_more_keys_than_the_shared_block_of_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (ROWS, ROWS + 1, 2 * ROWS + 3):
        texts, raw = key_columns(pa.array([b"%d" % n for n in range(count)], pa.binary()))
        assert (len(texts), len(raw), raw.null_count) == (count, count, count)


def test_utf8_is_checked_once_for_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sound keys cost no Python call each."""

    def refuse(_: bytes) -> str:
        pytest.fail("decoded one by one")

    monkeypatch.setattr(entries, "key_text", refuse)
    assert key_columns(pa.array(["é".encode(), b"b"], pa.binary()))[0].to_pylist() == ["é", "b"]

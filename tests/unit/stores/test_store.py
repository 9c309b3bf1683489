"""store.py: which store and key an address names, and which addresses are refused."""

from __future__ import annotations

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.stores.store import open_store
from bulkinfer.stores.web import Web


def refusal(address: str) -> str:
    with pytest.raises(UsageError) as caught:
        open_store(address)
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("s3://bucket", ""),
        ("s3://bucket/", ""),
        ("s3://bucket/a/b c.jpg", "a/b c.jpg"),
        ("s3://bucket/a:b@c?d#e%41.jpg", "a:b@c?d#e%41.jpg"),  # the key of an object has no other parts
    ],
)
def test_the_key_of_an_object(address: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store, found = open_store(address)
    assert found == key
    assert open_store(address)[0] is store


def test_on_the_web_the_key_is_the_whole_address() -> None:
    store, key = open_store("https://host:8080/a/b.jpg?w=640#x")
    assert isinstance(store, Web)
    assert key == "https://host:8080/a/b.jpg?w=640#x"


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("https://ann:hidden@host/a.jpg", "https://host/a.jpg holds a user or password"),
        ("s3://ann:hidden@bucket/a.jpg", "s3://bucket/a.jpg holds a user or password"),
        ("https://host/a.jpg?X-Amz-Signature=hidden", "https://host/a.jpg?... holds a signature or key (X-Amz-Signature)"),
        ("https://host/a.jpg?sv=1&sig=hidden", "https://host/a.jpg?... holds a signature or key (sig)"),
        ("https://host/a.jpg?token=hidden", "https://host/a.jpg?... holds a signature or key (token)"),
        ("s3:///a.jpg", "s3:///a.jpg names no bucket"),
        ("https:///a.jpg", "https:///a.jpg names no server"),
    ],
)
def test_refused_addresses(address: str, what: str) -> None:
    assert refusal(address).startswith(what)
    assert "hidden" not in refusal(address)

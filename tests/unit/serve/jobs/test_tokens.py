"""The token of a request names its user."""

from __future__ import annotations

import hashlib

import pytest
from bulkinfer.serve.jobs.tokens import user_of
from bulkinfer.serve.refusals import Reason, RefusedError

USERS = {name: hashlib.sha256(f"token of {name}".encode()).hexdigest() for name in ("ann", "bob")}


@pytest.mark.parametrize("name", ["ann", "bob"])
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer "])
def test_the_user_is_found(name: str, scheme: str) -> None:
    assert user_of(f"{scheme}token of {name}", USERS) == name


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer token of eve", "token of ann", "Basic token of ann", f"Bearer {USERS['ann']}",
     "Bearer é\udcff"],
)  # fmt: skip
def test_others_are_refused(header: str) -> None:
    with pytest.raises(RefusedError, match="Authorization: Bearer TOKEN") as refusal:
        user_of(header, USERS)
    assert refusal.value.reason is Reason.NO_TOKEN


def test_the_hash_of_nothing_lets_nobody_in() -> None:
    with pytest.raises(RefusedError):
        user_of("Bearer ", {"ann": hashlib.sha256(b"").hexdigest()})

"""Whose token a request has."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from bulkinfer.serve.refusals import Reason, RefusedError

_SCHEME = "bearer "


def user_of(authorization: str, users: Mapping[str, str]) -> str:
    """The user whose token the header Authorization has; `users` maps names to the sha256 of their tokens.

    The token is compared with those of all users, in constant time. Raises RefusedError if it is none of them.
    """
    given = authorization[len(_SCHEME) :].strip() if authorization.lower().startswith(_SCHEME) else ""
    digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).hexdigest()
    found = [name for name, expected in users.items() if hmac.compare_digest(digest, expected)]
    if not given or not found:
        raise RefusedError(Reason.NO_TOKEN, "jobs need the token of a user: send the header Authorization: Bearer TOKEN")
    return found[0]

"""Buckets of S3, Google Cloud Storage and Azure, by the package obstore."""

from __future__ import annotations

import hashlib
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bulkinfer.errors import AbsentObjectError, ObjectError, RunError, StoreError, UsageError, first_line
from bulkinfer.host.install_hint import install_command
from bulkinfer.stores.problems import LOGINS, broke_off, has_answered, has_begun, problem
from bulkinfer.stores.store import Admit, Found, Listed

_T = TypeVar("_T")
_EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure"}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_ENDPOINT_URL", "GOOGLE_BASE_URL"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
# A try that hangs is given up, and tried again with pauses that double. A store that has answered is waited for longer than
# one that never did: its name may be wrong. One that was waited for in vain is waited for shortly until it answers again: all
# that a launch does at its end would wait as long.
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "20s", "timeout": "600s"}
_FIRST_S, _LATER_S = 10, 120
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 4}  # base / 2 on average
_MOST_RETRIES = 1000  # the time decides
_BROKEN_TRIES, _PAUSE_S = 6, 0.05  # of a request whose answer breaks off
_SECOND_NS = 1_000_000_000
_PAGE = 1000  # objects of a listing that are taken at once
_OWN_ROLE = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE")


class Bucket:
    """One bucket, or container of Azure; see Store. Credentials come from the environment and are kept by the client alone.

    Raises UsageError if obstore is not installed, or if the credentials of a profile cannot be used.
    """

    def __init__(self, scheme: str, name: str) -> None:
        try:
            import obstore
        except ModuleNotFoundError:
            extra = install_command(_EXTRAS[scheme])
            raise UsageError(f"{scheme}://{name} needs the package obstore, which is not installed: {extra}") from None
        self._client: Any = obstore
        self._scheme, self._name = scheme, name
        self._given = {} if scheme != "s3" else self._login()
        self._store, self._has_answered, self._was_given_up = self._opened(_FIRST_S), False, False

    def _opened(self, patience_s: float) -> Any:
        from obstore import store

        makers = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
        allows_http = any(address.startswith("http://") for address in self._endpoints())
        options: dict[str, Any] = {**_TIMEOUTS, "user_agent": "bulkinfer", **({"allow_http": True} if allows_http else {})}
        retries = {"max_retries": _MOST_RETRIES, "retry_timeout": timedelta(seconds=patience_s), "backoff": _BACKOFF}
        try:
            return makers[self._scheme](self._name, client_options=options, retry_config=retries, **self._given)
        except Exception as error:  # obstore documents no classes; its text names options, no values
            reason = re.sub(r"^Generic \w+ error: ", "", first_line(error))
            raise UsageError(f"{self._scheme}://{self._name} cannot be opened ({reason}): {LOGINS[self._scheme]}") from None

    def _endpoints(self) -> list[str]:
        """The servers that variables name in place of the usual one.

        Raises UsageError for what is no address, at which the client panics. It is not shown: it may hold a password.
        """
        given = {name: value for name in _ENDPOINTS[self._scheme] if (value := os.environ.get(name, ""))}
        for name, value in given.items():
            if not (value.startswith(("http://", "https://")) and urlsplit(value).hostname):
                raise UsageError(f"{name} is no address of a server: write it as https://host or http://host:9000")
        return [*given.values()]

    def _login(self) -> dict[str, Any]:
        """Further arguments of the client of S3, whose own search for credentials does not know the files of ~/.aws."""
        environment = os.environ
        is_public = environment.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true", "yes")
        if is_public or any(environment.get(name) for name in ("AWS_ACCESS_KEY_ID", *_OWN_ROLE)):
            return {}
        files = (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config"))
        if environment.get("AWS_PROFILE") or any(
            Path(environment.get(name) or path).expanduser().is_file() for name, path in files
        ):
            return self._profile()
        return {}

    def _profile(self) -> dict[str, Any]:
        """The credentials of ~/.aws, which boto3 reads, also those of a login that expires."""
        try:
            from obstore.auth.boto3 import Boto3CredentialProvider

            return {"credential_provider": Boto3CredentialProvider()}
        except ModuleNotFoundError:
            extra = install_command("s3")
            raise UsageError(f"the credentials in ~/.aws need the package boto3, which is not installed: {extra}") from None
        except Exception as error:  # of boto3, for a profile that is not there, or has no credentials
            raise UsageError(f"the credentials in ~/.aws cannot be used ({first_line(error)}): {LOGINS['s3']}") from None

    def get(self, key: str, most_bytes: int, admit: Admit) -> bytes:
        """The content of an object."""

        def read() -> bytes:
            answer = self._client.get(self._store, key)
            size = int(answer.meta["size"])
            if size > most_bytes:
                raise ObjectError(f"too large: {size} bytes, limit {most_bytes}")
            admit(size)
            return bytes(answer.bytes().to_bytes())

        return self._ask(key, read)

    def get_range(self, key: str, offset: int, count: int) -> tuple[bytes, Found]:
        """Bytes from `offset` on, and what is known of the whole object."""

        def read() -> tuple[bytes, Found]:
            answer = self._client.get(self._store, key, options={"range": (offset, offset + count)})
            return bytes(answer.bytes().to_bytes()), _found(answer.meta)

        return self._ask(key, read)

    def find(self, key: str) -> Found:
        """What is known of an object."""
        return self._ask(key, lambda: _found(self._client.head(self._store, key)))

    def list(self, prefix: str) -> Iterator[list[Listed]]:
        """The objects below `prefix`, a page at a time."""
        last: str | None = None
        pages: Any = None

        def next_page() -> list[Any]:
            nonlocal pages
            if pages is None:  # at the beginning, or after a page that broke off
                pages = iter(self._client.list(self._store, prefix or None, offset=last, chunk_size=_PAGE))
            try:
                return next(pages, [])
            except BaseException:
                pages = None
                raise

        while page := self._ask("", next_page):
            last = page[-1]["path"]
            yield [Listed(each["path"], int(each["size"]), _time_ns(each), str(each["e_tag"] or "")) for each in page]

    def put(self, key: str, data: bytes, *, only_new: bool = False, instead_of: str = "") -> str:
        """Write an object as a whole, in one request."""
        mode: Any = "create" if only_new else {"e_tag": instead_of} if instead_of else "overwrite"
        # An answer that broke off may be that of a put that was done: a second one would be a conflict with the first.
        done = self._ask(key, lambda: self._client.put(self._store, key, data, mode=mode, use_multipart=False), tries=1)
        return str(done["e_tag"] or "")

    def delete(self, key: str) -> None:
        """Remove an object."""
        try:
            self._ask(key, lambda: self._client.delete(self._store, key))
        except AbsentObjectError:
            return

    def _ask(self, key: str, request: Callable[[], _T], tries: int = _BROKEN_TRIES) -> _T:
        """The result of a request. Errors of the client are raised as ours.

        The client itself repeats a request that fails, but not one whose answer breaks off: that is done here.
        """
        began, number = time.monotonic(), 0
        while True:
            number += 1
            try:
                found = request()
            except ObjectError:
                raise
            except (OSError, ValueError, self._client.exceptions.BaseError) as error:
                if has_answered(error) and not (self._has_answered or self._was_given_up):
                    self._be_patient()  # it is there, and is given the time of one that works
                    continue
                if tries == 1 or not broke_off(error):
                    raise self._given_up(problem(error, self._scheme, self._name, key)) from None
                if number >= tries or time.monotonic() - began > self._patience_s:
                    raise self._given_up(self._broken(error, key, number)) from None
                time.sleep(random.uniform(0.5, 1.0) * _PAUSE_S * 2**number)
                continue
            if not self._has_answered:
                self._be_patient()
            return found

    @property
    def _patience_s(self) -> float:
        return _FIRST_S if self._was_given_up else _LATER_S

    def _be_patient(self) -> None:
        self._store, self._has_answered, self._was_given_up = self._opened(_LATER_S), True, False

    def _given_up(self, error: RunError) -> RunError:
        """`error`, after which the store is waited for shortly if it is one of the whole store."""
        if isinstance(error, StoreError) and not self._was_given_up:
            self._store, self._has_answered, self._was_given_up = self._opened(_FIRST_S), False, True
        return error

    def _broken(self, error: BaseException, key: str, tries: int) -> RunError:
        """The error of answers that break off again and again: that of one object if some of its content has come."""
        if key and has_begun(error):
            return ObjectError(f"the store ended the connection before all of it had come, {tries} times")
        return problem(error, self._scheme, self._name, key)


def _found(meta: Any) -> Found:
    return Found(int(meta["size"]), _time_ns(meta), str(meta["e_tag"] or ""))


def _time_ns(meta: Any) -> int:
    """The time of the last change in whole seconds, which is all that stores tell, and a fraction made of the tag.

    So an object that was replaced within a second by one of the same size has another time.
    """
    tag = hashlib.sha256(str(meta["e_tag"] or "").encode()).digest()
    return int(meta["last_modified"].timestamp()) * _SECOND_NS + int.from_bytes(tag[:8]) % _SECOND_NS

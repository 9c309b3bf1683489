"""problems.py: what the client of buckets raises becomes one sentence, about an object or about its bucket."""

from __future__ import annotations

import pytest
from bulkinfer.errors import AbsentObjectError, AbsentStoreError, ConflictError, ObjectError, RunError, StoreError
from bulkinfer.stores.problems import broke_off, has_answered, has_begun, problem


class PermissionDeniedError(Exception):
    """As of obstore."""


class UnauthenticatedError(Exception):
    """As of obstore."""


class InvalidPathError(Exception):
    """As of obstore."""


def answer(status: int, code: str = "", retries: int = 0) -> str:
    after = f", after {retries} retries, max_retries: 9" if retries else ""
    body = f"<Error><Code>{code}</Code><Message>hidden</Message></Error>" if code else ""
    asked = f"Error performing GET http://host/b/k?sig=hidden in 3ms{after}"
    said = f"Server returned non-2xx status code: {status} Words: {body}"
    return f"Generic S3 error: {asked} - {said}\n\nDebug source: RetryErrorImpl {{ hidden"


CASES = [
    (FileNotFoundError(answer(404, "NoSuchKey")), AbsentObjectError, "object not found"),
    (FileNotFoundError(answer(404, "NoSuchBucket")), AbsentStoreError, "the bucket s3://b does not exist"),
    (PermissionDeniedError(answer(403, "ExpiredToken")), StoreError, "the credentials for s3://b have expired (ExpiredToken)"),
    (PermissionDeniedError(answer(403, "InvalidAccessKeyId")), StoreError, "s3://b does not accept the credentials (Inv"),
    (UnauthenticatedError(answer(401)), StoreError, "s3://b does not accept the credentials (401)"),
    (PermissionDeniedError(answer(403, "AccessDenied")), ObjectError, "the store refuses access to it (AccessDenied)"),
    (Exception(answer(301, "PermanentRedirect")), StoreError, "s3://b lies in another region (PermanentRedirect)"),
    (Exception(answer(503, "SlowDown", 7)), StoreError, "s3://b answered 503 SlowDown after 8 tries"),
    (Exception(answer(412, "PreconditionFailed")), ConflictError, "s3://b/k was made or changed by another process"),
    (Exception(answer(418)), ObjectError, "the store answered 418"),
    (ValueError('Path "a//b" contained empty path segment'), ObjectError, "its key has an empty part"),
    (InvalidPathError("Encountered object with invalid path"), ObjectError, "its key has an empty part"),
    (
        Exception("Error performing PUT http://169.254.169.254/latest/api/token in 3ms"),
        StoreError,
        "there are no credentials for s3://b",
    ),
    (Exception("RetryError { kind: Connect, hidden"), StoreError, "s3://b cannot be reached after one try"),
    (Exception("after 3 retries - RetryError { kind: Timeout, hidden"), StoreError, "s3://b does not answer after 4 tries"),
    (Exception("kind: Decode, hidden"), StoreError, "s3://b ended the connection after one try"),
    (Exception("RetryError { kind: Request hidden"), StoreError, "s3://b ended the connection after one try"),
    (Exception("RetryError { inner: BareRedirect hidden"), StoreError, "s3://b lies in another region (a redirect without an"),
    (Exception("RetryError { TooManyRedirects hidden"), StoreError, "s3://b does not answer as a store of objects does after"),
    (Exception("InvalidListResponse { hidden"), StoreError, "s3://b does not answer as a store of objects does after one try"),
    (Exception("MissingContentLength hidden"), StoreError, "s3://b does not answer as a store of objects does after one try"),
    (Exception("UnexpectedRange { hidden"), StoreError, "s3://b does not answer as a store of objects does after one try"),
    (
        Exception("RetryError { kind: Connect InvalidCertificate"),
        StoreError,
        "s3://b has a certificate of an authority that",
    ),
    (Exception("RetryError { kind: Connect InvalidContentType"), StoreError, "s3://b does not speak TLS where https:// asks"),
    (Exception('RetryError { kind: Connect "dns error"'), StoreError, "s3://b has an endpoint whose name has no address after"),
    (PermissionDeniedError(answer(403, "RequestTimeTooSkewed")), StoreError, "s3://b refuses requests by this machine's clock"),
    (
        PermissionDeniedError(answer(403, "InvalidObjectState")),
        ObjectError,
        "it is archived, and must be restored in the store",
    ),
]


@pytest.mark.parametrize(("error", "kind", "words"), CASES)
def test_the_error_of_an_object(error: Exception, kind: type[RunError], words: str) -> None:
    found = problem(error, "s3", "b", "k")
    assert type(found) is kind
    assert str(found).startswith(words)
    assert "hidden" not in str(found)
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Exception(answer(404)), "the bucket s3://b does not exist"),
        (PermissionDeniedError(answer(403, "AccessDenied")), "s3://b refuses access (AccessDenied)"),
        (Exception(answer(400, "InvalidBucketName")), "s3://b cannot be listed (InvalidBucketName): check its name and AWS_E"),
    ],
)
def test_the_error_of_a_listing_is_about_the_bucket(error: Exception, words: str) -> None:
    found = problem(error, "s3", "b", "")
    assert type(found) is (AbsentStoreError if "does not exist" in words else StoreError)
    assert found.exit_code == (2 if "does not exist" in words else 1)
    assert str(found).startswith(words)


def test_a_server_that_is_busy_has_answered() -> None:
    assert has_answered(Exception(answer(503, "SlowDown", 7)))
    assert not has_answered(PermissionDeniedError(answer(403, "AccessDenied")))
    assert not has_answered(Exception("RetryError { kind: Connect, hidden"))


def test_only_an_answer_that_broke_off_is_asked_for_again() -> None:
    """Everything else the client has repeated by itself, if that helps."""
    found = [str(error) for error, _, _ in CASES if broke_off(error)]
    assert found == ["kind: Decode, hidden", "RetryError { kind: Request hidden"]
    assert list(map(has_begun, map(Exception, found))) == [True, False]

"""Errors of the client of buckets as one sentence, and whether one object or the whole bucket is concerned."""

from __future__ import annotations

import re

from bulkinfer.errors import AbsentObjectError, AbsentStoreError, ConflictError, ObjectError, RunError, StoreError

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})([ \w]*)")
_RETRIES = re.compile(r"after (\d+) retries")
_EXPIRED = frozenset(["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"])
_REFUSED = frozenset([
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId", "AuthFailure", "NotSignedUp",
    "AuthenticationFailed", "UnrecognizedClientException", "InvalidAuthenticationInfo",
])  # fmt: skip
_NO_BUCKET = frozenset(["NoSuchBucket", "ContainerNotFound"])
_OTHER_REGION = frozenset(["PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"])
_OTHER_CLOCK = frozenset(["RequestTimeTooSkewed", "RequestInTheFuture"])
_ARCHIVED = frozenset(["InvalidObjectState", "BlobArchived"])
# In the client's own text: what shows that the server is none of this kind.
_NO_STORE = (
    "InvalidListResponse", "Parse(", "MissingContentLength", "MissingEtag", "UnexpectedRange", "NotPartial", "TooManyRedirects"
)  # fmt: skip
_OF_METADATA = ("latest/api/token", "latest/meta-data", "169.254.170.2", "metadata.google.internal", "token request")

LOGINS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or for a public bucket AWS_SKIP_SIGNATURE=true",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or for a public bucket GOOGLE_SKIP_SIGNATURE=true",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or for a public container AZURE_SKIP_SIGNATURE=true",
}
_ENDPOINTS = {
    "s3": "AWS_ENDPOINT_URL and AWS_REGION",
    "gs": "GOOGLE_BASE_URL",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
}


def problem(error: BaseException, scheme: str, bucket: str, key: str) -> RunError:
    """The error to raise for `error`, which the client raised for an object, or with an empty key for the bucket.

    Nothing of the client's own text is passed on but the code and the status of the answer: it may hold a signed address.
    """
    text, shown, login = str(error), f"{scheme}://{bucket}", LOGINS[scheme]
    code, status = _found(_CODE, text), _found(_STATUS, text)
    what = code or status
    if code in _NO_BUCKET or (not key and status == "404"):
        return AbsentStoreError(f"the bucket {shown} does not exist: correct its name, and run the same command again")
    if code in _EXPIRED:
        return StoreError(f"the credentials for {shown} have expired ({what}): renew them, and run the same command again")
    if code in _REFUSED or type(error).__name__ == "UnauthenticatedError":
        return StoreError(f"{shown} does not accept the credentials ({what}): {login}, and run the same command again")
    if code in _OTHER_REGION or status in ("301", "307") or "BareRedirect" in text:
        where = what or "a redirect without an address"
        return StoreError(f"{shown} lies in another region ({where}): set AWS_REGION to it, and run the same command again")
    if code in _OTHER_CLOCK:
        return StoreError(f"{shown} refuses requests by this machine's clock ({what}): set it, and run the same command again")
    if any(host in text for host in _OF_METADATA):
        return StoreError(f"there are no credentials for {shown}: {login}, and run the same command again")
    if type(error).__name__ == "AlreadyExistsError" or status in ("409", "412"):
        return ConflictError(f"{shown}/{key} was made or changed by another process")
    if status in ("401", "403") and not key:
        return StoreError(f"{shown} refuses access ({what}): ask its owner for it, or {login}, and run the same command again")
    if not key and status and not _may_pass(status):
        check = f"check its name and {_ENDPOINTS[scheme]}, and run the same command again"
        return StoreError(f"{shown} cannot be listed ({what}): {check}")
    return _of_object(error, status, code) or _of_connection(error, status, code, shown, scheme)


def broke_off(error: BaseException) -> bool:
    """Whether an answer ended before it was whole. Of other failures the client decides itself whether it tries again."""
    text = str(error)
    is_other = isinstance(error, FileNotFoundError | ValueError) or type(error).__name__ == "InvalidPathError"
    is_other = is_other or ("RetryError" in text and ("kind: Timeout" in text or "kind: Connect" in text))
    is_other = is_other or any(mark in text for mark in (*_NO_STORE, *_OF_METADATA, "BareRedirect"))
    return not (is_other or _found(_STATUS, text) or _found(_RETRIES, text))


def has_begun(error: BaseException) -> bool:
    """Whether an answer that broke off had begun: then it is no error of the request, which the client would have repeated."""
    return "RetryError" not in str(error)


def has_answered(error: BaseException) -> bool:
    """Whether a server answered at last, though only that it is too busy."""
    return _may_pass(_found(_STATUS, str(error)))


def _may_pass(status: str) -> bool:
    return status.startswith("5") or status in ("408", "429")


def _of_object(error: BaseException, status: str, code: str) -> ObjectError | None:
    """The error of a single object; None if it is one of the connection or the server."""
    if isinstance(error, FileNotFoundError) or status == "404":
        return AbsentObjectError("object not found")
    if code in _ARCHIVED:
        return ObjectError(f"it is archived, and must be restored in the store first ({code})")
    if status in ("401", "403"):
        return ObjectError(f"the store refuses access to it ({code or status})")
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidPathError":
        return ObjectError("its key has an empty part, or one of dots, which the client of the store does not read")
    if status and not _may_pass(status):
        return ObjectError(f"the store answered {code or status}")
    return None


def _of_connection(error: BaseException, status: str, code: str, shown: str, scheme: str) -> StoreError:
    number = int(_found(_RETRIES, str(error)) or 0) + 1
    after = f"after {number} tries" if number > 1 else "after one try"
    if status:
        said = f"{status} {code}".strip()
        return StoreError(f"{shown} answered {said} {after}: wait until it recovers, and run the same command again")
    happened, where = _reason(str(error)), _ENDPOINTS[scheme]
    return StoreError(f"{shown} {happened} {after}: check the network and {where}, and run the same command again")


def _reason(text: str) -> str:
    if any(mark in text for mark in _NO_STORE):
        return "does not answer as a store of objects does"
    if "InvalidCertificate" in text:
        return "has a certificate of an authority that is not known here (SSL_CERT_FILE names one)"
    if "InvalidContentType" in text:
        return "does not speak TLS where https:// asks for it"
    if "dns error" in text:
        return "has an endpoint whose name has no address"
    if "kind: Connect" in text:
        return "cannot be reached"
    return "does not answer" if "kind: Timeout" in text or "timed out" in text else "ended the connection"


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""

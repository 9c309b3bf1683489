"""Who may ask, and by which keys: the token of clients, the certificate of the server."""

from __future__ import annotations

import ipaddress
import os
import ssl

from bulkinfer.errors import UsageError, first_line, os_error_reason
from bulkinfer.files.guarded import read_bytes, read_text
from bulkinfer.serve.options import TOKEN_VARIABLE, ServeConfig
from bulkinfer.types import printable_path

_MOST_BYTES = 1 << 20


def read_token(token_file: str) -> str:
    """The token that clients send; empty: none. Raises UsageError if its file cannot be read or holds none."""
    if not token_file:
        return os.environ.get("BULKINFER_TOKEN", "").strip()
    shown = printable_path(token_file)
    try:
        token = read_text(token_file, _MOST_BYTES, error=UsageError).strip()
    except OSError as error:
        raise UsageError(f"--token_file {shown}: {os_error_reason(error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--token_file {shown} is no text: write one line with the token") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"--token_file {shown} must hold one word of ASCII characters: write one line with the token")
    return token


def read_tls(config: ServeConfig) -> tuple[bytes, bytes] | None:
    """Key and certificates (PEM), checked that they fit; None: no TLS. Raises UsageError if they do not, or cannot be read."""
    if not config.tls_cert:
        return None
    found = []
    for name in ("tls_key", "tls_cert"):
        path = getattr(config, name)
        try:
            found.append(read_bytes(path, _MOST_BYTES, error=UsageError))
        except OSError as error:
            raise UsageError(f"--{name} {printable_path(path)}: {os_error_reason(error)}") from None
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(config.tls_cert, config.tls_key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            f"--tls_cert {printable_path(config.tls_cert)} and --tls_key {printable_path(config.tls_key)} are no certificate "
            f"with its key ({first_line(error)}): give two PEM files that belong together"
        ) from None
    return found[0], found[1]


def openness(config: ServeConfig, has_token: str | bool) -> str:
    """A warning, if others than this host can reach the server without a token or TLS; else empty."""
    if _is_loopback(config.host):
        return ""
    missing = {"TLS": "--tls_cert and --tls_key"} if not config.tls_cert else {}
    if not has_token:
        missing = {"a token": f"--token_file or ${TOKEN_VARIABLE}", **missing}
    if not missing:
        return ""
    what, how = " and without ".join(missing), ", ".join(missing.values())
    return f"--host {config.host}: other hosts can reach this server without {what}: see {how}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

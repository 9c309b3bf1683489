"""access.py: the token and its file, the certificate and its key, and who can reach the server without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.serve.access import openness, read_tls, read_token
from bulkinfer.serve.options import ServeConfig


def test_the_token_is_one_word_of_a_file_or_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BULKINFER_TOKEN", raising=False)
    assert read_token("") == ""
    monkeypatch.setenv("BULKINFER_TOKEN", " abc\n")
    assert read_token("") == "abc"
    (tmp_path / "token").write_text("from-file\n")
    assert read_token(str(tmp_path / "token")) == "from-file"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "must hold one word"), (b"a b", "must hold one word"), (b"\xff", "is no text"), ("ä".encode(), "one word")],
)
def test_other_contents_of_the_file(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        read_token(str(tmp_path / "token"))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_token("/nowhere/token")
    with pytest.raises(UsageError, match="--tls_key /nowhere/key: No such file"):
        read_tls(ServeConfig(model_name=("a",), tls_cert="/nowhere/cert", tls_key="/nowhere/key"))


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("nothing")
    with pytest.raises(UsageError, match="no certificate with its key"):
        read_tls(ServeConfig(model_name=("a",), tls_cert=str(tmp_path / "pem"), tls_key=str(tmp_path / "pem")))
    assert read_tls(ServeConfig(model_name=("a",))) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_needs_nothing(host: str) -> None:
    assert openness(ServeConfig(model_name=("a",), host=host), "") == ""


def test_other_addresses_without_token_or_tls_are_warned_of() -> None:
    config = ServeConfig(model_name=("a",), host="0.0.0.0")
    assert "without a token and without TLS" in openness(config, "")
    assert "without TLS" in openness(config, "secret")
    assert "secret" not in openness(config, "secret")
    tls = ServeConfig(model_name=("a",), host="::", tls_cert="c", tls_key="k")
    assert "without a token" in openness(tls, "")
    assert openness(tls, "secret") == ""


def test_only_the_options_that_help_are_named() -> None:
    config = ServeConfig(model_name=("a",), host="0.0.0.0")
    assert openness(config, "secret").endswith("see --tls_cert and --tls_key")
    assert openness(config, "").endswith("see --token_file or $BULKINFER_TOKEN, --tls_cert and --tls_key")

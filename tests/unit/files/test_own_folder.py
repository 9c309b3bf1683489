"""own_folder.py: where bulkinfer's own files about a results folder lie."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.own_folder import JOB_FILE, make_own_folder, own_folder, require_outside_results


def test_it_lies_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "a" / "out"
    assert own_folder(output) == tmp_path / "a" / ".out.bulkinfer"
    assert make_own_folder(output) == tmp_path / "a" / ".out.bulkinfer"
    assert (own_folder(output).is_dir(), output.exists()) == (True, False)
    monkeypatch.chdir(tmp_path / "a")
    assert own_folder(Path("out")) == Path(".out.bulkinfer")
    output.mkdir()
    monkeypatch.chdir(output)
    assert own_folder(Path()) == own_folder(Path("../out/")).resolve() == tmp_path / "a" / ".out.bulkinfer"


def test_every_name_of_a_folder_leads_to_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert own_folder(tmp_path / "link") == own_folder(tmp_path / "real")


def test_a_folder_in_an_own_folder_holds_its_own_files_itself(tmp_path: Path) -> None:
    assert own_folder(tmp_path / ".out.bulkinfer" / "_retry") == tmp_path / ".out.bulkinfer" / "_retry"
    assert own_folder(tmp_path / ".out.bulkinfer") == tmp_path / ".out.bulkinfer"


def test_in_a_bucket_it_lies_inside() -> None:
    output = AddressPath("s3://bucket/out")
    assert own_folder(output) == make_own_folder(output) == AddressPath("s3://bucket/out/.bulkinfer")
    assert own_folder(AddressPath("s3://bucket")) == AddressPath("s3://bucket/.bulkinfer")
    assert own_folder(own_folder(output)) == own_folder(output)
    assert own_folder(own_folder(output) / "_retry") == own_folder(output) / "_retry"


def test_where_nothing_can_lie_beside_it_lies_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 250)
    assert own_folder(long) == long / ".bulkinfer"
    assert own_folder(Path("/")) == Path("/.bulkinfer")
    mount = next(Path(path) for path in ("/proc", "/dev/shm") if os.path.ismount(path))
    assert own_folder(mount) == mount / ".bulkinfer"
    output = tmp_path / "out"
    output.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refusing(Path.mkdir, tmp_path / ".out.bulkinfer"))
        assert make_own_folder(output) == output / ".bulkinfer"
    assert own_folder(output) == output / ".bulkinfer"  # and stays there


def refusing(plain: Callable[..., None], refused: Path) -> Callable[..., None]:
    """`plain`, which refuses to make what begins with the path `refused`, as a file server does, whatever the rights say."""

    def call(path: Path, *args: Any, **options: Any) -> None:
        if path.is_relative_to(refused):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        plain(path, *args, **options)

    return call


def test_the_own_folder_of_another_user_is_used_only_if_it_holds_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, beside = tmp_path / "out", tmp_path / ".out.bulkinfer"
    for folder in (output, beside):
        folder.mkdir()
    monkeypatch.setattr(Path, "touch", refusing(Path.touch, beside))
    assert make_own_folder(output) == output / ".bulkinfer"
    for name in ("_job.json", "_lock.json"):
        (beside / name).write_text("")
        with pytest.raises(PermissionError):
            make_own_folder(output)
        (beside / name).unlink()


@pytest.mark.parametrize("place", [".out.bulkinfer", "out/.bulkinfer"])
def test_the_place_that_holds_the_record_or_else_the_lock_is_it(tmp_path: Path, place: str) -> None:
    output, both = tmp_path / "out", (tmp_path / ".out.bulkinfer", tmp_path / "out/.bulkinfer")
    for folder in both:
        folder.mkdir(parents=True)
    (tmp_path / place / "_lock.json").touch()
    assert own_folder(output) == tmp_path / place
    (tmp_path / place / "_lock.json").unlink()
    (tmp_path / place / "_job.json").touch()
    for folder in both:
        (folder / "_lock.json").touch()
    assert own_folder(output) == tmp_path / place
    for folder in both:
        (folder / "_job.json").touch()
    with pytest.raises(UsageError) as caught:
        own_folder(output)
    assert str(caught.value) == (
        f"{both[0]}/_job.json and {both[1]}/_job.json are both there: move away the one that does not belong to {output}"
    )


def test_a_folder_of_the_user_whose_name_ends_alike_is_none(tmp_path: Path) -> None:
    assert own_folder(tmp_path / "runs.bulkinfer" / "out") == tmp_path / "runs.bulkinfer" / ".out.bulkinfer"


_PUBLISH = """
import sys
from pathlib import Path
from bulkinfer.files.atomic import publishing
from bulkinfer.files.own_folder import make_own_folder
output = Path(sys.argv[1])
folder = make_own_folder(output)
with publishing(output / "part", folder) as temporary:
    temporary.write_text("rows")
print(folder)
"""


def publish_in_bind_mount(output: Path) -> subprocess.CompletedProcess[str]:
    """As in a container: `output` is a mount point, of the file system of the folder above it."""
    command = f'mount --bind {output} {output} && exec {sys.executable} -c "$0" {output}'
    return subprocess.run(["unshare", "--mount", "sh", "-c", command, _PUBLISH], capture_output=True, text=True, check=False)


def test_it_lies_inside_of_a_bind_mount(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    done = publish_in_bind_mount(output)
    assert (done.stdout, done.stderr) == (f"{output}/.bulkinfer\n", "")
    assert (output / "part").read_text() == "rows"
    assert not (tmp_path / ".out.bulkinfer").exists()


def test_a_record_beside_a_bind_mount_is_refused_with_a_command_that_mends_it(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (make_own_folder(output) / "_job.json").write_text("record")
    done = publish_in_bind_mount(output)
    assert f"{output} is a mount point, so that files in {tmp_path}/.out.bulkinfer cannot be renamed into it" in done.stderr
    subprocess.run(done.stderr.strip().rpartition(": ")[2], shell=True, check=True)
    assert publish_in_bind_mount(output).stdout == f"{output}/.bulkinfer\n"
    assert (output / ".bulkinfer" / "_job.json").read_text() == "record"


def test_nothing_else_is_put_into_results(tmp_path: Path) -> None:
    output = tmp_path / "out"
    (tmp_path / ".out.bulkinfer").mkdir()
    (tmp_path / ".out.bulkinfer" / JOB_FILE).touch()
    require_outside_results(output, "--output", is_results=True)  # a job goes on there
    require_outside_results(tmp_path / "outside", "--model_path")
    for path, is_results in ((output, False), (output / "deep" / "er", False), (output / "sub", True)):
        with pytest.raises(UsageError, match=r"--x .*: .*out holds the results of a job: give a folder outside of it"):
            require_outside_results(path, "--x", is_results=is_results)

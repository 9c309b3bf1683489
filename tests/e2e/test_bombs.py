"""verify, infer_launch and validate with a file that never ends or stands for gigabytes: less than a gigabyte, some seconds.

What get_model makes of such graphs is in tests/unit/export/onnx_import/test_size_limits.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import run
from tests.forms import long
from tests.launches import write_photos
from tests.models import write_tiny_model
from tests.training import trained

LAUNCH = [
    "infer_launch",
    "--model_name",
    "tiny",
    "--batch_size",
    "4",
    "--data_dir",
    "photos",
    "--device",
    "cpu",
    "--output",
    "out",
]
# the kernel's ru_maxrss counts the process that started this one as well
MEASURED = (
    "import os, sys; from bulkinfer.commands.{command} import main; code = main(sys.argv[1:]); sys.stdout.flush(); "
    "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0], file=sys.stderr, flush=True); "
    "os._exit(code)"  # as the commands end: threads of libraries may outlive the interpreter
)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    os.truncate(path, 1 << 40)


def zeros(path: Path) -> None:
    """Some gigabytes of zeros, of which the disk holds none."""
    path.write_bytes(b"")
    os.truncate(path, 3 << 30)


def codes(path: Path) -> None:
    """A part or a manifest of some kilobytes whose texts are gigabytes once they are decoded."""
    table = pq.read_table(path)
    for name in table.column_names:
        if pa.types.is_string(table[name].type) or pa.types.is_binary(table[name].type):
            bomb = pa.DictionaryArray.from_arrays(
                pa.array([0] * 3000, pa.int32()), pa.array(["x" * 1_000_000], table[name].type)
            )
            rows = table.take(pa.array([0] * 3000))
            table = rows.set_column(table.column_names.index(name), name, bomb)
            break
    pq.write_table(table, path, compression="zstd")


PLACES = {
    "card": ("models/tiny/card.json", (pipe, device, sparse, zeros)),
    "graph": ("models/tiny/model_4.onnx", (pipe, device, sparse, zeros)),
    "facts of the graph": ("models/tiny/model_4.json", (pipe, device, sparse, zeros)),
    "job": ("_job*.json", (pipe, device, sparse, zeros)),
    "part": ("out/part-*.parquet", (pipe, device, sparse, zeros, codes)),
}
CASES = [(name, bomb) for name, (_, bombs) in PLACES.items() for bomb in bombs]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network, pictures, and the results of a job."""
    folder = tmp_path_factory.mktemp("done")
    write_tiny_model(folder / "models", batch_sizes=(4,))
    write_photos(folder / "photos", 12)
    assert run(*LAUNCH, cwd=folder).returncode == 0
    return folder


def check(command: str, words: list[str], folder: Path) -> None:
    # seconds of processor time: other work does not count. A whole validate takes 5 of them, or more on a slower processor
    limited = ["bash", "-c", 'ulimit -t 30; exec "$@"', "bash"]
    code = [sys.executable, "-c", MEASURED.format(command=command), *words]
    found = subprocess.run([*limited, *code], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    *told, peak = found.stderr.splitlines()
    assert "Traceback" not in found.stderr
    assert found.returncode in (0, 1, 2), told
    assert int(peak) < 1_000_000, "kilobytes"


@long
@pytest.mark.parametrize(("place", "bomb"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_c48_verify_and_a_launch_end_soon(done: Path, tmp_path: Path, place: str, bomb: Callable[[Path], None]) -> None:
    for command, words in (("verify", ["out"]), ("infer_launch", LAUNCH[1:])):
        folder = tmp_path / command
        shutil.copytree(done, folder, symlinks=True)
        path = next(iter(sorted(folder.rglob(PLACES[place][0]))))
        bomb(path)
        check(command, words, folder)


@long
@pytest.mark.parametrize("name", ["state.json", "weights.safetensors", "optimiser.safetensors", "arguments.json"])
@pytest.mark.parametrize("bomb", [pipe, device, sparse, zeros], ids=lambda value: value.__name__)
def test_c48_validate_ends_soon(tmp_path: Path, name: str, bomb: Callable[[Path], None]) -> None:
    trained(tmp_path, checkpoints_per_epoch=5, keep_last=0, steps=3).rename(tmp_path / "run")
    for path in sorted((tmp_path / "run").rglob(name)):
        bomb(path)
    check("validate", ["run"], tmp_path)

"""host/process_setup.py: when waiting threads sleep, and freed blocks that stay with the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from bulkinfer.host.process_setup import spin_briefly

# Page faults of writing 64 MB into new memory, ten times, after a first time.
CODE = """
import ctypes, resource
from bulkinfer.host.process_setup import keep_freed_memory
{call}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def use():
    block = libc.malloc(64_000_000)
    ctypes.memset(block, 1, 64_000_000)
    libc.free(block)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"GOMP_SPINCOUNT": "5000"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "1000"}, {"GOMP_SPINCOUNT": "1000"}),
    ],
)
def test_threads_sleep_soon_unless_told_otherwise(
    before: dict[str, str], after: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    spin_briefly()
    found = {name: os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ}
    assert found == after


def faults(call: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(call=call)], capture_output=True, text=True, check=True, timeout=300
    )
    return int(done.stdout)


def test_freed_blocks_are_used_again() -> None:
    assert faults("keep_freed_memory()") < 1000 < faults("")


def test_arrow_finds_no_pandas() -> None:
    code = """
import sys
from bulkinfer.host.process_setup import hide_pandas
hide_pandas()
import pyarrow as pa
assert pa.table({"a": ["x", None], "b": [1, 2]}).num_rows == 2
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wandb_is_hidden_until_it_is_wanted() -> None:
    code = """
from bulkinfer.host.process_setup import hide_wandb, show_wandb
hide_wandb()
try:
    import wandb
except ImportError:
    print("hidden")
show_wandb()
show_wandb()
import wandb
print(wandb.__name__)
hide_wandb()
import wandb
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("hidden\nwandb\n", "")

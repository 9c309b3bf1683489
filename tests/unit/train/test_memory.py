"""train/memory.py: freed blocks stay with the process."""

from __future__ import annotations

import subprocess
import sys

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


def faults(call: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(call=call)], capture_output=True, text=True, check=True, timeout=300
    )
    return int(done.stdout)


def test_freed_blocks_are_used_again() -> None:
    assert faults("keep_freed_memory()") < 1000 < faults("")

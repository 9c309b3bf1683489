"""Fuzz what reads files and flags: tests/fuzz/targets.py says what, and what each may raise. Guided by coverage, with atheris.

A finding (another error, more than 20 seconds or 3 GB for one input) ends with exit code 1 and the path of its input, which
`--again FILE` runs once more, without atheris. Findings become tests.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("card", "manifest", "job", "words", "flag_file", "decode", "jpeg_header", "claims", "golden", "archive", "list")
MEMORY = Path("/dev/shm")  # where files take no disk
LARGEST_BYTES = 1 << 16
TIMEOUT_S = 20
MOST_MEMORY_MB = 3072
MOST_AT_ONCE = 4


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*NAMES, "all"], help="what to fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="how long, for each target (default 60)")
    parser.add_argument("--corpus", type=Path, help="folder that keeps inputs between runs (default: a temporary one)")
    parser.add_argument(
        "--findings", type=Path, default=Path(tempfile.gettempdir()), help="folder for inputs that were findings"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers; 0: another each time")
    parser.add_argument("--again", type=Path, help="run this input once, and stop")
    parser.add_argument("--blind", action="store_true", help="damage the seeds at random, without atheris")
    given = parser.parse_args()
    if given.target == "all":
        return _all([word for word in sys.argv[1:] if word != "all"])
    sys.path.insert(0, str(ROOT))
    if given.again:
        _target(given.target).run(given.again.read_bytes())
        return 0
    given.findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bulkinfer-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as temporary:
        tempfile.tempdir = os.environ["TMPDIR"] = temporary  # of the child, too, which ends without tidying up
        return _fuzz(given, Path(temporary))


def _all(words: list[str]) -> int:
    """Every target in a process of its own, as many at once as there are cores and memory for; returns the worst exit code."""
    at_once = min(MOST_AT_ONCE, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(at_once) as pool:
        ended = pool.map(lambda name: subprocess.run([sys.executable, __file__, name, *words], check=False), NAMES)
        return max(process.returncode for process in ended)


def _fuzz(given: argparse.Namespace, temporary: Path) -> int:
    is_there = importlib.util.find_spec("atheris") is not None
    if given.blind or not is_there:
        why = "" if given.blind else " (atheris is not installed: it has no wheel for this Python or processor)"
        return _blind(given.target, given.seconds, given.seed, given.findings, why)
    return _guided(given, given.corpus or temporary / "corpus")


def _target(name: str):  # type: ignore[no-untyped-def]
    from tests.fuzz.targets import TARGETS

    assert tuple(TARGETS) == NAMES
    return TARGETS[name]


def _guided(given: argparse.Namespace, corpus: Path) -> int:
    """A child fuzzes, since libFuzzer ends its process; its figures are told in one line."""
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(_target(given.target).seeds()):
        (corpus / f"seed-{number:03d}").write_bytes(data)
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tools')!r}]; import fuzz; fuzz.fuzz_with_atheris(sys.argv)"
    command = [sys.executable, "-c", code, given.target, str(corpus), f"-max_total_time={given.seconds}",
               f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MOST_MEMORY_MB}", f"-max_len={LARGEST_BYTES}", f"-seed={given.seed}",
               f"-artifact_prefix={given.findings}/{given.target}-", "-print_final_stats=1"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    told = re.findall(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", done.stderr)
    executions = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    memory = re.search(r"stat::peak_rss_mb:\s+(\d+)", done.stderr)
    if not done.returncode and told and executions:
        print(f"fuzz {given.target}: {int(executions[1]):,} executions, coverage {told[-1][1]} (at the start {told[0][1]}), "
              f"corpus {told[-1][3]}, peak memory {memory[1] if memory else '?'} MB, no finding", flush=True)  # fmt: skip
        return 0
    print(done.stdout[-4000:], done.stderr[-8000:], f"fuzz {given.target}: FOUND, see above", sep="\n", flush=True)
    return 1


def fuzz_with_atheris(argv: list[str]) -> None:
    """The child: instruments inference and Pillow, and fuzzes until the time is over."""
    import atheris

    with atheris.instrument_imports(include=["bulkinfer", "PIL"]):
        target = _target(argv[1])
    atheris.Setup([argv[0], *argv[2:]], target.run)
    atheris.Fuzz()


def _blind(name: str, seconds: int, seed: int, findings: Path, why: str) -> int:
    """Random damage to the seeds, without guidance."""
    from tests.fuzz.mutations import mutate

    target, random = _target(name), Random(seed or time.time_ns())
    seeds = target.seeds()
    end, executions = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = mutate(random.choice(seeds), seeds, random)
        try:
            target.run(data)
        except BaseException:
            path = findings / f"{name}-crash-{os.getpid()}-{executions}"
            path.write_bytes(data)
            print(f"fuzz {name}: FOUND {path}", flush=True)
            raise
        executions += 1
    print(f"fuzz {name}: {executions:,} executions without guidance{why}, no finding", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

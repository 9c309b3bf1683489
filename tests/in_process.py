"""A command in the process of the test: what heavy packages cost at their start is paid once, not by every test."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO, Any

from PIL import Image


def run_in_process(name: str, words: list[str], cwd: Path, environment: Mapping[str, str]) -> CompletedProcess[str]:
    """main(words) of a command in `cwd` and `environment`, as if it were a process: all that it and its libraries print, also
    from compiled code, and its exit code. An exception that the command lets through is the test's.
    """
    module = "bulkinfer.__main__" if name == "bulkinfer" else f"bulkinfer.commands.{name}"
    main = importlib.import_module(module).main
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with _like_a_process(cwd, environment), _into(out, 1, "stdout"), _into(err, 2, "stderr"):
            code = main(words)
        return CompletedProcess([name, *words], code, *(_text(file) for file in (out, err)))


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


@contextlib.contextmanager
def _like_a_process(cwd: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Folder, environment and warnings as a process of its own has them; what commands set for theirs is put back."""
    before, most_pixels = dict(os.environ), Image.MAX_IMAGE_PIXELS
    try:
        with contextlib.chdir(cwd), warnings.catch_warnings():
            os.environ.clear()
            os.environ.update(environment)
            warnings.resetwarnings()
            for name in ("ignore", "default"):  # the interpreter's own filters, in short
                category = DeprecationWarning if name == "ignore" else Warning
                warnings.filterwarnings(name, category=category, append=name == "default")
            warnings.showwarning = _show_warning
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        Image.MAX_IMAGE_PIXELS = most_pixels


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=sys.stderr)


@contextlib.contextmanager
def _into(file: IO[str], descriptor: int, name: str) -> Iterator[None]:
    """What Python and compiled code write to a standard stream goes to `file`."""
    stream: IO[str] = getattr(sys, name)
    stream.flush()
    kept = os.dup(descriptor)
    with open(os.dup(file.fileno()), "w", buffering=1) as ours:  # noqa: PTH123 -- a descriptor
        os.dup2(file.fileno(), descriptor)
        setattr(sys, name, ours)
        try:
            yield
        finally:
            setattr(sys, name, stream)
            os.dup2(kept, descriptor)
            os.close(kept)

"""A command that ends with the process that starts it."""

from __future__ import annotations

import os
import subprocess

from bulkinfer import __version__
from bulkinfer.serve.jobs.tied_command import tied_words


def test_it_is_the_command() -> None:
    done = subprocess.run(tied_words("--version"), capture_output=True, text=True, check=True)
    assert done.stdout == f"bulkinfer {__version__}\n"
    assert done.stderr == ""


def test_one_whose_parent_has_gone_does_not_begin() -> None:
    words = tied_words("--version")
    words[words.index(str(os.getpid()))] = "1"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-9, "")

"""A command of bulkinfer that ends with the process that starts it, however that ends.

The process that starts it has threads, and may not run Python between fork and exec. So a process of its own asks the kernel
for this, and becomes the command.
"""

from __future__ import annotations

import os
import sys

from bulkinfer.host.process_setup import die_with_parent


def tied_words(command: str, *words: str) -> list[str]:
    """What to execute for a command of bulkinfer that ends with this process."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), command, *words]


def main() -> None:
    """Become the command; the first word is the id of the parent process."""
    parent, *words = sys.argv[1:]
    die_with_parent(int(parent))
    os.execv(sys.executable, [sys.executable, "-P", "-m", "bulkinfer", *words])


if __name__ == "__main__":
    main()

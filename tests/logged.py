"""What the library logs while a function runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


def logged(lines: list[str], function: Callable[Given, Result], *values: Given.args, **options: Given.kwargs) -> Result:
    """The result of `function`; every line that it logs goes into `lines`, also when it raises."""
    log, handler = logging.getLogger("bulkinfer"), _Lines(lines)
    log.addHandler(handler)
    try:
        return function(*values, **options)
    finally:
        log.removeHandler(handler)

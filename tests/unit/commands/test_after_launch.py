"""The line that says what to type next."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.commands.after_launch import has_rows, print_next
from bulkinfer.launch.reporting.summary import LaunchResult


def result(code: int = 0, output: Path | None = Path("my rows"), summary: Path | None = Path("summary.json")) -> LaunchResult:
    return LaunchResult(code, 1, 1, 0, {}, output, Path("logs/job"), summary)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_rows_can_be_looked_at(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_next(result(code)) == code
    assert capsys.readouterr().out == "next: bulkinfer show 'my rows'\n"
    print_next(result(code), "report")
    assert capsys.readouterr().out == "next: bulkinfer report 'my rows'\n"


@pytest.mark.parametrize("ended", [result(output=None), result(summary=None), result(130), result(143)])
def test_nothing_follows_a_run_without_rows_a_dry_run_and_a_signal(
    ended: LaunchResult, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not has_rows(ended)
    assert print_next(ended) == ended.exit_code
    assert capsys.readouterr().out == ""

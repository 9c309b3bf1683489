"""docs/benchmarks.md: every table of figures has its entry in tools/bench/benchmarks.yml, and is that of its results."""

from __future__ import annotations

import re

from bulkinfer.bench.spec.spec_file import read_spec
from bulkinfer.files.json_file import read_json

from tools.bench_tables import PAGE, RESULTS, SPEC, block, tables, written

ENTRIES = read_spec(str(SPEC), is_quick=False).entries


def test_every_table_has_an_entry() -> None:
    named = [entry.table for entry in ENTRIES if entry.table]
    assert sorted(named) == sorted(set(named))
    assert {*tables(PAGE.read_text())} == {*named}


def test_every_figure_is_in_a_table_with_marks() -> None:
    page = PAGE.read_text()
    outside = page
    for name, text in tables(page).items():
        outside = outside.replace(f"<!-- table: {name} -->\n{text}<!-- end: {name} -->", "")
    rest = [line for line in outside.splitlines() if line.startswith("|")]
    assert not [line for line in rest if re.search(r"\d+\.\d", line)]  # the table of contestants has no figures
    assert len([line for line in rest if line.startswith("|---")]) == 1


def test_tables_are_those_of_their_results() -> None:
    results, page = read_json(RESULTS)["tables"], PAGE.read_text()
    assert results.keys() <= {entry.table for entry in ENTRIES}
    assert written(page, results) == page
    for name, kept in results.items():
        assert block(kept) == tables(page)[name]


def test_entries_are_whole() -> None:
    """Each runs a command of the checkout in its root, with a bound on its time, also with --quick."""
    for entry in (*ENTRIES, *read_spec(str(SPEC), is_quick=True).entries):
        assert entry.location == "../.."
        assert entry.timeout_s > 0
        assert entry.description
        assert entry.cmd.split()[0] in ("python", "bulkinfer", "infer_launch")
        if entry.cmd.startswith("python"):
            assert (SPEC.parents[2] / entry.cmd.split()[1]).is_file()

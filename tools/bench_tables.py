"""Write tables of docs/benchmarks.md from results of `bulkinfer bench --spec tools/bench/benchmarks.yml`.

    python -m tools.bench_tables logs/benchmarks-.../benchmark_results.json     # in the checkout; several files may be given

Entries with a `table`, whose run came to its end, are taken into tools/bench/results.json, and their tables are written between
the marks `table` and `end` of that name. Results of --quick are refused. Without a file the tables are written from
tools/bench/results.json again. Tables that have no results there stay as they are: they were measured by the commands beside
them, before there was such a file. tests/rules/test_bench_tables.py fails when a table has no entry, or is not that of its
results.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "inference"))

from bulkinfer.bench.spec.run_entry import DONE  # noqa: E402 (the package of this checkout, wherever the tool is started)
from bulkinfer.bench.spec.spec_file import read_spec  # noqa: E402
from bulkinfer.bench.spec.tables import table_of  # noqa: E402
from bulkinfer.files.json_file import read_json, write_json  # noqa: E402

SPEC = ROOT / "tools" / "bench" / "benchmarks.yml"
RESULTS = ROOT / "tools" / "bench" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
_BLOCK = re.compile(r"<!-- table: (?P<name>\S+) -->\n(?P<text>.*?)<!-- end: (?P=name) -->", re.DOTALL)
_CONDITIONS = ("time", "hardware", "system", "versions", "load_averages")


def tables(page: str) -> dict[str, str]:
    """Name of a table -> what is between its marks."""
    return {found["name"]: found["text"] for found in _BLOCK.finditer(page)}


def taken(found: dict[str, Any]) -> dict[str, Any]:
    """Table -> its result and the conditions, of a results file."""
    if found["is_quick"]:
        raise SystemExit("results of --quick show that all works, and are no figures to quote: run the entries without it")
    hardware = {name: value for name, value in found["hardware"].items() if name != "host"}
    return {
        result["table"]: {"entry": name, "result": result, **{each: found[each] for each in _CONDITIONS}, "hardware": hardware}
        for name, result in found["benchmarks"].items()
        if result["table"] and result["status"] == DONE
    }


def block(kept: dict[str, Any]) -> str:
    """What stands between the marks of a table: the command with its conditions, and the table."""
    hardware, loads, versions, rounds = kept["hardware"], kept["load_averages"], kept["versions"], kept["result"]["rounds"]
    packages = ", ".join(f"{name} {versions[name]}" for name in versions if name not in ("bulkinfer", "python", "pillow-heif"))
    often = f"{rounds} round{'' if rounds == 1 else 's'}"
    load = f"load averages {loads[0][0]:.1f} before and {loads[1][0]:.1f} after"
    about = (
        f"`bulkinfer bench --spec tools/bench/benchmarks.yml {kept['entry']}` on {kept['time'][:10]}: {hardware['processor']}, "
        f"{hardware['usable_cores']} cores, {load}, {often}; Python {versions['python']}, {packages}."
    )
    return "\n".join(["", about, "", *table_of(kept["entry"], kept["result"]), "", ""])


def written(page: str, results: dict[str, Any]) -> str:
    """The page with the tables that have results."""
    return _BLOCK.sub(
        lambda found: (
            f"<!-- table: {found['name']} -->\n{block(results[found['name']])}<!-- end: {found['name']} -->"
            if found["name"] in results
            else found[0]
        ),
        page,
    )


def main() -> None:
    """Take the results of the files in, and write the page."""
    results = read_json(RESULTS)["tables"] if RESULTS.exists() else {}
    known = {entry.table for entry in read_spec(str(SPEC), is_quick=False).entries}
    for path in sys.argv[1:]:
        new = taken(read_json(Path(path)))
        if foreign := sorted(new.keys() - known):
            raise SystemExit(f"{path}: no entry of {SPEC} makes the table {foreign[0]}")
        results |= new
        print(f"{path}: {', '.join(new) or 'no table'}")
    write_json(RESULTS, {"tables": results})
    PAGE.write_text(written(PAGE.read_text(), results))


if __name__ == "__main__":
    main()

"""The files of results: JSON, CSV, JUnit XML and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bulkinfer.bench.spec.run_entry import FAILED, LEFT_OUT
from bulkinfer.bench.spec.tables import page
from bulkinfer.errors import escaped
from bulkinfer.files.atomic import publishing
from bulkinfer.files.json_file import write_json

NAME = "benchmark_results"
_COLUMNS = ("benchmark", "variant", "status", "metric", "heading", "value", "lower", "upper", "samples", "runs", "seconds")


def write_results(folder: Path, found: Mapping[str, Any], behind: Mapping[str, Sequence[str]]) -> Path:
    """Write all files; returns the JSON file, which comes last: with it the run is finished.

    `behind` is entry -> sentences about ratios that have fallen behind a baseline.
    """
    results: Mapping[str, Any] = found["benchmarks"]
    title = Path(found["spec"]).name
    texts = {
        "csv": csv_text(results),
        "xml": junit_text(title, found, behind),
        "md": page(title, condition_lines(found), results),
    }
    for ending, text in texts.items():
        with publishing(folder / f"{NAME}.{ending}") as temporary:
            temporary.write_text(text)
    path = folder / f"{NAME}.json"
    write_json(path, dict(found))
    return path


def condition_lines(found: Mapping[str, Any]) -> list[str]:
    """What the figures depend on, in words."""
    hardware = found["hardware"]
    lines = [
        f"`{found['command']}`",
        found["time"],
        f"{hardware['processor']}, {hardware['usable_cores']} cores, {found['system']}",
        ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        f"load average before and after: {found['load_averages'][0][0]:.2f} and {found['load_averages'][1][0]:.2f}",
    ]
    return [*lines, "quick: one round of each, which shows that all works"] if found["is_quick"] else lines


def csv_text(results: Mapping[str, Any]) -> str:
    """One line for each figure; one without a figure for a variant that has none."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for name, result in results.items():
        for variant in result["variants"]:
            figures = result["figures"].get(variant, {})
            seconds = f"{_seconds(result, variant):.3f}"
            for metric, figure in figures.items():
                label = result["metrics"][metric]["label"]
                numbers = [figure[column] for column in ("value", "lower", "upper", "count", "runs")]
                writer.writerow([name, variant, result["status"], metric, label, *numbers, seconds])
            if not figures:
                writer.writerow([name, variant, result["status"], *[""] * 7, seconds])
    return file.getvalue()


def junit_text(title: str, found: Mapping[str, Any], behind: Mapping[str, Sequence[str]]) -> str:
    """JUnit XML: a test case for each variant; what cannot run here is skipped."""
    suite = ElementTree.Element(
        "testsuite", name=title, timestamp=found["time"].removesuffix("Z"), hostname=found["hardware"]["host"]
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("processor", found["hardware"]["processor"]), ("system", found["system"]), *found["versions"].items()):
        ElementTree.SubElement(properties, "property", name=name, value=value)
    counts, total = {"failures": 0, "skipped": 0}, 0.0
    for name, result in found["benchmarks"].items():
        for variant in result["variants"]:
            seconds = _seconds(result, variant)
            total += seconds
            case = ElementTree.SubElement(suite, "testcase", classname=f"{title}.{name}", name=variant, time=f"{seconds:.3f}")
            reasons = [result["reason"]] if result["status"] == FAILED else list(behind.get(name, ()))
            if result["status"] == LEFT_OUT:
                ElementTree.SubElement(case, "skipped", message=_printable(result["reason"]))
                counts["skipped"] += 1
            elif reasons:
                ElementTree.SubElement(case, "failure", message=_printable("; ".join(reasons)), type=result["status"])
                counts["failures"] += 1
    suite.attrib |= {"tests": str(len(suite) - 1), "errors": "0", "time": f"{total:.3f}"}
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    top = ElementTree.Element("testsuites")
    top.append(suite)
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _seconds(result: Mapping[str, Any], variant: str) -> float:
    return sum(float(run["seconds"]) for run in result["runs"] if run["variant"] == variant)


def _printable(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return escaped(text).encode("utf-8", "backslashreplace").decode()

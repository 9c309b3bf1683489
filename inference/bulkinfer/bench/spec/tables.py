"""Markdown tables of results: one for each entry that has figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bulkinfer.bench.spec.values import spread_text


def table_of(name: str, result: Mapping[str, Any]) -> list[str]:
    """The table of an entry: a row for each variant, or with one variant a row for each figure; ratios below."""
    metrics, figures = result["metrics"], result["figures"]
    shown = [metrics[metric] for metric in result["shown"]]
    heading = _cell(result["description"].splitlines()[0].rstrip(".") if result["description"] else name)
    measured = {variant: values for variant, values in figures.items() if values}
    if len(result["variants"]) == 1:
        values: Mapping[str, Any] = next(iter(measured.values()), {})
        lines = [f"| {heading} | median (quartiles) |", "|---|---|"]
        lines += [
            f"| {_cell(each['label'])} | {spread_text(values[each['name']], each['digits'])} |" for each in shown if values
        ]
    else:
        lines = [
            "| " + " | ".join([heading, *(_cell(each["label"]) for each in shown)]) + " |",
            "|---" * (len(shown) + 1) + "|",
        ]
        for variant, values in measured.items():
            cells = [spread_text(values[each["name"]], each["digits"]) for each in shown]
            lines.append("| " + " | ".join([_cell(variant), *cells]) + " |")
    pairs = [ratio for ratio in result["ratios"] if ratio["of"] not in result["variants"]]
    for of in dict.fromkeys(ratio["of"] for ratio in pairs):
        own = {ratio["metric"]: spread_text(ratio, 2) for ratio in pairs if ratio["of"] == of}
        lines.append("| " + " | ".join([_cell(of), *(own.get(each["name"], "") for each in shown)]) + " |")
    return lines


def page(title: str, conditions: list[str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of all results: the conditions, a table for each entry with figures, and the others with the reason."""
    lines = [f"# {title}", "", *(f"- {_cell(line)}" for line in conditions)]
    for name, result in results.items():
        lines += ["", f"## {name}", ""]
        if any(result["figures"].values()):
            lines += [*table_of(name, result), ""]
        if result["reason"]:
            lines += [f"{result['status']}: {_cell(result['reason'])}", ""]
        lines.pop()
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

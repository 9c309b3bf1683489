"""The figures of a measurement: as a table, as CSV, as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from bulkinfer.host.table import table_lines
from bulkinfer.host.versions import processor, versions
from bulkinfer.serve.client.load import Measured
from bulkinfer.serve.options import RequestConfig

_PERCENTS = (50, 95, 99)


def figures_of(config: RequestConfig, measured: Measured, source: str) -> dict[str, Any]:
    """All figures: counts, times in milliseconds, pictures per second."""
    times = sorted(measured.latencies_s)
    in_ms = {f"p{percent}_ms": 1000 * percentile(times, percent) for percent in _PERCENTS}
    found: dict[str, Any] = {
        "model_name": config.model_name,
        "protocol": config.protocol,
        "batch_size": config.batch_size,
        "num_threads": config.num_threads,
        "requests": len(times),
        "failed": measured.failed.total(),
        "pictures": measured.pictures,
        "wall_ms": 1000 * measured.wall_s,
        "images_per_s": measured.pictures / measured.wall_s if measured.wall_s else 0.0,
        "requests_per_s": len(times) / measured.wall_s if measured.wall_s else 0.0,
        "average_ms": 1000 * math.fsum(times) / len(times) if times else math.nan,
        "min_ms": 1000 * times[0] if times else math.nan,
        "max_ms": 1000 * times[-1] if times else math.nan,
        **in_ms,
        "client_cpu_s": measured.cpu_s,
    }
    if measured.checked:
        found |= {"labelled": measured.checked, "right": measured.right, "top1": measured.right / measured.checked}
    return found | {"input": source}


def percentile(ordered: list[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed, by the nearest rank; NaN without values."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else math.nan


def lines_of(config: RequestConfig, figures: dict[str, Any]) -> list[str]:
    """The figures for people."""
    how = f"{config.in_flight} requests in flight each" if config.use_async else "one request at a time each"
    times = [name for name in figures if name.endswith("_ms") and name != "wall_ms"]
    table = table_lines(
        [name.removesuffix("_ms") for name in times],
        [[f"{figures[name]:.2f}" for name in times]],
        numbers=[name.removesuffix("_ms") for name in times],
    )
    lines = [
        f"sent: {figures['requests']} requests of {config.batch_size}, {config.num_threads} x {config.num_images} pictures "
        f"({figures['input']}), {config.num_threads} thread(s), {how}, {config.protocol}",
        "milliseconds from a request to its answer:",
        *table,
        f"full time: {figures['wall_ms']:.0f} ms, of which this client computed {1000 * figures['client_cpu_s']:.0f} ms",
        f"average throughput: {figures['images_per_s']:.1f} images/sec",
    ]
    if "top1" in figures:
        lines.append(f"top-1: {figures['top1']:.4f} of {figures['labelled']} pictures with a label")
    return lines


def as_json(config: RequestConfig, figures: dict[str, Any]) -> bytes:
    """The figures with the options and the machine of this client."""
    known = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}
    content = {**known, "config": asdict(config), "versions": versions(), "processor": processor()}
    return json.dumps(content, indent=1).encode() + b"\n"


def as_csv(figures: dict[str, Any]) -> bytes:
    """The figures in two lines: names and values."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([figures.keys(), figures.values()])
    return text.getvalue().encode()

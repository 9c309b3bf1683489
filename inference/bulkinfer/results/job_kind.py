"""Whether two jobs are of one kind: one network, the same settings. Then an ok row of one stands for one of the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bulkinfer.files.atomic import canonical_json
from bulkinfer.results.job_file import JobFile

# Fields of an identity that may differ within a kind: which pictures, how they are handed out, limits, which change no ok row,
# and devices: in one precision they differ in last bits.
FREE = {"manifest", "skipped", "limit", "batch_size", "device", "backend", "max_pixels", "max_file_bytes", "allow_cpu_nodes"}
_AUTO = "auto"


def free_fields(there: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """The fields in which these two identities may differ: a network has a graph for each batch size."""
    return FREE | ({"graph_sha256"} if there.get("batch_size") != now.get("batch_size") else set())


def other_kind(one: JobFile, other: JobFile) -> str:
    """How two jobs differ in kind, as "are of different networks (resnet18 and resnet50)"; empty if they are of one kind."""
    there, now = _as_run(one), _as_run(other)
    free = free_fields(there, now)
    if "weights_sha256" not in there or "weights_sha256" not in now:
        free.add("weights_sha256")
    found = differing_values(there, now, free)
    if "model_name" in found:
        return f"are of different networks ({one.model_name} and {other.model_name})"
    fields = "; ".join(f"{name} {first} and {second}" for name, (first, second) in found.items())
    if "graph_sha256" in found or "weights_sha256" in found:
        return f"are of different networks ({fields})"
    return f"have different settings ({fields})" if found else ""


def _as_run(job: JobFile) -> dict[str, Any]:
    """The identity of a job with the precision and graph that `auto` became; without the weights of another graph."""
    identity = job.identity
    if identity.get("precision") != _AUTO:
        return identity
    became = {name: job.resolved[name] for name in ("precision", "graph_sha256") if name in job.resolved}
    is_variant = became.get("graph_sha256", identity.get("graph_sha256")) != identity.get("graph_sha256")
    return {name: value for name, value in (identity | became).items() if name != "weights_sha256" or not is_variant}


def differences(there: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()) -> dict[str, str]:
    """The fields in which two identities differ, each with both values in words; fields in `free` are not compared."""
    found = differing_values(there, now, free)
    return {name: f"{name} ({first} there, {second} now)" for name, (first, second) in found.items()}


def differing_values(
    there: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()
) -> dict[str, tuple[str, str]]:
    """The fields in which two identities differ, each with both values, shortened; fields in `free` are not compared."""
    there, now = fields_of(there), fields_of(now)
    return {
        name: (_short(there.get(name)), _short(now.get(name)))
        for name in sorted({*there, *now} - {*free})
        if canonical_json(there.get(name)) != canonical_json(now.get(name))
    }


def fields_of(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity with one level of nesting removed: the fields of the recipe become recipe.mean and so on."""
    found: dict[str, Any] = {}
    for name, value in identity.items():
        found |= {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else {name: value}
    return found


def _short(value: Any) -> str:
    """A value for messages: its JSON, shortened."""
    text = canonical_json(value)
    return text if len(text) <= 24 else text[:12].strip('"') + "…"

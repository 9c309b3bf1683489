"""Whether two jobs are of one kind: one network, the same settings. Then an ok row of one stands for one of the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bulkinfer.files.atomic import canonical_json

# Fields of an identity that may differ within a kind: which pictures, how they are handed out, limits, which change no ok row,
# and devices: in one precision they differ in last bits.
_FREE = {"manifest", "skipped", "limit", "batch_size", "device", "backend", "max_pixels", "max_file_bytes", "allow_cpu_nodes"}
_ASKED_WEIGHTS = "asked_weights_sha256"
_BEHIND_AUTO = ("precision", "graph_sha256", "weights_sha256")
_AUTO = "auto"
_IN_WORDS = {"manifest": "pictures (other names or sizes)"}  # instead of a field whose values are hashes of lists


def effective_identity(identity: Mapping[str, Any], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a job with what `auto` became, by the `resolved` of its _job.json.

    Facts that are not known are left out: those behind `auto` before it is resolved ({}), and the weights of a variant that an
    earlier version chose. The weights of the network asked for are a field of their own.
    """
    found = {**identity, "device": resolved.get("provider", identity.get("device"))}
    found[_ASKED_WEIGHTS] = identity.get("weights_sha256")
    is_auto = identity.get("precision") == _AUTO
    is_asked_graph = resolved.get("graph_sha256") == identity.get("graph_sha256")
    for name in _BEHIND_AUTO:
        if name in resolved:
            found[name] = resolved[name]
        elif is_auto and not (name == "weights_sha256" and is_asked_graph):
            found.pop(name, None)
    return found


def kind_key(effective: Mapping[str, Any]) -> str:
    """A text that is the same for two effective identities only if they differ from every third one in the same fields."""
    free = _FREE - {"batch_size", "device"}
    return canonical_json({name: value for name, value in effective.items() if name not in free})


def differing_fields(there: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The fields by which two effective identities are of different kinds, each with both values, shortened; {} if of one."""
    free = {*_FREE, _ASKED_WEIGHTS, *(name for name in _BEHIND_AUTO if name not in there or name not in now)}
    is_one_device = there.get("device") == now.get("device")
    if not is_one_device or there.get("batch_size") != now.get("batch_size"):
        free.add("graph_sha256")  # a network has a graph for each batch size, and may have variants of its own for a provider
    if not is_one_device and there.get(_ASKED_WEIGHTS) == now.get(_ASKED_WEIGHTS):
        free.add("weights_sha256")
    return _differing(there, now, free)


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """All fields in which two identities differ, each with both values in words."""
    return there_and_now(differing_values(there, now))


def differing_values(there: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """All fields in which two identities differ, each with both values, shortened."""
    return _differing(there, now, ())


def there_and_now(differing: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Fields with the values of a job that is there and of one that is to be run, in words."""
    return {name: _IN_WORDS.get(name, f"{name} ({first} there, {second} now)") for name, (first, second) in differing.items()}


def _differing(there: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str]) -> dict[str, tuple[str, str]]:
    there, now = _fields_of(there), _fields_of(now)
    return {
        name: (_short(there.get(name)), _short(now.get(name)))
        for name in sorted({*there, *now} - {*free})
        if canonical_json(there.get(name)) != canonical_json(now.get(name))
    }


def _fields_of(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The identity with one level of nesting removed: the fields of the recipe become recipe.mean and so on."""
    found: dict[str, Any] = {}
    for name, value in identity.items():
        found |= {f"{name}.{part}": inner for part, inner in value.items()} if isinstance(value, dict) else {name: value}
    return found


def _short(value: Any) -> str:
    """A value for messages: its JSON, shortened."""
    text = canonical_json(value)
    return text if len(text) <= 24 else text[:12].strip('"') + "…"

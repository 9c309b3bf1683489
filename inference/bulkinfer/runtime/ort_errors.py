"""Why onnxruntime does not load a graph, as one sentence: its own messages are pages that begin with C++."""

from __future__ import annotations

import re

from bulkinfer.errors import first_line

_KNOWN_DOMAINS = "ai.onnx, ai.onnx.ml and com.microsoft"
_REASONS = (
    (
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        "its IR version is {0}, this onnxruntime takes up to {1}",
    ),
    (
        r"Opset (\d+) is under development.*support for domain (\S+) is till opset (\d+)",
        "its opset of {1} is {0}, this onnxruntime takes up to {2}",
    ),
    (
        r"(?:Fatal error: |: )([\w.-]+):(\w+)\(-?\d+\) is not a registered function/op",
        f"it needs the operator {{1}} of {{0}}, which this onnxruntime does not have (it has those of {_KNOWN_DOMAINS})",
    ),
    (
        r"No Op registered for (\w+) with domain_version of (\d+)",
        "it needs the operator {0} of ai.onnx, which this onnxruntime does not have in opset {1}",
    ),
)


def runtime_reason(error: BaseException) -> str:
    """The reason in an error of onnxruntime; the first line of what is not known here."""
    text = " ".join(str(error).split())
    for pattern, sentence in _REASONS:
        if match := re.search(pattern, text):
            return sentence.format(*match.groups())
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", first_line(error))

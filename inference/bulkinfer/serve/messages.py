"""Requests and answers, free of the protocol that they come by."""

from __future__ import annotations

from dataclasses import dataclass

from bulkinfer.serve.tensors import Tensor

VERSION = "1"  # of every network: what is served is what lies in its folder


@dataclass(frozen=True, slots=True)
class Request:
    """A request for answers of one network: its inputs, and the outputs that are wanted; none named: those of the metadata."""

    model: str
    version: str
    id: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    model: str
    id: str
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A line of the metadata: a tensor that a network takes or gives; a size of -1 is free."""

    name: str
    datatype: str
    shape: tuple[int, ...]

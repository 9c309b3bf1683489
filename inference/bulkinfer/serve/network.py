"""A network that is served: its sessions, its batcher, its inputs and outputs.

Shape letters: N pictures of a request.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.files.addresses import address_of
from bulkinfer.launch.open_model import Decided, decide
from bulkinfer.model.card import ModelCard
from bulkinfer.model.names import named_folder
from bulkinfer.runtime.session import Session, describe_proof, warm_up
from bulkinfer.serve.batcher import Answer, Batcher, Observer, Work
from bulkinfer.serve.messages import Reply, Request, TensorFacts
from bulkinfer.serve.options import ServeConfig
from bulkinfer.serve.outputs import Outputs
from bulkinfer.serve.preparation import Preparation
from bulkinfer.serve.refusals import InvalidError, Reason, RefusedError
from bulkinfer.serve.tensors import BYTES, Tensor, datatype_of
from bulkinfer.types import Array

log = logging.getLogger("bulkinfer")

PICTURES = "pictures"  # the input of encoded pictures
PLATFORM = "onnx_bulkinfer"


class ServedNetwork:
    """A network that is open on its devices. `accept` takes a request, `reply` makes its reply from the answer.

    At most `max_queue` pictures are on their way. `work` of a request is on its way until its future is done.
    """

    def __init__(self, name: str, found: Decided, config: ServeConfig, observe: Observer) -> None:
        """Open a session on each device of the plan and run it once. Raises UsageError or RunError if that fails."""
        model, plan = found.settled.model, found.plan
        self.name, self.card = name, model.card
        sessions = [
            Session(replace(found.session, device=device), list(self.card.outputs)) for device in dict.fromkeys(plan.devices)
        ]
        for session in sessions:
            warm_up(session, plan.streams, 0.0)
        self.proof = sessions[0].proof
        self.precision, self.provider = found.session.precision, found.session.provider
        self.batch_shape, self.dtype = sessions[0].batch_shape, sessions[0].dtype
        self._input = next(iter(model.sidecar.inputs))
        self.outputs = Outputs(self.card, sessions[0].output_shapes, config.top_k)
        self.batcher = Batcher(sessions, plan.streams, config.max_wait_ms / 1000, observe=observe)
        self._preparation = Preparation(self.card, found.limits, plan.num_workers * len(sessions), self.batcher)
        self._max_queue, self.on_the_way = config.max_queue, 0  # of the event loop's thread alone

    @property
    def broken(self) -> BulkinferError | None:
        """Why the network can answer nothing any more; None: it can."""
        return self.batcher.broken

    def inputs(self) -> list[TensorFacts]:
        """The inputs of the metadata; a request has one of them."""
        own = TensorFacts(self._input, datatype_of(self.dtype), (-1, *self.batch_shape[1:]))
        return [own] if self._input == PICTURES else [own, TensorFacts(PICTURES, BYTES, (-1,))]

    def facts(self) -> dict[str, Any]:
        """Facts of the card and of what runs, for the metadata."""
        card = self.card
        return {
            "batch_size": self.batch_shape[0],
            "provider": self.provider,
            "precision": self.precision,
            "recipe": card.recipe.facts(),
            "classes": len(card.labels),
            "licence": card.licence,
            "origin": card.origin,
            "weights": asdict(card.weights),
        }

    def accept(self, request: Request) -> tuple[Work, int]:
        """Put the pictures of a request on their way; returns their work and their number. Call it in the event loop's thread.

        Raises RefusedError if the request is wrong, the queue is full, or the network is broken.
        """
        if self.broken is not None:
            raise RefusedError(Reason.ENDING, f"{self.name}: {self.broken}")
        self.outputs.check(request.outputs)
        pictures = self._pictures(request.inputs)
        count = len(pictures)
        if count > self._max_queue:
            raise RefusedError(
                Reason.TOO_LARGE, f"a request has at most {self._max_queue} pictures (--max_queue), this has {count}"
            )
        if self.on_the_way + count > self._max_queue:
            raise RefusedError(
                Reason.BUSY,
                f"{self.name}: {self.on_the_way} pictures are on their way, of {self._max_queue}: send it again later",
            )
        work = Work(count)
        self.on_the_way += count
        if isinstance(pictures, list):
            self._preparation.put(work, pictures)
        else:
            self.batcher.put(work, 0, pictures)
        return work, count

    def count_on_the_way(self) -> int:
        """How many pictures are accepted and not answered."""
        return self.on_the_way

    def done(self, count: int) -> None:
        """The work of `count` pictures has an answer, or needs none any more. Call it in the event loop's thread."""
        self.on_the_way -= count

    def reply(self, request: Request, answer: Answer, count: int) -> Reply:
        """The reply to a request. Raises RefusedError if a picture failed."""
        return Reply(self.name, request.id, tuple(self.outputs.tensors(answer, count, request.outputs)))

    def close(self, *, abandon: bool = False) -> None:
        """Finish what is on its way, or `abandon` it, and end all threads."""
        self._preparation.close(abandon=abandon)
        self.batcher.close(abandon=abandon)

    def _pictures(self, inputs: tuple[Tensor, ...]) -> Array | list[bytes]:
        """The input of a request, checked: N pictures as the graph takes them, or N encoded ones."""
        known = {facts.name: facts for facts in self.inputs()}
        if len(inputs) != 1:
            raise InvalidError(f"{self.name} takes one input, {' or '.join(known)}; {len(inputs)} came")
        (tensor,) = inputs
        if tensor.name not in known:
            raise InvalidError(f"{self.name} has no input {tensor.name!r}; known are {', '.join(known)}")
        facts = known[tensor.name]
        if tensor.datatype != facts.datatype:
            raise InvalidError(f"input {tensor.name} is {facts.datatype}, not {tensor.datatype}")
        is_column = facts.datatype == BYTES and len(tensor.shape) == 2 and tensor.shape[1] == 1
        if not is_column and (len(tensor.shape) != len(facts.shape) or tensor.shape[1:] != facts.shape[1:]):
            wanted = ", ".join(["N", *map(str, facts.shape[1:])])
            raise InvalidError(f"input {tensor.name} has the shape [{wanted}], not {list(tensor.shape)}")
        if not math.prod(tensor.shape[:1]):
            raise InvalidError(f"input {tensor.name} has no pictures")
        return tensor.values


def open_networks(config: ServeConfig, observer: Callable[[str], Observer]) -> dict[str, ServedNetwork]:
    """Open the networks of `config` by name. All are found, and their devices settled, before the first is opened.

    `observer` gives, for a name, what is called after each of its runs.
    Raises UsageError, with the command to type, where one is missing, and RunError if one cannot run.
    """
    decided: dict[str, Decided] = {}
    for asked in config.model_name:
        launch = config.launch_config(asked)
        found = decide(launch)
        if not found.settled.choice.is_counted and found.plan.num_devices > 1:
            found = decide(replace(launch, num_devices=1))  # one process: it takes all cores
        is_stored = bool(address_of(config.model_path))
        decided[asked if is_stored else named_folder(config.model_path, asked)[0].name] = found
    opened = {}
    for name, found in decided.items():
        network = opened[name] = ServedNetwork(name, found, config, observer(name))
        choice = found.settled.choice
        log.info(f"model: {name}, batch size {network.batch_shape[0]}, weights {_weights(network.card)}")
        log.info(f"device: {choice}; precision: {choice.precision} ({choice.precision_reason})")
        log.info(f"threads: {found.plan}; {describe_proof(network.proof)}")
    return opened


def _weights(card: ModelCard) -> str:
    return "random: answers mean nothing" if card.weights.is_random else card.weights.source

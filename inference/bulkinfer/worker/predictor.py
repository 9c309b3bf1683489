"""A network that is open in this process: pictures in, the rows of a run out, by the worker's own loader threads and streams.

Shape letters: N pictures, H height, W width.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from PIL import Image

from bulkinfer.errors import BulkinferError, RecordError, RunError, UsageError, first_line
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.header_limits import check_size
from bulkinfer.images.preprocess import normalise, prepare
from bulkinfer.model.card import ModelCard
from bulkinfer.model.recipe import Recipe
from bulkinfer.results.parquet_parts import to_table
from bulkinfer.results.rows import StepRows, Task
from bulkinfer.runtime.fixed_batch import FixedBatch
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.runtime.session import Session, warm_up
from bulkinfer.types import Array, Batch, Facts, Record, Step
from bulkinfer.worker.in_flight import InFlight
from bulkinfer.worker.loader import Limits, Loader, load_bytes, load_record
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.pipeline import StepFeed, run_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

Picture: TypeAlias = "str | os.PathLike[str] | bytes | NDArray[np.uint8]"
PIXELS = "array"  # the format of a picture that was given as pixels
_FILE_BYTES = (bytes, bytearray, memoryview)
_CLOSED = "this Predictor is closed: open the network again with open_model"


class Predictor:
    """An open network; bulkinfer.open_model makes it, and `close`, or the end of a `with` block, ends it.

    Threads may share one, forked processes may not: calls that overlap share its loader threads, streams and batches. `card`
    holds the facts of the network (name, recipe, labels, outputs, licence), `batch_size` is the number of pictures in each of
    its runs, `provider` and `precision` are what it runs on and in, `proof` says which nodes ran where.

    What a picture costs is what it costs in a run, with one difference: nothing guards this process. A picture that ends or
    hangs the decoder ends or hangs the program; a launch loses one row by it.
    """

    def __init__(self, card: ModelCard, spec: SessionSpec, task: Task, limits: Limits, num_workers: int) -> None:
        """Open the session of `spec` and run it once. Raises UsageError or RunError if the network cannot run there.

        `task` says what a row holds, `num_workers` is the number of loader threads.
        """
        prepare_decoder()
        self.card, self.provider, self.precision = card, spec.provider, spec.precision
        session = Session(spec, list(card.outputs))
        warm_up(session, spec.streams, 0.0)
        self.batch_size, self.proof = session.batch_shape[0], session.proof
        self._task, self._run_lock, self._pid = task, threading.Lock(), os.getpid()
        self._pipeline: _Pipeline | None = _Pipeline(session, card.recipe, limits, InFlight(num_workers, spec.streams))
        weakref.finalize(self, self._pipeline.feed.close)  # its threads end as well where nobody calls close()

    def predict(self, pictures: Iterable[Picture] | Picture) -> pa.Table:
        """One row per picture, in the order given, with the columns of a run's results (docs/reference/columns.md).

        A picture is a path (str or PathLike), the bytes of a picture file, or pixels: a uint8 array H x W x 3, RGB, of any
        size; any number of them in any mix, or a single one. `key` is the path as given, and for bytes and pixels the
        picture's place in `pictures` ("0", "1", ...). `partition` is 0, `label` and `label_ids` are null, and pixels have the
        format "array" and no `size_bytes`. A picture that cannot be read, decoded, prepared or run becomes an error row with
        its stage and message, as in a run, and leaves the others alone.
        Raises UsageError for anything else among `pictures` and after close(), RunError if the network itself fails.
        """
        pipeline = self._opened()
        is_one = isinstance(pictures, (str, os.PathLike, *_FILE_BYTES)) or getattr(pictures, "ndim", 0) == 3
        given: Any = [pictures] if is_one else pictures
        if not isinstance(given, Iterable):
            raise UsageError(f"pictures is {_kind(given)}: give a picture, or a list of pictures")
        records = [_record(number, picture) for number, picture in enumerate(given)]
        rows = StepRows(Step(0, 0, len(records)), self._task, self.batch_size)
        if records:
            pipeline.fill(records, rows)
        return to_table(rows, len(records))

    def run(self, images_NHWC: NDArray[np.uint8]) -> dict[str, Array]:
        """The outputs of the network by name, as the graph gives them (N rows each), for N prepared pictures; N may be 0.

        `images_NHWC` is uint8, RGB, N x H x W x 3 with the height and width of `card.recipe`: resized and cropped already, and
        not normalised. They run in batches of `batch_size`, the last one padded; calls wait for each other.
        Raises UsageError for other arrays and after close(), RunError if the network fails on a batch.
        """
        pipeline, shape = self._opened(), (self.card.recipe.height, self.card.recipe.width, 3)
        if getattr(images_NHWC, "dtype", None) != np.uint8 or images_NHWC.ndim != 4 or images_NHWC.shape[1:] != shape:
            wanted = " x ".join(map(str, shape))
            raise UsageError(f"{self.card.name} runs on prepared pictures, uint8 N x {wanted}; given was {_kind(images_NHWC)}")
        try:
            with self._run_lock:
                return FixedBatch(pipeline.run_batch, self.batch_size).run(images_NHWC)
        except Exception as error:  # onnxruntime documents no classes
            raise RunError(f"the network fails on a batch of {self.batch_size}: {first_line(error)}") from error

    def close(self) -> None:
        """Let calls that are under way finish, then end the threads and the session. A second call changes nothing."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.feed.close()
            pipeline.thread.join()

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _opened(self) -> _Pipeline:
        if self._pipeline is None:
            raise UsageError(_CLOSED)
        if os.getpid() != self._pid:  # a fork takes no threads along: a call would wait for ever
            raise UsageError("this Predictor was opened in another process: open the network in this one, after the fork")
        return self._pipeline


@dataclass(frozen=True, slots=True)
class _Given(Record):
    """A picture that is in memory already: the bytes of its file, or its pixels."""

    content: bytes | NDArray[np.uint8] = b""


def _record(number: int, picture: Any) -> Record:
    """Raises UsageError for what is no picture."""
    if isinstance(picture, (str, os.PathLike)):
        try:
            path = os.fsencode(picture)
        except (TypeError, ValueError) as error:
            raise UsageError(f"pictures[{number}] is no path: {error}") from None
        return Record(number, path, path)
    if isinstance(picture, _FILE_BYTES):
        return _Given(number, b"%d" % number, b"", content=bytes(picture))
    if isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3:
        return _Given(number, b"%d" % number, b"", content=picture)
    wanted = "a path, the bytes of a picture file, or an array uint8 H x W x 3 (RGB)"
    raise UsageError(f"pictures[{number}] is {_kind(picture)}; {wanted} is needed")


def _kind(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {' x '.join(map(str, value.shape))}"
    return f"a {type(value).__name__}"


def _load(record: Record, recipe: Recipe, limits: Limits, out_HWC: Array, meter: Meter) -> Facts:
    """One picture into its slot, from wherever it is. Raises RecordError with the stage that failed."""
    if not isinstance(record, _Given):
        return load_record(record, recipe, limits, out_HWC, meter)
    content = record.content
    if not isinstance(content, bytes):
        height, width, _ = content.shape
        if not content.size:
            raise RecordError("preprocess", f"no pixels: an array of {height} x {width}")
        check_size(width, height, limits.max_pixels)
        prepare(Image.fromarray(content), recipe, out_HWC)
        return Facts(PIXELS, 1, width, height)
    if len(content) > limits.max_file_bytes:
        raise RecordError("read", f"too large: {len(content)} bytes, limit {limits.max_file_bytes}")
    return load_bytes(content, recipe, limits, out_HWC, meter)


@dataclass(slots=True)
class _Call:
    """One call of predict: a step of its own. `rows` collects its rows, `finished` says that all are there."""

    step: Step
    records: list[Record]
    rows: StepRows | None  # None once they are delivered: batches that wait to be filled again still refer to their last call
    finished: Future[None]

    def fill(self, batch: Batch, outputs: Mapping[str, Array]) -> bool:
        """As StepRows.fill, with the outputs that a run would ask for: only those decide which rows are flagged.

        The batch lets go of its records, which may hold the caller's pictures.
        """
        assert self.rows is not None, "a batch after the last one"
        is_last = self.rows.fill(batch, {name: outputs[name] for name in self.rows.task.outputs} if outputs else {})
        batch.records[:] = [None] * len(batch.records)
        return is_last


class _Pipeline:
    """The worker's main path in threads of its own; each call is one step.

    It does not refer to its Predictor: the threads would keep that from ever being collected.
    """

    def __init__(self, session: Session, recipe: Recipe, limits: Limits, in_flight: InFlight) -> None:
        self._session, self._recipe, self._limits, self._in_flight = session, recipe, limits, in_flight
        self.feed, self._meter = StepFeed(), Meter()
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}  # by the partition of their step
        self._num_calls = 0
        self._end: BulkinferError | None = None  # why no call can be taken any more
        self.thread = threading.Thread(target=self._serve, name="predictor", daemon=True)
        self.thread.start()

    def fill(self, records: list[Record], rows: StepRows) -> None:
        """Run the records; returns when all their rows are there."""
        with self._lock:
            if self._end is not None:
                raise self._end
            call = _Call(Step(self._num_calls, 0, len(records)), list(records), rows, Future())
            self._calls[self._num_calls] = call
            self._num_calls += 1
            self.feed.put(call.step)
        call.finished.result()

    def run_batch(self, images_NHWC: Array) -> dict[str, Array]:
        """The outputs for a full batch of prepared pictures."""
        return self._session.run(self._to_input(images_NHWC))

    def _to_input(self, images_NHWC: Array) -> Array:
        return images_NHWC if self._session.dtype == np.uint8 else normalise(images_NHWC, self._recipe)

    def _serve(self) -> None:
        """Run steps until the feed ends."""
        try:
            run_steps(
                self._loader(),
                self._session,
                to_input=self._to_input,
                marks=self._in_flight.streams,
                meter=self._meter,
                publish=self._finish,
            )
        except BaseException as error:  # delivered to the callers, not swallowed
            end = RunError(f"the network cannot go on ({type(error).__name__}: {first_line(error)}): open it again")
            end.__cause__ = error
            self._refuse(end)
        else:
            self._refuse(UsageError(_CLOSED))  # calls that came too late

    def _loader(self) -> Loader:
        recipe, limits = self._recipe, self._limits
        return Loader(
            self.feed,
            records=lambda step: iter(self._calls[step.partition].records),
            new_rows=lambda step: self._calls[step.partition],
            load=lambda record, out_HWC: _load(record, recipe, limits, out_HWC, self._meter),
            batch_shape=(self._session.batch_shape[0], recipe.height, recipe.width, 3),
            marks=self._in_flight.loaders,
            num_streams=len(self._in_flight.streams),
            meter=self._meter,  # batches lie in plain memory: pages locked for a GPU must stay until the process ends
        )

    def _finish(self, call: _Call) -> None:
        with self._lock:
            del self._calls[call.step.partition]
        call.records.clear()  # the loader still has an iterator over it
        call.rows = None
        call.finished.set_result(None)

    def _refuse(self, end: BulkinferError) -> None:
        """Every call that waits, or comes later, raises `end`."""
        with self._lock:
            self._end = end
            waiting = list(self._calls.values())
            self._calls.clear()
        for call in waiting:
            call.finished.set_exception(end)

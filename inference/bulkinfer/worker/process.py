"""The worker process around the main path: it owns one device, reads steps from stdin and reports on a pipe.

    python -P -m bulkinfer.worker.process [--zeros_first] RUN.json INDEX [REPORT_FD IN_FLIGHT_FD]

With --zeros_first it runs a batch of zeros before it takes steps: so starts a worker that takes over from one that died. A
network that ends every process ends this one too, before any picture is suspected.

If stdin closes without an End, the launcher has died: the process ends at once, even during a run. Started by hand, without the
descriptors, it reports on stdout; it publishes nothing unless the launcher that wrote RUN.json still holds its locks.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.errors import BulkinferError, RunError, advising, first_line, os_error_sentence
from bulkinfer.host.console import make_printing_safe, print_log_lines
from bulkinfer.host.limits import exhausted
from bulkinfer.host.number_text import rate_text
from bulkinfer.host.process_setup import die_with_parent, hide_pandas
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.host.versions import versions
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.pillow_warnings import warning_counts
from bulkinfer.images.preprocess import normalise
from bulkinfer.model.card import check_graph_files
from bulkinfer.records.manifest import Manifest
from bulkinfer.runtime.session import Network, Session, describe_proof, warm_up
from bulkinfer.types import Array, Facts, Fault, Record, Step
from bulkinfer.worker.event_log import EventLog
from bulkinfer.worker.in_flight import InFlight, shared
from bulkinfer.worker.listener import listen
from bulkinfer.worker.loader import BatchSource, Limits, Loader, empty_batch, load_record
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.pipeline import StepFeed, run_steps
from bulkinfer.worker.protocol import (
    ZEROS_FIRST,
    Command,
    End,
    Ended,
    Event,
    Ready,
    Refused,
    RunSpec,
    RunStep,
    Stop,
    encode,
)
from bulkinfer.worker.publisher import Publisher
from bulkinfer.worker.read_ahead import reading_ahead
from bulkinfer.worker.remote_loader import LoaderProcesses
from bulkinfer.worker.synthetic import Generator, NoNetwork, SyntheticLoader, generated_records, random_input

log = logging.getLogger("bulkinfer")

_WARM_UP_RUNS = 32  # of each stream, at most: the length of a step follows from their rate, and need not be exact

_MANIFESTS_KEPT = 2  # the running step's and the next one's


class Manifests:
    """The manifests that the current steps need; each is checked against the hashes in the run file."""

    def __init__(self, spec: RunSpec) -> None:
        self._refs = spec.manifests
        self._kept: OrderedDict[int, Manifest] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, partition: int) -> Manifest:
        """The manifest of a partition. Raises RunError if it is damaged, or was replaced since the launch."""
        with self._lock:
            if partition not in self._kept:
                ref = self._refs[partition]
                self._kept[partition] = Manifest.read_again(Path(ref.path), ref.content_hash, ref.file_sha256)
            self._kept.move_to_end(partition)
            while len(self._kept) > _MANIFESTS_KEPT:
                self._kept.popitem(last=False)
            return self._kept[partition]


class Worker:
    """One worker of a launch: `serve` opens the session and runs the steps that `take` receives.

    `report` gets each event for the launcher, `say` each line of the text log, `in_flight` the records in work.
    """

    def __init__(
        self, spec: RunSpec, index: int, *, report: Callable[[Event], None], say: Callable[[str], None], in_flight: InFlight
    ) -> None:
        self._spec, self._index, self._say, self._in_flight = spec, index, say, in_flight
        self._to_launcher = report
        self._log = EventLog(Path(spec.log_dir) / f"worker-{index}.jsonl")
        self._meter = Meter(warm_up_runs=spec.session.streams if spec.warm_up_s is None else 0)
        self._manifests = Manifests(spec)
        self._feed = StepFeed()
        self._faults: dict[Step, Fault] = {}
        self._source: BatchSource | None = None
        self._loaders: LoaderProcesses | None = None
        self._stopping = False

    def take(self, command: Command) -> None:
        """Receive one command of the launcher. Another thread than that of `serve` calls this."""
        if isinstance(command, RunStep):
            if command.fault is not None:
                self._faults[command.step] = command.fault
            self._feed.put(command.step)
        elif isinstance(command, Stop):
            self._stopping = True
            self._feed.close()
            if self._source is not None:
                self._source.stop()
        elif isinstance(command, End):
            self._feed.close()

    def serve(self) -> int:
        """Open the session and run all steps; every failure is reported to the launcher. Returns the exit code."""
        try:
            session, metadata = self._open()
            self._work(session, metadata)
        except BulkinferError as error:
            self._report(Refused(str(error), error.exit_code))
            return error.exit_code
        except OSError as error:
            self._report(Refused(f"{os_error_sentence(error)}; correct that, then the same command continues", 1))
            return 1
        except Exception as error:  # a limit, or a bug of bulkinfer; not a bad picture: no error rows
            if limit := exhausted(f"{type(error).__name__}: {error}"):
                self._report(Refused(limit, 1))
                return 1
            traceback.print_exc()
            where = f"{self._spec.log_dir}/worker-{self._index}.log"
            self._report(Refused(f"internal error, {type(error).__name__}: {first_line(error)}; {where} has the details", 1))
            return 1
        finally:
            if self._loaders:
                self._loaders.close()
            self._log.close()
        return 0

    def _report(self, event: Event) -> None:
        """Send an event to the launcher, then log it: in this order, because the log's disk may be full."""
        self._to_launcher(event)
        self._log.write(event)

    def _open(self) -> tuple[Network, dict[str, Any]]:
        """Open the session, and report that the worker is ready. Returns it with the metadata of its parts."""
        spec = self._spec
        # they start while the session opens
        self._loaders = LoaderProcesses.of(spec, self._in_flight.descriptor, self._meter, self._say)
        prepare_decoder()
        with advising("run get_model again"):
            _, sidecar, graph = check_graph_files(Path(spec.session.graph).parent, spec.batch_size)
        if sidecar.sha256 != spec.graph_sha256:
            raise RunError(f"{graph} was replaced during the run: run the job again, with another --output")
        session = self._open_session()
        rate, warmed = 0.0, ""
        if spec.warm_up_s is not None:
            rate = warm_up(session, spec.session.streams, spec.warm_up_s, most_runs=_WARM_UP_RUNS)
            warmed = f", warm-up {rate_text(rate)}"
        if self._loaders:
            self._loaders.wait_until_ready()
        ran = versions()
        self._say(f"{describe_proof(session.proof)}; loaded in {session.load_s:.2f} sec{warmed}")
        self._report(Ready(session.proof, session.load_s, rate, ran, os.getpid(), spec.session.streams, spec.num_workers))
        return session, {**spec.metadata, "ran": session.proof, "versions": ran}

    def _open_session(self) -> Network:
        spec = self._spec
        if spec.input == "decode":
            return NoNetwork((spec.batch_size, spec.recipe.height, spec.recipe.width, 3))
        return Session(replace(spec.session, device=spec.devices[self._index % len(spec.devices)]), spec.task.outputs)

    def _work(self, session: Network, metadata: dict[str, Any]) -> None:
        """Run steps until the feed ends; then publish the finished rows of steps that a stop left unfinished."""
        spec = self._spec
        publisher = Publisher(
            spec, batch_size=session.batch_shape[0], metadata=metadata, meter=self._meter, report=self._report, say=self._say,
            loader_pids=self._loaders.pids if self._loaders else (),
        )  # fmt: skip
        if not self._stopping:
            self._run(session, publisher)
        publisher.publish_unfinished()
        for kind, count in warning_counts().items():
            self._say(f"the decoder warned {count} times: {kind}")
        self._log.note("modules", names=sorted({name.partition(".")[0] for name in sys.modules}))
        self._report(Ended(publisher.totals(), warning_counts()))

    def _run(self, session: Network, publisher: Publisher) -> None:
        """Run the main path until the feed ends, or a Stop comes."""
        self._source = self._make_source(session, publisher)
        if session.not_pinned:
            self._say(f"batches stay in pageable memory: {session.not_pinned}")
        if self._stopping:
            self._source.stop()
        run_steps(
            self._source,
            session,
            to_input=lambda images: self._to_input(images, session),
            marks=self._in_flight.streams,
            meter=self._meter,
            publish=publisher.publish,
        )

    def _make_source(self, session: Network, publisher: Publisher) -> BatchSource:
        spec = self._spec
        if spec.input == "synthetic":
            return SyntheticLoader(
                self._feed, new_rows=publisher.new_rows, batch=random_input(session.batch_shape, session.dtype)
            )
        limits, processes = Limits(spec.max_pixels, spec.max_file_bytes, spec.reduce_to), self._loaders

        def load(record: Record, out_HWC: Array) -> Facts:
            return load_record(record, spec.recipe, limits, out_HWC, self._meter)

        def new_batch(shape: tuple[int, ...]) -> Array:
            return session.pin(processes.new_batch(shape) if processes else empty_batch(shape))

        is_generated = spec.input == "generated"
        own_load = Generator(spec.recipe, self._meter).load if is_generated else load
        return Loader(
            self._feed,
            records=generated_records if is_generated else self._records,
            new_rows=publisher.new_rows,
            load=own_load,
            batch_shape=(session.batch_shape[0], spec.recipe.height, spec.recipe.width, 3),
            marks=self._in_flight.loaders,
            num_streams=spec.session.streams,
            meter=self._meter,
            new_batch=new_batch,
            chunk_loader=processes,
            read_ahead=reading_ahead(spec, self._feed, self._records, processes.chunk_size if processes else 1),
        )

    def _records(self, step: Step) -> Iterator[Record]:
        records = self._manifests.get(step.partition).records(step.start, step.end)
        fault = self._faults.get(step)
        return records if fault is None else (replace(record, fault=fault) for record in records)

    def _to_input(self, images: np.ndarray[Any, Any], session: Network) -> np.ndarray[Any, Any]:
        if images.dtype == session.dtype:
            return images
        with self._meter.timing("normalise"):
            return normalise(images, self._spec.recipe)


def main(argv: list[str]) -> None:
    """Run one worker, then end the process at once: daemon threads may still be inside the runtime."""
    run_file, index, *descriptors = [word for word in argv if word != ZEROS_FIRST]
    pipe, marks = (os.fdopen(int(descriptors[0]), "w", buffering=1), int(descriptors[1])) if descriptors else (sys.stdout, -1)
    die_with_parent()
    hide_pandas()
    make_printing_safe()
    for number in STOP_SIGNALS:  # a terminal sends them to the whole group; the launcher decides when to stop
        signal.signal(number, signal.SIG_IGN)
    try:
        spec = RunSpec.read(Path(run_file))
    except (BulkinferError, OSError) as error:  # the launcher shows the end of this worker's log
        sys.exit(f"worker {index}: {os_error_sentence(error) if isinstance(error, OSError) else error}")
    if ZEROS_FIRST in argv and spec.warm_up_s is None:
        spec = replace(spec, warm_up_s=0.0)
    print_log_lines()
    log.info(f"$ {shlex.join([sys.executable, '-P', '-m', 'bulkinfer.worker.process', run_file, index])}")
    log.info(f"cores {sorted(os.sched_getaffinity(0))}; {json.dumps(asdict(spec.session))}")
    if marks < 0:
        marks = shared(spec.num_workers, spec.session.streams)
    in_flight = InFlight(spec.num_workers, spec.session.streams, marks)
    worker = Worker(
        spec, int(index), report=lambda event: print(encode(event), file=pipe, flush=True), say=log.info, in_flight=in_flight
    )
    try:
        threading.Thread(target=listen, args=(worker.take,), name="listen", daemon=True).start()
    except RuntimeError as error:
        if not (limit := exhausted(f"RuntimeError: {error}")):
            raise
        sys.exit(f"worker {index}: {limit}")
    code = worker.serve()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])

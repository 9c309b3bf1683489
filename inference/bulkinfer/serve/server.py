"""bulkinfer serve: opens the networks, listens, answers until a signal comes, and then what it has accepted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from bulkinfer.errors import UsageError, first_line
from bulkinfer.host.console import say_last
from bulkinfer.host.process_setup import spin_briefly
from bulkinfer.host.stop_signals import STOP_SIGNALS, stop_sentence
from bulkinfer.serve.access import openness, read_tls, read_token
from bulkinfer.serve.gate import Gate
from bulkinfer.serve.jobs.app import job_routes
from bulkinfer.serve.jobs.job_service import JobService, open_jobs
from bulkinfer.serve.jobs.submission import Parse
from bulkinfer.serve.metrics import Metrics
from bulkinfer.serve.network import open_networks
from bulkinfer.serve.options import ServeConfig
from bulkinfer.serve.rest.app import rest_app
from bulkinfer.serve.rest.connection import connection_class
from bulkinfer.serve.rpc.server import open_grpc
from bulkinfer.serve.service import Service

log = logging.getLogger("bulkinfer")

_IDLE_S = 75  # a connection of REST without a request ends then
_CONNECTIONS = 1000  # of REST at once; requests on further ones get 503
_LAST_WORDS_S = 5  # for replies that are made to reach their clients
_BACKLOG = 1024  # connections that wait to be taken
COMMAND = "bulkinfer serve"


def serve(config: ServeConfig, parse_job: Parse) -> int:
    """Serve until a stop signal comes; returns the exit code: 0 if all that was accepted is answered, else 1.

    A second signal ends the process at once. Raises UsageError if something that is needed is missing or a port is taken, and
    RunError if a network cannot run. `parse_job` makes the config of a job out of words of infer_launch.
    """
    if not config.model_name and not config.jobs:
        raise UsageError(f"no network named: give one, as in {COMMAND} efficientnet_lite0, or a folder of jobs with --jobs")
    token, tls = read_token(config.token_file), read_tls(config)
    with contextlib.ExitStack() as opened:
        # before networks are opened, which takes seconds: a port that is taken is said at once
        listener = None if config.port < 0 else opened.enter_context(_listener(config, "port"))
        if config.grpc_port > 0 and config.model_name:
            _listener(config, "grpc_port").close()  # gRPC takes it only when it listens
        jobs = opened.enter_context(open_jobs(config.jobs, parse_job)) if config.jobs else None
        spin_briefly()
        metrics = Metrics()
        networks = open_networks(config, metrics.observer)
        if warning := openness(config, token or not config.model_name):
            log.warning(f"warning: {warning}")
        if config.token_file and not config.model_name:
            log.warning("warning: --token_file is for networks, and none is served: users of jobs have their own tokens")
        service = Service(networks, Gate(config.max_request_bytes), metrics, token, config.timeout_s)
        metrics.watch(networks, lambda: service.gate.open)
        has_answered = asyncio.run(_serve(config, service, listener, tls, jobs))
        for network in networks.values():
            network.close(abandon=not has_answered)
    return 0 if has_answered else 1


def _listener(config: ServeConfig, option: str) -> socket.socket:
    """A socket that listens at a port. Raises UsageError if the address is not of this host, or the port is taken."""
    family, port = socket.AF_INET6 if ":" in config.host else socket.AF_INET, getattr(config, option)
    # asyncio sends small answers at once only over sockets that say that they are of TCP
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or first_line(error)
        raise UsageError(
            f"--{option} {port}: cannot listen on {config.host} ({reason}): give another --host, or another --{option} (0: any "
            "free one)"
        ) from None
    return listener


class _Rest(uvicorn.Server):
    """uvicorn's server, which leaves signals to this process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _rest(config: ServeConfig, service: Service, jobs: JobService | None) -> _Rest:
    settings: dict[str, Any] = {
        "http": connection_class(config.timeout_s),
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "log_level": "critical",  # what clients do wrong is counted, not logged
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "limit_concurrency": _CONNECTIONS,
        "timeout_keep_alive": _IDLE_S,
    }
    if config.tls_cert:
        settings |= {"ssl_certfile": config.tls_cert, "ssl_keyfile": config.tls_key}
    others = [] if jobs is None else job_routes(jobs, service)
    return _Rest(uvicorn.Config(rest_app(service, others), **settings))


async def _serve(
    config: ServeConfig,
    service: Service,
    listener: socket.socket | None,
    tls: tuple[bytes, bytes] | None,
    jobs: JobService | None,
) -> bool:
    """Answer until a signal comes, then what is accepted; True if all of it was answered in time."""
    stop = asyncio.Event()
    with _signals_set(stop):
        rest = rpc = task = runner = None
        places = []
        if config.grpc_port >= 0 and config.model_name:
            host = f"[{config.host}]" if ":" in config.host else config.host
            rpc, port = open_grpc(service, f"{host}:{config.grpc_port}", tls)
            await rpc.start()
            places.append(f"gRPC at {host}:{port}")
        if listener is not None:
            rest = _rest(config, service, jobs)
            task = asyncio.create_task(rest.serve(sockets=[listener]))
            places.insert(0, f"REST at {_url(config, listener)}")
        if jobs is not None:
            runner = asyncio.create_task(jobs.runner.run())
        log.info(f"ready: {', '.join(places)}")
        await _until(stop, task, runner)
        waiting = f"{service.gate.open} open request(s) get their answers, for at most {config.drain_s:g} s"
        log.info(f"ending: {waiting}; new ones are refused")
        if jobs is not None:
            jobs.end(config.drain_s)
        has_answered = await service.gate.end(config.drain_s)
        if runner is not None:
            await runner
        if rpc is not None:
            await rpc.stop(_LAST_WORDS_S if has_answered else 0)
        if rest is not None and task is not None:
            rest.should_exit = True
            rest.config.timeout_graceful_shutdown = _LAST_WORDS_S if has_answered else 0
            await task
    if config.model_name:
        gate = service.gate
        lost = gate.accepted - gate.answered - gate.gone
        log.info(
            f"ended: {gate.accepted} requests accepted: {gate.answered} answered, {gate.gone} given up by clients, {lost} lost"
        )
    if jobs is not None:
        count = jobs.waiting()
        log.info(f"ended: {count} job(s) go on with the next service" if count else "ended: no job is left")
    return has_answered


async def _until(stop: asyncio.Event, *tasks: asyncio.Task[None] | None) -> None:
    """Until `stop` is set. Raises what ends one of the tasks before."""
    stopped = asyncio.create_task(stop.wait())
    others = [task for task in tasks if task is not None]
    await asyncio.wait([stopped, *others], return_when=asyncio.FIRST_COMPLETED)
    if not stopped.done():
        stopped.cancel()
        for task in others:
            if task.done():
                task.result()


def _url(config: ServeConfig, listener: socket.socket) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.tls_cert else 'http'}://{host}:{listener.getsockname()[1]}"


@contextlib.contextmanager
def _signals_set(stop: asyncio.Event) -> Iterator[None]:
    """A stop signal sets `stop`, a second one ends the process; afterwards they are as before."""
    loop = asyncio.get_running_loop()
    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as under nohup
    before = {number: signal.getsignal(number) for number in handled}

    def on_signal(number: int) -> None:
        if stop.is_set():
            say_last(stop_sentence(COMMAND, number))
            os._exit(128 + number)
        stop.set()

    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

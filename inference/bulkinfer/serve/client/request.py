"""bulkinfer request: finds or starts a server, warms it up, measures it, ends what it started."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable

from bulkinfer.errors import RunError, UsageError, first_line, os_error_reason
from bulkinfer.files.addresses import address_of
from bulkinfer.files.guarded import read_bytes
from bulkinfer.host.console import STDOUT, say
from bulkinfer.insight.class_names import ClassNames
from bulkinfer.insight.output_files import require_file_place, written_file
from bulkinfer.model.card import readable_card
from bulkinfer.model.names import named_folder
from bulkinfer.serve.access import read_token
from bulkinfer.serve.client.figures import as_csv, as_json, figures_of, lines_of
from bulkinfer.serve.client.load import Measured, send, wanted_outputs
from bulkinfer.serve.client.own_server import own_server
from bulkinfer.serve.client.payloads import payloads_for
from bulkinfer.serve.client.rest import RestClient
from bulkinfer.serve.client.rpc import GrpcClient
from bulkinfer.serve.client.server_facts import Client, ServerError
from bulkinfer.serve.options import TOKEN_VARIABLE, RequestConfig, ServeConfig
from bulkinfer.serve.refusals import Reason
from bulkinfer.types import printable_path

log = logging.getLogger("bulkinfer")

_CONNECT_S = 5.0
_NO_ANSWER = ("", "UNAVAILABLE")  # the statuses of what does not speak the protocol
_NO_TOKEN = (Reason.NO_TOKEN.http_status, "UNAUTHENTICATED")
_MOST_BYTES = 1 << 20


def request(config: RequestConfig, make_network: Callable[[RequestConfig], None]) -> int:
    """Measure, log, and write the figures; returns the exit code: 0 if every request had its answer, else 1.

    Where no server listens on this host, `make_network` makes the network if it is not there, and a server is started for the
    measurement. Raises UsageError for options that contradict what is there, RunError if the server cannot be used.
    """
    place = None if config.to in ("", STDOUT) else require_file_place(config.to, None, overwrite=config.overwrite)
    port = _port(config)
    token, ca = read_token(config.token_file), _certificates(config)
    with contextlib.ExitStack() as opened:
        if not _answers(config.host, port):
            _refuse_to_start(config, port)
            log.info(f"server: none listens at {config.host}:{port}; it is started for this measurement")
            make_network(config)
            opened.enter_context(own_server(config, port))
        clients = [_clients(config, port, token, ca) for _ in range(config.num_threads)]
        for own in clients:
            for client in own:
                opened.callback(client.close)
        measured, source = _measure(config, clients)
    figures = figures_of(config, measured, source)
    for line in lines_of(config, figures):
        log.info(line)
    if config.to:
        with written_file(place) as file:
            file.write(as_csv(figures) if config.to.endswith(".csv") else as_json(config, figures))
        if place is not None:
            log.info(f"figures: {place}")
    for reason, count in measured.failed.most_common():
        log.error(f"{count} request(s) without an answer: {reason}")
    return 1 if measured.failed else 0


def _measure(config: RequestConfig, clients: list[list[Client]]) -> tuple[Measured, str]:
    try:
        facts = clients[0][0].facts(config.model_name)
    except ServerError as error:
        if error.status in _NO_ANSWER:
            place = f"{config.host}:{_port(config)}"
            raise RunError(
                f"what listens at {place} gives no answer over {config.protocol} ({error}): give its --port and --protocol, "
                "and --tls_ca if it has TLS"
            ) from None
        if error.status in _NO_TOKEN:
            raise RunError(f"the server at {config.host} wants a token: give it by --token_file or ${TOKEN_VARIABLE}") from None
        raise RunError(f"the server at {config.host} does not serve {config.model_name}: {error}") from None
    payloads = payloads_for(config, facts)
    outputs = wanted_outputs([each.name for each in facts.outputs])
    names = _class_names(config)

    def is_right(number: int, label: str) -> bool:
        return number in names.find(label)

    log.info(f"sending: {payloads.source}, outputs {', '.join(outputs)}")
    return send(config, clients, payloads, outputs, is_right, say), payloads.source


def _port(config: RequestConfig) -> int:
    return config.port or (ServeConfig.grpc_port if config.protocol == "grpc" else ServeConfig.port)


def _class_names(config: RequestConfig) -> ClassNames:
    """The classes by the card of the network in --model_path; without it only numbers mean a class."""
    is_here = bool(config.labels) and not address_of(config.model_path)
    card = readable_card(named_folder(config.model_path, config.model_name)[0]) if is_here else None
    return ClassNames(card.labels if card else ())


def _clients(config: RequestConfig, port: int, token: str, ca: bytes | None) -> list[Client]:
    """The clients of one thread: over one connection of gRPC, or over one of REST for each request under way."""
    count = config.requests_in_flight
    if config.protocol == "grpc":
        return [GrpcClient(config.host, port, token=token, tls_ca=ca, timeout_s=config.timeout_s)] * count
    tls = ssl.create_default_context(cadata=ca.decode()) if ca is not None else None
    return [RestClient(config.host, port, token=token, tls=tls, timeout_s=config.timeout_s) for _ in range(count)]


def _certificates(config: RequestConfig) -> bytes | None:
    if not config.tls_ca:
        return None
    shown = printable_path(config.tls_ca)
    try:
        found = read_bytes(config.tls_ca, _MOST_BYTES, error=UsageError)
        ssl.create_default_context(cadata=found.decode())
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(f"--tls_ca {shown} holds no certificates ({first_line(error)}): give a PEM file") from None
    except OSError as error:
        raise UsageError(f"--tls_ca {shown}: {os_error_reason(error)}") from None
    return found


def _answers(host: str, port: int) -> bool:
    """Whether something listens there. Raises UsageError for a host that has no address."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return True
    except socket.gaierror as error:
        raise UsageError(f"--host {host}: {error.strerror}: check its name") from None
    except OSError:
        return False


def _refuse_to_start(config: RequestConfig, port: int) -> None:
    """Raises RunError where a server cannot be started: on another host, and with TLS, whose key is not here."""
    try:
        is_here = ipaddress.ip_address(config.host).is_loopback
    except ValueError:
        is_here = config.host == "localhost"
    if not is_here or config.tls_ca:
        raise RunError(
            f"no server answers at {config.host}:{port}: start it there with bulkinfer serve, or check --host and --port"
        )

"""A client of GRPCInferenceService."""

from __future__ import annotations

from typing import Any

import grpc

from bulkinfer.serve.client.server_facts import ServerError, ServerFacts
from bulkinfer.serve.messages import Reply, Request, TensorFacts
from bulkinfer.serve.refusals import RefusedError
from bulkinfer.serve.rpc.schema import SERVICE, message
from bulkinfer.serve.rpc.tensors import parse_reply, request_message


class GrpcClient:
    """Any number of threads may send requests over its connection. `tls_ca` (PEM) is None for a connection without TLS."""

    def __init__(self, host: str, port: int, *, token: str, tls_ca: bytes | None, timeout_s: float) -> None:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        # without a pool of their own, channels to one address share a connection
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                   ("grpc.use_local_subchannel_pool", 1)]  # fmt: skip
        if tls_ca is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(tls_ca), options)
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._timeout_s = timeout_s
        self._methods = {name: self._method(name) for name in ("ModelMetadata", "ModelInfer")}

    def facts(self, model: str) -> ServerFacts:
        """What the server says of a network. Raises ServerError."""
        found = self._call("ModelMetadata", message("ModelMetadataRequest")(name=model))
        kinds = [
            [TensorFacts(each.name, each.datatype, tuple(each.shape)) for each in tensors]
            for tensors in (found.inputs, found.outputs)
        ]
        return ServerFacts(kinds[0], kinds[1])

    def infer(self, request: Request) -> Reply:
        """The reply to a request. Raises ServerError."""
        sent = self._call("ModelInfer", request_message(request))
        try:
            return parse_reply(sent)
        except (RefusedError, ValueError) as error:
            raise ServerError("", f"the answer is none of the protocol: {error}") from None

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _method(self, name: str) -> Any:
        return self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=message(f"{name}Response").FromString,
        )

    def _call(self, name: str, asked: Any) -> Any:
        try:
            return self._methods[name](asked, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise ServerError(error.code().name, f"{error.code().name}: {error.details()}") from None

"""An address that was named: node 0 listens there and nowhere else, the others connect to it."""

from __future__ import annotations

import os
import socket
import struct
import time
from dataclasses import dataclass

from sgl_tune.errors import UsageError, WorkFailed

_CONNECT_SECONDS = 5.0
_RETRY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """A host and its port, or a name for processes of one user on one machine: no network, and no file."""

    host: str = ""
    port: int = 0
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"{self.host}:{self.port}"


def parse_place(address: str | None, nodes: int) -> Place:
    if not address:
        raise UsageError(
            f"--nnodes {nodes} needs --dist-init-addr", "give every node the same --dist-init-addr HOST:PORT"
        )
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise UsageError(f"--dist-init-addr {address!r} is not HOST:PORT")
    return Place(host.removeprefix("[").removesuffix("]"), int(port))


def listen(place: Place) -> socket.socket:
    """On that address and no other."""
    if place.name:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0" + place.name)
        listener.listen()
        return listener
    failed: OSError | None = None
    for family, kind, protocol, _, address in _resolved(place):
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
            return listener
        except OSError as error:
            listener.close()
            failed = error
    why = failed.strerror if failed else "no address"
    raise UsageError(
        f"--dist-init-addr {place}: node 0 cannot listen there ({why})",
        "name an address of node 0 itself and a free port",
    )


def _resolved(place: Place) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        return socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)  # type: ignore[return-value]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--dist-init-addr {place}: {why}") from None


def may_come(connection: socket.socket) -> bool:
    """On one machine only processes of the same user; over a network, whoever proves the secret."""
    if connection.family != socket.AF_UNIX:
        return True
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user == os.getuid()


def connected(place: Place, deadline: float) -> socket.socket:
    """Node 0 may start later than this one."""
    while True:
        try:
            if place.name:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect("\0" + place.name)
                if not may_come(connection):
                    raise WorkFailed(f"{place} belongs to another user")
                return connection
            _resolved(place)
            return socket.create_connection((place.host, place.port), timeout=_CONNECT_SECONDS)
        except OSError as error:
            if time.monotonic() > deadline:
                why = error.strerror or error
                raise WorkFailed(
                    f"node 0 was not met at {place} in time (--timeout): {why}",
                    "start the same command on every node, with --node-rank 0 on the one that owns "
                    "--dist-init-addr",
                ) from None
        time.sleep(_RETRY_SECONDS)

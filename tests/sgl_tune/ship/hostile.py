"""A registry that means harm: it serves one good bundle, but for what a test has it do instead."""

import hashlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.sgl_tune.ship.bundles import squeezed, tactics

IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MOST = 64 << 20  # what is sent to a client that does not stop it: then the test has failed anyway
SECONDS = 8.0


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = bytes | Iterator[bytes]
Deed = bytes | Callable[[Asked], Answer]


def answer(status: int, body: bytes = b"", length: int | None = None, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


class Good:
    """An image as `push` writes it, changed by whoever makes it."""

    def __init__(self, layer: bytes = squeezed(tactics([bytes(range(256)) * 20])), **changes: Any) -> None:
        self.layer = layer
        about = {"mediaType": LAYER, "digest": digest(layer), "size": len(layer)}
        about |= changes.pop("layer_says", {})
        self.manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": IMAGE,
            "config": {"mediaType": "x", "digest": digest(b"{}"), "size": 2},
            "layers": [about],
            "annotations": {"sgl-tune.bundle": digest(layer), "sgl-tune.bytes": str(len(layer))},
        }
        self.manifest |= changes

    @property
    def raw(self) -> bytes:
        return json.dumps(self.manifest).encode()


class Hostile:
    def __init__(self, good: Good, deeds: dict[str, Deed], tls: tuple[Path, Path] | None = None) -> None:
        self.good, self.deeds, self.seen = good, deeds, list[Asked]()
        self.sent = 0
        self._ended = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
        if self._tls and tls:
            self._tls.load_cert_chain(*tls)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"oci://localhost:{self.port}/caches/glm"

    def close(self) -> None:
        self._ended.set()
        self._listening.close()

    def wait(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(SECONDS)
        if self._tls:
            try:
                client = self._tls.wrap_socket(client, server_side=True)
            except OSError:
                client.close()
                return
        with suppress(OSError), client, client.makefile("rb") as stream:
            while (asked := _read(stream)) is not None:
                self.seen.append(asked)
                given = self._answer(asked)
                for piece in [given] if isinstance(given, bytes) else given:
                    if self._ended.is_set() or self.sent > MOST:
                        return
                    client.sendall(piece)
                    self.sent += len(piece)
                if not isinstance(given, bytes):
                    return  # what is sent piece by piece ends with the connection

    def _answer(self, asked: Asked) -> Answer:
        deed = next((one for part, one in self.deeds.items() if part in f"{asked.method} {asked.path}"), None)
        if deed is not None:
            return deed if isinstance(deed, bytes) else deed(asked)
        if "/manifests/sha256-" in asked.path:
            return answer(404)
        if asked.method in ("GET", "HEAD") and "/manifests/" in asked.path:
            return answer(200, self.good.raw, Content_Type=IMAGE)
        if asked.method == "GET" and "/blobs/" in asked.path:
            return answer(200, self.good.layer)
        if "/tags/list" in asked.path:
            return answer(200, b'{"tags": ["1"]}')
        if asked.method == "POST":
            return answer(202, Location="/v2/caches/glm/blobs/uploads/1")
        return answer({"HEAD": 404, "PATCH": 202}.get(asked.method, 201))


def _read(stream: Any) -> Asked | None:
    first = stream.readline(65536).decode("latin-1").split()
    if len(first) != 3:
        return None
    headers = {}
    while line := stream.readline(65536).decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Asked(first[0], first[1], headers, stream.read(int(headers.get("content-length", 0))))


def drip(first: bytes, piece: bytes, pause: float) -> Deed:
    """For ever, slowly."""

    def deed(asked: Asked) -> Iterator[bytes]:
        yield first
        while True:
            time.sleep(pause)
            yield piece

    return deed


@contextmanager
def hostile(
    good: Good | None = None, tls: tuple[Path, Path] | None = None, **deeds: Deed
) -> Iterator[Hostile]:
    """`GET_blobs` is what is done when a GET has `blobs` in its path. `tls`: a certificate and its key."""
    named = {_spelled(name): deed for name, deed in deeds.items()}
    server = Hostile(good or Good(), named, tls)
    try:
        yield server
    finally:
        server.close()


def _spelled(name: str) -> str:
    method, _, part = name.partition("_")
    return f"{method} /v2/caches/glm/{part.replace('_', '/')}" if part else f"{method} "

"""JSON between two nodes that know one secret: who does not know it is refused before a word of it is read.

Each side proves the secret over both sides' nonces; from then on every frame carries a MAC of its number and
its text under a key of this connection alone. Nothing is hidden: what is told are names and times of kernels.
"""

from __future__ import annotations

import hmac
import json
import socket
import time
from collections import deque
from collections.abc import Callable
from secrets import token_bytes
from typing import Any

from sgl_tune.processes.pump import CHUNK, Pump

MAC = NONCE = 32
LARGEST = 64 << 20  # a table of every tactic in every bucket takes a thousandth
_PROTOCOL = b"sgl-tune 1 "
_LENGTH = 4


class Channel:
    """`peer` is what the other side is called; `lost` says why nothing comes from it any more."""

    def __init__(
        self, connection: socket.socket, pump: Pump, secret: bytes, hosting: bool, peer: str
    ) -> None:
        connection.setblocking(False)
        self.peer, self.is_open, self.was_greeted = peer, False, False
        self.lost: str | None = None
        self.messages: deque[dict[str, Any]] = deque()
        self.began_at = self.heard_at = time.monotonic()
        self._connection, self._pump, self._secret = connection, pump, secret
        self._received, self._unsent = bytearray(), bytearray()
        self._nonce = token_bytes(NONCE)
        self._next: Callable[[], bool] = self._hear_guest if hosting else self._hear_host
        pump.add(connection, self._ready)
        if hosting:
            self._send(self._nonce)

    def send(self, kind: str, **fields: Any) -> None:
        text = json.dumps({"kind": kind, **fields}).encode()
        self._send(len(text).to_bytes(_LENGTH, "big") + self._sign.of(text) + text)

    def flush(self, seconds: float) -> None:
        """Wait for the other side to take what was sent; who has gone takes nothing."""
        deadline = time.monotonic() + seconds
        while self._unsent and self.lost is None and time.monotonic() < deadline:
            self._pump.turn(0.05)

    def close(self, why: str = "was closed here") -> None:
        if self.lost is None:
            self.lost = why
            self._pump.remove(self._connection)
            self._connection.close()

    def _ready(self) -> None:
        try:
            self._write()
            self._read()
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(f"its connection broke: {error.strerror or error}")

    def _read(self) -> None:
        chunk = self._connection.recv(CHUNK if self.is_open else NONCE + MAC)
        if not chunk:
            self.close("its connection ended" if self.is_open else "it closed the connection")
            return
        self._received += chunk
        while self.lost is None and self._next():
            pass

    def _send(self, content: bytes) -> None:
        self._unsent += content
        self._ready_to_write()

    def _ready_to_write(self) -> None:
        if self.lost is None:
            self._pump.change(self._connection, self._ready, reading=True, writing=bool(self._unsent))

    def _write(self) -> None:
        if self._unsent:
            try:
                del self._unsent[: self._connection.send(self._unsent)]
            except BlockingIOError:
                return
            self._ready_to_write()

    def _take(self, size: int) -> bytes | None:
        if len(self._received) < size:
            return None
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _hear_guest(self) -> bool:
        proof = self._take(NONCE + MAC)
        if proof is None:
            return False
        nonces = self._nonce + proof[:NONCE]
        if not hmac.compare_digest(proof[NONCE:], _mac(self._secret, b"guest", nonces)):
            self.close("it does not know the secret")
            return False
        self._send(_mac(self._secret, b"host", nonces))
        self._open(nonces, mine=b"from host", theirs=b"from guest")
        return True

    def _hear_host(self) -> bool:
        nonce = self._take(NONCE)
        if nonce is None:
            return False
        self.was_greeted = True
        self._nonces = nonce + self._nonce
        self._send(self._nonce + _mac(self._secret, b"guest", self._nonces))
        self._next = self._hear_host_s_proof
        return True

    def _hear_host_s_proof(self) -> bool:
        proof = self._take(MAC)
        if proof is None:
            return False
        if not hmac.compare_digest(proof, _mac(self._secret, b"host", self._nonces)):
            self.close("it does not know the secret")
            return False
        self._open(self._nonces, mine=b"from guest", theirs=b"from host")
        return True

    def _open(self, nonces: bytes, mine: bytes, theirs: bytes) -> None:
        self._sign = _Signature(_mac(self._secret, mine, nonces))
        self._check = _Signature(_mac(self._secret, theirs, nonces))
        self.is_open, self._next = True, self._hear_frame

    def _hear_frame(self) -> bool:
        size = int.from_bytes(self._received[:_LENGTH], "big")
        if size > LARGEST:
            self.close(f"it sent a message of {size} bytes")
        if self.lost is not None or len(self._received) < _LENGTH + MAC + size:
            return False
        frame = self._take(_LENGTH + MAC + size)
        assert frame is not None
        mac, text = frame[_LENGTH : _LENGTH + MAC], frame[_LENGTH + MAC :]
        if not hmac.compare_digest(mac, self._check.of(text)):
            self.close("it sent what its secret did not sign")
            return False
        self.heard_at = time.monotonic()
        self.messages.append(json.loads(text))
        return True


class _Signature:
    """One direction of a connection: the number of a frame is signed too, so that none can come twice."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def of(self, text: bytes) -> bytes:
        self._count += 1
        return hmac.digest(self._key, self._count.to_bytes(8, "big") + text, "sha256")


def _mac(secret: bytes, purpose: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret, _PROTOCOL + purpose + b"\0" + nonces, "sha256")

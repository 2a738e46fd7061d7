"""A port on this machine to which nobody may connect."""

import socket
from collections.abc import Iterator

import pytest


class Listener:
    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def came(self) -> int:
        """Return how many connected since the last call. The kernel lets them in before we accept them."""
        count = 0
        try:
            while True:
                self._socket.accept()[0].close()
                count += 1
        except BlockingIOError:
            return count

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()

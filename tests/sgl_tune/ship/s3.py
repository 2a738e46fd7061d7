"""An S3 server on loopback: moto's, behind a door that a test can slow down or break."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

ROOT_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Server:
    """`asked` is what came: a method, a path, and which bytes. `door` sees every request before moto does,
    and may answer in its place."""

    def __init__(self) -> None:
        self._moto: Wsgi = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.asked: list[tuple[str, str, str]] = []
        self.door: Callable[[dict[str, Any]], Iterable[bytes] | None] = lambda request: None

    def environment(self, **changes: str) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": self.url, "AWS_EC2_METADATA_DISABLED": "true", **ROOT_KEYS, **changes}

    def client(self, service: str = "s3") -> Any:
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        return boto3.client(service, endpoint_url=self.url, region_name="us-east-1", **keys)

    def _answer(self, request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.asked.append((request["REQUEST_METHOD"], request["PATH_INFO"], request.get("HTTP_RANGE", "")))
        return self.door({**request, "start": start}) or self._moto(request, start)

    @contextmanager
    def running(self) -> Iterator[Server]:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join(10)

"""A headless Chromium over chromedriver's own protocol: nothing to install beside the two programs."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.sgl_tune.ship.registries import free_port

_ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"]


class Browser:
    def __init__(self, address: str) -> None:
        options = {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {"args": _ARGUMENTS},
        }
        self._session = f"{address}/session"
        answer = self._call("", {"capabilities": {"alwaysMatch": options}})
        self._session += f"/{answer['sessionId']}"

    def open(self, page: Path, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        params = {"features": features}
        self._call("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": params})
        self._call("/url", {"url": page.as_uri()})

    def resize(self, width: int) -> None:
        """The window itself is never as narrow as a telephone."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})

    def run(self, script: str) -> Any:
        return self._call("/execute/sync", {"script": script, "args": []})

    def console(self) -> list[str]:
        return [entry["message"] for entry in self._call("/se/log", {"type": "browser"})]

    def requested(self) -> list[str]:
        events = (json.loads(entry["message"]) for entry in self._call("/se/log", {"type": "performance"}))
        sent = (event["message"] for event in events)
        return [e["params"]["request"]["url"] for e in sent if e["method"] == "Network.requestWillBeSent"]

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        kind = {"Content-Type": "application/json"}
        request = Request(self._session + path, json.dumps(body).encode(), kind)
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]


@contextmanager
def headless_browser(driver: str) -> Iterator[Browser]:
    port = free_port()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([driver, f"--port={port}"], stdout=quiet, stderr=quiet)
    try:
        _wait_for(port)
        yield Browser(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("chromedriver does not answer")

"""Shows the steps of a start while they pass."""

from __future__ import annotations

from runtime.record.events import Event
from sgl_tune.cli.out import Output
from sgl_tune.memory.ghost.of_record import NAMES, ROOT
from sgl_tune.servers.server import Server
from sgl_tune.units import memory_bytes


class Live:
    """Hears the events of each start. A kept record has none, and nothing is said of it."""

    def __init__(self, out: Output, server: Server) -> None:
        self._out, self._server = out, server

    def __call__(self, event: Event) -> None:
        if event["event"] == "asked":
            arguments = event["arguments"]
            ranks = arguments.get("tp_size", 1) * arguments.get("pp_size", 1)
            server = f"SGLang {self._server.sglang} of {self._server.python}"
            self._out.note(f"starting rank {event['rank']} of {ranks}: {server}")
        elif event["event"] == "phase" and event["name"] != ROOT:
            name = NAMES.get(event["name"], event["name"])
            self._out.note(f"  {name}: {memory_bytes(event['peak'])} at the peak, {event['seconds']:.1f} s")
        elif event["event"] == "died":
            self._out.note(f"  {event['phase']}: {event['type']}")

"""Show the steps of a start while it runs."""

from runtime.record.events import Event
from sgl_tune.cli.out import Output
from sgl_tune.servers.server import Server
from sgl_tune.units import memory_bytes

ROOT = "start"  # the outermost phase, which no view shows
NAMES = {"eager": "eager buffers"}


class Live:
    """Prints the events of a start as they happen. A start whose record was kept has no events."""

    def __init__(self, out: Output, server: Server) -> None:
        self._out, self._server = out, server
        self._has_begun = False

    def __call__(self, event: Event) -> None:
        if event["event"] == "starting" and not self._has_begun:
            self._has_begun = True
            server = f"SGLang {self._server.sglang} of {self._server.python}"
            self._out.note(f"starting {server} on a simulated GPU; importing it alone takes some seconds")
        elif event["event"] == "asked":
            arguments = event["arguments"]
            ranks = arguments.get("tp_size", 1) * arguments.get("pp_size", 1)
            self._out.note(f"rank {event['rank']} of {ranks}")
        elif event["event"] == "phase" and event["name"] != ROOT:
            name = NAMES.get(event["name"], event["name"])
            self._out.note(f"  {name}: {memory_bytes(event['peak'])} at the peak, {event['seconds']:.1f} s")
        elif event["event"] == "doubt":
            self._out.warn(event["text"])
        elif event["event"] == "died":
            self._out.note(f"  {event['phase']}: {event['type']}")

"""The table of commands. A command's module is imported when the command is called."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

PANELS = {
    "Start here": {
        "warm": "Tune a deployment's caches once, and prove that its server will use them.",
        "verify": "Predict what the next server start does with each file, and why.",
        "doctor": "Say in one line whether a server's cache is used now.",
        "mem-report": "Show which phase of a start takes the memory, or predict it.",
        "start-report": "Show where the seconds of a start went, and what would save them.",
        "explain": "Show what SGLang makes of a server command, and what an upgrade changes.",
    },
    "Ship": {
        "pack": "Put caches and stores into one file, the same bytes for the same contents.",
        "unpack": "Check such a file, and put its contents where a server looks.",
        "push": "Send a bundle to a registry.",
        "pull": "Fetch a bundle from a registry.",
        "relocate": "Make moved stores of compiled kernels work at their new path.",
        "export": "Write a cache where vLLM or FlashInfer's managed store looks for it.",
    },
    "Maintain": {
        "inspect": "List the caches on this disk.",
        "diff": "Compare two caches, or two files.",
        "prune": "Remove caches that are no longer needed.",
        "env": "Describe this machine, for --target: GPU, driver, FlashInfer, caches.",
        "server": "Add, list and remove the releases of SGLang that sgl-tune can ask.",
    },
}
COMMANDS = {name: text for panel in PANELS.values() for name, text in panel.items()}
# The schema version of each command's JSON, if it is not 1.
SCHEMA_VERSIONS = {"warm": 2, "explain": 2, "mem-report": 2, "start-report": 2}
# Subcommands.
GROUPS = {
    "server": {
        "list": "List the servers here, and which of them can be used.",
        "add": "Download a release of SGLang into a Python of its own.",
        "remove": "Remove a server that was added.",
        "modules": "List, take or build the compiled modules whose host code a start needs.",
    },
}

EXIT_CODES = (
    "Exit codes: 0 good, 1 what was checked is bad, 2 wrong usage or not found, 3 the work itself failed,"
    " or its result could not be written, 130 interrupted."
)


def page_of(command: str) -> Callable[..., Any]:
    """Return the function that runs a command such as `prune` or `server add`. Its parameters are options."""
    module = command.split()[0].replace("-", "_")
    name = command.replace("-", "_").replace(" ", "_")
    page: Callable[..., Any] = getattr(import_module(f"sgl_tune.commands.{module}"), name)
    return page


def pages() -> list[str]:
    """Return the names of all commands; a group is replaced by its subcommands."""
    return [
        page for name in COMMANDS for page in ([f"{name} {own}" for own in GROUPS.get(name, ())] or [name])
    ]

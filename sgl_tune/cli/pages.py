"""The commands and where their pages are; a page is imported when its command is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

COMMANDS = {
    "warm": "Tune a deployment's caches once, and prove that its server will use them.",
    "verify": "Predict what the next server start does with each file, and why.",
    "explain": "Say what SGLang makes of a server command, and what an upgrade changes.",
    "inspect": "List the caches on this disk.",
    "diff": "Compare two caches, or two files.",
    "export": "Write a cache where vLLM or FlashInfer's managed store looks for it.",
    "pack": "Put caches and stores into one file, the same bytes for the same contents.",
    "unpack": "Check such a file, and put what is in it where a server looks.",
    "relocate": "Make stores of kernels that were moved work where they are.",
    "push": "Send a bundle to a registry.",
    "pull": "Get a bundle from a registry.",
    "prune": "Remove the caches nobody needs.",
    "env": "Show what FlashInfer would write into a cache file here.",
    "mem-report": "Show which phase of a start takes the memory, or predict it.",
    "start-report": "Show where the seconds of a start went, and what would spare them.",
}


EXIT_CODES = (
    "Exit codes: 0 good, 1 what was checked is bad, 2 wrong usage or not found, 3 the work itself failed,"
    " or its result could not be written, 130 interrupted."
)


def page_of(command: str) -> Callable[..., Any]:
    """The function that the command calls, with its options for parameters."""
    name = command.replace("-", "_")
    page: Callable[..., Any] = getattr(import_module(f"sgl_tune.commands.{name}"), name)
    return page

"""FlashInfer's modules that a server loads with its first requests: no record of a start has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def request_modules(arguments: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The name of each, and FlashInfer's function that makes it. `arguments`: as the server resolved them."""
    if arguments.get("sampling_backend") == "flashinfer":  # the first request that draws a token
        return (("sampling", "sampling:gen_sampling_module"),)
    return ()

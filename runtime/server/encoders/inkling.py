"""What Inkling sees and hears with, which a server has where it is asked to: srt/models/inkling.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.encoders.weight import Weights


def inkling(hf: Mapping[str, Any], text_width: int) -> Weights:
    """None but by --enable-multimodal."""
    yield from ()

"""MiniCPM-o (srt/models/minicpmo.py): what MiniCPM-V 2.6 sees with, and Whisper's encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.encoders.minicpmv import resampled
from runtime.server.encoders.weight import Weights
from runtime.server.encoders.whisper import minicpm_o
from runtime.server.errors import Unsupported

_ITS_TEXT = "2.6"


def minicpmo(hf: Mapping[str, Any], text_width: int) -> Weights:
    """It hears whatever its file says, and never speaks."""
    if str(hf.get("version")) != _ITS_TEXT:
        told = f"config.json: version is {hf.get('version')!r:.60}"
        raise Unsupported(f"{told}: SGLang's class has a Qwen2 inside, as MiniCPM-o {_ITS_TEXT}")
    if hf.get("init_vision") not in (None, True):
        told = f"config.json: init_vision is {hf['init_vision']!r:.60}"
        raise Unsupported(f"{told}: SGLang's class makes a tower all the same, once, and else two")
    yield from resampled(hf, text_width)
    yield from minicpm_o(hf, text_width)

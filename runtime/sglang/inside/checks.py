"""Answers SGLang's own checks of numbers that only kernels compute: each passes, and is named as unread."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from runtime.ghost.inside import honesty
from runtime.ghost.inside.hooks import after

QUANTIZATION = "sglang.srt.layers.quantization.fp8_utils"
CHECKED = "inverse_transform_scale_ue8m0"
WHY = "SGLang compares scales of weights that no kernel computed; they are taken to be equal"


def install() -> None:
    """Make the check of scales pass, in every module that imported the checking function."""

    @after(QUANTIZATION)
    def _(module: Any) -> None:
        real = getattr(module, CHECKED, None)
        if real is None:
            return
        passing = _passing(real)
        for name, other in list(sys.modules.items()):
            if name.startswith("sglang") and getattr(other, "__dict__", {}).get(CHECKED) is real:
                setattr(other, CHECKED, passing)


def _passing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def passing(*args: Any, **kwargs: Any) -> Any:
        import torch

        ask = torch.all

        def compare(*given: Any, **more: Any) -> bool:
            ask(*given, **more)  # what the comparison allocates counts
            honesty.inexact("unread", CHECKED, WHY)
            return True

        setattr(torch, "all", compare)  # noqa: B010
        try:
            return real(*args, **kwargs)
        finally:
            setattr(torch, "all", ask)  # noqa: B010

    return passing

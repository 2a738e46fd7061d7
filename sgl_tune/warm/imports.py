"""What a process imports of FlashInfer. Nothing of it is imported here."""

from __future__ import annotations

import sys

_CUTE_DSL = "cutlass"


def only_for(device: str) -> None:
    """FlashInfer looks for CuTe DSL and does without: its kernels are a GPU's, and on a CPU their import is a
    third of the time until a worker works, and 115 MB of its memory."""
    if device == "cpu":
        sys.modules.setdefault(_CUTE_DSL, None)  # type: ignore[arg-type]  # what Python means by: there is none

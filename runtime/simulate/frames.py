"""Which line of code made an allocation: cheap walks up the Python stack."""

from __future__ import annotations

from pathlib import Path
from types import CodeType, FrameType

import torch

RUNTIME = str(Path(__file__).parent.parent) + "/"
_MACHINERY = (RUNTIME + "simulate/", RUNTIME + "devices/")
_SKIPPED = (*_MACHINERY, str(Path(torch.__file__).parent) + "/")
_MAX_FRAMES = 24

Frame = tuple[str, int, str]  # file, line, function
_ours: dict[CodeType, bool] = {}


def asks_for_memory(file: str) -> bool:
    """Whether the file belongs to the runtime, but not to the code that hands out memory."""
    return file.startswith(RUNTIME) and not file.startswith(_MACHINERY)


def innermost_runtime_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None:
        code = frame.f_code
        ours = _ours.get(code)
        if ours is None:
            ours = _ours[code] = asks_for_memory(code.co_filename)
        if ours:
            return frame
        frame = frame.f_back
    return None


def stack(frame: FrameType | None) -> tuple[Frame, ...]:
    """Return the frames, innermost first, without those of torch and of the devices."""
    frames: list[Frame] = []
    while frame is not None and len(frames) < _MAX_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_SKIPPED):
            frames.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(frames)

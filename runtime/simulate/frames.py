"""Which line of code made an allocation: cheap walks up the Python stack."""

from pathlib import Path
from types import CodeType, FrameType

RUNTIME = str(Path(__file__).parent.parent) + "/"
_MACHINERY = (RUNTIME + "simulate/", RUNTIME + "devices/")

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

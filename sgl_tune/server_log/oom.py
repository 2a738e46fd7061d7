"""The message of an allocation that failed, with the frames of its traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runtime.devices.readings import parse_out_of_memory, parse_size
from sgl_tune.server_log.rank_log import LoggedOom

# Of torch, cut off; of a kernel; of NCCL; of DeepEP where NVSHMEM's heap finds too little.
_WITHOUT_NUMBERS = re.compile(
    r"CUDA out of memory(?!\. Tried)|CUDA error: out of memory|Cuda failure (?:\d{1,4} )?'out of memory'"
    r"|Triton Error \[CUDA\]: out of memory|deep_ep\.cpp:\d{1,5} 'invalid argument'"
)
_PROCESS = re.compile(r"[Tt]his process has (\d{1,9}(?:\.\d+)? (?:bytes|KiB|MiB|GiB)) memory in use")
_FRAME = re.compile(r'^ {1,8}File "([^"]{1,400})", line (\d{1,7}), in (\S{1,100})')

Frame = tuple[str, str, str]  # file, line, function


def frame_of(text: str) -> Frame | None:
    found = _FRAME.match(text)
    return (found[1], found[2], found[3]) if found else None


def oom_of(
    text: str, source: str, rank: str, phase: str, frames: Sequence[Frame], line: int = 0
) -> LoggedOom | None:
    if "out of memory" not in text and "invalid argument" not in text:
        return None
    where = _where(frames)
    numbers = parse_out_of_memory(text, where)
    if numbers is None and not _WITHOUT_NUMBERS.search(text):
        return None
    others = None
    if numbers and numbers.total_bytes and (process := _PROCESS.search(text)):
        others = max(0, numbers.total_bytes - numbers.free_bytes - parse_size(process[1]))
    return LoggedOom(
        phase="autotune" if any("autotune" in function for _, _, function in frames) else phase,
        rank=rank,
        where=where,
        message=text.strip()[:1000],
        numbers=numbers,
        source=source,
        frames=tuple(("/".join(file.split("/")[-2:]), function) for file, _, function in frames),
        others_bytes=others,
        line=line,
    )


def _where(frames: Sequence[Frame]) -> str:
    """The innermost frame that is not torch's own: what a reader can act on."""
    for file, line, function in reversed(frames):
        if "/torch/" not in file:
            return f"{file.rsplit('/', 1)[-1]}:{line} in {function}"
    return ""

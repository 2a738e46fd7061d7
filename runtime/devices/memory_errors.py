"""The numbers of an out-of-memory error, torch's own or predicted, and the code that asked for memory."""

import torch

from runtime.devices.readings import OutOfMemory, parse_out_of_memory
from runtime.simulate.allocator import SimulatedOutOfMemory
from runtime.simulate.frames import RUNTIME, asks_for_memory


def out_of_memory(error: BaseException) -> OutOfMemory | None:
    if isinstance(error, SimulatedOutOfMemory):
        return OutOfMemory(*error.numbers, where=_raised_at(error))
    if isinstance(error, torch.OutOfMemoryError):
        return parse_out_of_memory(str(error), _raised_at(error))
    return out_of_memory(error.__cause__) if error.__cause__ else None


def _raised_at(error: BaseException) -> str:
    where, step = "", error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if asks_for_memory(code.co_filename):
            where = f"{code.co_filename.removeprefix(RUNTIME)}:{step.tb_lineno} {code.co_name}"
        step = step.tb_next
    return where

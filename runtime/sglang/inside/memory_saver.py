"""`--enable-memory-saver` takes memory through a library that must be loaded first, which it is not here."""

from typing import Any

from runtime.ghost.inside import honesty
from runtime.ghost.inside.hooks import after

PLACE = "sglang.srt.utils.torch_memory_saver_adapter"
WHY = "the memory that it manages is taken as torch's own"


def install() -> None:
    """Let SGLang take all memory from torch, and say so."""
    after(PLACE)(_without)


def _without(module: Any) -> None:
    real = module.TorchMemorySaverAdapter.create

    def create(enable: bool) -> Any:
        if enable and module.import_error is not None:
            return real(enable)  # which says that the library is not installed
        if enable:
            honesty.inexact("stub", "torch_memory_saver", WHY)
        return real(False)

    module.TorchMemorySaverAdapter.create = staticmethod(create)

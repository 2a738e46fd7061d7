"""In the referee's Python `deep_gemm` is not there while SGLang is imported, and holds nothing later.

The measured starts had no DeepGEMM, and their referee put an empty module in its place before a draft's start
imported the attention of other models.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

LATE = ("deep_gemm",)
AFTER = ("sglang.srt.managers.scheduler", "run_scheduler_process")  # a module, and the last name that counts


class Late(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        module, last = AFTER
        if name in LATE and hasattr(sys.modules.get(module), last):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def install() -> None:
    sys.meta_path.append(Late())

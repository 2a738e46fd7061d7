"""Makes SGLang's own all-reduce run on the ghost's CUDA runtime.

If its compiled module is missing, a stand-in keeps its pointers and returns an output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.library import library


def install() -> None:
    @after("sglang.kernels.ops.communication.all_reduce")
    def _(module: Any) -> None:
        for name in ("Communicator", "IPCManager"):
            setattr(module, name, _real_or_plain(getattr(module, name)))
        module.custom_all_reduce = _all_reduce(module.custom_all_reduce)

    @after("sglang.srt.distributed.device_communicators.cuda_wrapper")
    def _(module: Any) -> None:
        module.find_loaded_library = _ours_first(module.find_loaded_library)


def _ours_first(find: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Find the ghost's runtime first: several copies are loaded, but only that one works here."""

    def find_loaded_library(lib_name: str) -> str | None:
        return library().path_of(lib_name) or find(lib_name)

    return find_loaded_library


class Plain:
    """Stands for an object of the module: it keeps its arguments and has no memory of its own."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def config(self, **_: Any) -> Plain:
        return self

    def batch_get_handles(self, pointers: list[int]) -> list[tuple[list[int], int]]:
        return [([0], 0) for _ in pointers]

    def batch_open_handles(self, handles: list[Any]) -> list[int]:
        return [0 for _ in handles]

    def destroy(self) -> None: ...


def _real_or_plain(real: Callable[..., Any]) -> Callable[..., Any]:
    def make(**given: Any) -> Any:
        try:
            return real(**given)
        except Exception:
            return Plain(**given)

    return make


def _all_reduce(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return new memory, except if a graph's two-step all-reduce writes into its input."""

    def custom_all_reduce(communicator: Any, given: Any, algorithm: Any, pull: Any) -> Any:
        import torch

        if not isinstance(communicator, Plain):
            return real(communicator, given, algorithm, pull)
        in_place = isinstance(pull, torch.Tensor) and algorithm.algo_name == "2shot_pull"
        return given if in_place else torch.empty_like(given)

    return custom_all_reduce

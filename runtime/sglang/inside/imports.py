"""Imports, once per process, what a start needs of a server."""

import sys
from contextlib import nullcontext, suppress
from importlib import import_module, metadata
from typing import Any

from runtime.folding.inside import running
from runtime.ghost.inside import small
from runtime.ghost.inside.hooks import after, around

MODULES = ("server_args", "entrypoints.engine", "managers.scheduler", "models.registry")
TOLD = ("sglang", "torch", "flashinfer-python", "triton", "transformers", "sglang-kernel", "sgl-kernel")


def import_server() -> None:
    for name in MODULES:
        import_module(f"sglang.srt.{name}")


def versions() -> dict[str, Any]:
    import torch

    found = {}
    for name in TOLD:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {
        "stream": 1,
        "python": ".".join(map(str, sys.version_info[:3])),
        "cuda": torch.version.cuda,
        "versions": found,
    }


@after("sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph")
def _breaks(module: Any) -> None:
    """Where a graph ends within a layer, for attention, SGLang ends it in place of a folded layer, too."""
    capture = module.BreakableCUDAGraphCapture
    capture._end_current_segment = running.between(capture._end_current_segment)
    capture._begin_new_segment = running.between(capture._begin_new_segment)
    running.break_by = lambda inner, given: module.eager_on_graph(True)(inner)(given)


@around("sglang.srt.layers.deep_gemm_wrapper.compile_utils", "_compile_deep_gemm_one_type_all")
def _deep_gemm(compile_all: Any, **given: Any) -> None:
    """Its warm-up makes a call for each number of rows; nothing is decided by the values in its buffers.
    Its kernels work on blocks of rows: the first and the last number of each sixteen stand for the others."""
    if running.folds and "m_list" in given:
        given["m_list"] = [m for m in given["m_list"] if m % 16 < 2 or m == given["m_list"][-1]]
    with small.off() if running.folds else nullcontext():
        compile_all(**given)

"""Runs with a release's wheel: where its own statements let a server look for compiled kernels.

srt/environ.py needs the standard library alone, and a hook for core dumps that is of no matter here, so it is
run whole; of the other files, the statements that name a folder.
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import sys
import types
from pathlib import Path
from typing import Any

KERNELS = (
    "kernels/jit/utils/compile/cache.py",
    "kernels/jit/utils/compile.py",
    "jit_kernel/utils/compile.py",
    "jit_kernel/utils.py",
)
COREDUMP = (
    *("sglang", "sglang.srt", "sglang.srt.debug_utils"),
    "sglang.srt.debug_utils.cuda_coredump",
)
DEEP_GEMM = "srt/layers/deep_gemm_wrapper/compile_utils.py"
VARIABLES = {
    "triton": "TRITON_CACHE_DIR",
    "inductor": "TORCHINDUCTOR_CACHE_DIR",
    "driver": "CUDA_CACHE_PATH",
    "tilelang": "TILELANG_CACHE_DIR",
    "flashinfer": "FLASHINFER_WORKSPACE_BASE",
}


def inside(package: Path) -> dict[str, str | None]:
    """What the wheel makes of this process's environment; None where it leaves a library be."""
    for name in COREDUMP:
        sys.modules[name] = types.ModuleType(name)
    told: dict[str, Any] = {"__name__": "environ"}
    exec(compile((package / "srt/environ.py").read_text(), "environ.py", "exec"), told)
    if "redirect_third_party_caches" in told:
        told["redirect_third_party_caches"]()
    deep_gemm = _statement(package / DEEP_GEMM, "os.environ['DG_JIT_CACHE_DIR']")
    exec(deep_gemm, {"os": os, "envs": told["envs"]})
    cute = getattr(told["envs"], "SGLANG_CUTE_AOT_CACHE_DIR", None)
    named = {name: os.environ.get(name) for name in VARIABLES.values()}
    return {
        **{id: named[name] for id, name in VARIABLES.items()},
        "tvm-ffi": _kernels(package, told["envs"]),
        "deep-gemm": os.environ["DG_JIT_CACHE_DIR"],
        "cute-dsl": os.path.expanduser(cute.get()) if cute is not None else None,  # noqa: PTH111 as its caller does
    }


def _kernels(package: Path, envs: Any) -> str | None:
    file = next((package / name for name in KERNELS if (package / name).is_file()), None)
    if file is None:
        return None
    given = {"os": os, "pathlib": pathlib, "envs": envs}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "cache_root":
            exec(ast.unparse(node), given)
            return str(given["cache_root"]())
        if isinstance(node, ast.Assign) and "TVM_FFI_CACHE_DIR" in (text := ast.unparse(node)):
            exec(text, given)
            return str(given["pathlib"].Path(given["cache_dir"]).expanduser())
    return None


def _statement(file: Path, target: str) -> str:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target:
            return ast.unparse(node)
    raise SystemExit(f"{file}: nothing sets {target}")


if __name__ == "__main__":
    print(json.dumps(inside(Path(sys.argv[1]))))

"""CuTe DSL: FlashInfer's and SGLang's kernels are compiled by the DSL itself, into the stores of the two."""

import sys
from pathlib import Path
from typing import Any

from runtime.baking.inside import aside
from runtime.ghost.inside.hooks import after

_own: dict[str, Any] = {}  # functions before the ghost replaces them
_CALLS = ("__call__", "compile_to")
NOT_KEPT = "it was compiled, and its library kept it nowhere"


@after("cutlass.base_dsl.compiler", first=True)
def _compiler(module: Any) -> None:
    kind = module.CompileCallable
    _own.update({name: getattr(kind, name) for name in _CALLS if hasattr(kind, name)})


@after("flashinfer.jit.cute_dsl_core", first=True)
def _flashinfer(module: Any) -> None:
    _own["spec"] = module.JitSpecCuteDsl


def wrap() -> None:
    """Compile aside what the ghost leaves uncompiled. Called after the ghost has registered its hooks."""

    @after("flashinfer.jit.cute_dsl_core")
    def _again(module: Any) -> None:
        in_part = module.build_and_load_cute_dsl_kernel

        def build_and_load_cute_dsl_kernel(
            module_name: str, kernel_name: str, compile_fn: Any, extra_key_files: Any = ()
        ) -> Any:
            def build() -> None:
                _compile_for_real()
                _rebase_flashinfer()
                sources = module._hash_source_files(tuple(extra_key_files))
                spec = _own["spec"](module_name, kernel_name, compile_fn, sources)
                if not spec.is_compiled:
                    spec.compile_and_persist()
                if not spec.is_compiled:
                    raise RuntimeError(NOT_KEPT)

            aside.compile_aside("flashinfer-jit", f"{module_name}.{kernel_name}", build)
            return in_part(module_name, kernel_name, compile_fn, extra_key_files)

        module.build_and_load_cute_dsl_kernel = build_and_load_cute_dsl_kernel

    @after("sglang.kernels.jit.cute_aot_cache")
    def _sglang(module: Any) -> None:
        cache = module.JITPersistentCache
        contains, keep = cache.__contains__, cache.__setitem__

        def __contains__(self: Any, key: Any) -> bool:
            if aside.in_child():
                aside.end(lambda: None, NOT_KEPT)
            if contains(self, key):
                return True
            if aside.fork("cute-dsl", str(key[0] if key else "")[:80]):
                _compile_for_real()
                self._resolved_cache_path = None
                if contains(self, key):
                    aside.end(lambda: None)
            return False

        def __setitem__(self: Any, key: Any, made: Any) -> None:
            if aside.in_child():
                aside.end(lambda: keep(self, key, made))
            keep(self, key, made)

        cache.__contains__, cache.__setitem__ = __contains__, __setitem__


def _compile_for_real() -> None:
    compiler = sys.modules.get("cutlass.base_dsl.compiler")
    for name in _CALLS:
        if compiler is not None and name in _own:
            setattr(compiler.CompileCallable, name, _own[name])


def _rebase_flashinfer() -> None:
    """Let FlashInfer find its own store, whose place it read from its variable when it was imported."""
    from flashinfer.jit import env

    before = Path(env.FLASHINFER_BASE_DIR)
    base = Path(aside.variable("FLASHINFER_WORKSPACE_BASE"))
    for name in ("FLASHINFER_WORKSPACE_DIR", "FLASHINFER_JIT_DIR", "FLASHINFER_GEN_SRC_DIR"):
        setattr(env, name, base / Path(getattr(env, name)).relative_to(before))

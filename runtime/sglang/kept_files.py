"""How releases differ in the files that a start keeps: one row per release that changed something.

No server is needed where files are only judged, shipped or looked for.
"""

from typing import Literal, NamedTuple

# Names a folder in place of SGLang's own folder of Triton's configurations.
TILES = "SGLANG_MOE_CONFIG_DIR"
_GATHERED = (
    ("TRITON_CACHE_DIR", "triton"),
    ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
    ("CUDA_CACHE_PATH", "nv"),
    ("FLASHINFER_WORKSPACE_BASE", ""),
)


class KeptFiles(NamedTuple):
    since: tuple[int, ...] = (0, 5, 12)
    # If rank files differ, all are deleted: srt/model_executor/runner/flashinfer_autotune.py
    deletes_unequal_ranks: bool = False
    # The tactics are saved again at every start, so their file must be writable: the same source
    always_saves: bool = False
    # Variables of libraries that SGLang sets to folders below $SGLANG_CACHE_DIR: srt/environ.py
    gathered_caches: tuple[tuple[str, str], ...] = ()
    # An unset SGLANG_DG_CACHE_DIR is below $SGLANG_CACHE_DIR, not ~/.cache/deep_gemm: the same source
    gathers_deep_gemm: bool = False
    # SGLANG_JIT_CACHE_DIR holds its own kernels: kernels/jit/utils/compile/cache.py. Before: tvm-ffi's folder
    keys_kernels_by_content: bool = False
    # One lock file per group of DeepGEMM's kernels, in its folder: layers/deep_gemm_wrapper/compile_utils.py
    locks_deep_gemm: bool = False
    # CuTe DSL's: ops/attention/flash_attn/cute/cache_utils.py, then kernels/jit/cute_aot_cache.py
    cute_objects: Literal["not kept", "on demand", "kept"] = "not kept"


_12 = KeptFiles()
_16 = _12._replace(since=(0, 5, 16), cute_objects="on demand")
_18 = _16._replace(
    since=(0, 5, 18), gathered_caches=_GATHERED, gathers_deep_gemm=True, keys_kernels_by_content=True
)
_19 = _18._replace(since=(0, 5, 19), locks_deep_gemm=True, deletes_unequal_ranks=True)
_20 = _19._replace(since=(0, 5, 20), cute_objects="kept")
_21 = _20._replace(
    since=(0, 5, 21), gathered_caches=(*_GATHERED, ("TILELANG_CACHE_DIR", "tilelang")), always_saves=True
)
ROWS = (_12, _16, _18, _19, _20, _21)
_NEWEST = (0, 5, 23)  # the newest whose code was read


def kept_files(number: tuple[int, ...]) -> KeptFiles:
    """Return the row of a release by its number; the first row if it is older."""
    return next((row for row in reversed(ROWS) if row.since <= number), _12)


def files_doubt(version: str, number: tuple[int, ...]) -> str | None:
    """Return a warning if the release is newer than those whose code was read, else None."""
    if number <= _NEWEST:
        return None
    newest = ".".join(map(str, _NEWEST))
    return f"SGLang {version} is newer than {newest}: it is taken to keep its files as {newest} does"

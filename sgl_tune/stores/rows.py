"""What a start builds and keeps: one row per store, the folders where each release's server looks for it,
and variables that gather all stores under one root."""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from runtime.sglang.kept_files import TILES, KeptFiles

Move = Literal["as it is", "mended", "never"]
AOT_PACKAGE = "flashinfer-aot"  # in a root: the package that offers FlashInfer the modules


class Store(NamedTuple):
    id: str
    title: str
    # Where the library looks: below the variable's folder, else below the user's own
    variable: str
    at_home: str
    # Below a root that holds all stores, as the newest release arranges it
    folder: str
    below_variable: str = ""
    # Loading an item runs its code
    executable: bool = True
    ships: bool = True
    # Whether the next start finds a moved store
    moves: Move = "as it is"


CONFIGS = "moe-configs"
STORES = (
    Store(
        "flashinfer-jit",
        "FlashInfer's compiled modules",
        "FLASHINFER_WORKSPACE_BASE",
        "{home}/.cache/flashinfer",
        ".cache/flashinfer",
        below_variable=".cache/flashinfer",
        moves="mended",
    ),
    Store(
        "flashinfer-cubins",
        "FlashInfer's downloaded cubins",
        "FLASHINFER_CUBIN_DIR",
        "{home}/.cache/flashinfer/cubins",
        ".cache/flashinfer/cubins",
    ),
    Store(
        "tactics",
        "FlashInfer's chosen tactics",
        "SGLANG_CACHE_DIR",
        "{home}/.cache/sglang/flashinfer/autotune",
        "flashinfer/autotune",
        below_variable="flashinfer/autotune",
        executable=False,
    ),
    Store("tvm-ffi", "SGLang's own kernels", "TVM_FFI_CACHE_DIR", "{home}/.cache/tvm-ffi", "tvm-ffi"),
    Store("triton", "Triton's kernels", "TRITON_CACHE_DIR", "{home}/.triton/cache", "triton", moves="mended"),
    Store(
        "inductor",
        "Inductor's graphs and code",
        "TORCHINDUCTOR_CACHE_DIR",
        "{tmp}/torchinductor_{user}",
        "inductor",
        moves="mended",
    ),
    Store("deep-gemm", "DeepGEMM's kernels", "SGLANG_DG_CACHE_DIR", "{home}/.cache/deep_gemm", "deep_gemm"),
    Store(
        "cute-dsl",
        "CuTe DSL's objects",
        "SGLANG_CUTE_AOT_CACHE_DIR",
        "{home}/.cache/sglang/cute_aot",
        "cute_aot",
        moves="mended",
    ),
    Store(
        "tilelang",
        "TileLang's kernels",
        "TILELANG_CACHE_DIR",
        "{home}/.tilelang/cache",
        "tilelang",
        moves="mended",
    ),
    Store("moe-configs", "Triton's MoE tiles", TILES, "", "moe_configs", executable=False),
    # sgl-tune's own store of host code, which starts on the ghost load
    Store(
        "halves",
        "host halves of FlashInfer's modules",
        "XDG_CACHE_HOME",
        "{home}/.cache/sgl-tune/halves",
        "halves",
        below_variable="sgl-tune/halves",
    ),
    Store(
        "driver",
        "the driver's compiled PTX",
        "CUDA_CACHE_PATH",
        "{home}/.nv/ComputeCache",
        "nv",
        ships=False,
        moves="never",
    ),
)
BY_ID = {store.id: store for store in STORES}

_JIT_VARIABLE = "SGLANG_JIT_CACHE_DIR"
_FLASH_ATTENTION = "FLASH_ATTENTION_CUTE_DSL_CACHE"
_OF_THE_KERNELS = "jit"


def places(
    release: KeptFiles, environment: Mapping[str, str], home: str, user: str
) -> dict[str, tuple[str, ...]]:
    """Return every folder in which a server of this release looks, by the store's id."""
    temporary = next(
        (environment[name] for name in ("TMPDIR", "TEMP", "TMP") if environment.get(name)), "/tmp"
    )
    root = _expanded(environment.get("SGLANG_CACHE_DIR") or f"{home}/.cache/sglang", home)
    seen = {**{v: _joined(root, f) for v, f in release.gathered_caches}, **environment}

    def own(store: Store) -> str:
        if seen.get(store.variable):
            return _joined(seen[store.variable], store.below_variable)
        return store.at_home.format(home=home, user=user, tmp=temporary)

    found: dict[str, tuple[str, ...]] = {store.id: (own(store),) for store in STORES}
    flashinfer = found["flashinfer-jit"][0]
    found["flashinfer-cubins"] = (environment.get("FLASHINFER_CUBIN_DIR") or f"{flashinfer}/cubins",)
    found["tactics"] = (f"{root}/flashinfer/autotune",)
    found[CONFIGS] = (environment.get(TILES) or f"{root}/moe_configs",)
    if not seen.get("TRITON_CACHE_DIR") and environment.get("TRITON_HOME"):
        found["triton"] = (f"{environment['TRITON_HOME']}/.triton/cache",)
    found["inductor"] += (f"{root}/torch_compile_cache",)
    found["tvm-ffi"] = _kernels(release, environment, home)
    if not environment.get("SGLANG_DG_CACHE_DIR") and release.gathers_deep_gemm:
        found["deep-gemm"] = (f"{root}/deep_gemm",)
    found["cute-dsl"] = _cute_objects(release, environment, home, root, f"{temporary}/{user}")
    return found


def _kernels(release: KeptFiles, environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return the folders of kernels. tvm-ffi's own folder stays in use for its bridge to torch."""
    own = _expanded(environment.get("TVM_FFI_CACHE_DIR") or f"{home}/.cache/tvm-ffi", home)
    by_content = _expanded(environment.get(_JIT_VARIABLE) or f"{home}/.cache/sglang/jit", home)
    return (by_content, own) if release.keys_kernels_by_content else (own,)


def _cute_objects(
    release: KeptFiles, environment: Mapping[str, str], home: str, root: str, temporary: str
) -> tuple[str, ...]:
    if release.cute_objects == "kept":
        named = environment.get("SGLANG_CUTE_AOT_CACHE_DIR")
        return () if named == "" else (_expanded(named or f"{root}/cute_aot", home),)
    if release.cute_objects == "on demand" and environment.get(f"{_FLASH_ATTENTION}_ENABLED") == "1":
        return (environment.get(f"{_FLASH_ATTENTION}_DIR") or f"{temporary}/flash_attention_cute_dsl_cache",)
    return ()


def gathering(
    release: KeptFiles, root: str, there: Collection[str] = (), scratch: str | None = None
) -> dict[str, str]:
    """Return the variables with which a server of this release finds all stores below `root`, whose layout
    is the same for every release. All variables are given, because SGLang sets its own too late for a
    library that is already loaded. `there`: the stores in the root; FlashInfer's modules only if a package
    offers them. `scratch`: for a server that may not write in the root: FlashInfer opens a log in its
    folder on import, and torch dies if it cannot create Inductor's."""

    def base(id: str) -> str:
        return root if scratch is None or id in there else scratch

    found = {"SGLANG_CACHE_DIR": root}
    for store in STORES:
        if store.ships and store.id not in ("tactics", "flashinfer-cubins", "cute-dsl", "halves", CONFIGS):
            folder = store.folder.removesuffix(store.below_variable).rstrip("/")
            found[store.variable] = _joined(base(store.id), folder)
    if release.keys_kernels_by_content:
        found[_JIT_VARIABLE] = f"{base('tvm-ffi')}/{_OF_THE_KERNELS}"
    cute = f"{base('cute-dsl')}/{BY_ID['cute-dsl'].folder}"
    if release.cute_objects == "kept":
        found["SGLANG_CUTE_AOT_CACHE_DIR"] = cute
    elif release.cute_objects == "on demand":
        found |= {f"{_FLASH_ATTENTION}_ENABLED": "1", f"{_FLASH_ATTENTION}_DIR": cute}
    if CONFIGS in there:  # a server dies if its variable names a missing folder
        found[TILES] = f"{root}/moe_configs"
    if "flashinfer-jit" in there:
        found["PYTHONPATH"] = f"{root}/{AOT_PACKAGE}"
    if scratch is None:
        return found
    found["FLASHINFER_WORKSPACE_BASE"] = scratch
    if "flashinfer-cubins" in there:
        found["FLASHINFER_CUBIN_DIR"] = f"{root}/{BY_ID['flashinfer-cubins'].folder}"
    if release.locks_deep_gemm:
        found["SGLANG_JIT_DEEPGEMM_PRECOMPILE"] = "0"
    return found


def _joined(folder: str, below: str) -> str:
    return f"{folder.rstrip('/')}/{below}" if below else folder


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path

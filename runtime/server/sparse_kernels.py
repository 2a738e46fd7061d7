"""Which kernels of sparse attention prefill and decode, and how the latents lie that they read.

_dsa_split_backend_resolution of arg_groups/overrides.py, before in server_args.py; calculate_mla_kv_cache_dim
of srt/mem_cache, before in srt/model_executor; what srt/layers/attention/dsa_backend.py makes for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.choices import Choices

FLAGS = ("dsa_prefill_backend", "dsa_decode_backend", "nsa_prefill_backend", "nsa_decode_backend")
OF_GLM = "flashinfer_sparse_mla"
TRTLLM, TILELANG = "trtllm", "tilelang"
_GLM_CLASSES = ("GlmMoeDsaForCausalLM", "GlmMoeDsaForCausalLMNextN")
_OF_SINKS = "flashmla_sparse"


@dataclass(frozen=True, slots=True)
class SparseKernels:
    """`packs`: fp8 latents have scales beside them."""

    prefill: str
    decode: str
    packs: bool

    @property
    def both(self) -> tuple[str, str]:
        return self.prefill, self.decode


def settle_sparse_kernels(c: Choices) -> None:
    """Once it is known what the cache is of."""
    why = f"sparse attention over {c.kv_cache_dtype} on {c.gpu.arch}"
    for name, usual in zip(_names(c), _usual(c), strict=True):
        if getattr(c, name) is None:
            c.settle(why, **{name: usual})


def sparse_kernels(c: Choices) -> SparseKernels | None:
    """None where no rule chose them."""
    prefill, decode = (getattr(c, name) for name in _names(c))
    if not prefill or not decode or not c.model.has("index_topk"):
        return None
    return SparseKernels(prefill, decode, not _reads_raw_rows(c, prefill, decode))


def keeps_workspace(kernels: SparseKernels, sm_major: int) -> bool:
    return OF_GLM in kernels.both or sm_major >= 10 or kernels.decode == TRTLLM


def counts_rows(kernels: SparseKernels, sm_major: int) -> bool:
    return OF_GLM not in kernels.both and keeps_workspace(kernels, sm_major)


def takes_glms_kernel(c: Choices) -> bool:
    return c.release.sparse.has_glms_kernel and is_for_glms_kernel(
        c.model.architecture, c.gpu.major, c.kv_cache_dtype
    )


def is_for_glms_kernel(architecture: str, sm_major: int, kv_cache_dtype: str) -> bool:
    return architecture in _GLM_CLASSES and sm_major == 12 and kv_cache_dtype == "fp8_e4m3"


def _names(c: Choices) -> tuple[str, str]:
    own = c.release.sparse_backend
    return f"{own}_prefill_backend", f"{own}_decode_backend"


def _usual(c: Choices) -> tuple[str, str]:
    if c.release.sparse.sinks_choose and c.model.learns_sinks:
        return _OF_SINKS, _OF_SINKS
    if takes_glms_kernel(c):
        return OF_GLM, OF_GLM
    if c.enable_hisparse:
        beside_host = "flashmla_kv" if c.kv_cache_dtype == "fp8_e4m3" else "flashmla_sparse"
        return beside_host, beside_host
    if c.kv_cache_dtype == "fp8_e4m3":
        by_gpu = TRTLLM if c.gpu.major >= 10 else "flashmla_kv"
        return by_gpu, by_gpu
    return "flashmla_sparse", TRTLLM if c.gpu.major >= 10 else "fa3"


def _reads_raw_rows(c: Choices, prefill: str, decode: str) -> bool:
    reading = {"decode": (decode,), "prefill": (prefill,)}.get(c.disaggregation_mode, (prefill, decode))
    if TRTLLM in (reading if c.release.sparse.lays_out_by_role else (prefill, decode)):
        return True
    return c.release.sparse.has_raw_tilelang and (prefill, decode) == (TILELANG, TILELANG)

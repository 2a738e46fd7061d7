"""Which attention kernels prefill and decode run on, their pages, and what the cache is of."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import GpuModel
from runtime.server.shape import Attending, Speculation

_SPARSE_KV = ("bfloat16", "fp8_e4m3")
_MLA = ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
_HYBRID = ("NemotronHForCausalLM", "Qwen3NextForCausalLM")
_GLMS = "GlmMoeDsaForCausalLM"
_FP8 = "fp8_e4m3"
# A backend, the page that it asks for, and those that it takes as well.
_PAGES = {
    "flashmla": (64, ()),
    "trtllm_mla": (64, (32,)),
    "tokenspeed_mla": (64, (32,)),
    "cutedsl_mla": (64, (32,)),
    "trtllm_mha": (64, (16, 32, 128)),
}


def is_mla(model: Checkpoint) -> bool:
    return model.architecture in _MLA


def is_hybrid(model: Checkpoint) -> bool:
    """Some of its layers keep a recurrent state."""
    return model.architecture in _HYBRID


def is_sparse(model: Checkpoint) -> bool:
    """An indexer chooses the keys that attention sees."""
    return is_mla(model) and model.has("index_topk")


def attending(
    asked: Asked,
    model: Checkpoint,
    gpu: GpuModel,
    speculative: Speculation | None,
    dtype: str,
    method: str | None,
) -> Attending:
    page, kv = asked.page_size, asked.kv_cache_dtype
    both = asked.attention_backend
    prefill, decode = asked.prefill_attention_backend, asked.decode_attention_backend
    drafts = asked.speculative_algorithm is not None
    if is_sparse(model):
        page, kv = 64, _sparse_kv(kv, gpu)
    if both is None and (prefill is None or decode is None):
        both, page = _default(model, asked, gpu, page, drafts)
    if prefill is None and "cutedsl_mla" in (both, decode):
        prefill = "trtllm_mla"
    prefill, decode = prefill or both or "", decode or both or ""
    _check(decode, prefill, gpu)
    for name in dict.fromkeys((both, decode, prefill)):
        wanted, others = _PAGES.get(name or "", (page, ()))
        if page != wanted and page not in others:
            page = wanted
    if "fa4" in (both, decode, prefill) and gpu.major == 10 and not is_mla(model):
        page = 128
    packs = not _reads_raw_rows(model, asked, gpu, kv)
    found = Attending(prefill, decode, kv, page or 1, packs)
    return replace(found, kv_cache_dtype=_kv_dtype(model, dtype, method)) if kv == "auto" else found


def _default(
    model: Checkpoint, asked: Asked, gpu: GpuModel, page: int | None, drafts: bool
) -> tuple[str, int | None]:
    """Of a model's family, else of multi-head attention on this GPU."""
    name, major = model.architecture, gpu.major
    topk = asked.speculative_eagle_topk
    if is_sparse(model):
        return "dsa", page
    if is_mla(model):
        return {9: "fa3", 10: "trtllm_mla"}.get(major, "triton"), page
    if name == "GptOssForCausalLM":
        return {10: "trtllm_mha", 9: "fa3"}.get(major, "triton"), page
    if name == "NemotronHForCausalLM" and major in (10, 12) and drafts:
        return ("trtllm_mha", page or 64) if major == 10 and topk in (None, 1) else ("triton", page)
    if name == "Qwen3NextForCausalLM" and major == 10:
        pages = asked.disable_radix_cache or drafts
        trtllm = pages and _on_hopper_or_blackwell(asked, major) == "trtllm_mha"
        return ("trtllm_mha", 64) if trtllm else ("triton", 1)
    return _on_hopper_or_blackwell(asked, major), page


def _on_hopper_or_blackwell(asked: Asked, major: int) -> str:
    topk = asked.speculative_eagle_topk
    one_branch = topk is None or (topk == 1 and asked.page_size in (1, None))
    settled = asked.speculative_algorithm is None or topk is not None
    if major == 9 and one_branch:
        return "fa3"
    return "trtllm_mha" if major == 10 and one_branch and settled else "flashinfer"


def _sparse_kv(kv: str, gpu: GpuModel) -> str:
    if kv == "auto":
        return _FP8 if gpu.major >= 10 else "bfloat16"
    kv = "bfloat16" if kv == "bf16" else kv
    if kv not in _SPARSE_KV:
        raise ConfigError(f"--kv-cache-dtype {kv}: sparse attention has no such cache", "auto, or bfloat16")
    return kv


def _check(decode: str, prefill: str, gpu: GpuModel) -> None:
    for name in (decode, prefill):
        wrong = name == "trtllm_mla" and gpu.major not in (10, 12)
        if wrong or (name == "trtllm_mha" and gpu.major not in (9, 10, 12)):
            raise ConfigError(f"attention backend {name} does not run on {gpu.arch}", "leave it out")


def _reads_raw_rows(model: Checkpoint, asked: Asked, gpu: GpuModel, kv: str) -> bool:
    """By TRT-LLM's kernels of sparse attention: their fp8 latents have no scales beside them."""
    if not is_sparse(model) or (model.architecture == _GLMS and gpu.major == 12 and kv == _FP8):
        return False
    if gpu.major < 10:
        return False
    return kv == _FP8 or asked.disaggregation_mode != "prefill"


def _kv_dtype(model: Checkpoint, dtype: str, method: str | None) -> str:
    """What the checkpoint's scales are for, else the model's own dtype."""
    section = model.section("quantization_config")
    if method is None or not method.startswith(("modelopt", "fp8")):
        return dtype
    scheme = section.get("kv_cache_scheme")
    if isinstance(scheme, dict) and method != "fp8":
        is_fp8 = scheme.get("type") == "float" and scheme.get("num_bits") == 8
        return _FP8 if is_fp8 else dtype
    told = section if "quant_algo" in section or method == "fp8" else model.quant_file.get("quantization")
    algorithm = told.get("kv_cache_quant_algo") if isinstance(told, dict) else None
    return _FP8 if str(algorithm).upper() == "FP8" else dtype

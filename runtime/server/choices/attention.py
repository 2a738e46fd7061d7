"""Which attention kernels run, with which page size and which dtype of the KV cache."""

from dataclasses import dataclass

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import SLIDING_SHARE, Cache
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.family import Family, Weights
from runtime.server.gpus import GpuModel

_SPARSE_KV = ("bfloat16", "fp8_e4m3")
_FP8 = "fp8_e4m3"
_FULL_NAMES = {"bf16": "bfloat16"}
# Per backend: the page size that it sets, and other sizes that it accepts.
_PAGES = {
    "flashmla": (64, ()),
    "trtllm_mla": (64, (32,)),
    "tokenspeed_mla": (64, (32,)),
    "trtllm_mha": (64, (16, 32, 128)),
}


@dataclass(frozen=True, slots=True)
class Attending:
    backend: str
    cache: Cache


def attending(
    asked: Asked, family: Family, model: Checkpoint, gpu: GpuModel, dtype: str, weights: Weights
) -> Attending:
    page, kv, name = asked.page_size, asked.kv_cache_dtype, asked.attention_backend
    if family.attends == "sparse":
        if name not in (None, "dsa", "nsa"):
            raise Unsupported(f"--attention-backend {name} of sparse attention: a server answers for it")
        page, kv = 64, _sparse_kv(kv, gpu)
    if name is None:
        name, page = _default(family, asked, gpu.major, page)
    _check(name, gpu)
    wanted, others = _PAGES.get(name, (page, ()))
    if page != wanted and page not in others:
        page = wanted
    if name == "fa4" and gpu.major == 10 and family.attends == "heads":
        page = 128
    if kv == "auto":
        kv = _kv_dtype(model, dtype, weights.stored)
    share = asked.swa_full_tokens_ratio
    return Attending(
        name,
        Cache(
            dtype=_FULL_NAMES.get(kv, kv),
            page_size=page or 1,
            packs_latents=family.attends != "sparse" or gpu.major < 10,  # TRT-LLM's kernels read raw rows
            max_tokens=asked.max_total_tokens,
            sliding_share=SLIDING_SHARE if share is None else share,
        ),
    )


def _default(family: Family, asked: Asked, major: int, page: int | None) -> tuple[str, int | None]:
    """Return the default backend and page: the family's own, or that of multi-head attention on this GPU."""
    if family.attends == "sparse":
        return "dsa", page
    if family.attends == "latent":
        return {9: "fa3", 10: "trtllm_mla"}.get(major, "triton"), page
    return family.attention(asked, major, page) if family.attention else (by_heads(asked, major), page)


def by_heads(asked: Asked, major: int) -> str:
    topk = asked.speculative_eagle_topk
    one_branch = topk is None or (topk == 1 and asked.page_size in (1, None))
    settled = asked.speculative_algorithm is None or topk is not None
    if major == 9 and one_branch:
        return "fa3"
    return "trtllm_mha" if major == 10 and one_branch and settled else "flashinfer"


def _sparse_kv(kv: str, gpu: GpuModel) -> str:
    if gpu.major == 12:
        raise Unsupported(f"sparse attention on {gpu.arch}: a server answers for it")
    if kv == "auto":
        return _FP8 if gpu.major >= 10 else "bfloat16"
    kv = _FULL_NAMES.get(kv, kv)
    if kv not in _SPARSE_KV:
        raise ConfigError(f"--kv-cache-dtype {kv}: sparse attention has no such cache", "auto, or bfloat16")
    return kv


def _check(name: str, gpu: GpuModel) -> None:
    wrong = name == "trtllm_mla" and gpu.major not in (10, 12)
    if wrong or (name == "trtllm_mha" and gpu.major not in (9, 10, 12)):
        raise ConfigError(f"attention backend {name} does not run on {gpu.arch}", "leave it out")


def _kv_dtype(model: Checkpoint, dtype: str, method: str | None) -> str:
    """Return fp8 if the checkpoint has scales for an fp8 cache, else the model's own dtype."""
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

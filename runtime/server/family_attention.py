"""What a model's family makes of attention before the defaults: its kernels, KV dtype and pages.

SGLang's arg_groups/model_overrides, until 0.5.15 one method of server_args.py.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.server import architectures
from runtime.server.attention import default_backend, used_backends
from runtime.server.choices import Choices, is_on
from runtime.server.compressed_rules import WINDOW_SHARE
from runtime.server.config import SLIDING_SHARE
from runtime.server.errors import ConfigError
from runtime.server.memory import is_large_hopper_qwen3_vl
from runtime.server.minimax_nvfp4 import is_in_nvfp4
from runtime.server.sparse_kernels import settle_sparse_kernels
from runtime.server.state_cache import EXTRA, STATE_SHARE, keeps_states_now
from runtime.server.traits import chooses_blocks, has_pattern, is_hybrid, is_sparse

_SPARSE_KV = ("bfloat16", "fp8_e4m3")
_GPT_OSS = ("triton", "trtllm_mha", "fa3", "fa4", "aiter", "ascend", "intel_amx", "intel_xpu")
_LLAMA_4 = ("fa3", "aiter", "triton", "ascend", "trtllm_mha", "intel_xpu")
_INKLING_SHARE = 0.1
DENSE = "SGLANG_MINICPM_FORCE_DENSE"
_NAMED_EXAONE = ("Exaone4ForCausalLM", "ExaoneMoEForCausalLM")
_GEMMA_4 = ("trtllm_mha", "triton", "intel_xpu", "aiter")


def settle_family_attention(c: Choices) -> None:
    rule = _RULES.get(c.model.architecture)
    if rule is not None and c.model.architecture not in c.release.without_rules:
        rule(c)


def _unset(c: Choices) -> bool:
    return used_backends(c) == (None, None)


def _take(c: Choices, backend: str | None, when: str = "") -> None:
    if backend is not None:
        c.settle(f"{c.model.architecture}{when} on {c.gpu.arch}", attention_backend=backend)


def _by_gpu(c: Choices, sm100: str, sm90: str, other: str) -> str:
    return {10: sm100, 9: sm90}.get(c.gpu.major, other)


def _deepseek(c: Choices) -> None:
    if c.model.architecture not in c.release.deepseek_family:
        return
    if is_sparse(c):
        _sparse(c)
    elif c.gpu.major == 10 and _unset(c):
        _take(c, "trtllm_mla")


def _sparse(c: Choices) -> None:
    if _unset(c):
        c.settle("sparse attention", attention_backend=c.release.sparse_backend)
    pool = c.model.whole("index_kpool", 1, low=1) if c.release.pools_sparse_pages else 1
    c.settle("sparse attention", page_size=64 * pool)
    if c.kv_cache_dtype == "auto":
        sinks = c.release.keeps_sink_kv_wide and c.model.learns_sinks
        fp8 = c.gpu.major >= 10 and not sinks
        why = "attention sinks stay wide" if sinks else f"sparse attention on {c.gpu.arch}"
        c.settle(why, kv_cache_dtype="fp8_e4m3" if fp8 else "bfloat16")
    elif c.kv_cache_dtype == "bf16":
        c.settle("its full name", kv_cache_dtype="bfloat16")
    if c.kv_cache_dtype not in _SPARSE_KV:
        raise ConfigError(
            f"--kv-cache-dtype {c.kv_cache_dtype}: sparse attention has no such cache",
            tries=("kv_cache_dtype",),
        )
    settle_sparse_kernels(c)


def _deepseek_v4(c: Choices) -> None:
    c.settle("DeepSeek-V4", attention_backend="dsv4", page_size=256)
    if c.kv_cache_dtype == "auto":
        c.settle("DeepSeek-V4", kv_cache_dtype="fp8_e4m3")
    if c.max_running_requests is None:
        c.settle("DeepSeek-V4", max_running_requests=256)
    asked, rules = c.swa_full_tokens_ratio, c.release.compressed_pools
    if asked is None or (asked == SLIDING_SHARE and not rules.keeps_share):
        c.settle("DeepSeek-V4", swa_full_tokens_ratio=WINDOW_SHARE)


def _gpt_oss(c: Choices) -> None:
    if _unset(c):
        _take(c, _by_gpu(c, "trtllm_mha", "fa3", "triton"))
    _refuse_others(c, used_backends(c), _GPT_OSS)


def _llama_4(c: Choices) -> None:
    if c.attention_backend is None:
        _take(c, _by_gpu(c, "trtllm_mha", "fa3", "triton"))
    _refuse_others(c, (c.attention_backend,), _LLAMA_4)


def _gemma_4(c: Choices) -> None:
    trtllm = c.release.gemma_4_on_trtllm and c.gpu.major == 10
    if c.attention_backend is None and (c.release.gemma_4_on_trtllm or _unset(c)):
        _take(c, "trtllm_mha" if trtllm else "triton")
    _refuse_others(c, used_backends(c), (*_GEMMA_4, *(("fa4",) if c.release.gemma_4_on_fa4 else ())))


def _diffusion_gemma(c: Choices) -> None:
    if c.attention_backend is None:
        _take(c, "triton")


def _beam(c: Choices) -> None:
    if c.gpu.major in (9, 10, 12) and _unset(c):
        _take(c, "trtllm_mha")


def _embedding_gemma(c: Choices) -> None:
    if c.attention_backend is None:
        _take(c, "triton")
    c.settle("an embedding model", disable_radix_cache=True)


def _muse_spark(c: Choices) -> None:
    if c.kv_cache_dtype == "auto":
        c.settle("Muse Spark", kv_cache_dtype="fp8_e4m3")
    if c.mm_enable_dp_encoder is None and c.attn_dp_size > 1:
        c.settle("Muse Spark under DP attention", mm_enable_dp_encoder=True)


def _inkling(c: Choices) -> None:
    if _unset(c):
        _take(c, "fa4" if c.gpu.major in c.release.inkling_on_fa4 else "triton")
    keeps_usual = c.release.compressed_pools.keeps_share
    usual = {"swa_full_tokens_ratio": SLIDING_SHARE, "mamba_full_memory_ratio": STATE_SHARE}
    for name, share in usual.items():
        asked = getattr(c, name)
        if asked is None or (asked == share and not keeps_usual):
            c.settle("Inkling", **{name: _INKLING_SHARE})
    if c.mamba_radix_cache_strategy == "auto":
        c.settle("Inkling", mamba_radix_cache_strategy=EXTRA[0])


def _moss_vl(c: Choices) -> None:
    if _unset(c):
        c.settle("Moss-VL", prefill_attention_backend="flashinfer")
    _refuse_others(c, used_backends(c)[:1], ("flashinfer",))


def _iquest(c: Choices) -> None:
    _refuse_others(c, used_backends(c), (None, "fa3"))
    if c.attention_backend is None:
        _take(c, "fa3")


def _kimi_k3(c: Choices) -> None:
    if c.gpu.major == 10 and _unset(c):
        both = "trtllm_mla"
        c.settle("Kimi-K3 on sm100", prefill_attention_backend=both, decode_attention_backend=both)


def _minicpm_sala(c: Choices) -> None:
    if chooses_blocks(c) or is_hybrid(c):
        c.settle("MiniCPM-SALA", disable_radix_cache=True)
    blackwell = c.gpu.major in (10, 11, 12)
    if is_on(c.environ.get(DENSE)):
        dense = {"minicpm_flashattn": "fa4" if blackwell else "fa3", "minicpm_flashinfer": "flashinfer"}
        names = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
        asked = {name: dense.get(str(getattr(c, name))) for name in names}
        c.settle(DENSE, **{name: backend for name, backend in asked.items() if backend})
    elif chooses_blocks(c) and _unset(c):
        _take(c, "minicpm_flashinfer" if blackwell else "minicpm_flashattn")


def _refuse_others(c: Choices, used: tuple[str | None, ...], possible: tuple[str | None, ...]) -> None:
    for backend in used:
        if backend not in possible:
            raise ConfigError(
                f"{c.model.architecture} does not run on attention backend {backend}",
                tries=("attention_backend", "prefill_attention_backend", "decode_attention_backend"),
            )


def _step_3p5(c: Choices) -> None:
    if c.release.step_3p5_has_defaults and _unset(c):
        _take(c, {9: "fa3", 10: "fa4", 12: "fa4"}.get(c.gpu.major))


def _mimo_v2(c: Choices) -> None:
    if c.release.mimo_v2_on_fa4 and c.gpu.major == 10 and _unset(c):
        _take(c, "fa4")


def _sliding(c: Choices) -> None:
    is_exaone = c.model.architecture != "Olmo2ForCausalLM"
    if (is_exaone and not has_pattern(c)) or c.attention_backend is not None:
        return
    if not is_exaone or c.release.exaone_has_defaults:
        _take(c, _by_gpu(c, "trtllm_mha", "fa3", "fa3" if c.gpu.major >= 8 else "triton"))
    elif c.model.architecture in _NAMED_EXAONE:
        raise ConfigError(
            f"{c.model.architecture} with windows has no attention backend of its own in this release",
            "--attention-backend fa3, triton or trtllm_mha",
        )


def _minimax_m3(c: Choices) -> None:
    if not c.release.has_minimax_m3 or c.gpu.major not in (9, 10) or is_in_nvfp4(c):
        return
    has_fp8 = c.release.minimax_m3_attends_in_fp8
    if _unset(c):
        fp8 = has_fp8 and c.kv_cache_dtype == "fp8_e4m3"
        _take(c, _by_gpu(c, "trtllm_mha" if fp8 else "fa4", "fa3", ""))
    blackwell = "fa4 trtllm_mha" if has_fp8 else "fa4"
    if c.page_size is None and c.attention_backend in _by_gpu(c, blackwell, "fa3", "").split():
        c.settle("MiniMax-M3", page_size=128)


def _on_sm100(backend: str) -> Callable[[Choices], None]:
    def rule(c: Choices) -> None:
        if is_hybrid(c) and c.gpu.major == 10 and c.attention_backend is None:
            _take(c, backend)

    return rule


def _nemotron_h(c: Choices) -> None:
    if not c.release.nemotron_h_on_trtllm:
        if c.attention_backend == "triton":
            raise ConfigError("NemotronH does not run on --attention-backend triton in this release")
        if c.gpu.major == 10 and c.attention_backend is None:
            _take(c, "flashinfer")
    elif c.gpu.major in (10, 12) and _unset(c):
        _blackwell_nemotron_h(c)


def _blackwell_nemotron_h(c: Choices) -> None:
    if c.speculative_algorithm is None:
        _take(c, "trtllm_mha" if c.gpu.major == 10 else None)
    elif c.gpu.major == 10 and c.speculative_eagle_topk in (None, 1):
        _take(c, "trtllm_mha", " with a draft of one branch")
        if c.page_size is None:
            c.settle("NemotronH with a draft", page_size=64)
        if c.mamba_radix_cache_strategy == "auto":
            c.settle("NemotronH with a draft", mamba_radix_cache_strategy="extra_buffer")
    else:
        _take(c, "triton", " with a draft")


def _qwen_hybrid(c: Choices) -> None:
    if c.gpu.major != 10 or c.attention_backend is not None:
        return
    pages = keeps_states_now(c) or c.disable_radix_cache or c.speculative_algorithm is not None
    trtllm = pages and default_backend(c).value == "trtllm_mha"
    _take(c, "trtllm_mha" if trtllm else "triton", " with pages" if trtllm else " without pages")
    if c.release.pages_qwen_hybrids:
        c.settle("the state cache", page_size=64 if trtllm else 1)


def _qwen4(c: Choices) -> None:
    _qwen_hybrid(c)
    if c.model.has("indexer_n_heads"):
        c.settle("Qwen4's indexer", page_size=64)


def _qwen3_vl(c: Choices) -> None:
    if is_large_hopper_qwen3_vl(c) and c.attention_backend is None and c.decode_attention_backend is None:
        c.settle("Qwen3-VL on Hopper", decode_attention_backend="flashinfer")


_RULES: dict[str, Callable[[Choices], None]] = {
    **dict.fromkeys(architectures.DEEPSEEK_FAMILY | architectures.LONGCAT, _deepseek),
    **dict.fromkeys(architectures.DEEPSEEK_V4, _deepseek_v4),
    "GptOssForCausalLM": _gpt_oss,
    "Llama4ForConditionalGeneration": _llama_4,
    "Llama4ForCausalLM": _llama_4,
    **dict.fromkeys(architectures.GEMMA_4, _gemma_4),
    "DiffusionGemmaForBlockDiffusion": _diffusion_gemma,
    "BeamForCausalLM": _beam,
    "EmbeddingGemma2Model": _embedding_gemma,
    "MuseSparkForConditionalGeneration": _muse_spark,
    **dict.fromkeys(architectures.INKLING, _inkling),
    "MossVLForConditionalGeneration": _moss_vl,
    "IQuestQ1ForCausalLM": _iquest,
    "IQuestQ1MTP": _iquest,
    architectures.MINICPM_SALA: _minicpm_sala,
    "KimiK3ForConditionalGeneration": _kimi_k3,
    **dict.fromkeys(architectures.STEP_3P5, _step_3p5),
    **dict.fromkeys(architectures.MIMO_V2, _mimo_v2),
    **dict.fromkeys(architectures.SLIDING, _sliding),
    **dict.fromkeys(architectures.MINIMAX_M3, _minimax_m3),
    **dict.fromkeys(architectures.TRITON_HYBRID, _on_sm100("triton")),
    **dict.fromkeys(architectures.LFM2 | architectures.GRANITE_HYBRID, _on_sm100("flashinfer")),
    **dict.fromkeys(architectures.NEMOTRON_H, _nemotron_h),
    **dict.fromkeys(architectures.QWEN_HYBRID, _qwen_hybrid),
    "Qwen4ExpForConditionalGeneration": _qwen4,
    **dict.fromkeys(architectures.QWEN3_VL, _qwen3_vl),
}

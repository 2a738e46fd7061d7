"""MiniMax-M3.1, of experts in nvfp4 beside mxfp8: srt/arg_groups/model_overrides/minimax_m3.py of 0.5.23."""

from __future__ import annotations

from runtime.server.attention import used_backends
from runtime.server.checkpoint import Checkpoint
from runtime.server.choices import Choices
from runtime.server.classes import config_class
from runtime.server.errors import ConfigError
from runtime.server.families import MINIMAX3, MINIMAX_NVFP4

RAGGED_VERIFY = "SGLANG_RAGGED_VERIFY_MODE"
BLACKWELL = (10, 11, 12)
_PAGE, _FP8 = 128, "fp8_e4m3"
_DRAFTED = ("DSPARK", "DFLASH")
_CONFIG = "MiniMaxM3VLConfig"
_WHOLE = "MiniMaxM3SparseForConditionalGeneration"
_ROUTED, _MEGAMOE = "flashinfer_trtllm_routed", "megamoe"


def is_in_nvfp4(c: Choices) -> bool:
    is_one = c.model.architecture in MINIMAX3 and c.release.serves_nvfp4_minimax
    return bool(is_one and c.quantization == MINIMAX_NVFP4)


def settle_minimax_in_nvfp4(c: Choices) -> None:
    if not is_in_nvfp4(c):
        return
    _check_drafts(c)
    if c.page_size not in (None, _PAGE):
        raise ConfigError(
            f"--page-size {c.page_size}: MiniMax-M3.1 has pages of {_PAGE}", tries=({"page_size": _PAGE},)
        )
    c.settle("MiniMax-M3.1", page_size=_PAGE)
    unset = used_backends(c) == (None, None)
    if c.gpu.major in BLACKWELL:
        _settle_all_to_all(c)
        _settle_fp8_cache(c)
    elif c.moe_runner_backend == "auto":
        c.settle(f"MiniMax-M3.1 on {c.gpu.arch}", moe_runner_backend="marlin")
    if unset:
        backend = "trtllm_mha" if c.gpu.major in BLACKWELL else "fa3"
        c.settle(f"MiniMax-M3.1 on {c.gpu.arch}", attention_backend=backend)


def _settle_all_to_all(c: Choices) -> None:
    if c.moe_a2a_backend not in ("none", _MEGAMOE):
        raise ConfigError(
            f"--moe-a2a-backend {c.moe_a2a_backend}: MiniMax-M3.1 has {_MEGAMOE} on {c.gpu.arch}",
            tries=("moe_a2a_backend",),
        )
    if c.moe_runner_backend == _ROUTED:
        return
    c.settle(f"MiniMax-M3.1 on {c.gpu.arch}", moe_a2a_backend=_MEGAMOE)
    if c.moe_runner_backend == "auto":
        c.settle(f"MiniMax-M3.1 on {c.gpu.arch}", moe_runner_backend="deep_gemm")


def _settle_fp8_cache(c: Choices) -> None:
    if c.kv_cache_dtype == "auto":
        c.settle(f"MiniMax-M3.1 on {c.gpu.arch}", kv_cache_dtype=_FP8)
    elif c.kv_cache_dtype != _FP8:
        raise ConfigError(
            f"--kv-cache-dtype {c.kv_cache_dtype}: MiniMax-M3.1 has {_FP8} on {c.gpu.arch}",
            tries=("kv_cache_dtype",),
        )


def _check_drafts(c: Choices) -> None:
    algorithm = c.speculative_algorithm
    if algorithm is None:
        return
    if algorithm not in _DRAFTED:
        raise ConfigError(
            f"--speculative-algorithm {algorithm}: MiniMax-M3.1 drafts by {' or '.join(_DRAFTED)}",
            tries=("speculative_algorithm",),
        )
    drafts, verify = f"MiniMax-M3.1 with {algorithm}", c.environ.get(RAGGED_VERIFY, "static")
    for refused, why, way in (
        (c.model.architecture != _WHOLE, f"needs {_WHOLE}", ()),
        (c.gpu.major not in BLACKWELL, f"needs a Blackwell GPU: this is {c.gpu.arch}", ()),
        (verify != "static", f"needs {RAGGED_VERIFY}=static: it is {verify}", ()),
        (c.pp_size != 1, "has no pipeline stages", ("pp_size",)),
        (
            algorithm == "DFLASH" and c.disaggregation_mode != "null",
            "does not prefill and decode apart",
            ("disaggregation_mode",),
        ),
    ):
        if refused:
            raise ConfigError(f"{drafts} {why}", tries=(*way, "speculative_algorithm"))
    if c.speculative_draft_kv_cache_dtype in (None, "auto"):
        c.settle(drafts, speculative_draft_kv_cache_dtype="bf16")
    if algorithm == "DSPARK" and c.speculative_draft_attention_backend is None:
        c.settle(drafts, speculative_draft_attention_backend="trtllm_mha")


def draft_class(c: Choices, draft: Checkpoint) -> str:
    """Of a DSpark draft the text becomes the configuration, of no family: configure_minimax_m3_dspark of
    srt/configs/minimax_vl.py."""
    name = config_class(draft, c.release)
    own = draft.architecture == "DSparkMiniMaxDraftModel" and c.release.serves_nvfp4_minimax
    return "PreTrainedConfig" if own and name == _CONFIG and c.speculative_algorithm == "DSPARK" else name

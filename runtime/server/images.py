"""What a multimodal server keeps free beside its pool for what images take of the GPU once it serves."""

from __future__ import annotations

from runtime.server.bounds import is_number
from runtime.server.choices import Choices, is_on
from runtime.server.memory import is_large_hopper_qwen3_vl
from runtime.server.traits import is_multimodal

_CACHE, _FEATURES = "SGLANG_VLM_CACHE_SIZE_MB", "SGLANG_MM_FEATURE_CACHE_MB"
_IPC = "SGLANG_USE_CUDA_IPC_TRANSPORT"
ENVIRONMENT = (_CACHE, _FEATURES, _IPC)
ON_GPU = ("cuda_ipc", "cuda_vmm")
_CACHE_MIB, _FEATURES_MIB, _WIDE_FEATURES_MIB = 100, 1024, 3072
_WIDE = 400  # requests


def images_mib(c: Choices) -> int:
    """mm_runtime_reservation_gb of srt/mem_cache/kv_cache_configurator.py."""
    if not c.release.reserves_for_images or c.language_model_only or not is_multimodal(c):
        return 0
    return _cache(c) + (_features(c) if feature_transport(c) in ON_GPU else 0)


def feature_transport(c: Choices) -> str:
    """handle_multimodal_feature_transport of srt/arg_groups/serving_hook.py, and what Qwen3-VL has."""
    if c.keep_mm_feature_on_device:
        return "cuda_ipc"
    if c.mm_feature_transport is not None:
        return str(c.mm_feature_transport)
    if is_large_hopper_qwen3_vl(c) and c.nnodes == 1 and not _keeps_images(c):
        return "cuda_ipc"
    return "cuda_ipc" if is_on(c.environ.get(_IPC)) else "cpu"


def _keeps_images(c: Choices) -> bool:
    return (c.mm_preprocess_cache_size_mb or 0) > 0 or _cache(c) > 0


def _cache(c: Choices) -> int:
    if c.rl_on_policy_target is not None:
        return 0
    return _told(c, _CACHE, 0 if is_large_hopper_qwen3_vl(c) else _CACHE_MIB)


def _features(c: Choices) -> int:
    many = is_large_hopper_qwen3_vl(c) and (c.max_running_requests or 0) >= _WIDE
    wide = many and feature_transport(c) == "cuda_ipc" and not _keeps_images(c)
    return _told(c, _FEATURES, _WIDE_FEATURES_MIB if wide else _FEATURES_MIB)


def _told(c: Choices, variable: str, unset: int) -> int:
    told = c.environ.get(variable, "").strip()
    return int(told) if is_number(told) else unset

"""How large attention's workspaces are: by the environment, the model, and what no batch may change."""

from __future__ import annotations

from runtime.server.attention import used_backends
from runtime.server.attention_buffers import WORKSPACES, Workspaces
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.sparse_kernels import counts_rows, keeps_workspace, sparse_kernels
from runtime.server.traits import is_mla
from runtime.server.units import MIB

WORKSPACE = "SGLANG_FLASHINFER_WORKSPACE_SIZE"
SPLIT_TILE = "SGLANG_TRITON_DECODE_SPLIT_TILE_SIZE"
ENVIRONMENT = (WORKSPACE, SPLIT_TILE)
_SPLIT_TILE = 256
_DIGITS = 12
# srt/layers/attention/flashinfer_backend.py, 0.5.12 to 0.5.23: whatever the environment says.
_LARGER = frozenset({
    "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MiMoForCausalLM", "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
})  # fmt: skip
_BY_XQA, _SEMAPHORES = (9, 12), 8 * MIB  # of decodes by trtllm_mha
_OTHERWISE_NAMED = "MiMoForCausalLM"  # where it drafts


def workspaces(c: Choices) -> Workspaces:
    told = _told(c, WORKSPACE, WORKSPACES.flashinfer)
    flashinfer = told if is_mla(c) else _over_heads(c, c.model.architecture, told)
    draft = c.draft_model.architecture if c.draft_model is not None else ""
    drafts = _over_heads(c, draft if draft != _OTHERWISE_NAMED else "", told)
    unset = told if WORKSPACE in c.environ else WORKSPACES.trtllm_mha
    trtllm = _over_heads(c, c.model.architecture, unset) if _is_told_by_flashinfers(c) else unset
    if c.release.keeps_semaphores and c.gpu.major in _BY_XQA:
        trtllm += _SEMAPHORES
    tile = _told(c, SPLIT_TILE, _SPLIT_TILE) if c.enable_deterministic_inference else None
    splits = c.triton_attention_num_kv_splits
    sparse, major = sparse_kernels(c), c.gpu.major
    return Workspaces(
        flashinfer,
        trtllm,
        tile,
        splits,
        c.gpu.processors,
        drafts,
        has_sparse=sparse is not None and keeps_workspace(sparse, major),
        counts_sparse=sparse is not None and counts_rows(sparse, major),
    )


def _over_heads(c: Choices, architecture: str, told: int) -> int:
    if c.enable_deterministic_inference:
        return 2048 * MIB
    return 512 * MIB if architecture in _LARGER else told


def _is_told_by_flashinfers(c: Choices) -> bool:
    """Decodes' backend is made first, and FlashInfer's over heads writes its size into the environment, where
    trtllm_mha has looked before it is made as one of FlashInfer's itself."""
    made = [one for one in reversed(used_backends(c)) if one in ("flashinfer", "trtllm_mha")]
    return made[:1] == ["flashinfer"] and not is_mla(c)


def _told(c: Choices, variable: str, unset: int) -> int:
    told = c.environ.get(variable, "").strip()
    if not (told.isascii() and told.isdigit()):
        return unset
    if len(told) > _DIGITS or not int(told):
        raise ConfigError(f"{variable}={told[:20]}: no server could have it")
    return int(told)

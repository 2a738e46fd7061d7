"""How large attention's workspaces are: by the environment, the model, and what no batch may change."""

from __future__ import annotations

from runtime.server.attention_buffers import WORKSPACES, Workspaces
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
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


def workspaces(c: Choices) -> Workspaces:
    flashinfer = told = _told(c, WORKSPACE, WORKSPACES.flashinfer)
    if not is_mla(c):  # which have a backend of their own
        flashinfer = 512 * MIB if c.model.architecture in _LARGER else flashinfer
        flashinfer = 2048 * MIB if c.enable_deterministic_inference else flashinfer
    trtllm = told if WORKSPACE in c.environ else WORKSPACES.trtllm_mha
    tile = _told(c, SPLIT_TILE, _SPLIT_TILE) if c.enable_deterministic_inference else None
    splits = c.triton_attention_num_kv_splits
    return Workspaces(flashinfer, trtllm, tile, splits, c.gpu.processors)


def _told(c: Choices, variable: str, unset: int) -> int:
    told = c.environ.get(variable, "").strip()
    if not (told.isascii() and told.isdigit()):
        return unset
    if len(told) > _DIGITS or not int(told):
        raise ConfigError(f"{variable}={told[:20]}: no server could have it")
    return int(told)

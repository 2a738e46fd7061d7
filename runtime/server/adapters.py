"""LoRA as it is asked for: how many adapters at once, how large, and of which matrices. Data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.asked import Asked

_SLOTS = 8
ROWS = ("embed_tokens", "lm_head")
LAYERS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
_JOINED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
    **dict.fromkeys(("vocab_emb", "embeddings", "word_embeddings"), "embed_tokens"),
    **dict.fromkeys(("output", "unembed_tokens"), "lm_head"),
}
# get_moe_runner_backend of srt/layers/moe/utils.py: whose kernels know the experts of all ranks
_OF_ALL_RANKS = (
    *("flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_trtllm_routed"),
    *("flashinfer_mxfp4", "hpc_ops", "experimental_sgl_trtllm"),
)


@dataclass(frozen=True, slots=True)
class Adapters:
    """`modules`: as SGLang calls what is run as one. `spreads`: a rank has those of its own experts alone."""

    slots: int
    rank: int
    modules: tuple[str, ...]
    spreads: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return (*LAYERS, *ROWS) if "all" in self.modules else self.modules


def adapters_of(asked: Asked, moe_runner_backend: str) -> Adapters | None:
    """None of a server without them, or where an adapter's own file says how large it is."""
    told = asked.others
    rank = told.get("max_lora_rank") or asked.adapter_rank
    modules = told.get("lora_target_modules") or asked.adapter_modules
    if not has_adapters(asked) or not rank or not modules:
        return None
    last = [name.rpartition(".")[2] for name in modules]
    named = tuple(dict.fromkeys(_JOINED.get(name, name) for name in last))
    slots = told.get("max_loras_per_batch") or _SLOTS
    return Adapters(slots, rank, named, moe_runner_backend not in _OF_ALL_RANKS)


def has_adapters(asked: Asked) -> bool:
    return asked.enable_lora or bool(asked.lora_paths)

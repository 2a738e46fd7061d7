"""What SGLang keeps of adapters on a GPU: room for so many at once, whatever they are, for every layer of the
model on any stage. LoRAMemoryPool of srt/lora/mem_pool.py, in every release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.adapters import LAYERS, ROWS, Adapters
from runtime.server.config import ModelConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.shape import Server

Buffers = Iterator[tuple[str, tuple[int, ...]]]
FLAGS = (
    *("enable_lora", "lora_paths", "max_lora_rank", "lora_target_modules", "max_loras_per_batch"),
    *("lora_backend", "max_lora_chunk_size", "enable_lora_overlap_loading"),
)
_KERNELS = ("csgmv", "triton")  # others capture decodes twice
_PADDING = 64
# Of layers that are alike, and of classes without a get_hidden_dim of their own.
_WITH_EXPERTS = ("qwen3_moe", "mixtral")
_KNOWN = ("llama", "mistral", "qwen2", "qwen3", *_WITH_EXPERTS)


@dataclass(frozen=True, slots=True)
class AdapterPool:
    """On one rank of a stage: `rank` is its number in the group that splits matrices."""

    adapters: Adapters
    model: ModelConfig
    layout: ParallelConfig
    rank: int

    def buffers(self) -> Buffers:
        """Those that read, and those that answer."""
        names = self.adapters.names
        rows = [name for name in ROWS if name in names]
        for _ in rows:  # SGLang makes both for each of them
            for name in rows:
                yield from self._both(name, *self._of_rows(name))
        for name in LAYERS:
            for _ in range(self.model.num_layers if name in names else 0):
                yield from self._of_layer(name)

    def _of_layer(self, name: str) -> Buffers:
        moe = self.model.moe
        if moe is None or name in ("qkv_proj", "o_proj"):
            yield from self._both(name, *_widths(name, self.model, self.layout))
            return
        inner = moe.intermediate_size // self.layout.moe_tp
        spreads = self.adapters.spreads and moe.num_experts % self.layout.moe_ep == 0
        experts = moe.num_experts // (self.layout.moe_ep if spreads else 1)
        yield from self._both(f"{name} of experts", *_of_mlp(name, self.model.hidden_size, inner), experts)

    def _both(self, name: str, read: int, answered: int, parts: int = 1, *of: int) -> Buffers:
        slots, rank = self.adapters.slots, self.adapters.rank
        yield f"A of {name}", (slots, *of, parts * rank, read)
        yield f"B of {name}", (slots, *of, answered, rank)

    def _of_rows(self, name: str) -> tuple[int, int]:
        """An embedding's are whole on every rank."""
        vocab, hidden = self.model.vocab_size, self.model.hidden_size
        if name == "embed_tokens":
            return vocab, hidden
        each = -(-vocab // _PADDING) * _PADDING // self.layout.tp
        return hidden, max(0, min(each, vocab - self.rank * each))


def pool_of(
    adapters: Adapters | None, model: ModelConfig, layout: ParallelConfig, rank: int
) -> AdapterPool | None:
    """Where its sizes are known."""
    return AdapterPool(adapters, model, layout, rank) if adapters and _is_known(adapters, model) else None


def follows_adapters(model: ModelConfig, server: Server) -> bool:
    """Adapters that are loaded first may add tokens, and may share some of their experts' matrices."""
    adapters = server.runtime.adapters
    if adapters is None or not _is_known(adapters, model):
        return False
    if server.asked.lora_paths and (not server.asked.adapter_rank or model.moe is not None):
        return False
    kernels = server.asked.others.get("lora_backend") or _KERNELS[0]
    is_cut = server.pp_size > 1 and any(name in adapters.names for name in ROWS)
    is_plain = server.attn_dp_size == 1 and server.asked.moe_dense_tp_size is None
    return kernels in _KERNELS and is_plain and not is_cut and server.speculative is None


def _is_known(adapters: Adapters, model: ModelConfig) -> bool:
    experts = model.model_type in _WITH_EXPERTS
    alike = {(one.num_heads, one.num_kv_heads, one.head_dim) for one in model.attention.values()}
    kinds = {"moe" if experts else "dense"}
    in_place = model.model_type in _KNOWN and not model.by_transformers and not model.mlp_sizes
    return (
        in_place
        and len(alike) == 1
        and {*model.layer_kinds} == kinds
        and {*adapters.names} <= {*LAYERS, *ROWS}
    )


def _widths(name: str, model: ModelConfig, layout: ParallelConfig) -> tuple[int, int, int]:
    """What a rank reads and answers, and in how many parts it is one matrix."""
    attention, hidden = model.main_attention, model.hidden_size
    heads, keys = attention.num_heads // layout.tp, max(1, attention.num_kv_heads // layout.tp)
    if name == "qkv_proj":
        return hidden, (heads + 2 * keys) * attention.head_dim, 3
    if name == "o_proj":
        return heads * attention.head_dim, hidden, 1
    return _of_mlp(name, hidden, model.intermediate_size // layout.tp)


def _of_mlp(name: str, hidden: int, inner: int) -> tuple[int, int, int]:
    return (hidden, 2 * inner, 2) if name == "gate_up_proj" else (inner, hidden, 1)

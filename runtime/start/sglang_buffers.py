"""What SGLang allocates at a start beyond what this runtime needs, under SGLang's own names and sizes.

Made only when SGLang's memory is being predicted. Read from SGLang 0.5.17 and unchanged in 0.5.23, but
for inputs that are held before any graph, which are each release's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from runtime.devices.base import Device
from runtime.layers.rope import lengthened
from runtime.server.attention_buffers import (
    Buffer,
    DraftGraphSizes,
    GraphSizes,
    backend_buffers,
    decode_graph_buffers,
    draft_backend_buffers,
    draft_graph_buffers,
    key_splits,
    wrappers_each,
)
from runtime.server.block_timings import CACHE_BYTES, prefill_timings, timings
from runtime.server.compressed_sizes import second_tables
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.drafting_attention import catches_up_in_graphs
from runtime.server.layer_config import AttentionConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan
from runtime.server.start_sizes import StartSizes
from runtime.server.windows import windows_of


@dataclass(frozen=True, slots=True)
class DraftAttention:
    """A draft's attention: by which backend, and over how many ranks its heads are split."""

    backend: str
    attention: AttentionConfig
    ranks: int


@dataclass(slots=True, eq=False)
class SglangBuffers:
    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    sizes: StartSizes
    plan: PoolPlan
    device: Device
    held: dict[str, torch.Tensor] = field(default_factory=dict)
    timed: set[int] = field(default_factory=set)

    def init_attention_backend(self, sm_major: int) -> None:
        if self.plan.states is not None:
            self._hold("states of requests", torch.int32, self.plan.max_running_requests + 1)
            self._hold("free states", torch.int64, self.plan.states.slots)
        if not self.model.attention:
            return
        backend, requests = self.runtime.attention_backend, self.plan.max_running_requests
        ways = wrappers_each(self.model.crosses, windows_of(self.model))
        told = requests, sm_major, self.runtime.workspaces, ways
        self._hold_all(backend_buffers(backend, *told))
        prefill = self.runtime.prefill_attention_backend or backend
        if prefill != backend:
            self._hold_beside(backend_buffers(prefill, *told))

    @property
    def holds_eager_inputs(self) -> bool:
        return self.runtime.release.eager_inputs != "none"

    def init_eager_runner(self) -> None:
        """One set of inputs for the longest batch, shared by all runners."""
        requests, pool = self.plan.max_running_requests, self.plan.tokens
        prefill = self.runtime.prefill_buffer
        is_prefills = self.runtime.release.eager_inputs == "a chunk" and prefill > 0
        longest = prefill if is_prefills else max(pool, prefill)
        tokens = max(longest, requests * max(self.sizes.width, self.model.canvas))
        for name in ("input_ids", "out_cache_loc", "positions"):
            self._hold(name, torch.int64, tokens)
        self._hold("mrope_positions", torch.int64, 3, tokens)
        for name in ("req_pool_indices", "seq_lens"):
            self._hold(name, torch.int64, requests)

    def autotune_batch(self, rows: int) -> dict[str, torch.Tensor]:
        """The dummy batch of the eager runner: it contains logits although the LM head is skipped."""
        requests = rows // self.sizes.width
        batch = {
            "input_embeds": self._make("input_embeds", self._dtype, rows, self.model.hidden_size),
            "custom_mask": self._make("custom_mask", torch.bool, (requests + rows) * self.sizes.width),
            "next_token_logits_buffer": self._make(
                "next_token_logits_buffer", torch.float32, rows, self.model.logits_size
            ),
            "mrope_positions": self._make("mrope_positions", torch.int64, 3, rows),
        }
        return batch if self.runtime.embeds else {**batch, **self._split_kv_logits(requests)}

    @contextmanager
    def timing_decodes(self, requests: Sequence[int]) -> Iterator[None]:
        major, page, width = self.device.sm_major, self.plan.page_size, self.sizes.width
        with self._timing(timings(self.model, self.runtime.release, major, page, requests, width)):
            yield

    @contextmanager
    def timing_prefills(self) -> Iterator[None]:
        with self._timing(prefill_timings(self.model)):
            yield

    @contextmanager
    def _timing(self, kernels: frozenset[int]) -> Iterator[None]:
        """Freed after each kernel, and kept by torch for the others."""
        new, held = kernels - self.timed, []
        self.timed |= kernels
        if new:
            held.append(self._make("buffer beside timings of Triton's kernels", torch.uint8, CACHE_BYTES))
        yield
        held.clear()

    def init_decode_graphs(self, graphs: Sequence[int]) -> None:
        max_bs, width = max(graphs), self.sizes.width
        rows = max_bs * width
        for name, tensor in self._split_kv_logits(rows).items():
            self.held[f"cuda_graph_{name}"] = tensor
        backend, context, page = (
            self.runtime.attention_backend,
            self.sizes.context_length,
            self.plan.page_size,
        )
        topk = self.runtime.speculative.eagle_topk if self.runtime.speculative else 1
        masks = self.runtime.release.masks_decodes
        if self.model.attention:
            told = max_bs, width, context, page, len(graphs), topk, self.model.crosses, masks
            self._hold_all(decode_graph_buffers(backend, GraphSizes(*told, windows_of(self.model))))
        self._hold("decode input_embeds", self._dtype, rows, self.model.hidden_size)
        self._hold("decode custom_mask", torch.bool, (max_bs + rows) * self.sizes.width)

    def init_draft_backend(self, draft: DraftAttention) -> None:
        speculative = self.runtime.speculative
        assert speculative is not None
        self._hold_all(draft_backend_buffers(draft.backend, speculative.num_steps))

    def init_draft_graphs(self, draft: DraftAttention, graphs: Sequence[int]) -> None:
        speculative, attention = self.runtime.speculative, draft.attention
        assert speculative is not None
        sizes = DraftGraphSizes(
            graphs=len(graphs),
            max_bs=max(graphs),
            steps=speculative.num_steps,
            topk=speculative.eagle_topk,
            width=self.sizes.width,
            context=self.sizes.context_length,
            page=self.plan.page_size,
            heads=attention.num_heads // draft.ranks,
            head_dim=attention.head_dim,
            split_tile=self.runtime.workspaces.split_tile,
            catches_up=catches_up_in_graphs(speculative, self.runtime.release, latent=False),
            masks=self.runtime.release.masks_drafts,
        )
        self._hold_all(draft_graph_buffers(draft.backend, sizes))

    def _split_kv_logits(self, rows: int) -> dict[str, torch.Tensor]:
        """The triton decode kernel's partial results, fp32, a set for every split of the keys."""
        if self.runtime.attention_backend != "triton" or not self.model.attention:
            return {}
        attention, mla = self.model.main_attention, self.model.mla
        heads = attention.num_heads // self.parallel.attn_tp
        tile = self.runtime.workspaces.split_tile
        splits = key_splits(self.sizes.context_length, latent=mla is not None, tile=tile)
        width = mla.kv_lora_rank if mla else attention.value_width
        return {
            "attn_logits": self._make("attn_logits", torch.float32, rows, heads, splits, width),
            "attn_lse": self._make("attn_lse", torch.float32, rows, heads, splits),
        }

    @property
    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.runtime.dtype)
        return dtype

    def _make(self, name: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        tensor = torch.zeros(shape, dtype=dtype, device=self.device.torch_device)
        self.device.label(tensor, f"SGLang's {name}")
        return tensor

    def _hold_all(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self._hold(buffer.name, getattr(torch, buffer.dtype), *buffer.shape)

    def _hold_beside(self, buffers: Iterable[Buffer]) -> None:
        """Of a prefill's own backend, which shares a workspace with that of decodes."""
        for buffer in buffers:
            if not (buffer.name.endswith("workspace") and buffer.name in self.held):
                self._hold(f"prefill's {buffer.name}", getattr(torch, buffer.dtype), *buffer.shape)

    def _hold(self, name: str, dtype: torch.dtype, *shape: int) -> None:
        self.held[name] = self._make(name, dtype, *shape)


def second_angles(
    model: ModelConfig, runtime: RuntimeConfig, layers: Sequence[int], device: torch.device
) -> list[torch.Tensor]:
    """Tables beside those that a layer turns by: SGLang has them for another of its kernels."""
    rope = model.main_attention.rope if model.attention else None
    if rope is None:
        return []
    if model.model_type in _TURNED_TWICE and model.encoder is not None and _attends(model, layers):
        return [torch.empty(model.max_position, rope.dim, dtype=torch.float32, device=device)]
    rows = second_tables(model, runtime, layers)
    tables = [torch.empty(count, rope.dim, dtype=torch.float32, device=device) for count in rows]
    return [lengthened(table, rope, runtime.positions) for table in tables]


# Ling 3 VL, whose latents make a plain table that stays where all are kept: srt/models/bailing_moe_v3.py.
_TURNED_TWICE = ("bailing_hybrid_v3",)


def _attends(model: ModelConfig, layers: Sequence[int]) -> bool:
    return any(model.attention_kinds[layer] != "recurrent" for layer in layers)

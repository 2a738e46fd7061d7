"""What SGLang allocates at a start beyond what this runtime needs, under SGLang's own names and sizes.

Made only when SGLang's memory is being predicted. What attention holds is what SGLang's own classes make in
each release; other inputs were read from 0.5.17 and stayed until 0.5.23, but for those held before any graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from runtime.devices.base import Device
from runtime.layers.rope import lengthened
from runtime.server.attention_buffers import (
    Buffer,
    Workspaces,
    backend_buffers,
    counting_buffers,
    draft_backend_buffers,
    wrappers_each,
)
from runtime.server.block_timings import CACHE_BYTES, prefill_timings, timings
from runtime.server.compressed_sizes import second_tables
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.drafting_attention import catches_up_in_graphs
from runtime.server.graph_buffers import (
    GraphSizes,
    decode_graph_buffers,
    draft_graph_buffers,
    graph_sizes,
    partial_results,
    state_graph_buffers,
)
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan
from runtime.server.start_sizes import StartSizes
from runtime.server.windows import windows_of

PREFILL, DRAFT = "prefill", "draft"


@dataclass(frozen=True, slots=True)
class DraftAttention:
    """A draft's attention: by which backend, of which model, over how many ranks its heads are split, and in
    which dtype it keeps keys."""

    backend: str
    model: ModelConfig
    ranks: int
    kv_dtype: str

    @property
    def drafts_block(self) -> bool:
        return self.model.fusion is not None and self.model.fusion.drafts_block


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

    def init_attention_backend(self) -> None:
        if self.plan.states is not None:
            self._hold("states of requests", torch.int32, self.plan.max_running_requests + 1)
            self._hold("free states", torch.int64, self.plan.states.slots)
        if not self.model.attention:
            return
        backend, requests = self.runtime.attention_backend, self.plan.max_running_requests
        ways = wrappers_each(self.model.crosses, windows_of(self.model))
        told = requests, self.runtime.workspaces, ways, self.model.mla is not None
        self._hold_all(backend_buffers(backend, *told))
        heads = self.model.main_attention.num_heads
        self._hold_all(self._counters(backend, heads, self.parallel.attn_tp))
        prefill = self.runtime.prefill_attention_backend or backend
        if prefill != backend:
            self._hold_beside(backend_buffers(prefill, *told))
            self._hold_beside(self._counters(prefill, heads, self.parallel.attn_tp))

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
        return batch if self.runtime.embeds else {**batch, **self._eager_results(requests)}

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
        if self.model.attention:
            sizes = self._graph_sizes(graphs, self.model, self.parallel.attn_tp, self.plan.kv_dtype)
            self._hold_all(decode_graph_buffers(self.runtime.attention_backend, sizes))
        if self.plan.states is not None:
            self._hold_all(state_graph_buffers(max_bs, width))
        self._hold("decode input_embeds", self._dtype, max_bs * width, self.model.hidden_size)
        self._hold("decode custom_mask", torch.bool, (max_bs + max_bs * width) * width)

    def init_draft_backend(self, draft: DraftAttention) -> None:
        speculative = self.runtime.speculative
        assert speculative is not None
        latent, spaces = draft.model.mla is not None, self.runtime.workspaces
        spaces = spaces if latent else replace(spaces, flashinfer=spaces.drafts)
        if draft.drafts_block:
            return self._init_block_backend(draft, spaces)
        told = speculative.num_steps, spaces, latent
        self._hold_all(
            one for one in draft_backend_buffers(draft.backend, *told) if one.name not in self.held
        )

        heads, backends = draft.model.main_attention.num_heads, speculative.num_steps + 1
        for one in self._counters(draft.backend, heads, draft.ranks):
            self._hold(f"draft's {one.name}", torch.int32, backends, *one.shape)

    def _init_block_backend(self, draft: DraftAttention, spaces: Workspaces) -> None:
        """One, as a target has."""
        ways, heads = wrappers_each(False, windows_of(draft.model)), draft.model.main_attention.num_heads
        requests = self.plan.max_running_requests
        self._hold_beside(backend_buffers(draft.backend, requests, spaces, ways), DRAFT)
        self._hold_beside(self._counters(draft.backend, heads, draft.ranks), DRAFT)

    def _counters(self, backend: str, heads: int, ranks: int) -> Iterator[Buffer]:
        """Of a model's heads, or of a rank's where they are over latents."""
        rows, own = self.plan.max_running_requests, heads // ranks
        if backend == "trtllm_mha":
            rows, own = (rows + 1) * self.sizes.width, heads
        return counting_buffers(backend, rows, own, self.runtime.workspaces, self.runtime.release)

    def init_draft_graphs(self, draft: DraftAttention, graphs: Sequence[int]) -> None:
        speculative, release = self.runtime.speculative, self.runtime.release
        assert speculative is not None
        sizes = self._graph_sizes(graphs, draft.model, draft.ranks, draft.kv_dtype)
        sizes = replace(sizes, masks=release.masks_drafts)
        if draft.drafts_block:
            return self._hold_beside(decode_graph_buffers(draft.backend, sizes, "catch-up"), DRAFT)
        catches_up = catches_up_in_graphs(speculative, release, latent=draft.model.mla is not None)
        self._hold_all(draft_graph_buffers(draft.backend, sizes, speculative.num_steps, catches_up))

    def _graph_sizes(
        self, graphs: Sequence[int], model: ModelConfig, ranks: int, kv_dtype: str
    ) -> GraphSizes:
        return graph_sizes(model, self.runtime, self.sizes, self.plan, graphs, ranks, kv_dtype)

    def _eager_results(self, requests: int) -> dict[str, torch.Tensor]:
        """Of Triton's decodes beside a forward without graphs."""
        attends = bool(self.model.attention) and self.model.main_attention.pools is None
        if self.runtime.attention_backend != "triton" or not attends:
            return {}
        sizes = self._graph_sizes([requests], self.model, self.parallel.attn_tp, self.plan.kv_dtype)
        buffers = partial_results(sizes, requests)
        return {one.name: self._make(one.name, getattr(torch, one.dtype), *one.shape) for one in buffers}

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

    def _hold_beside(self, buffers: Iterable[Buffer], whose: str = PREFILL) -> None:
        """Of another backend than that of decodes, with which it shares a workspace."""
        for buffer in buffers:
            if not (buffer.name.endswith("workspace") and buffer.name in self.held):
                self._hold(f"{whose}'s {buffer.name}", getattr(torch, buffer.dtype), *buffer.shape)

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

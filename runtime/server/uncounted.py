"""What was asked, is followed where it changes the key or a size, and takes memory that no report counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from runtime.server.adapter_pool import follows_adapters
from runtime.server.block_draft import rehearsed_bytes
from runtime.server.config import ModelConfig
from runtime.server.drafting_attention import knows_buffers, unknown_of_drafts
from runtime.server.flags.spelling import spelled
from runtime.server.fused_all_reduce import least_fused_buffers
from runtime.server.images import ON_GPU
from runtime.server.own_draft import OwnDraft
from runtime.server.placement import follows_placement
from runtime.server.shape import Server
from runtime.server.units import MIB

_TAKES: dict[str, Callable[[Server], bool]] = {
    "enable_two_batch_overlap": lambda s: s.asked.enable_two_batch_overlap,
    "enable_single_batch_overlap": lambda s: s.asked.enable_single_batch_overlap,
    "enable_torch_compile": lambda s: s.asked.enable_torch_compile,
    "enable_symm_mem": lambda s: s.asked.enable_symm_mem,
    "enable_mis": lambda s: s.asked.enable_mis,
    "debug_cuda_graph": lambda s: s.asked.debug_cuda_graph,
    # Graphs are counted as the release's own backends take them: decode whole, prefill in breakable pieces.
    "cuda_graph_backend_decode": lambda s: (
        s.asked.cuda_graph_backend_decode not in (None, "full", "disabled")
    ),
    "cuda_graph_backend_prefill": lambda s: (
        s.asked.cuda_graph_backend_prefill not in (None, "breakable", "tc_piecewise", "disabled")
    ),
}


def uncounted(server: Server, hidden: int | None = None, unknown: str = "") -> tuple[str, ...]:
    """Flags as the release spells them, what is on without one, and a draft that is not known.

    `hidden`: the model's width, where it is known. `unknown`: why that draft is not.
    """
    flags = [
        spelled(server.release, name, getattr(server.asked, name))
        for name, takes in _TAKES.items()
        if takes(server)
    ]
    if server.images_mib and server.image_transport in ON_GPU:
        flags.append("what the first GPU holds of images on their way to the others")
    if _verifies_by_prefills_backend(server):
        flags.append(f"the tables by which {server.prefill_attention_backend} verifies drafts in graphs")
    if server.fuses_all_reduce:
        flags.append(f"FlashInfer's fused all-reduce{_at_least(server, hidden)}")
    if server.draft is not None and unknown:
        draft = f"{server.draft.model_path} ({unknown}; one more layer of the target stands for it)"
        flags.append(f"the draft {draft}")
    return tuple(flags)


def uncounted_choices(server: Server, model: ModelConfig) -> Iterator[str]:
    """Of blocks of keys, as srt/layers/attention/minimax_sparse_ops makes them behind a start; of pools."""
    yield from _of_summed_latents(server, model)
    yield from unknown_of_drafts(server, model)
    if server.asked.enable_eplb and follows_placement(model, server):
        yield "what EPLB takes while it moves experts, as much as those of a layer"
    if follows_adapters(model, server):
        yield "what adapters take in forwards and in graphs"
    if model.mla is not None and model.mla.indexer is not None and model.mla.indexer.pool > 1:
        yield "what choosing pools of keys takes"
    if model.mla_behind is not None:
        yield "what layers behind windows gather of their latents"
    if model.streams is not None and model.compressed is None:
        yield "what mixing residual streams takes"
    if model.ngrams is not None:
        yield "what n-grams take, whose table lies in the host's memory"
    blocks = next((kind.blocks for kind in model.attention.values() if kind.blocks), None)
    if blocks is None:
        return
    tokens = server.prefill_tokens
    if server.chunked_prefill_size <= 0:
        tokens = max(tokens, server.context_length)
    heads = max(1, blocks.num_heads // server.parallel.attn_tp)
    scores = 4 * heads * tokens * -(-server.context_length // blocks.block_size)
    yield f"scores of blocks at the end of the longest prompt ({-(-scores // MIB):,} MiB)"
    if server.gpu.major == 10:
        yield "what fmha_sm100 takes where that is installed"


def uncounted_of_draft(server: Server, draft: OwnDraft) -> Iterator[str]:
    """Of one with latents: MultimemAllGatherer of srt/distributed, and what its attention holds. Of blocks:
    prewarm_sampling of srt/speculative/dflash_worker_v2.py."""
    if draft.drafts_block and server.release.rehearses_block_verifies:
        most = -(-rehearsed_bytes(draft.model, server) // MIB)
        yield f"what rehearsing a verify with samples takes (up to {most:,} MiB, and kernels of its own)"
    if not draft.model.is_mla:
        return
    backend = draft.attention_backend
    if server.decode_graphs and not knows_buffers((backend, backend), draft.model):
        yield f"what attention {backend} holds for its draft"
    if draft.parallel.tp > 1:
        yield "the buffer in which ranks gather what their draft is given, where GPUs have multicast"


def _of_summed_latents(server: Server, model: ModelConfig) -> Iterator[str]:
    """srt/models/kimi_k3.py, srt/layers/communication/k3_ar_fusion.py: of a chunk's rows."""
    moe, rows = model.moe, server.prefill_tokens
    if moe is None or not moe.sums_latents or moe.latent_size is None:
        return
    front = 2 * moe.shared_intermediate_size // server.tp_size + moe.num_experts + moe.latent_size
    if moe.shared_intermediate_size:
        yield f"what experts read, beside each other in float32 ({4 * rows * front // MIB:,} MiB)"
    if server.gpu.major == 10 and server.tp_size > 1 and model.snapshots is not None:
        symmetric = 2 * rows * (2 * model.hidden_size + moe.latent_size)
        yield f"symmetric buffers of its all-reduce, where GPUs have multicast ({symmetric // MIB:,} MiB)"


def _verifies_by_prefills_backend(server: Server) -> bool:
    """srt/layers/attention/hybrid_attn_backend.py."""
    apart = server.prefill_attention_backend != server.decode_attention_backend
    captured = server.speculative is not None and bool(server.decode_graphs)
    return apart and captured and server.asked.speculative_attention_mode != "decode"


def _at_least(server: Server, hidden: int | None) -> str:
    least = 0 if hidden is None else least_fused_buffers(server, hidden)
    return f" ({least // MIB:,} MiB or more)" if least else ""

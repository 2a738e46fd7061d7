"""DFLASH's drafts beside their target: which of its layers they are given, what a token of both costs, and
what of either is not known. srt/speculative/dflash_utils.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.errors import Unsupported
from runtime.server.layer_config import FusionConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.releases import Release
from runtime.server.shape import Server
from runtime.server.sizing import DTYPE_BYTES, has_window_pool, kv_bytes_per_token

ALGORITHM = "DFLASH"
_KNOWN = ("flashinfer", "fa3", "fa4", "triton")  # attention, in every release: else the first
_BY_WINDOWS = "trtllm_mha"
_LEAST = 4  # layers, of which several can be chosen
_OTHERWISE = ("speculative_draft_window_size", "enable_unified_memory", "enable_hisparse")


def spread(layers: int, drafts: int) -> tuple[int, ...]:
    """As many of a target's layers as a draft has itself, where it does not say which."""
    if drafts == 1:
        return (layers // 2,)
    return tuple(round(1 + i * (layers - _LEAST) / (drafts - 1)) for i in range(drafts))


def captured_for(fusion: FusionConfig, drafts: int, layers: int) -> tuple[int, ...]:
    """Before the layer behind each: what one gives is taken before the next."""
    chosen = fusion.layers or spread(layers, drafts)
    captured = tuple(sorted({layer + 1 for layer in chosen}))
    if len(captured) != fusion.states or captured[-1] >= layers:
        raise Unsupported(
            f"it is given {fusion.states} states, and layers {list(chosen)} of {layers} tell others"
        )
    return captured


def ends_at_layers(fusion: FusionConfig, drafts: int, target: int, names_alone: bool) -> Iterator[str]:
    """`names_alone`: without a number of layers, those that it names tell one."""
    trained = fusion.of_layers or (max(fusion.layers) + 1 if names_alone and fusion.layers else drafts)
    for layers, whose in ((trained, "the target that it tells of"), (target, "its target")):
        beyond = [layer for layer in fusion.layers if not 0 <= layer < layers]
        if beyond:
            yield f"its draft asks for layer {beyond[0]}, and {whose} has {layers}"
        if not fusion.layers and drafts > 1 and layers < _LEAST:
            yield f"its draft of {drafts} layers needs {_LEAST} layers or more, and {whose} has {layers}"


def attention_of_blocks(server: Server, draft: ModelConfig) -> str:
    """Of the draft's worker, whatever it runs."""
    asked = server.asked.speculative_draft_attention_backend or server.prefill_attention_backend
    if asked in _KNOWN:
        return asked
    if asked != _BY_WINDOWS or not server.release.block_drafts_on_trtllm:
        return _KNOWN[0]
    if all(draft.attention[kind].window is not None for kind in draft.attention_kinds):
        return asked
    return server.release.block_drafts_leave_trtllm_for if server.gpu.major == 10 else _KNOWN[0]


def as_attended(draft: ModelConfig, release: Release) -> ModelConfig:
    """By SGLang's class, which once saw no windows."""
    if release.block_drafts_see_windows:
        return draft
    kinds = {name: replace(kind, window=None) for name, kind in draft.attention.items()}
    return replace(draft, attention=kinds)


def check_blocks(server: Server, target: ModelConfig, draft: ModelConfig, backend: str) -> None:
    """What has its own rules, or none that are known here."""
    if server.parallel.attn_dp > 1:
        raise Unsupported("how a draft of blocks is split under DP attention is not known here")
    if server.asked.attn_cp_size > 1 or server.asked.dcp_size > 1:
        raise Unsupported(
            "how a draft of blocks is split beside ranks that share a context is not known here"
        )
    for name in _OTHERWISE:
        if server.asked.others.get(name):
            raise Unsupported(f"a draft of blocks with {name.replace('_', '-')} is not known here")
    own = server.as_draft()
    if draft.checkpoint_quantization is not None or own.quantization is not None:
        raise Unsupported("a draft of blocks that is quantized is not known here")
    if own.dtype != server.dtype:
        raise Unsupported(
            f"a draft of blocks in {own.dtype} is not known here beside a target in {server.dtype}"
        )
    if backend in ("fa4", _BY_WINDOWS) and DTYPE_BYTES.get(own.runtime.kv_cache_dtype) == 1:
        raise Unsupported(f"in which dtype {backend} keeps a block's keys is not known here")


def rehearsed_bytes(draft: ModelConfig, server: Server) -> int:
    """Logits, what they are by temperature, and probabilities of all words, twice."""
    asked, graphs = server.max_running_requests, max(server.decode_graphs, default=0)
    requests = min(one for one in (asked, graphs) if one) if asked or graphs else 1
    tokens = server.speculative.draft_tokens if server.speculative is not None else 1
    return 4 * requests * tokens * draft.vocab_size * DTYPE_BYTES["float32"]


def counted_beside(
    cell: float,
    kept: int,
    target: ModelConfig,
    draft: ModelConfig,
    parallel: ParallelConfig,
    kv_dtype: str,
    exactly: bool,
) -> float:
    """Bytes of a token, of the target's `cell` of so many layers. Once a layer of the draft's counted as one
    of the target's, rounded up, and as none beside layers that see a window."""
    layers = draft.num_layers
    if exactly:
        return cell + kv_bytes_per_token(draft, parallel, kv_dtype, range(layers))
    if has_window_pool(target) or not kept:
        return cell
    return -(-int(cell) * (kept + layers) // kept)

"""A draft that is another model than its target: what one rank holds of it, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.server.block_draft import (
    ALGORITHM,
    as_attended,
    attention_of_blocks,
    captured_for,
    check_blocks,
    counted_beside,
)
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import Unsupported
from runtime.server.layer_config import FusionConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import kv_dtype_of
from runtime.server.shape import Server
from runtime.server.sizing import has_window_pool

_ALGORITHMS = ("EAGLE3", "STANDALONE", ALGORITHM)
# EAGLE's, where it is no layer of its target: srt/models
_OF_EAGLE = ("LlamaForCausalLMEagle", "Qwen2ForCausalLMEagle")
# speculative/draft_utils.py: each says that it needs a draft with latents
_OF_LATENTS = ("trtllm_mla", "flashmla", "cutlass_mla", "cutedsl_mla", "tokenspeed_mla", "dsa", "nsa")


@dataclass(frozen=True, slots=True)
class OwnDraft:
    """`parallel` is what it is split by, `captures` the layers of the target before which the rows are kept
    for it. When the pool is sized, so many `counted_layers` as large as the target's have room, too."""

    model: ModelConfig
    runtime: RuntimeConfig
    parallel: ParallelConfig
    captures: tuple[int, ...]
    counted_layers: int

    @property
    def kv_dtype(self) -> str:
        return kv_dtype_of(self.runtime)

    @property
    def attention_backend(self) -> str:
        return self.runtime.attention_backend

    @property
    def drafts_block(self) -> bool:
        return self.model.fusion is not None and self.model.fusion.drafts_block

    def counted_beside(self, cell: float, kept: int, target: ModelConfig) -> float:
        """What a token of the target's pool counts, of so many layers that keep something of it."""
        if not self.drafts_block:
            return cell
        exactly = self.runtime.release.sizes_block_drafts
        return counted_beside(cell, kept, target, self.model, self.parallel, self.kv_dtype, exactly)

    @property
    def recurrent_width(self) -> int:
        """Of what one of its steps hands the next."""
        return 0 if self.model.fusion is None else self.model.hidden_size

    @property
    def given_width(self) -> int:
        """Of what the target hands it for a token."""
        fusion = self.model.fusion
        if fusion is None:
            return 0
        return fusion.states * fusion.width if fusion.is_fed else self.model.hidden_size


def has_own_draft(server: Server) -> bool:
    one, draft = server.speculative, server.draft
    if draft is None or one is None:
        return False
    return one.algorithm in _ALGORITHMS or (one.algorithm == "EAGLE" and draft.architecture in _OF_EAGLE)


def own_draft(server: Server, target: ModelConfig, draft: ModelConfig, told_layers: int) -> OwnDraft:
    """`told_layers`: of config.json's num_nextn_predict_layers, else all of them."""
    assert server.draft is not None and server.speculative is not None
    backend = server.asked.speculative_draft_attention_backend or server.decode_attention_backend
    if server.speculative.algorithm == ALGORITHM:
        backend = attention_of_blocks(server, draft)
    _check(server, target, draft, backend)
    fusion, parallel = draft.fusion, server.parallel
    if fusion is not None and fusion.drafts_block:
        return _of_blocks(server, target, draft, fusion, backend)
    if fusion is not None and not server.release.norms_drafts_whole:
        draft = replace(draft, fusion=replace(fusion, norms_whole=False))
    if fusion is not None and parallel.attn_dp > 1:  # draft_tp_context: of the ranks that share its requests
        parallel = ParallelConfig(tp=parallel.attn_tp)
    own = server.as_draft()
    runtime = replace(
        own.runtime,
        attention_backend=backend,
        prefill_graphs=_prefills(server, draft),
    )
    captures = () if fusion is None else _captures(fusion, target.num_layers // target.halves)
    captures = tuple(target.halves * layer for layer in captures)
    is_counted = server.speculative.is_counted
    if has_window_pool(target) and not server.release.counts_drafts_beside_windows:
        is_counted = False
    return OwnDraft(draft, runtime, parallel, captures, told_layers if is_counted else 0)


def _of_blocks(
    server: Server, target: ModelConfig, draft: ModelConfig, fusion: FusionConfig, backend: str
) -> OwnDraft:
    check_blocks(server, target, draft, backend)
    runtime = replace(server.as_draft().runtime, attention_backend=backend, prefill_graphs=())
    captures = captured_for(fusion, draft.num_layers, target.num_layers // target.halves)
    captures = tuple(target.halves * layer for layer in captures)
    return OwnDraft(as_attended(draft, server.release), runtime, server.parallel, captures, 0)


def _prefills(server: Server, draft: ModelConfig) -> tuple[int, ...]:
    """That with latents has no `layers`, among which SGLang looks for what it captures."""
    eager = server.compiles_prefills or server.whole_prefills or draft.mla is not None
    return () if eager else server.prefill_graphs


def _captures(fusion: FusionConfig, layers: int) -> tuple[int, ...]:
    """set_eagle3_layers_to_capture of srt/models: what a layer gives is taken before the next."""
    if not fusion.is_fed:
        return ()
    chosen = [layer + 1 for layer in fusion.layers] or [2, layers // 2, layers - 3]
    within = tuple(sorted({layer for layer in chosen if 0 <= layer < layers}))
    if len(within) != fusion.states:
        raise Unsupported(f"it is given {fusion.states} states, and layers {chosen} of {layers} tell others")
    return within


def _check(server: Server, target: ModelConfig, draft: ModelConfig, backend: str) -> None:
    assert server.speculative is not None
    algorithm = server.speculative.algorithm
    if draft.obstacles:
        raise Unsupported(draft.obstacles[0])
    if algorithm != _drafts_by(draft.fusion):
        raise Unsupported(f"{algorithm} with a draft of model_type {draft.model_type} is not known here")
    if draft.fusion is not None:
        _check_given(server, target, draft, draft.fusion)
    latent = draft.mla is not None and draft.fusion is not None
    if latent:
        _check_latents(server, target, draft)
    others = draft.recurrent, draft.encoder, draft.moe, None if latent else draft.mla
    if any(part is not None for part in others):
        raise Unsupported(f"a draft of model_type {draft.model_type} is not known here")
    if backend in _OF_LATENTS and not latent:
        raise Unsupported(f"attention backend {backend} is for latent attention, and it has none")
    if has_window_pool(draft):
        raise Unsupported("a draft with a pool of its own for a window is not known here")
    if draft.quantized.excluded or draft.quantized.expressions or draft.quantized.names:
        raise Unsupported("quantization_config: which matrices of a draft it means is not known here")


def _drafts_by(fusion: FusionConfig | None) -> str:
    if fusion is None:
        return "STANDALONE"
    if fusion.drafts_block:
        return ALGORITHM
    return "EAGLE" if fusion.beside_token else "EAGLE3"


def _check_given(server: Server, target: ModelConfig, draft: ModelConfig, fusion: FusionConfig) -> None:
    """EAGLE's has its target's embedding and head, whatever its own file tells of them."""
    of_target = not fusion.beside_token and not fusion.drafts_block
    asked = "target_hidden_size" if of_target else "hidden_size"
    told = [(asked, fusion.width, target.hidden_size)]
    if fusion.beside_token:
        told += [("vocab_size", draft.vocab_size, target.vocab_size)]
    for name, own, wanted in told:
        if own != wanted:
            raise Unsupported(f"config.json: {name} is {own}, and its target's is {wanted}")
    if fusion.beside_token and server.parallel.attn_dp > 1:
        raise Unsupported("how a draft of EAGLE's is split under DP attention is not known here")


def _check_latents(server: Server, target: ModelConfig, draft: ModelConfig) -> None:
    if not server.release.splits_latent_drafts:
        raise Unsupported(f"a draft with latents of SGLang {server.release.version}'s is not known here")
    if target.mla is None or target.mla.indexer is not None:
        raise Unsupported("a draft with latents is known here beside latents of which all are seen")
    if draft.checkpoint_quantization is not None or server.as_draft().quantization is not None:
        raise Unsupported("a draft with latents that is quantized is not known here")

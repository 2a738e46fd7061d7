"""A server's start up to its first rank, in SGLang's order: what was asked becomes one `Server`.

Each step reads what the steps before it settled, as SGLang's own pipeline does (srt/arg_groups/pipeline.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from runtime.server.architectures import EMBEDDING
from runtime.server.asked import Asked
from runtime.server.attention import (
    settle_attention,
    settle_old_names,
    settle_page_size,
    settle_tiered_decode,
    used_backends,
)
from runtime.server.cache_key import KeyInputs, key_parts
from runtime.server.checkpoint import Checkpoint
from runtime.server.checks import budgets, check_before_blocks, check_refusals
from runtime.server.choices import Choices, is_on
from runtime.server.classes import config_class
from runtime.server.config import SLIDING_SHARE
from runtime.server.deterministic import settle_deterministic
from runtime.server.diffusion import settle_canvas_cache, settle_diffusion
from runtime.server.embedders import embeds
from runtime.server.embedding_gemma import is_embedding_gemma, settle_embedding_gemma
from runtime.server.encoders.place import encoder_place
from runtime.server.errors import ConfigError
from runtime.server.family_attention import DENSE, settle_family_attention
from runtime.server.fused_all_reduce import fuses_all_reduce
from runtime.server.gpus import GpuModel
from runtime.server.graph_backends import (
    COMPILED,
    WHOLE,
    settle_dumped_tensors,
    settle_expert_graphs,
    settle_graph_backends,
    settle_trtllm_prefill,
)
from runtime.server.graphs import captured
from runtime.server.heads import head_over
from runtime.server.images import ENVIRONMENT as IMAGE_VARIABLES
from runtime.server.images import feature_transport, images_mib
from runtime.server.kv_cache import draft_kv_dtype, settle_kv_dtype
from runtime.server.memory import settle_memory
from runtime.server.minimax_nvfp4 import RAGGED_VERIFY, draft_class, settle_minimax_in_nvfp4
from runtime.server.moe import check_dispatch_chunks, settle_all_to_all, settle_moe_runner
from runtime.server.parallelism import (
    settle_attention_groups,
    settle_data_parallelism,
    settle_prefill_context,
    settle_spread_weights,
)
from runtime.server.quantization import (
    model_quantization,
    settle_dtype,
    settle_quantization,
    settled_dtype,
)
from runtime.server.releases import Release
from runtime.server.requests import MORE_TOKENS_THAN_ANY_POOL, max_running_requests
from runtime.server.roles import settle_item_scoring, settle_role, settle_seen_prompts, settle_unchunked
from runtime.server.shape import DraftServer, Server, Speculation
from runtime.server.shown_layers import settle_shown_layers
from runtime.server.sparse_kernels import sparse_kernels
from runtime.server.speculation import DRAFTLESS, counts_draft, settle_speculation
from runtime.server.state_cache import ENVIRONMENT as STATE_VARIABLES
from runtime.server.state_cache import settle_state_cache, state_rules
from runtime.server.tuning import check_skipped_ops, fp4_gemm_backend, fp8_gemm_backend, gate
from runtime.server.whole_prefills import settle_whole_prefills
from runtime.server.workspaces import ENVIRONMENT as WORKSPACE_VARIABLES
from runtime.server.workspaces import workspaces

_EXTEND = "SGLANG_FLASHINFER_AUTOTUNE_EXTEND"
_FUSED_FINALIZE = "SGLANG_FLASHINFER_MOE_FUSED_FINALIZE"
LONGER_CONTEXT = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
BF16_ROUTER, DEEPGEMM = "SGLANG_OPT_USE_BF16_ROUTER_GEMM", "SGLANG_ENABLE_JIT_DEEPGEMM"
# All that the rules read of it.
ENVIRONMENT = (
    *(_EXTEND, _FUSED_FINALIZE, LONGER_CONTEXT, RAGGED_VERIFY, DENSE, BF16_ROUTER, DEEPGEMM),
    *(*budgets.ENVIRONMENT, *WORKSPACE_VARIABLES, *STATE_VARIABLES, *IMAGE_VARIABLES),
)
STEPS = (
    check_skipped_ops,
    settle_shown_layers,
    settle_old_names,
    settle_spread_weights,
    settle_attention_groups,
    settle_role,
    settle_graph_backends,
    settle_memory,
    settle_quantization,
    settle_dtype,
    settle_prefill_context,
    settle_minimax_in_nvfp4,
    settle_moe_runner,
    settle_family_attention,
    settle_state_cache,
    settle_deterministic,
    settle_attention,
    settle_trtllm_prefill,
    settle_page_size,
    settle_item_scoring,
    settle_tiered_decode,
    settle_data_parallelism,
    settle_all_to_all,
    settle_expert_graphs,
    settle_whole_prefills,
    settle_speculation,
    check_dispatch_chunks,
    check_before_blocks,
    settle_diffusion,
    settle_unchunked,
    check_refusals,
    settle_seen_prompts,
    settle_embedding_gemma,
    settle_canvas_cache,
    settle_kv_dtype,
    settle_dumped_tensors,
)


def resolve(
    asked: Asked,
    model: Checkpoint,
    draft: Checkpoint | None,
    gpu: GpuModel,
    release: Release,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Server:
    """`draft`: the checkpoint that --speculative-draft-model-path names, where it names one."""
    c = Choices(asked, model, draft, gpu, release, environ)
    for step in STEPS:
        step(c)
    return _server(c)


def _server(c: Choices) -> Server:
    tuned = gate(c, c.model_quantization)
    prefill_backend, decode_backend = used_backends(c)
    assert prefill_backend is not None and decode_backend is not None
    decode_graphs, prefill_graphs = captured(c)
    _say_why(c, decode_graphs, prefill_graphs)
    return Server(
        asked=c.asked,
        release=c.release,
        gpu=c.gpu,
        config_class=config_class(c.model, c.release),
        dtype=c.dtype,
        quantization=c.quantization,
        model_quantization=c.model_quantization,
        kv_cache_dtype=c.kv_cache_dtype,
        page_size=c.page_size,
        sliding_share=SLIDING_SHARE if c.swa_full_tokens_ratio is None else c.swa_full_tokens_ratio,
        prefill_attention_backend=prefill_backend,
        decode_attention_backend=decode_backend,
        moe_runner_backend=c.moe_runner_backend,
        moe_a2a_backend=c.moe_a2a_backend,
        tp_size=c.tp_size,
        pp_size=c.pp_size,
        ep_size=c.ep_size,
        dp_size=c.dp_size,
        attn_dp_size=c.attn_dp_size,
        context_length=_context_length(c),
        chunked_prefill_size=c.chunked_prefill_size,
        max_prefill_tokens=c.max_prefill_tokens,
        prefill_buffer=budgets.prefill_buffer(c),
        mem_fraction_static=c.mem_fraction_static,
        max_running_requests=c.max_running_requests,
        dummy_batch_rows=_dummy_rows(c),
        embeds=embeds(c.model.architecture, c.asked) or is_embedding_gemma(c.model, c.release),
        keeps_nothing=is_embedding_gemma(c.model, c.release) and c.prefill_only_disable_kv_cache,
        decode_graphs=decode_graphs,
        prefill_graphs=prefill_graphs,
        prefill_graphs_asked="backend" in c.prefill.locked,
        whole_prefills=c.prefill.backend == WHOLE,
        fp4_gemm_backend=fp4_gemm_backend(c),
        fp8_gemm_backend=fp8_gemm_backend(c),
        compiles_prefills=c.prefill.backend == COMPILED,
        speculative=_speculation(c),
        disaggregation_mode=c.disaggregation_mode,
        autotune_extend=c.release.has_extend_pass and is_on(c.environ.get(_EXTEND)),
        fused_finalize=_fused_finalize(c),
        tunes=tuned.tunes,
        tunes_because=tuned.because,
        key_parts=key_parts(c.release, _key_inputs(c, config_class(c.model, c.release))),
        draft=_draft(c),
        fuses_all_reduce=fuses_all_reduce(c),
        encoder=encoder_place(c),
        dispatch_tokens=budgets.told_dispatch_tokens(c),
        states=state_rules(c),
        deepep=budgets.told_deepep(c),
        head_over=head_over(c),
        workspaces=workspaces(c),
        sparse_kernels=sparse_kernels(c),
        images_mib=images_mib(c),
        image_transport=feature_transport(c),
        reasons=dict(c.reasons),
    )


def _say_why(c: Choices, decode: tuple[int, ...], prefill: tuple[int, ...]) -> None:
    """Of what follows from the others."""
    c.because(f"model_type {c.model.model_type}", config_class=config_class(c.model, c.release))
    if c.context_length is None:
        c.because(c.model.context_length_from, context_length=c.model.context_length)
    for graphs, sizes in ((c.decode, decode), (c.prefill, prefill)):
        captured_by = f"{graphs.backend}, " if graphs.backend != "full" else ""
        rule = f"{captured_by}{graphs.limit}" if graphs.is_on else graphs.off
        if graphs is c.decode and graphs.is_on and not decode:
            rule = "it answers a prompt with one row, and generates nothing"
        c.because(rule, **{f"{graphs.phase}_graphs": sizes})
    if c.max_running_requests is None:
        c.because("the KV cache's room decides at the start", max_running_requests=None)


def _fused_finalize(c: Choices) -> bool:
    unset, told = c.release.fused_finalize_unset, c.environ.get(_FUSED_FINALIZE)
    if not c.release.fused_finalize_by_environment:
        fused, rule = unset, "FlashInfer's own default"
    elif told is not None:
        fused = is_on(told)
        rule = f"the environment turns it {'on' if fused else 'off'}"
    else:
        now, else_ = ("on", "off") if unset else ("off", "on")
        fused, rule = unset, f"{now} unless the environment turns it {else_}"
    c.because(rule, fused_finalize=fused)
    return fused


def _key_inputs(c: Choices, name: str) -> KeyInputs:
    return KeyInputs(
        model_path=c.model_path,
        dtype=c.dtype,
        quantization=c.quantization,
        moe_runner_backend=c.moe_runner_backend,
        tp=c.tp_size,
        pp=c.pp_size,
        attn_dp=c.attn_dp_size,
        moe_ep=c.ep_size,
        config_class=name,
        skip_ops=c.flashinfer_autotune_skip_ops,
    )


def _context_length(c: Choices) -> int:
    known = c.model.context_length
    if c.context_length is None:
        return min(known, EMBEDDING.get(c.model.architecture, known))
    if c.context_length > known and not is_on(c.environ.get(LONGER_CONTEXT)):
        raise ConfigError(
            f"--context-length {c.context_length}: the model's is {known}", f"set {LONGER_CONTEXT}=1"
        )
    return int(c.context_length)


def _dummy_rows(c: Choices) -> int:
    """Of one attention-DP rank, were its memory endless."""
    requests = max_running_requests(
        MORE_TOKENS_THAN_ANY_POOL, _context_length(c), c.max_running_requests, c.attn_dp_size, c.release
    )
    width = c.speculative_num_draft_tokens or 1 if c.speculative_algorithm else 1
    most = "the most that a rank runs" if c.max_running_requests is None else "requests of a rank"
    drafted = f", {width} tokens each" if width > 1 else ""
    c.because(f"{most}: {requests:,}{drafted}", dummy_batch_rows=requests * width)
    return requests * width


def _speculation(c: Choices) -> Speculation | None:
    if c.speculative_algorithm is None:
        return None
    return Speculation(
        c.speculative_algorithm,
        c.speculative_num_steps,
        c.speculative_eagle_topk,
        c.speculative_num_draft_tokens,
        counts_draft(c),
    )


def _draft(c: Choices) -> DraftServer | None:
    """The target's arguments; class, dtype and weights are the draft's own, as its ModelRunner has them."""
    if c.speculative_algorithm is None or c.speculative_algorithm in DRAFTLESS:
        return None
    model = c.draft_model or c.model
    quantization = model_quantization(c.speculative_draft_model_quantization, model, c.release, draft=True)
    name, dtype = draft_class(c, model), settled_dtype(c.asked.dtype, model).value
    inputs = replace(_key_inputs(c, name), dtype=dtype, is_draft=True, draft_quantization=quantization)
    tuned = gate(c, quantization, draft=True)
    backend = c.speculative_moe_runner_backend
    named = c.speculative_draft_model_path or c.model_path, model.architecture, name
    parts = key_parts(c.release, inputs)
    kv_dtype = draft_kv_dtype(c, model, quantization, dtype)
    return DraftServer(*named, dtype, quantization, kv_dtype, backend, tuned.tunes, tuned.because, parts)

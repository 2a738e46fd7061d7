"""A server's start up to its first rank, in SGLang's order: what was asked becomes one `Server`."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.asked import Asked
from runtime.server.attention import attending, is_hybrid, is_mla
from runtime.server.cache_key import KeyInputs, key_parts
from runtime.server.checkpoint import Checkpoint
from runtime.server.classes import config_class
from runtime.server.errors import ConfigError
from runtime.server.experts import moe_runner, spread
from runtime.server.gpus import GpuModel
from runtime.server.graphs import captured, fitted
from runtime.server.memory import gpu_defaults, mem_fraction
from runtime.server.parallel_config import HeadOver, ParallelConfig
from runtime.server.quantization import Weights, settled_dtype, settled_quantization
from runtime.server.recurrent import StateRules
from runtime.server.requests import MORE_TOKENS_THAN_ANY_POOL, max_running_requests
from runtime.server.shape import DraftServer, Graphs, Server, Speculation, Tuning
from runtime.server.speculation import REQUESTS, speculation
from runtime.server.tuning import fp4_gemm_backend, gate

_ROLES = ("null", "prefill", "decode")
_OWN, _SECOND = 3, 2  # states of a request, and of one that is tracked while batches overlap


def resolve(asked: Asked, model: Checkpoint, gpu: GpuModel) -> Server:
    _check_role(asked)
    _check_choices(asked)
    if asked.disaggregation_mode == "decode":
        asked = replace(asked, disable_radix_cache=True)
    attn_dp = _attention_groups(asked)
    defaults = gpu_defaults(gpu.memory_mib, asked.tp_size)
    chunk = asked.chunked_prefill_size
    chunk = defaults.chunked_prefill_size if chunk is None else chunk
    graphs = captured(asked, defaults.decode_graph_max_bs, chunk, is_mla(model))
    fraction = mem_fraction(asked, gpu, chunk, attn_dp, graphs, is_mla(model))
    weights, dtype = settled_quantization(asked.quantization, model, gpu), settled_dtype(asked.dtype, model)
    runner = moe_runner(asked, model, weights, gpu)
    drafts = speculation(asked, model)
    attention = attending(asked, model, gpu, drafts, dtype, weights.stored)
    chunk //= attn_dp if attn_dp > 1 else 1
    asked = spread(asked, runner, attn_dp, chunk)
    prefill = fitted(graphs.prefill, chunk)
    if attention.prefill == "trtllm_mla" and model.architecture == "DeepseekV3ForCausalLM":
        prefill = ()  # under a captured prefill this backend falls back to a slower one
    requests = asked.max_running_requests
    if requests is None and drafts is not None:
        requests = REQUESTS
    context, tuned = _context_length(asked, model), gate(asked, runner, weights.stored, gpu)
    inputs = _key_inputs(asked, model, dtype, weights, runner, attn_dp)
    return Server(
        asked=asked,
        gpu=gpu,
        parallel=_parallel(asked, attn_dp),
        config_class=config_class(model),
        dtype=dtype,
        quantization=weights.asked,
        model_quantization=weights.stored,
        attending=attention,
        moe_runner_backend=runner,
        fp4_gemm_backend=fp4_gemm_backend(asked, gpu),
        context_length=context,
        chunked_prefill_size=chunk,
        mem_fraction_static=fraction,
        max_running_requests=requests,
        dummy_batch_rows=_dummy_rows(context, requests, attn_dp, drafts),
        graphs=Graphs(graphs.decode, prefill),
        speculative=drafts,
        tuning=Tuning(tuned.tunes, tuned.because, key_parts(inputs)),
        draft=_draft(asked, model, weights, runner, gpu, inputs) if drafts else None,
        states=_state_rules(asked, model),
        head_over=_head_over(asked, attn_dp),
    )


_CHOICES = {
    "kv_cache_dtype": (
        "auto",
        "fp8_e5m2",
        "fp8_e4m3",
        "mxfp8",
        "bf16",
        "bfloat16",
        "nvfp4",
        "fp4_mx_block16",
    ),
    "attention_backend": (
        *(None, "triton", "torch_native", "flex_attention", "dsa", "nsa", "fa3", "fa4", "flashinfer"),
        *("flashmla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla", "trtllm_mha", "cutlass_mla"),
        *("intel_amx", "hpc_ops"),
    ),
    "fp4_gemm_runner_backend": (
        *("auto", "cutlass", "marlin", "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_cudnn"),
        "flashinfer_trtllm",
    ),
}


def _check_choices(asked: Asked) -> None:
    for name, choices in _CHOICES.items():
        if (value := getattr(asked, name)) not in choices:
            known = ", ".join(filter(None, choices))
            raise ConfigError(f"--{name.replace('_', '-')} {value} is not known", f"one of {known}")


def _check_role(asked: Asked) -> None:
    if asked.disaggregation_mode not in _ROLES:
        raise ConfigError(
            f"--disaggregation-mode {asked.disaggregation_mode} is not known", f"one of {', '.join(_ROLES)}"
        )


def _attention_groups(asked: Asked) -> int:
    own = asked.attn_dp_size or 1
    if own > 1 and asked.dp_size > 1:
        raise ConfigError(
            f"--dp {asked.dp_size} with --attn-dp-size {own}: SGLang starts no replicas of attention groups",
            "give one of the two",
        )
    groups = asked.dp_size if own == 1 and asked.enable_dp_attention else own
    if asked.tp_size % groups:
        raise ConfigError(
            f"--dp {groups} does not divide --tp {asked.tp_size}: with --enable-dp-attention each DP group "
            "holds tp/dp ranks"
        )
    return groups


def _parallel(asked: Asked, attn_dp: int) -> ParallelConfig:
    return ParallelConfig(
        tp=asked.tp_size,
        pp=asked.pp_size,
        dp=attn_dp if attn_dp > 1 else asked.dp_size,
        ep=asked.ep_size,
        enable_dp_attention=attn_dp > 1,
        nnodes=asked.nnodes,
        node_rank=asked.node_rank,
    )


def _key_inputs(
    asked: Asked, model: Checkpoint, dtype: str, weights: Weights, runner: str, attn_dp: int
) -> KeyInputs:
    return KeyInputs(
        model_path=asked.model_path,
        dtype=dtype,
        quantization=weights.asked,
        moe_runner_backend=runner,
        tp=asked.tp_size,
        pp=asked.pp_size,
        attn_dp=attn_dp,
        moe_ep=asked.ep_size,
        config_class=config_class(model),
        skip_ops=asked.flashinfer_autotune_skip_ops,
    )


def _context_length(asked: Asked, model: Checkpoint) -> int:
    known = model.context_length
    if asked.context_length is not None and asked.context_length > known:
        raise ConfigError(f"--context-length {asked.context_length}: the model's is {known}", "give no more")
    return known if asked.context_length is None else asked.context_length


def _dummy_rows(context: int, requests: int | None, attn_dp: int, drafts: Speculation | None) -> int:
    """Of one attention-DP rank, were its memory endless."""
    most = max_running_requests(MORE_TOKENS_THAN_ANY_POOL, context, requests, attn_dp)
    return most * (drafts.draft_tokens if drafts else 1)


def _draft(
    asked: Asked, model: Checkpoint, weights: Weights, runner: str, gpu: GpuModel, inputs: KeyInputs
) -> DraftServer:
    """The target's arguments, and its own layer: of ModelOpt's checkpoints as it was before."""
    stored = weights.stored
    tuned = gate(asked, runner, stored, gpu)
    parts = key_parts(replace(inputs, is_draft=True, draft_quantization=stored))
    return DraftServer(model.architecture, stored, runner, tuned.tunes, tuned.because, parts)


def _state_rules(asked: Asked, model: Checkpoint) -> StateRules:
    """Of layers with a recurrent state: an extra buffer keeps those of prefixes while batches overlap."""
    keeps = not asked.disable_radix_cache
    extra = keeps and is_hybrid(model)
    tracked = 0 if not extra else _SECOND if asked.pp_size == 1 else 1
    verifies = asked.disaggregation_mode != "prefill"
    told = model.get("mamba_ssm_dtype")
    return StateRules(
        slots_each=_OWN + tracked if keeps else 1,
        tracked=tracked,
        keeps_prefixes=keeps,
        extra_buffer=extra,
        drafts=verifies,
        verifies=verifies,
        recurrent_dtype=told if told in ("float32", "float16", "bfloat16") else "float32",
    )


def _head_over(asked: Asked, attn_dp: int) -> HeadOver:
    """How groups of DP attention come to their logits: srt/layers/logits_processor.py."""
    if attn_dp == 1:
        return "all ranks"
    if asked.enable_dp_lm_head:
        return "a group"
    exchanges = asked.disaggregation_mode == "decode" and asked.tp_size == attn_dp
    return "all ranks, exchanged" if exchanges else "all ranks"

"""Resolves a server's arguments into one `Server`, in the order of SGLang's start."""

from dataclasses import replace

from runtime.server.asked import Asked
from runtime.server.cache_key import KeyInputs, key_parts
from runtime.server.checkpoint import Checkpoint
from runtime.server.choices.attention import attending
from runtime.server.choices.experts import moe_runner, spread
from runtime.server.choices.graphs import captured, fitted
from runtime.server.choices.memory import gpu_defaults, mem_fraction
from runtime.server.choices.tuning import fp4_gemm_backend, gate
from runtime.server.config import Graphs, Kernels, ModelConfig, RuntimeConfig, SpeculativeConfig
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.family import Family, Weights
from runtime.server.gpus import GpuModel
from runtime.server.layer_config import StateRules
from runtime.server.parallel import ParallelConfig, check_stages
from runtime.server.quantized import method_of
from runtime.server.shape import Server, Tuning
from runtime.server.sizes.batches import MORE_TOKENS_THAN_ANY_POOL, max_running_requests

_OWN, _SECOND = 3, 2  # states of a request, and more for one that is tracked while batches overlap
# Arguments that only a server follows, unless they have these values.
_A_SERVERS = {
    "disaggregation_mode": "null",
    "moe_dense_tp_size": None,
    "prefill_attention_backend": None,
    "decode_attention_backend": None,
}
_CHOICES = {
    "kv_cache_dtype": (
        *("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16", "nvfp4", "fp4_mx_block16"),
    ),
    "attention_backend": (
        *(None, "triton", "torch_native", "flex_attention", "dsa", "nsa", "fa3", "fa4", "flashinfer"),
        *("flashmla", "trtllm_mla", "tokenspeed_mla", "trtllm_mha", "cutlass_mla", "intel_amx", "hpc_ops"),
    ),
    "fp4_gemm_runner_backend": (
        *("auto", "cutlass", "marlin", "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_cudnn"),
        "flashinfer_trtllm",
    ),
}


def resolve(asked: Asked, family: Family, model: Checkpoint, gpu: GpuModel) -> Server:
    _check(asked)
    attn_dp = _attention_groups(asked)
    defaults = gpu_defaults(gpu.memory_mib, asked.tp_size)
    chunk = asked.chunked_prefill_size
    chunk = defaults.chunked_prefill_size if chunk is None else chunk
    is_mla = family.attends != "heads"
    graphs = captured(asked, defaults.decode_graph_max_bs, chunk, is_mla)
    fraction = mem_fraction(asked, gpu, chunk, attn_dp, graphs, is_mla)
    weights = settled_quantization(asked.quantization, family, model, gpu)
    dtype = settled_dtype(asked.dtype, family, model, weights)
    runner = moe_runner(asked, family, weights, gpu)
    drafts = speculation(asked)
    attention = attending(asked, family, model, gpu, dtype, weights)
    chunk //= attn_dp if attn_dp > 1 else 1
    _check_chunk(chunk, attention.cache.page_size)
    asked = spread(asked, runner, attn_dp, chunk)
    prefill = fitted(graphs.prefill, chunk)
    if attention.backend == "trtllm_mla":
        prefill = ()  # under a captured prefill this backend falls back to a slower one
    requests = asked.max_running_requests
    if requests is None and drafts is not None:
        requests = REQUESTS
    context, tuned = _context_length(asked, model), gate(asked, runner, weights.stored, gpu)
    inputs = KeyInputs(
        model_path=asked.model_path,
        dtype=dtype,
        quantization=weights.asked,
        moe_runner_backend=runner,
        tp=asked.tp_size,
        pp=asked.pp_size,
        attn_dp=attn_dp,
        moe_ep=asked.ep_size,
        config_class=family.config_class,
        skip_ops=asked.flashinfer_autotune_skip_ops,
    )
    draft_parts = key_parts(replace(inputs, is_draft=True, draft_quantization=weights.stored))
    return Server(
        asked=asked,
        gpu=gpu,
        parallel=_parallel(asked, attn_dp),
        config_class=family.config_class,
        quantization=weights.asked,
        model_quantization=weights.stored,
        chunked_prefill_size=chunk,
        dummy_batch_rows=_dummy_rows(context, requests, attn_dp, drafts),
        runtime=RuntimeConfig(
            dtype=dtype,
            kernels=Kernels(
                attention=attention.backend,
                moe=runner,
                a2a=asked.moe_a2a_backend,
                fp4_gemm=fp4_gemm_backend(asked, gpu),
                fuses_shared_experts=not asked.disable_shared_experts_fusion,
                sm_major=gpu.major,
            ),
            cache=attention.cache,
            graphs=Graphs(graphs.decode, prefill),
            prefill_tokens=chunk if chunk > 0 else asked.max_prefill_tokens,
            max_running_requests=requests,
            mem_fraction_static=fraction,
            context_length=context,
            disable_autotune=not tuned.tunes,
            head_over="a group" if attn_dp > 1 and asked.enable_dp_lm_head else "all ranks",
            speculative=drafts,
            states=_state_rules(asked, family, model),
        ),
        tuning=Tuning(tuned.tunes, tuned.because, key_parts(inputs)),
        draft=Tuning(tuned.tunes, tuned.because, draft_parts) if drafts else None,
    )


def check_model(model: ModelConfig, server: Server) -> None:
    """Refuse models that the ranks cannot share, or that the core computes differently from a server."""
    parallel, kernels, moe = server.parallel, server.runtime.kernels, model.moe
    check_stages(model.num_layers, parallel)
    heads, kv_heads = model.main_attention.num_heads, model.main_attention.num_kv_heads
    ranks = parallel.attn_tp
    if heads % ranks:
        raise ConfigError(f"{heads} attention heads cannot be divided among {ranks} ranks")
    if max(kv_heads, ranks) % min(kv_heads, ranks):
        raise ConfigError(f"{kv_heads} KV heads and {ranks} ranks: one must divide the other")
    if model.traits.splits_over_tp and parallel.attn_dp > 1:
        raise Unsupported("DP attention of this family: the core does not have it, a server answers for it")
    if moe is None:
        return
    if moe.num_experts % parallel.ep:
        raise ConfigError(f"{moe.num_experts} experts cannot be divided among {parallel.ep} ranks")
    by_cutlass = server.backend.calls == "cutlass" and kernels.a2a == "none"
    if by_cutlass and moe.shared_gate and kernels.fuses_shared_experts and parallel.ep > 1:
        raise Unsupported("a shared expert behind a gate that each rank fuses: a server answers for it")
    if by_cutlass and server.quantization == "modelopt_fp4" and parallel.ep == parallel.attn_dp > 1:
        raise Unsupported("rows that DP attention gathers in nvfp4: a server answers for them")


def _check(asked: Asked) -> None:
    for name, usual in _A_SERVERS.items():
        if getattr(asked, name) != usual:
            flag = f"--{name.replace('_', '-')} {getattr(asked, name)}"
            raise Unsupported(f"{flag}: the core does not have it, a server answers for it")
    for name, choices in _CHOICES.items():
        if (value := getattr(asked, name)) not in choices:
            known = ", ".join(filter(None, choices))
            raise ConfigError(f"--{name.replace('_', '-')} {value} is not known", f"one of {known}")


def _check_chunk(chunk: int, page: int) -> None:
    if chunk > 0 and chunk % page:
        raise Unsupported(
            f"a chunk of {chunk} tokens is not of whole pages of {page}: whether SGLang takes that, a server "
            "answers"
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


def _context_length(asked: Asked, model: Checkpoint) -> int:
    known = model.context_length
    if asked.context_length is not None and asked.context_length > known:
        raise ConfigError(f"--context-length {asked.context_length}: the model's is {known}", "give no more")
    return known if asked.context_length is None else asked.context_length


def _dummy_rows(context: int, requests: int | None, attn_dp: int, drafts: SpeculativeConfig | None) -> int:
    """Return the dummy rows of one attention-DP rank if memory were unlimited."""
    most = max_running_requests(MORE_TOKENS_THAN_ANY_POOL, context, requests, attn_dp)
    return most * (drafts.num_draft_tokens if drafts else 1)


def _state_rules(asked: Asked, family: Family, model: Checkpoint) -> StateRules:
    """Return the states of recurrent layers. States of prefixes have more slots if batches overlap."""
    keeps, told = not asked.disable_radix_cache, model.get("mamba_ssm_dtype")
    tracked = 0 if not (keeps and family.keeps_states) else _SECOND if asked.pp_size == 1 else 1
    dtype = told if told in ("float32", "float16", "bfloat16") else "float32"
    return StateRules(_OWN + tracked if keeps else 1, keeps, recurrent_dtype=dtype)


REQUESTS = 48  # the default of --max-running-requests with drafts
_ALGORITHMS = ("EAGLE", "NEXTN")


def speculation(asked: Asked) -> SpeculativeConfig | None:
    named = asked.speculative_algorithm
    if named is None:
        return None
    if named.upper() not in _ALGORITHMS:
        raise Unsupported(
            f"--speculative-algorithm {named} is not one of the core's ({', '.join(_ALGORITHMS)}, by a layer "
            "of the model itself): a server answers for it"
        )
    if asked.pp_size > 1:
        raise Unsupported("drafts on pipeline stages: a server answers for them")
    steps, topk = asked.speculative_num_steps, asked.speculative_eagle_topk
    tokens = asked.speculative_num_draft_tokens
    if steps is None and topk is None and tokens is None:
        steps, topk, tokens = 3, 1, 4
    if steps is None or topk is None:
        raise ConfigError(
            "--speculative-num-steps and --speculative-eagle-topk go together", "give all, or none"
        )
    if topk == 1:
        tokens = steps + 1
    if tokens is None:
        raise ConfigError("--speculative-eagle-topk above 1 needs --speculative-num-draft-tokens")
    return SpeculativeConfig(steps, topk, tokens)


DTYPES = ("bfloat16", "float16", "float32")
_ALIASES = {"half": "float16", "float": "float32"}
_BLACKWELL_SERVER = 10


def settled_dtype(asked: str, family: Family, model: Checkpoint, weights: Weights) -> str:
    if weights.declared == "mxfp4":
        return "bfloat16"
    named = _ALIASES.get(asked.lower(), asked.lower())
    if named == "auto":
        return model.dtype if model.dtype in ("bfloat16", "float16") else family.dtype_of_float32
    if named not in DTYPES:
        known = ", ".join(("auto", *DTYPES, *_ALIASES))
        raise ConfigError(f"--dtype {asked}: SGLang knows no such type", f"one of {known}")
    return named


def settled_quantization(asked: str | None, family: Family, model: Checkpoint, gpu: GpuModel) -> Weights:
    """Return the quantization. Without an argument, some families use the checkpoint's method as one."""
    wanted, on_blackwell = None if asked == "unquant" else asked, gpu.major == _BLACKWELL_SERVER
    declared = method_of(model.get("quantization_config"))
    stored = declared or method_of(model.quant_file.get("quantization"))
    if wanted is not None and stored != wanted:
        over = "a plain checkpoint" if stored is None else f"a checkpoint quantized by {stored}"
        raise Unsupported(f"--quantization {wanted} over {over}: a server answers for it")
    if family.writes_modelopt and (stored or "").startswith("modelopt"):
        return Weights(stored, stored, declared)
    if asked is None and on_blackwell and stored is None and family.reads_headers:
        raise Unsupported("SGLang reads this checkpoint's own headers for fp8: a server answers for it")
    if asked is None and on_blackwell and family.writes_method:
        return Weights(declared, stored, declared)
    return Weights(wanted, stored, declared)

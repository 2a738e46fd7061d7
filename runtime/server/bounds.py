"""The sizes that somebody could mean, generously: a plan beyond them would only be long and wrong."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from runtime.server.errors import ConfigError


class Bound(NamedTuple):
    least: int
    most: int


MOST_RANKS = 1 << 14
LAYERS = Bound(1, 1 << 12)
EXPERTS = Bound(1, 1 << 14)
HEADS = Bound(1, 1 << 14)
WIDTH = Bound(1, 1 << 24)  # a hidden size, a vocabulary
TOKENS = Bound(1, 1 << 26)
RANKS = Bound(1, MOST_RANKS)
REQUESTS = Bound(1, 1 << 20)
DRAFTED = Bound(0, 1 << 10)

PARALLEL: Mapping[str, Bound] = {
    **dict.fromkeys(("tp", "pp", "dp", "ep", "nnodes"), RANKS),
    "node_rank": Bound(0, MOST_RANKS),
}
SERVER: Mapping[str, Bound] = {
    "page_size": TOKENS,
    "chunked_prefill_size": Bound(-1, TOKENS.most),  # -1 and 0: no chunks
    "max_running_requests": REQUESTS,
    "context_length": TOKENS,
    "cuda_graph_max_bs": REQUESTS,
}
SPECULATIVE: Mapping[str, Bound] = dict.fromkeys(("num_steps", "eagle_topk", "num_draft_tokens"), DRAFTED)
FLAGS: Mapping[str, Bound] = {
    **PARALLEL,
    "attn_dp": RANKS,
    **SERVER,
    **{f"speculative_{name}": bound for name, bound in SPECULATIVE.items()},
}
ASKED: Mapping[str, Bound] = {
    **dict.fromkeys(("tp_size", "pp_size", "dp_size", "attn_dp_size", "ep_size", "nnodes"), RANKS),
    **dict.fromkeys(("moe_dense_tp_size", "attn_cp_size", "moe_dp_size", "dcp_size"), RANKS),
    **{name: bound for name, bound in FLAGS.items() if name == "node_rank" or name in SERVER},
    **dict.fromkeys(("max_total_tokens", "cuda_graph_max_bs_prefill"), TOKENS),
    **dict.fromkeys(("piecewise_cuda_graph_max_tokens", "mamba_track_interval"), TOKENS),
    "max_mamba_cache_size": TOKENS,
    "cuda_graph_max_bs_decode": REQUESTS,
    "disaggregation_decode_extra_slots": Bound(0, REQUESTS.most),
    "max_prefill_tokens": TOKENS,
    **{name: bound for name, bound in FLAGS.items() if name.startswith("speculative_")},
}
MODEL: Mapping[str, Bound] = {
    **dict.fromkeys(("num_layers", "num_hidden_layers"), LAYERS),
    **dict.fromkeys(("num_heads", "num_kv_heads", "num_attention_heads", "num_key_value_heads"), HEADS),
    **dict.fromkeys(
        ("head_dim", "hidden_size", "channels", "vocab_size", "kv_lora_rank", "v_head_dim"), WIDTH
    ),
    **dict.fromkeys(("qk_nope_head_dim", "q_lora_rank"), WIDTH),
    "qk_rope_head_dim": Bound(0, WIDTH.most),
    **dict.fromkeys(("intermediate_size", "shared_intermediate_size"), Bound(0, WIDTH.most)),
    "image_intermediate_size": WIDTH,
    **dict.fromkeys(("num_labels", "how many labels id2label has", "classification_out_size"), WIDTH),
    **dict.fromkeys(("in_features", "out_features", "inputs", "outputs"), WIDTH),
    **dict.fromkeys(("positions", "types", "type_vocab_size"), WIDTH),
    "labels": Bound(0, WIDTH.most),
    **dict.fromkeys(("num_experts", "num_experts_per_tok", "num_groups", "top_k_groups"), EXPERTS),
    **dict.fromkeys(("num_key_heads", "num_value_heads", "mamba_num_heads"), HEADS),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "mamba_n_groups", "n_groups"), HEADS),
    **dict.fromkeys(("key_head_dim", "value_head_dim", "state_size", "ssm_state_size"), WIDTH),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "mamba_head_dim"), WIDTH),
    **dict.fromkeys(("latent_size", "moe_latent_size", "routed_expert_hidden_size"), WIDTH),
    "attn_res_block_size": LAYERS,
    "num_blocks": LAYERS,
    "banks": Bound(0, LAYERS.most),
    **dict.fromkeys(("rounds", "num_loops", "loop_num"), LAYERS),
    **dict.fromkeys(("hidden_size_per_layer_input", "vocab_size_per_layer_input"), WIDTH),
    "num_kv_shared_layers": LAYERS,
    **dict.fromkeys(("head_vocab", "draft_vocab_size", "width", "target_hidden_size"), WIDTH),
    **dict.fromkeys(("states", "num_aux_hidden_states"), LAYERS),
    **dict.fromkeys(("zero_experts", "zero_expert_num", "redundant"), Bound(0, EXPERTS.most)),
    **dict.fromkeys(("hashed_layers", "num_hash_layers"), Bound(0, LAYERS.most)),
    **dict.fromkeys(("hc_mult", "hc_sinkhorn_iters"), Bound(1, 1 << 10)),
    **dict.fromkeys(
        ("conv_kernel", "conv_L_cache", "linear_conv_kernel_dim", "mamba_d_conv", "sconv_kernel_size"),
        Bound(1, 1 << 10),
    ),
    **dict.fromkeys(("chunk", "chunk_size", "mamba_chunk_size"), Bound(1, 1 << 16)),
    **dict.fromkeys(("block_size", "sparse_block_size", "index_block_size"), Bound(1, 1 << 16)),
    **dict.fromkeys(("sparse_topk_blocks", "index_topk_blocks"), Bound(1, 1 << 16)),
    **dict.fromkeys(("pool", "index_kpool", "indexer_compress_ratio"), Bound(1, 1 << 16)),
    **dict.fromkeys(("longest", "ngram_size"), Bound(2, 1 << 4)),
    **dict.fromkeys(("heads", "heads_per_ngram"), Bound(1, 1 << 6)),
    **dict.fromkeys(("least_rows", "ngram_vocab_size_base"), Bound(1, 1 << 30)),
    **dict.fromkeys(("divisor", "make_ngram_vocab_size_divisible_by"), Bound(1, 1 << 24)),
    **dict.fromkeys(("taps", "ple_conv_kernel_size"), Bound(1, 1 << 10)),
    **dict.fromkeys(("parts", "split_ngram_parts"), Bound(1, 1 << 16)),
    **dict.fromkeys(("count", "hc_count", "altup_num_inputs"), Bound(1, 1 << 10)),
    **dict.fromkeys(("active", "altup_active_idx"), Bound(0, 1 << 10)),
    **dict.fromkeys(("rank", "laurel_rank", "hc_lowrank", "ple_embed_dim", "indexer_head_dim"), WIDTH),
    "indexer_n_heads": HEADS,
    **dict.fromkeys(("router_width", "query_rank", "step_rank", "time_step_rank", "generator_size"), WIDTH),
    "head_padding": Bound(1, WIDTH.most + 64),
    "norm_groups": Bound(1, 1 << 16),
    "canvas": Bound(0, TOKENS.most),
    **dict.fromkeys(("local_blocks", "sparse_local_block", "index_local_blocks"), Bound(0, 1 << 16)),
    **dict.fromkeys(("sparse_num_index_heads", "index_n_heads"), HEADS),
    **dict.fromkeys(("sparse_index_dim", "index_head_dim", "dense_intermediate_size", "rotary_dim"), WIDTH),
    "top_k": Bound(1, WIDTH.most),  # of experts, and of keys in sparse attention
    **dict.fromkeys(("max_position", "max_position_embeddings", "sliding_window"), TOKENS),
    **dict.fromkeys(("model_max_length", "sliding_window_size", "loop_window_size"), TOKENS),
    **dict.fromkeys(("rel_extent", "extent"), TOKENS),
    **dict.fromkeys(("d_rel", "profiles", "n_shared_experts", "sinks"), Bound(0, 1 << 16)),
    **dict.fromkeys(("swa_num_attention_heads", "swa_num_key_value_heads"), HEADS),
    "n_routed_experts": EXPERTS,
    **dict.fromkeys(("swa_head_dim", "unpadded_vocab_size"), WIDTH),
}


def is_number(text: str) -> bool:
    """Whether `int` takes it, and in no time: it does not take every digit there is, such as a raised 2."""
    return text.isascii() and text.isdigit() and len(text) < 10


def is_set(variable: str | None) -> bool:
    """An environment flag as SGLang reads it."""
    return (variable or "").lower() in ("true", "1", "yes", "y")


def check_flags(record: Any, bounds: Mapping[str, Bound]) -> None:
    for name, bound in bounds.items():
        check_size("--" + name.replace("_", "-"), getattr(record, name, None), bound)


def check_model(*parts: Any) -> None:
    for part in parts:
        kind: Any = type(part)
        for name, bound in _bounds_of(kind):
            check_size(f"model.{name}", getattr(part, name, None), bound)


@cache
def _bounds_of(kind: type) -> tuple[tuple[str, Bound], ...]:
    """Of its own members, a dataclass's: some are made hundreds of times a plan."""
    own = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    return tuple((name, bound) for name, bound in MODEL.items() if name in own)


def check_size(name: str, value: Any, bound: Bound) -> None:
    """What is no whole number is for others to refuse."""
    if type(value) is int and not bound.least <= value <= bound.most:
        raise ConfigError(f"{name} is {_shown(value)}: it must be between {bound.least} and {bound.most}")


def _shown(value: int) -> str:
    """Python refuses to print a number of more than 4,300 digits."""
    return str(value) if abs(value) < 10**20 else "a number of more than 20 digits"

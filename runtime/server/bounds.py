"""Generous limits of each size in a command: a plan beyond them would only be long and wrong."""

from collections.abc import Mapping
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
ASKED: Mapping[str, Bound] = {
    **dict.fromkeys(("tp_size", "pp_size", "dp_size", "attn_dp_size", "ep_size", "nnodes"), RANKS),
    "moe_dense_tp_size": RANKS,
    "node_rank": PARALLEL["node_rank"],
    **SERVER,
    **dict.fromkeys(("max_total_tokens", "max_prefill_tokens"), TOKENS),
    **{f"speculative_{name}": bound for name, bound in SPECULATIVE.items()},
}
MODEL: Mapping[str, Bound] = {  # members of a config.json; any other whole number is a WIDTH
    "num_hidden_layers": LAYERS,
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "index_n_heads"), HEADS),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "mamba_num_heads"), HEADS),
    **dict.fromkeys(("mamba_n_groups", "n_groups"), HEADS),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"), EXPERTS),
    **dict.fromkeys(("n_group", "topk_group"), EXPERTS),
    **dict.fromkeys(("intermediate_size", "qk_rope_head_dim"), Bound(0, WIDTH.most)),
    **dict.fromkeys(("n_shared_experts", "first_k_dense_replace", "max_window_layers"), Bound(0, 1 << 16)),
    **dict.fromkeys(("conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"), Bound(1, 1 << 10)),
    "max_position_embeddings": TOKENS,
    "sliding_window": Bound(0, TOKENS.most),
}


def is_number(text: str) -> bool:
    """Whether `int` accepts the text: it refuses some digits, such as a raised 2, and long ones are slow."""
    return text.isascii() and text.isdigit() and len(text) < 10


def check_flags(record: Any, bounds: Mapping[str, Bound]) -> None:
    for name, bound in bounds.items():
        check_size("--" + name.replace("_", "-"), getattr(record, name, None), bound)


def check_size(name: str, value: Any, bound: Bound) -> None:
    """Refuse a whole number outside the bounds. Other values are refused elsewhere."""
    if type(value) is int and not bound.least <= value <= bound.most:
        # Python refuses to print numbers of more than 4,300 digits.
        shown = value if abs(value) < 10**20 else "a number of more than 20 digits"
        raise ConfigError(f"{name} is {shown}: it must be between {bound.least} and {bound.most}")

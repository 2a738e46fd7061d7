from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny


def _lettered(hf: HF) -> HF:
    every = hf["sliding_window_pattern"]
    return {**hf, "sliding_window_pattern": every if isinstance(every, str) else "L" * (every - 1) + "G"}


def _listed(hf: HF) -> HF:
    """As checkpoints have it, and SGLang asks."""
    return {**hf, "is_moe_layer": [kind == "sparse" for kind in hf["mlp_layer_types"]]}


_PATTERN = {"sliding_window": (1, 5, 64), "sliding_window_pattern": (1, 2, 4)}
TINY: dict[str, Tiny] = {}
TINY["exaone"] = Tiny(
    "ExaoneConfig",
    {"num_layers": 2, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False},
    {
        **choices.without(
            choices.HEADS, "num_hidden_layers", "rms_norm_eps", "hidden_act", "head_dim", "rope_parameters"
        ),
        "num_layers": (1, 2, 3),
        "num_hidden_layers": (None,) * 9 + (1, 2),
        "layer_norm_epsilon": (1e-6, 1e-2),
        "activation_function": (None, *("silu",) * 9, "gelu"),
        "rope_theta": (None, 500.0),
        "pad_token_id": (0,),
        "rope_scaling": (None,) * 2 + tuple(rope for rope in choices.ROPES if rope is not None),
    },
    spelled_apart=("num_hidden_layers",),
)
TINY["exaone4"] = Tiny(
    "Exaone4Config",
    {"sliding_window": 6, "sliding_window_pattern": 2},
    {**choices.HEADS, **_PATTERN, "head_dim": (None, None, 8, 32)},
    as_published=_lettered,
)
TINY["exaone_moe"] = Tiny(
    "ExaoneMoeConfig",
    {
        "head_dim": 32,
        "sliding_window": 6,
        "sliding_window_pattern": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    {
        **choices.HEADS,
        **choices.without(choices.SIGMOID, "n_routed_experts", "n_shared_experts"),
        **choices.NO_BIAS,
        **_PATTERN,
        "head_dim": (None, 8, 32),
        "num_experts": (8, 16),
        "num_shared_experts": (1, 2),
        "mlp_layer_types": (None,),
    },
    as_published=_listed,
)

from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny

_APART = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings")
_SPACE: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (1, 2, 3),
    "hidden_act": (*("silu",) * 9, "gelu"),
    "layer_norm_epsilon": (1e-6, 1e-2),
    "expand": (1, 2, 3),
    "state_size": (4, 8, 16),
    "conv_kernel": (2, 3, 4),
    "use_bias": (False, True),
    "use_conv_bias": (False, True),
    "residual_in_fp32": (False, True),
}
_SCAN = {
    **_SPACE,
    "time_step_rank": ("auto", 4, 12),
    "intermediate_size": (None,) * 3 + (32, 96),
    "tie_word_embeddings": (False, True),
    "use_associative_scan": (False, True),
}


def with_width(hf: HF) -> HF:
    """With what SGLang's class of Mamba-2 asks for, and transformers' has no more."""
    return {"intermediate_size": hf["num_heads"] * hf["head_dim"], "rms_norm": True, **hf}


TINY: dict[str, Tiny] = {}
TINY["mamba"] = Tiny("MambaConfig", {"state_size": 8}, _SCAN, spelled_apart=_APART)
TINY["falcon_mamba"] = Tiny(
    "FalconMambaConfig",
    {"state_size": 8, "tie_word_embeddings": False},
    {**_SCAN, "mixer_rms_eps": (1e-6, 1e-2)},
    spelled_apart=_APART,
)
TINY["mamba2"] = Tiny(
    "Mamba2Config",
    {"state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 4, "chunk_size": 8},
    {
        **_SPACE,
        **choices.NO_TIE,
        "expand": (2,),  # by which rows and heads have to be as wide
        "n_groups": (1, 2, 4),
        "chunk_size": (4, 8, 128),
        "time_step_limit": (None,) * 19 + ((0.1, 0.5),),
    },
    as_published=with_width,
    spelled_apart=_APART,
)

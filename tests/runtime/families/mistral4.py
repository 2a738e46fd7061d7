from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
_GROWS = {"llama_4_scaling_beta": 0.3, "original_max_position_embeddings": 4}
_ROPES = tuple(
    {"rope_theta": 500.0, **_GROWS, **rope}
    for rope in choices.MSCALES
    if rope is not None and rope["rope_type"] in ("yarn", "llama3")
)
TINY["mistral4"] = Tiny(
    "Mistral4Config",
    {**sizes.LATENT, "first_k_dense_replace": 1, "rope_parameters": {**sizes.YARN, **_GROWS}},
    {
        **choices.LATENT,
        "q_lora_rank": (None, 24),
        "rope_interleave": (True, False),
        "rope_parameters": _ROPES,
    },
)
_YARN = {
    "rope_type": "deepseek_yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "apply_yarn_scaling": False,
}
_ROUTED = {"topk_method": None, "scoring_func": "softmax", "routing_method_type": 1}
TINY["mistral_large_3"] = Tiny(
    "DeepseekV3Config",
    {
        **sizes.LATENT,
        **_ROUTED,
        **{"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.0},
        "rms_norm_eps": 1e-6,
        "rope_scaling": _YARN,
        "llama_4_scaling": {"original_max_position_embeddings": 4, "beta": 0.3},
    },
    {
        **choices.without(choices.LATENT, "rope_parameters", "topk_group"),
        "q_lora_rank": (None, 24),
        "norm_topk_prob": (True,) * 19 + (False,),
        "n_group": (1,) * 19 + (2,),
        "scoring_func": ("softmax",) * 19 + ("sigmoid",),
        "routing_method_type": (1,) * 19 + (2,),
        "rope_interleave": (True, False),
        "rope_scaling": tuple(
            {**_YARN, "mscale": over, "apply_yarn_scaling": applies, "beta_fast": fast}
            for over in (1.0, 0.707)
            for applies in (False, True)
            for fast in (16, 32)
        ),
        "llama_4_scaling": tuple(
            {"original_max_position_embeddings": length, "beta": grows}
            for length, grows in ((4, 0.3), (9, 0.1))
        ),
    },
)

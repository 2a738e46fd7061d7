from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny

_ONE_THING_EACH = (
    ["full_attention", "linear_attention", "linear_attention", "moe"],
    ["mlp", "linear_attention", "full_attention", "moe", "linear_attention"],
    ["moe", "linear_attention", "mlp", "full_attention"],
)


def with_groups(hf: HF) -> HF:
    """SGLang makes matrices by a name that transformers knows as the other's, and layers by their own."""
    name = "layers_block_type" if hf.get("layers_block_type") else "layer_types"
    kinds = [_SERVED.get(kind, kind) for kind in hf[name]]
    kept = {field: value for field, value in hf.items() if field != "layer_types"}
    return {**kept, "mamba_n_groups": hf["n_groups"], "layers_block_type": kinds}


_SERVED = {"linear_attention": "mamba", "full_attention": "attention"}


TINY: dict[str, Tiny] = {}
TINY["nemotron_h"] = Tiny(
    "NemotronHConfig",
    {
        "head_dim": 32,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "ssm_state_size": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "n_groups": 4,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 48,
        "moe_latent_size": 24,
    },
    {
        "num_hidden_layers": (None,),
        "layers_block_type": (None, *_ONE_THING_EACH),
        "num_attention_heads": (4, 8),
        "num_key_value_heads": (1, 2, 4),
        "head_dim": (8, 16, 32),
        "intermediate_size": (48, 96),
        "layer_norm_epsilon": (1e-6, 1e-2),
        "tie_word_embeddings": (False,) * 5 + (True,),
        "mlp_hidden_act": ("relu2",) * 9 + ("silu",),
        "mamba_hidden_act": ("silu",) * 9 + ("gelu",),
        "mlp_bias": (False,) * 5 + (True,),
        "attention_bias": (False, True),
        "use_bias": (False, True),
        "use_conv_bias": (False, True),
        "ssm_state_size": (8, 16),
        "mamba_num_heads": (4, 8),
        "mamba_head_dim": (8, 16),
        "n_groups": (1, 2, 4),
        "conv_kernel": (2, 3, 4),
        "chunk_size": (4, 8, 128),
        "time_step_min": (0.001, 0.3),
        "sliding_window": (*(None,) * 9, 4),
        **choices.EXPERTS,
        "n_routed_experts": (8, 16),
        "moe_intermediate_size": (16, 32),
        "moe_shared_expert_intermediate_size": (16, 48),
        "moe_latent_size": (None, 24, 32),
        "routed_scaling_factor": (1.0, 2.5),
        "n_group": (1, 2, 4),
        "topk_group": (1, 2),
        "norm_topk_prob": (True, False),
    },
    as_published=with_groups,
)

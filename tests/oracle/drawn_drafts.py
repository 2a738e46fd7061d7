"""Random config.json of drafts that have a class of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

HF = dict[str, Any]


def drawn_draft(architecture: str, dice: random.Random) -> HF:
    return {"architectures": [architecture], "torch_dtype": "bfloat16", **KINDS[architecture](dice)}


def _llama(dice: random.Random) -> HF:
    heads, layers = dice.choice((8, 16, 32)), dice.choice((1, 1, 1, 2, 3))
    told = {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": dice.choice((512, 1024)),
        "intermediate_size": dice.choice((256, 1536)),
        "max_position_embeddings": 2048,
        "num_attention_heads": heads,
        "num_key_value_heads": dice.choice((1, 2, 8, heads)),
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": dice.random() < 0.05,
        "vocab_size": dice.choice((1000, 32000, 32064)),
    }
    return told | _some(dice, head_dim=(32, 64, 128), rope_theta=(5e5,), attention_bias=(True, False))


def _eagle(dice: random.Random) -> HF:
    return _llama(dice) | _some(dice, bias=(True, False), rope_scaling=({"type": "linear", "factor": 2.0},))


def _qwen2_eagle(dice: random.Random) -> HF:
    told = _llama(dice) | {"model_type": "qwen2"}
    told.pop("attention_bias", None)
    return told | _some(
        dice, use_sliding_window=(False,), max_window_layers=(0, 28), sliding_window=(64, None)
    )


def _eagle3(dice: random.Random) -> HF:
    told = _llama(dice) | {"draft_vocab_size": dice.choice((None, 500, 16000)), "num_hidden_layers": 1}
    width = told["hidden_size"]
    own: HF = _some(
        dice,
        bias=(True,),
        num_aux_hidden_states=(2, 4),
        target_hidden_size=(width, 2 * width),
        norm_before_fc=(True, False),
        fc_norm=(True, False),
        norm_output=(True,),
        eagle_config=({"eagle_aux_hidden_state_layer_ids": [1, 3]}, {"norm_before_fc": True}, {}),
    )
    return told | own


def _latent_eagle3(dice: random.Random) -> HF:
    told = _eagle3(dice) | {"model_type": dice.choice(("deepseek_v3", "deepseek_v3", "kimi_k2"))}
    for name in ("num_aux_hidden_states", "norm_before_fc", "bias", "attention_bias", "head_dim"):
        told.pop(name, None)
    if "norm_before_fc" in told.get("eagle_config", {}):
        told["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [1, 4, 5, 9]}
    sizes = {
        "q_lora_rank": dice.choice((96, 128)),
        "kv_lora_rank": dice.choice((64, 512)),
        "qk_nope_head_dim": dice.choice((32, 128)),
        "qk_rope_head_dim": dice.choice((32, 64)),
        "v_head_dim": dice.choice((64, 128)),
    }
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "mscale": 1.0}
    rope = {**yarn, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0}
    experts = {"n_routed_experts": 8, "moe_intermediate_size": 64, "first_k_dense_replace": 1}
    return told | sizes | _some(dice, rope_scaling=(rope,)) | (experts if dice.random() < 0.3 else {})


def _dflash(dice: random.Random) -> HF:
    """Which of these a release's class asks for is told by what it makes of them."""
    told = _llama(dice) | {"model_type": dice.choice(("qwen3", "qwen3", "llama"))}
    layers = told["num_hidden_layers"] = dice.choice((1, 1, 3, 5))
    kinds = [dice.choice(("full_attention", "sliding_attention")) for _ in range(layers)]
    section: HF = _some(
        dice,
        block_size=(8, 16),
        mask_token=("<|MASK|>",),
        mask_token_id=(7,),
        target_layer_ids=([1, 4], [0, 2, 5], [3], [4, 1], [2, 2]),
        num_target_layers=(6, 36),
        projector_type=("domino",),
    )
    if dice.random() < 0.9:
        section.pop("projector_type", None)
    return told | {
        "dflash_config": section,
        **_some(
            dice,
            block_size=(4, 16),
            layer_types=(kinds, ["full_attention"] * layers),
            max_window_layers=(0, 28),
            num_target_layers=(8, 36),
            sliding_window=(64, None),
            use_sliding_window=(False, True),
        ),
    }


def _some(dice: random.Random, **fields: tuple[Any, ...]) -> HF:
    return {name: dice.choice(values) for name, values in fields.items() if dice.random() < 0.4}


KINDS: dict[str, Callable[[random.Random], HF]] = {
    "LlamaForCausalLMEagle3": _eagle3,
    "LlamaForCausalLMEagle": _eagle,
    "Qwen2ForCausalLMEagle": _qwen2_eagle,
    "Eagle3DeepseekV2ForCausalLM": _latent_eagle3,
    "DFlashDraftModel": _dflash,
}

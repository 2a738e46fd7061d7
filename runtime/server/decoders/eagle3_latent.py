"""EAGLE3 drafts that keep latents: srt/models/kimi_k25_eagle3.py. One layer of DeepSeek-V3, without experts
whatever the file tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.deepseek import V3
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.parts import latents, model
from runtime.server.errors import Unsupported
from runtime.server.layer_config import FusionConfig

ARCHITECTURE = "Eagle3DeepseekV2ForCausalLM"
_STATES = 3
_MODEL_TYPES = ("deepseek_v3", "kimi_k2")
# Its class does not ask for these, or no size follows from the answer.
_WITHOUT_SIZE = frozenset(
    (
        *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range", "pretraining_tp"),
        *("attention_dropout", "quantization_config", "target_model_type", "num_key_value_heads"),
        *("aux_loss_alpha", "seq_aux", "ep_size", "first_k_dense_replace", "moe_intermediate_size"),
        *("moe_layer_freq", "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob"),
        *("num_experts_per_tok", "routed_scaling_factor", "scoring_func", "topk_group", "topk_method"),
        *("head_dim", "qk_head_dim"),
    )
)
_READ = frozenset(("eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state"))


def read_latent_eagle3(hf: HF) -> ModelConfig:
    kind = hf.get("model_type")
    if kind not in _MODEL_TYPES:
        known = " and ".join(_MODEL_TYPES)
        raise Unsupported(f"{ARCHITECTURE} of model_type {kind!r}: here are drafts of {known}")
    f = Fields(hf, V3)
    section = f.section("eagle_config")
    attention, mla = latents(f, f.get("rope_interleave") is None or f.flag("rope_interleave"))
    if mla.q_lora_rank is None:
        f.cannot("q_lora_rank is null: SGLang ends at it")
    if f.get("num_hidden_layers") != 1:
        f.cannot(f"num_hidden_layers is {f.get('num_hidden_layers')!r}: SGLang ends at it")
    f.only("tie_word_embeddings", False)
    f.only("bias", False)
    found = model(
        f,
        {"full": replace(attention, inputs=2)},
        ["full"],
        ["dense"],
        mla=mla,
        norms="joined",
        fusion=_fusion(f, section),
        head_vocab=f.size_or_none("draft_vocab_size"),
    )
    unread = (f"config.json: {name} is not read here" for name in _unread(f, hf, section))
    return replace(found, obstacles=(*found.obstacles, *unread))


def _fusion(f: Fields, section: HF) -> FusionConfig:
    told = Fields(section, {})
    layers = tuple(sorted(told.layer_numbers("eagle_aux_hidden_state_layer_ids")))
    if told.tells("eagle_aux_hidden_state_layer_ids") and not layers:
        f.cannot("eagle_aux_hidden_state_layer_ids is empty: SGLang ends at it")
    return FusionConfig(
        states=len(layers) or _STATES,
        width=f.size("target_hidden_size", f.size("hidden_size")),
        norms_each=any([f.flag("fc_norm"), f.flag("use_aux_norm")]),
        gives_normed=f.flag("norm_output"),
        is_fed=told.flag("use_aux_hidden_state") if "use_aux_hidden_state" in section else True,
        layers=layers,
        split=True,
    )


def _unread(f: Fields, hf: HF, section: HF) -> Iterator[str]:
    """What is null says nothing."""
    told = {name for name, value in hf.items() if value is not None}
    yield from sorted(told - f.seen - _WITHOUT_SIZE)
    own = {name for name, value in section.items() if value is not None}
    yield from (f"eagle_config: {name}" for name in sorted(own - _READ))

"""EAGLE3 drafts: srt/models/llama_eagle3.py. One layer of Llama that attends to a token's embedding beside
what the target made of the token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.llama import FAMILIES as LLAMA
from runtime.server.decoders.llama4 import FAMILIES as LLAMA4
from runtime.server.decoders.parts import heads, model
from runtime.server.errors import Unsupported
from runtime.server.layer_config import FusionConfig

ARCHITECTURE = "LlamaForCausalLMEagle3"
_DEFAULTS = {family.model_type: family.defaults for family in (*LLAMA, *LLAMA4)}
_STATES = 3
# Neither the class nor those it is made of ask for these, or no size follows from the answer.
_WITHOUT_SIZE = frozenset(
    (
        *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range", "pretraining_tp"),
        *("attention_dropout", "mlp_bias", "quantization_config", "target_model_type", "length"),
        *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "modal_type"),
    )
)
_CONFIG_WITHOUT_SIZE = frozenset(
    (
        *("use_input_layernorm_in_first_layer", "use_last_layernorm", "use_mtp_layernorm"),
        *("next_layer_regular", "parallel_draft_step", "parallel_draft_heads_num_layers"),
    )
)


def read_eagle3(hf: HF) -> ModelConfig:
    kind = str(hf.get("model_type", ""))
    if kind not in ("llama", "llama4_text"):
        raise Unsupported(f"{ARCHITECTURE} of model_type {kind!r}: here are drafts of llama and llama4_text")
    if "draft_vocab_size" not in hf:
        raise Unsupported("config.json: draft_vocab_size is not told: SGLang ends at it")
    f = Fields(hf, _DEFAULTS[kind])
    whole, bias = f.section("eagle_config"), f.flag("attention_bias") or f.flag("bias")
    fusion = _fusion(f, whole)
    attention = heads(f, output_bias=bias, inputs=2)
    width = "intermediate_size_mlp" if kind == "llama4_text" else "intermediate_size"
    f.only("tie_word_embeddings", False)
    own = {
        "norms": "joined",
        "fusion": fusion,
        "intermediate_size": f.size(width),
        "head_vocab": f.size_or_none("draft_vocab_size"),
    }
    layers = f.size("num_hidden_layers")
    if layers != 1:
        f.cannot(f"num_hidden_layers is {layers}: this runtime computes EAGLE3 drafts of one layer")
    found = model(f, {"full": attention}, ["full"], ["dense"], **own)
    unread = (f"config.json: {name} is not read here" for name in _unread(f, hf, whole))
    return replace(found, obstacles=(*found.obstacles, *unread))


def _fusion(f: Fields, section: HF) -> FusionConfig:
    """eagle_config is asked before what stands beside it for one field, and after it for another."""
    told = Fields(section, {})
    layers = tuple(sorted(told.layer_numbers("eagle_aux_hidden_state_layer_ids")))
    states = f.size("num_aux_hidden_states", len(layers) or _STATES)
    outside = f.flag("norm_before_fc")
    return FusionConfig(
        states=states,
        width=f.size("target_hidden_size", f.size("hidden_size")),
        bias=f.flag("bias"),
        norms_whole=told.flag("norm_before_fc") if "norm_before_fc" in section else outside,
        norms_each=f.flag("fc_norm") or f.flag("use_aux_norm"),
        gives_normed=f.flag("norm_output"),
        is_fed=told.flag("use_aux_hidden_state") if "use_aux_hidden_state" in section else True,
        layers=layers,
    )


def _unread(f: Fields, hf: HF, section: HF) -> Iterator[str]:
    known = {"eagle_aux_hidden_state_layer_ids", "norm_before_fc", "use_aux_hidden_state"}
    yield from sorted(_told(hf) - f.seen - _WITHOUT_SIZE)
    yield from (f"eagle_config: {name}" for name in sorted(_told(section) - known - _CONFIG_WITHOUT_SIZE))


def _told(section: Mapping[str, Any]) -> set[str]:
    """What is null says nothing."""
    return {name for name, value in section.items() if value is not None}

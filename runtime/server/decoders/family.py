"""A family of models: its name in a config.json, and how its fields become layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import Fields

# Of training, of generation, of bookkeeping: no forward depends on them.
HARMLESS = frozenset(
    (
        *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
        *("attention_dropout", "classifier_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop"),
        *("initializer_range", "use_cache", "pretraining_tp", "router_jitter_noise", "input_jitter_noise"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
        *("output_router_logits", "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "z_loss_coeff"),
        *("is_encoder_decoder", "chunk_size_feed_forward", "problem_type", "id2label", "label2id"),
        *("return_dict", "output_hidden_states", "output_attentions", "model_type", "quantization_config"),
        *("num_mtp_layers", "num_nextn_predict_layers", "ep_size"),
    )
)


@dataclass(frozen=True, slots=True)
class Family:
    """`defaults` are the config class's, of the optional fields; `harmless` matter in no forward of it."""

    model_type: str
    read: Callable[[Fields], ModelConfig]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()

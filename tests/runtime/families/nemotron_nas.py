from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny


def _block(group: int, share: float) -> dict[str, Any]:
    """Neither heads that ask one, nor a share: none of it."""
    attention = {"no_op": not group, "n_heads_in_group": group or None, "window_length": None}
    return {"attention": attention, "ffn": {"no_op": not share, "ffn_mult": share or None, "sparsify": None}}


def _blocks(*told: tuple[int, float]) -> list[dict[str, Any]]:
    return [_block(group, share) for group, share in told]


_USUAL = _blocks((2, 7.0), (0, 0.5), (2, 0), (2, 0.5))
TINY: dict[str, Tiny] = {}
TINY["nemotron-nas"] = Tiny(
    "DeciLMConfig",
    {
        "num_hidden_layers": 4, "block_configs": _USUAL, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "num_key_value_heads": None, "intermediate_size": None, "tie_word_embeddings": False,
    },
    {
        **choices.without(
            choices.HEADS, "num_hidden_layers", "num_key_value_heads", "intermediate_size", "rope_parameters"
        ),
        "block_configs": (
            _USUAL,
            _blocks((4, 0), (0, 7.0), (0, 0), (4, 0.5)),
            _blocks((1, 0.5), (0, 0), (0, 7.0), (0, 12.0)),
            _blocks((0, 0.5), (2, 0), (0, 0), (2, 0)),
            _blocks((0, 0), (4, 7.0), (4, 0.5), (4, 7.0)),
            _blocks((4, 7.0), (2, 7.0), (1, 0.5), (4, 0)),
            _blocks((0, 7.0), (0, 0), (0, 0.5), (0, 0)),
        ),
        "rope_scaling": (None,) * 2 + tuple(rope for rope in choices.ROPES if rope is not None),
        "rope_theta": (None, 500.0),
        "attention_bias": (False, True),
        "mlp_bias": (None, *(False,) * 9, True),
        "original_max_position_embeddings": (*(None,) * 9, 64),
    },
)  # fmt: skip

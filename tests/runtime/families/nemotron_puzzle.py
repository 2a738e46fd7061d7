from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.nemotron_h import TINY as NEMOTRON_H
from tests.runtime.families.tiny import Tiny

_KINDS = {"M": "mamba", "*": "attention", "-": "mlp"}


def _block(told: str | tuple[int, int], **other: Any) -> dict[str, Any]:
    """A letter, or how wide experts are and how many of them a token asks."""
    if isinstance(told, str):
        return {"block_type": _KINDS[told]}
    sizes = {"moe_intermediate_size": told[0], "num_experts_per_tok": told[1], "n_routed_experts": 8}
    return {"block_type": "moe", **sizes, **other}


def _each(*told: str | tuple[int, int], **other: Any) -> list[dict[str, Any]]:
    """Of experts all tell the same beside."""
    return [_block(one) if isinstance(one, str) else _block(one, **other) for one in told]


_TOLD = "M", (32, 2), "*", (16, 1), "-", (32, 2), "M", (48, 3)
_USUAL = _each(*_TOLD)
_WORDS = [block["block_type"] for block in _USUAL]
_SIZES = {
    name: size
    for name, size in NEMOTRON_H["nemotron_h"].sizes.items()
    if name not in ("layers_block_type", "moe_intermediate_size", "num_experts_per_tok")
}
TINY: dict[str, Tiny] = {}
TINY["nemotron_h_puzzle"] = Tiny(
    "NemotronHPuzzleConfig",
    {**_SIZES, "block_configs": _USUAL, "layers_block_type": _WORDS, "mamba_n_groups": 4},
    {
        **choices.without(
            dict(NEMOTRON_H["nemotron_h"].space),
            *("layers_block_type", "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok"),
            *("num_hidden_layers", "n_group", "topk_group"),
        ),
        "n_group": (1, 2),
        "block_configs": (
            *(
                _USUAL,
                _each(*_TOLD, moe_latent_size=16),
                _each(*_TOLD, moe_shared_expert_intermediate_size=24),
            ),
            _each("M", (16, 3), "*", (64, 2), "-", (24, 1), "M", (64, 2)),
            _each("M", (16, 1), "*", (16, 1), "-", (16, 1), "M", (16, 1), n_shared_experts=1),
            [
                {**one, "num_key_value_heads": 2} if one["block_type"] == "attention" else one
                for one in _USUAL
            ],
        ),
        "layers_block_type": (*(_WORDS,) * 19, None),
        "sliding_window": (*(None,) * 19, 4),
    },
    alike={"mamba_n_groups": "n_groups"},
)

"""What a fused MoE without its last step returns if its module is not there: padded rows, weights, places."""

import sys
from typing import Any

from runtime.ghost.inside.answers import ANSWERS, Answer

TILE = 128
WHY = f"the module is not there; what it allocates is not known, and its rows are taken for tiles of {TILE}"
_OF = ("do_finalize", "hidden_states", "hidden_size", "num_experts", "top_k")
_KINDS = ("bf16", "fp4_block_scale", "fp8_block_scale", "fp8_per_channel_scale", "fp8_per_tensor_scale")


def _results(*_: Any) -> Any:
    """Return None if FlashInfer, whose variables tell the sizes, reads nothing of it."""
    import torch

    frame, told = sys._getframe(2), dict[str, Any]()
    while frame is not None and len(told) < len(_OF):
        told = {name: frame.f_locals[name] for name in _OF if name in frame.f_locals} | told
        frame = frame.f_back  # type: ignore[assignment]
    if told.get("do_finalize", True) or len(told) < len(_OF):
        return None
    states, top_k = told["hidden_states"], told["top_k"]
    places = states.new_empty(states.shape[0] * top_k, dtype=torch.int32)
    padded = len(places) + min(len(places), told["num_experts"]) * (TILE - 1)
    rows = states.new_empty((padded // TILE * TILE, told["hidden_size"]), dtype=torch.bfloat16)
    return rows, states.new_empty((states.shape[0], top_k), dtype=torch.bfloat16), places


ANSWERS.update({f"trtllm_{kind}_moe": Answer(_results, WHY) for kind in _KINDS})

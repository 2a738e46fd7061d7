"""How much of its weights a server keeps in the host's memory: --cpu-offload-gb, where it is followed."""

from __future__ import annotations

from runtime.server.asked import Asked
from runtime.server.units import GIB

_LOADED_AS_USUAL = ("auto", "safetensors", "pt", "dummy")


def budget_of(asked: Asked, compiles: bool) -> int:
    """Bytes that a rank may have elsewhere: none where nobody here knows what becomes of them. `compiles`: in
    pieces of torch.compile its prefills run."""
    compiles = compiles or asked.enable_torch_compile
    adapts = asked.enable_lora or bool(asked.lora_paths)
    drafts = asked.speculative_algorithm is not None
    moves = asked.enable_eplb or asked.ep_num_redundant_experts > 0
    overlaps = asked.enable_two_batch_overlap or asked.enable_single_batch_overlap
    by_another_way = asked.load_format not in _LOADED_AS_USUAL
    if compiles or adapts or drafts or moves or overlaps or by_another_way:
        return 0
    return max(0, asked.cpu_offload_gb) * GIB

"""The memory that tuning FlashInfer's CUTLASS MoE leaves: the buffer in which it profiled the last bucket.

Sizes follow FlashInfer 0.7.2's sources. The kernel's runner lives as long as the process and holds one such
buffer; it frees that buffer only after it has allocated the next bucket's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime.server.buckets import tuning_buckets

_ROUTINGS = 16  # synthetic routings, each with its maps from slots to rows
_GEMM_VARIANTS = _ROUTINGS * 2 * 2 + 1  # each routing with and without fusion and swapped operands
_DESCRIPTORS = 22  # arrays of pointers, strides and shapes, an element an expert


@dataclass(frozen=True, slots=True)
class ProfiledShape:
    experts: int  # of this rank
    hidden: int
    intermediate: int
    top_k: int
    weight_bytes: int
    output_bytes: int

    def bytes(self, gemm: int, tokens: int) -> int:
        slots = tokens * self.top_k
        if gemm == 1:
            data = slots * (self.hidden + self.intermediate) * self.weight_bytes
            between = slots * 2 * self.intermediate * self.output_bytes
        else:
            data = slots * self.intermediate * self.weight_bytes + self.hidden * self.output_bytes
            between = slots * self.hidden * self.output_bytes
        maps = (3 * _ROUTINGS + 2) * slots * 4 + self.experts * tokens * 4
        pointers = _GEMM_VARIANTS * _DESCRIPTORS * (-(-self.experts * 16 // 128) * 128)
        return data + between + maps + pointers


def hold_profile_workspace(shape: ProfiledShape, tune_max: int) -> torch.Tensor:
    """Make the same allocations on meta, in the same order, and return the buffer that stays."""
    held = torch.empty(0, dtype=torch.int8, device="meta")
    for gemm in (1, 2):
        for tokens in tuning_buckets(tune_max):
            held = torch.empty(shape.bytes(gemm, tokens), dtype=torch.int8, device="meta")
    return held

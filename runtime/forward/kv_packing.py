"""Bytes of one token under sparse attention: fp8 values packed with their scales, one uint8 row per token.

latent row:  kv_lora_rank fp8 | one fp32 scale per block of 128 | rotary part in bfloat16
indexer row: head_dim fp8     | one fp32 scale per block of 128
"""

from dataclasses import dataclass

import torch

from runtime.server.sizes.sizing import FP8_BLOCK, packed_fp8_bytes

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0


@dataclass(frozen=True, slots=True)
class PackedRow:
    """A row of `quantized` values in fp8 with one scale per block, followed by `plain` values in bfloat16."""

    quantized: int
    plain: int = 0

    @property
    def block(self) -> int:
        return min(FP8_BLOCK, self.quantized)

    @property
    def blocks(self) -> int:
        return self.quantized // self.block

    @property
    def bytes(self) -> int:
        return packed_fp8_bytes(self.quantized, self.plain)

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        """Pack values [..., quantized + plain] into bytes [..., bytes] uint8."""
        blocks = values[..., : self.quantized].float().unflatten(-1, (self.blocks, self.block))
        scales = blocks.abs().amax(-1).clamp(min=1e-4) / FP8_MAX
        quantized = (blocks / scales[..., None]).to(FP8).flatten(-2)
        plain = values[..., self.quantized :].to(torch.bfloat16)
        parts = (quantized.contiguous(), scales.contiguous(), plain.contiguous())
        return torch.cat([part.view(torch.uint8) for part in parts if part.shape[-1]], dim=-1)

    def views(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return views of rows [..., bytes] uint8: fp8 values, their scales, and the bfloat16 values."""
        after_scales = self.quantized + 4 * self.blocks
        return (
            rows.view(FP8)[..., : self.quantized],
            rows.view(torch.float32)[..., self.quantized // 4 : after_scales // 4],
            rows.view(torch.bfloat16)[..., after_scales // 2 :],
        )

    def unpack(self, rows: torch.Tensor) -> torch.Tensor:
        """Unpack rows [..., bytes] uint8 into values [..., quantized + plain] fp32."""
        quantized, scales, plain = self.views(rows)
        blocks = quantized.float().unflatten(-1, (self.blocks, self.block)) * scales[..., None]
        return torch.cat([blocks.flatten(-2), plain.float()], dim=-1)

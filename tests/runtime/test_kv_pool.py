"""Packed rows of the KV pool."""

import pytest
import torch

from runtime.forward.kv_packing import PackedRow


@pytest.mark.parametrize(
    "row, nbytes", [(PackedRow(512, 64), 656), (PackedRow(128), 132), (PackedRow(32, 8), 52)]
)
def test_packed_rows_keep_values_to_fp8_precision(row, nbytes):
    torch.manual_seed(0)
    values = torch.randn(50, 1, row.quantized + row.plain) * torch.logspace(-3, 3, 50)[:, None, None]
    packed = row.pack(values)
    assert packed.shape == (50, 1, nbytes) and row.bytes == nbytes and packed.dtype is torch.uint8
    error = (row.unpack(packed) - values).abs()
    quantized, plain = error[..., : row.quantized], error[..., row.quantized :]
    blocks = values[..., : row.quantized].unflatten(-1, (row.blocks, row.block))
    step = blocks.abs().amax(-1, keepdim=True).expand(blocks.shape).flatten(-2) / 448
    assert (quantized <= values[..., : row.quantized].abs() / 16 + step).all()
    assert (plain <= values[..., row.quantized :].abs() / 256).all()


def test_views_of_packed_rows_write_through():
    row = PackedRow(256, 16)
    rows = row.pack(torch.randn(3, 256 + 16))
    _, scales, plain = row.views(rows)
    scales.mul_(2)
    plain.zero_()
    assert row.unpack(rows)[:, 256:].eq(0).all() and scales.shape == (3, 2)

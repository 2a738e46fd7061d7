"""What libraries take when they are first used, made to happen at a known step."""

from __future__ import annotations

import torch
from torch import nn

from runtime.devices.base import Device
from runtime.moe.router import Router
from runtime.server.deepep import DeepEP


def open_deepep(asked: DeepEP, ranks: int, hidden: int, experts: int, device: Device) -> None:
    """DeepEP makes its buffers at the first dispatch: the KV cache was sized without them."""
    buffers = asked.buffers(ranks, hidden, experts)
    claims = {
        "NVLink buffer": buffers.nvlink,
        "NVSHMEM heap": buffers.heap,
        "workspace": buffers.workspace,
    }
    for name, size in claims.items():
        if size:
            device.claim(f"DeepEP's {name}:{size}")


def copy_routers(model: nn.Module) -> None:
    """Those that keep what they are stored as multiplied by in float32."""
    for module in model.modules():
        if isinstance(module, Router):
            module.copy_wide()


def start_cublas(device: Device) -> None:
    """A small product makes cuBLAS load and take its workspace."""
    device.claim("cublas")
    ones = torch.ones(16, 16, device=device.torch_device)
    torch.mm(ones, ones)

"""What libraries take when they are first used, made to happen at a known step."""

from __future__ import annotations

import torch

from runtime.devices.base import Device
from runtime.forward.comm import Communicator
from runtime.server.deepep import DeepEP

COLLECTIVE_GROUPS = ("tp", "attn_tp", "attn_dp", "moe_tp", "moe_ep")


def open_channels(comm: Communicator, device: Device) -> None:
    """NCCL takes its buffers at the first collective of a group."""
    device.claim(f"nccl:{max(comm.size(group) for group in COLLECTIVE_GROUPS)}")
    one = torch.zeros(1, device=device.torch_device)
    for group in COLLECTIVE_GROUPS:
        comm.all_reduce(one, group)


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


def start_cublas(device: Device) -> None:
    """A small product makes cuBLAS load and take its workspace."""
    device.claim("cublas")
    ones = torch.ones(16, 16, device=device.torch_device)
    torch.mm(ones, ones)

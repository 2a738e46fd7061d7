"""What libraries take when they are first used, made to happen at a known step."""

from __future__ import annotations

import torch

from runtime.devices.base import Device
from runtime.forward.comm import Communicator

COLLECTIVE_GROUPS = ("tp", "attn_tp", "attn_dp", "moe_tp", "moe_ep")


def open_channels(comm: Communicator, device: Device) -> None:
    """NCCL takes its buffers at the first collective of a group."""
    device.claim(f"nccl:{max(comm.size(group) for group in COLLECTIVE_GROUPS)}")
    one = torch.zeros(1, device=device.torch_device)
    for group in COLLECTIVE_GROUPS:
        comm.all_reduce(one, group)


def start_cublas(device: Device) -> None:
    """A small product makes cuBLAS load and take its workspace."""
    device.claim("cublas")
    ones = torch.ones(16, 16, device=device.torch_device)
    torch.mm(ones, ones)

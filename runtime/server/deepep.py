"""How large DeepEP's buffers are, by its own hints: deepseek-ai/DeepEP at 79bbb54, csrc/config.hpp,
csrc/deep_ep.cpp and deep_ep/buffer.py; asked as srt/layers/moe/token_dispatcher/deepep.py asks for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.units import MIB

MOST_DISPATCHED = 1024  # tokens of a rank: SGLang asserts it
UNSET_TOKENS = 128
_NODE = 8  # ranks that reach each other by NVLink
_ALIGNMENT = 128
_WORKSPACE = 32 * MIB
_PAGE = 2 * MIB  # of the driver
_SMS = 20
# A slot beside its row: where it came from, room for 128 experts with their weights, and for 128 scales.
_SOURCE, _CHOICES, _SCALES = 8, 128 * (8 + 4), 128 * 4
_CONTROL = 16
# NVSHMEM's heap grows by these: DeepEP sets NVSHMEM_CUMEM_GRANULARITY.
HEAP_UNIT = 512 * MIB


@dataclass(frozen=True, slots=True)
class Config:
    """One direction of the normal mode: tokens that are sent and received at a time, over either network."""

    num_sms: int = _SMS
    num_max_nvl_chunked_send_tokens: int = 6
    num_max_nvl_chunked_recv_tokens: int = 256
    num_max_rdma_chunked_send_tokens: int = 6
    num_max_rdma_chunked_recv_tokens: int = 256

    def nvlink_bytes(self, hidden_bytes: int, ranks: int) -> int:
        nodes, channels = max(ranks // _NODE, 1), self.num_sms // 2 * min(ranks, _NODE)
        slot = hidden_bytes + _SOURCE + _CHOICES + _SCALES
        flags = 4 * (2 * nodes + 3)
        return _align(channels * (flags + self.num_max_nvl_chunked_recv_tokens * slot))

    def rdma_bytes(self, hidden_bytes: int, ranks: int) -> int:
        if ranks <= _NODE:
            return 0
        slot = hidden_bytes + _SOURCE + _CHOICES + _SCALES + _CONTROL
        flags = 4 * (2 * _NODE + 2)
        channels = self.num_sms // 2 * (ranks // _NODE)
        return _align(2 * channels * (flags + self._rdma_slots * slot))

    @property
    def _rdma_slots(self) -> int:
        sent = self.num_max_rdma_chunked_send_tokens
        return -(-self.num_max_rdma_chunked_recv_tokens // sent) * sent


def _between(nodes: tuple[tuple[int, int, int], ...]) -> dict[int, tuple[Config, ...]]:
    """ranks, what is received over NVLink, and what is sent by RDMA until 128 are received."""
    return {
        ranks: (
            Config(
                num_max_nvl_chunked_recv_tokens=received,
                num_max_rdma_chunked_send_tokens=sent,
                num_max_rdma_chunked_recv_tokens=128,
            ),
        )
        for ranks, received, sent in nodes
    }


# Those of a dispatch: a combine sends fewer at a time, and takes no more.
DEFAULTS: Mapping[int, tuple[Config, ...]] = {
    **dict.fromkeys((2, 4, _NODE), (Config(),)),
    **_between((
        *((16, 288, 20), (24, 288, 8), (32, 288, 8), (48, 288, 8), (64, 288, 8)),
        *((96, 480, 12), (128, 560, 12), (144, 720, 12), (160, 720, 12)),
    )),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Buffers:
    """What a rank takes at its first dispatch, none of it through torch."""

    nvlink: int
    heap: int
    workspace: int = _WORKSPACE


@dataclass(frozen=True, slots=True)
class DeepEP:
    """As a server asks for it. `configs` are --deepep-config's; `unread` is one that is a file."""

    mode: str = "auto"
    tokens: int = UNSET_TOKENS  # of a rank, in a dispatch with low latency
    in_bf16: bool = False  # rows travel as they are, whatever the experts' weights
    configs: tuple[Config, Config] | None = None
    unread: str | None = None

    @property
    def has_normal(self) -> bool:
        return self.mode in ("auto", "normal")

    @property
    def has_low_latency(self) -> bool:
        return self.mode in ("auto", "low_latency")

    def is_normal(self, is_extend: bool) -> bool:
        return self.mode == "normal" or (self.mode == "auto" and is_extend)

    def buffers(self, ranks: int, hidden: int, experts: int) -> Buffers:
        nvlink = rdma = 0
        if self.has_normal:
            configs = self._configs(ranks)
            nvlink = max(config.nvlink_bytes(2 * hidden, ranks) for config in configs)
            rdma = max(config.rdma_bytes(2 * hidden, ranks) for config in configs)
        if self.has_low_latency:
            rdma = max(rdma, low_latency_bytes(self.tokens, hidden, experts))
        return Buffers(-(-nvlink // _PAGE) * _PAGE, heap_bytes(rdma))

    def _configs(self, ranks: int) -> tuple[Config, ...]:
        if self.configs is None and ranks not in DEFAULTS:
            raise ConfigError(
                f"--moe-a2a-backend deepep has no config for {ranks} ranks",
                f"--tp {min(DEFAULTS, key=lambda known: abs(known - ranks))}, or --deepep-config",
            )
        return self.configs or DEFAULTS[ranks]


def low_latency_bytes(tokens: int, hidden: int, experts: int) -> int:
    """Two buffers to send from and two to receive in, of as many tokens for every expert there is."""
    if not 0 < tokens <= MOST_DISPATCHED:
        raise ConfigError(f"DeepEP dispatches at most {MOST_DISPATCHED} tokens a rank, not {tokens}")
    row = 2 * hidden + 4 * (
        hidden // 128
    )  # of a combine: a dispatched one of what its kernels take is smaller
    total = 2 * (2 * experts * tokens * row + _align(4 * experts))
    return (total + _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT


def heap_bytes(rdma: int) -> int:
    """A unit for what NVSHMEM needs itself, and as many as hold the buffer."""
    return 0 if not rdma else HEAP_UNIT * (1 + -(-(rdma + _ALIGNMENT) // HEAP_UNIT))


def configs_of(text: str) -> tuple[Config, Config] | None:
    """--deepep-config where it is JSON itself; None where it names a file."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    try:
        return _config(told["normal_dispatch"]), _config(told["normal_combine"])
    except (KeyError, TypeError) as error:
        raise ConfigError(f"--deepep-config: {error} is not as DeepEP takes it") from error


def _config(told: Mapping[str, Any]) -> Config:
    config = Config(**told)
    sizes = [getattr(config, name) for name in config.__slots__]
    if not all(type(size) is int and 0 < size < 1 << 20 for size in sizes):
        raise TypeError(f"{dict(told)}")
    return config


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT

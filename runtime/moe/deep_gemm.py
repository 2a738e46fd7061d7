"""What SGLang's DeepGEMM experts allocate, in SGLang's order, on tensors without memory: the kernels
themselves are not here. srt/layers/moe/moe_runner/deep_gemm.py

Scales are fp32 as on Hopper; Blackwell packs them into a quarter.
"""

from __future__ import annotations

import torch

from runtime.forward.dp_attention import dp_buffer_len
from runtime.moe.backends import MoEBackend
from runtime.moe.deepep import ALIGNMENT, Received
from runtime.moe.sizes_alone import launch
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel import RankLayout

_MASKED_UNIT = 256  # of the rows that every expert has room for
_GROUP = 128
_FEW_EXPERTS = 32
_BUDGET = 4  # the masked layout may take a quarter of what is free: unless the environment says otherwise


class DeepGemmBackend(MoEBackend):
    def __init__(self, model: ModelConfig, runtime: RuntimeConfig, layout: RankLayout) -> None:
        super().__init__(model, runtime, layout)
        self.budget = 0

    def tell_free(self, nbytes: int) -> None:
        self.budget = nbytes // _BUDGET

    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        if not isinstance(topk, Received):
            return self._of_all_rows(x, topk, weights)
        if topk.expert_rows is None:
            return self._masked(x, topk.scales, weights)
        return self._of_received(x, topk, topk.expert_rows, weights)

    def _of_received(
        self, x: torch.Tensor, topk: Received, rows: int, weights: ExpertWeights
    ) -> torch.Tensor:
        """DeepEP's normal mode: a row that came is copied to each of its experts here."""
        inputs = x.new_empty(rows, x.shape[1])
        scales = x.new_empty(rows, _groups(x.shape[1]), dtype=torch.float32)
        m_indices, order = x.new_empty(rows, dtype=torch.int32), torch.empty_like(topk.ids)
        launch(inputs, scales, m_indices, order)
        shape = x.shape
        self._dispose(x, topk.scales)
        down = self._contiguous(inputs, scales, weights)
        gathered = x.new_empty(shape, dtype=torch.bfloat16)
        launch(gathered, down)
        return gathered

    def _of_all_rows(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        """Without an all-to-all: every rank sees all rows, and skips those that are not for its experts."""
        run = self._of_masked_rows if self._masks(x, weights) else self._of_compact_rows
        down = run(x, topk, weights)
        out = torch.empty_like(x)
        launch(out)
        self._dispose(down)
        return out

    def _of_masked_rows(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        """Any expert has room for all rows."""
        room = masked_rows(x.shape[0])
        order = x.new_empty(topk.ids.numel(), dtype=torch.int32)
        kind = _kind(weights)
        inputs = x.new_empty(weights.local, room, x.shape[1], dtype=kind)
        scales = None
        if kind is not x.dtype:
            own = _quantized(x, kind)
            scales = x.new_empty(weights.local, room, _groups(x.shape[1]), dtype=torch.float32)
            launch(order, inputs, scales)
            del own
        return self._masked(inputs, scales, weights)

    def _of_compact_rows(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        """As many as any routing could need."""
        rows, kind = compact_rows(topk.ids.numel(), weights.local), _kind(weights)
        own = _quantized(x, kind) if kind is not x.dtype else ()
        inputs = x.new_empty(rows, x.shape[1], dtype=kind)
        scales = x.new_empty(rows, _groups(x.shape[1]) if own else 1, dtype=torch.float32)
        m_indices, order = x.new_empty(rows, dtype=torch.int32), torch.empty_like(topk.ids)
        launch(inputs, scales, m_indices, order)
        self._dispose(*own)
        return self._contiguous(inputs, scales, weights)

    def _masked(self, x: torch.Tensor, scales: torch.Tensor | None, weights: ExpertWeights) -> torch.Tensor:
        """[experts, rows, H] -> the same in bf16; `x` is given up on the way."""
        experts, rows, hidden = x.shape
        gate_up = x.new_empty(experts, rows, weights.w13.shape[1], dtype=torch.bfloat16)
        launch(gate_up)
        self._dispose(x, scales)
        inner = gate_up.new_empty(experts, rows, gate_up.shape[2] // 2, dtype=x.dtype)
        inner_scales = _scales_of(inner)
        launch(inner, *inner_scales)
        del gate_up
        down = x.new_empty(experts, rows, hidden, dtype=torch.bfloat16)
        launch(down)
        return down

    def _contiguous(self, x: torch.Tensor, scales: torch.Tensor, weights: ExpertWeights) -> torch.Tensor:
        """[rows, H] -> the same in bf16; `x` is given up on the way."""
        rows, hidden = x.shape
        gate_up = x.new_empty(rows, weights.w13.shape[1], dtype=torch.bfloat16)
        aligned = None if x.dtype is torch.bfloat16 else torch.empty_like(scales)
        launch(gate_up)
        self._dispose(x, aligned)
        activated = x.new_empty(rows, gate_up.shape[1] // 2, dtype=torch.bfloat16)
        launch(activated)
        del gate_up
        inner = _quantized(activated, x.dtype) if x.dtype is not torch.bfloat16 else (activated,)
        del activated
        down = x.new_empty(rows, hidden, dtype=torch.bfloat16)
        launch(*inner, down)
        return down

    def _masks(self, x: torch.Tensor, weights: ExpertWeights) -> bool:
        layout = self.runtime.release.deep_gemm_layout
        if layout == "by experts":
            return self.layout.parallel.moe_ep > 1 and weights.local <= _FEW_EXPERTS
        return layout == "masked" or self._masked_bytes(x, weights) <= self.budget

    def _masked_bytes(self, x: torch.Tensor, weights: ExpertWeights) -> int:
        """As SGLang estimates them."""
        hidden, both = x.shape[1], weights.w13.shape[1]
        kind = _kind(weights)
        scales = 0 if kind is x.dtype else 4 * (_groups(hidden) + _groups(both // 2))
        row = (hidden + both // 2) * kind.itemsize + scales + 2 * max(both, hidden)
        return weights.local * masked_rows(x.shape[0]) * row

    def _dispose(self, *tensors: torch.Tensor | None) -> None:
        """SGLang gives up what is read already, though others still name it; not in a graph's memory."""
        kind = dp_buffer_len().kind
        if kind != "eager" and (kind == "prefill_graph" or self.runtime.release.keeps_inputs_in_graphs):
            return
        for tensor in tensors:
            if tensor is not None:
                tensor.set_(tensor.new_empty(0))  # type: ignore[call-overload]


def masked_rows(tokens: int) -> int:
    return (tokens // _MASKED_UNIT + 1) * _MASKED_UNIT


def compact_rows(choices: int, experts: int) -> int:
    busy = min(choices, experts)
    return ALIGNMENT * (busy + (choices - busy) // ALIGNMENT)


def _kind(weights: ExpertWeights) -> torch.dtype:
    """Of rows as the kernels read them."""
    return torch.bfloat16 if weights.w13.dtype is torch.bfloat16 else torch.float8_e4m3fn


def _groups(width: int) -> int:
    return -(-width // _GROUP)


def _quantized(x: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    both = x.new_empty(x.shape, dtype=kind), x.new_empty(x.shape[0], _groups(x.shape[1]), dtype=torch.float32)
    launch(*both)
    return both


def _scales_of(inner: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if inner.dtype is torch.bfloat16:
        return ()
    return (inner.new_empty(*inner.shape[:2], _groups(inner.shape[2]), dtype=torch.float32),)

"""What SGLang's DeepGEMM experts allocate, in SGLang's order, on tensors without memory: the kernels
themselves are not here. srt/layers/moe/moe_runner/deep_gemm.py

Scales are fp32 as on Hopper; Blackwell packs them into a quarter.
"""

from __future__ import annotations

import torch

from runtime.forward.dp_attention import dp_buffer_len
from runtime.layers.opaque import opaque_op
from runtime.moe.backends import MoEBackend
from runtime.moe.weights import ExpertWeights, TopK

_ALIGNMENT = 128  # of an expert's rows
_MASKED_UNIT = 256  # of the rows that every expert has room for
_GROUP = 128
_BUDGET = 4  # the masked layout may take a quarter of what is free: unless the environment says otherwise


@opaque_op("sgl_tune::sizes_alone_", mutates_args=("out",))
def _sizes_alone(out: torch.Tensor) -> None:
    raise NotImplementedError("a kernel that is predicted and cannot run")


_sizes_alone.register_fake(lambda out: None)


class DeepGemmBackend(MoEBackend):
    """Every rank sees all rows, and skips those that are not for its experts."""

    budget = 0

    def tell_free(self, nbytes: int) -> None:
        self.budget = nbytes // _BUDGET

    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        masks = self._masked_bytes(x, weights) <= self.budget
        down = (self._of_masked_rows if masks else self._of_compact_rows)(x, topk, weights)
        out = torch.empty_like(x)
        _launch(out)
        _dispose(down)
        return out

    def _of_masked_rows(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        """Any expert has room for all rows."""
        room, kind = masked_rows(x.shape[0]), _kind(weights)
        order = x.new_empty(topk.ids.numel(), dtype=torch.int32)
        inputs = x.new_empty(weights.local, room, x.shape[1], dtype=kind)
        scales = None
        if kind is not x.dtype:
            own = _quantized(x, kind)
            scales = x.new_empty(weights.local, room, _groups(x.shape[1]), dtype=torch.float32)
            _launch(order, inputs, scales)
            del own
        gate_up = x.new_empty(weights.local, room, weights.w13.shape[1], dtype=torch.bfloat16)
        _launch(gate_up)
        _dispose(inputs, scales)
        inner = _quantized(gate_up[..., ::2], kind)
        del gate_up
        down = x.new_empty(weights.local, room, x.shape[1], dtype=torch.bfloat16)
        _launch(*inner, down)
        return down

    def _of_compact_rows(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        """As many as any routing could need."""
        rows, kind = compact_rows(topk.ids.numel(), weights.local), _kind(weights)
        own = _quantized(x, kind) if kind is not x.dtype else ()
        inputs = x.new_empty(rows, x.shape[1], dtype=kind)
        scales = x.new_empty(rows, _groups(x.shape[1]) if own else 1, dtype=torch.float32)
        m_indices, order = x.new_empty(rows, dtype=torch.int32), torch.empty_like(topk.ids)
        _launch(inputs, scales, m_indices, order)
        _dispose(*own)
        gate_up = x.new_empty(rows, weights.w13.shape[1], dtype=torch.bfloat16)
        aligned = torch.empty_like(scales) if own else None
        _launch(gate_up)
        _dispose(inputs, aligned)
        activated = x.new_empty(rows, gate_up.shape[1] // 2, dtype=torch.bfloat16)
        _launch(activated)
        del gate_up
        inner = _quantized(activated, kind) if own else (activated,)
        del activated
        down = x.new_empty(rows, x.shape[1], dtype=torch.bfloat16)
        _launch(*inner, down)
        return down

    def _masked_bytes(self, x: torch.Tensor, weights: ExpertWeights) -> int:
        """As SGLang estimates them."""
        hidden, both = x.shape[1], weights.w13.shape[1]
        kind = _kind(weights)
        scales = 0 if kind is x.dtype else 4 * (_groups(hidden) + _groups(both // 2))
        row = (hidden + both // 2) * kind.itemsize + scales + 2 * max(both, hidden)
        return weights.local * masked_rows(x.shape[0]) * row


def masked_rows(tokens: int) -> int:
    return (tokens // _MASKED_UNIT + 1) * _MASKED_UNIT


def compact_rows(choices: int, experts: int) -> int:
    busy = min(choices, experts)
    return _ALIGNMENT * (busy + (choices - busy) // _ALIGNMENT)


def _launch(*out: torch.Tensor) -> None:
    """One kernel that writes all of them."""
    _sizes_alone(out[0])


def _dispose(*tensors: torch.Tensor | None) -> None:
    """SGLang gives up what is read already, though others still name it; not in a graph's memory."""
    if dp_buffer_len().kind == "eager":
        for tensor in tensors:
            if tensor is not None:
                tensor.set_(tensor.new_empty(0))  # type: ignore[call-overload]


def _kind(weights: ExpertWeights) -> torch.dtype:
    """The dtype of rows as the kernels read them."""
    return torch.bfloat16 if weights.w13.dtype is torch.bfloat16 else torch.float8_e4m3fn


def _groups(width: int) -> int:
    return -(-width // _GROUP)


def _quantized(x: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, ...]:
    """As large as `x`, with scales where `kind` has some."""
    made = [x.new_empty(x.shape, dtype=kind)]
    if kind is not torch.bfloat16:
        made.append(x.new_empty(*x.shape[:-1], _groups(x.shape[-1]), dtype=torch.float32))
    _launch(*made)
    return tuple(made)

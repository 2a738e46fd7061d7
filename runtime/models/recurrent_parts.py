"""What gated delta nets and Mamba's mixers have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch, ForwardMode
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source, length
from runtime.layers.recurrence import RecurrentInputs, Rows, convolve
from runtime.models.build import Build
from runtime.server.recurrent import GatedDeltaConfig, KimiDeltaConfig, LightningConfig, Mamba2Config


class Convolution(nn.Module):
    """Of each channel by itself; `blocks` are the channels of a checkpoint that this rank has, `apart` the
    tensor of each and its channels where they have one of their own."""

    def __init__(
        self,
        build: Build,
        name: str,
        blocks: Sequence[slice],
        width: int,
        bias: bool = False,
        opens: bool = True,
        apart: Sequence[tuple[str, slice]] = (),
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.name, self.blocks, self.opens, self.apart = name, list(blocks), opens, list(apart)
        channels = sum(length(block) for block in blocks)
        weight = torch.empty(channels, width, dtype=dtype or build.dtype, device=build.device)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = head_vector(channels, build.dtype, build) if bias else None

    def forward(self, x: torch.Tensor, state: torch.Tensor, rows: Rows) -> torch.Tensor:
        return convolve(x, self.weight, self.bias, state, rows, self.opens)

    def pieces(self) -> Iterator[Piece]:
        start = 0
        for number, block in enumerate(self.blocks):
            local = slice(start, start + length(block))
            places = [*self.apart[number : number + 1], (self.name, block)]
            sources = tuple(Source(f"{name}.weight", (rows,), _without_middle) for name, rows in places)
            yield Piece(self.weight[local], sources)
            if self.bias is not None:
                yield Piece(self.bias[local], (Source(f"{self.name}.bias", (block,)),))
            start = local.stop


def out_of_channels(build: Build, name: str, own: slice, bias: bool) -> Linear:
    """Rows again, of the channels that this rank has: a partial sum over the attention-TP group."""
    ranks, is_first = build.comm.size("attn_tp"), build.comm.rank("attn_tp") == 0
    rows = [Part(name, slice(0, build.model.hidden_size))]
    return build.linear(rows, own, bias=bias, adds_bias=is_first, columns_over=ranks)


def head_vector(count: int, dtype: torch.dtype, build: Build) -> nn.Parameter:
    return nn.Parameter(torch.empty(count, dtype=dtype, device=build.device), requires_grad=False)


def workspaces(
    config: GatedDeltaConfig | KimiDeltaConfig | LightningConfig | Mamba2Config,
    inputs: RecurrentInputs,
    batch: ForwardBatch,
) -> list[torch.Tensor]:
    """What SGLang's chunked kernels hold beside their answer. A step of a decode needs none."""
    if batch.mode is not ForwardMode.EXTEND:
        return []
    chunks = sum(-(-count // config.chunk) for count in batch.extend_lens or [batch.num_tokens])
    return _HELD[type(config)](inputs, chunks, config.chunk, batch.num_requests)


def _of_delta(inputs: RecurrentInputs, chunks: int, chunk: int, requests: int) -> list[torch.Tensor]:
    """Queries, keys and values apart, the first two normed; gates and their sums; the triangular systems,
    their two solutions, the state before each chunk, and what each writes."""
    q, k, v, step = inputs.q, inputs.k, inputs.v, inputs.step
    rows, heads, values = v.shape
    keys = k.shape[-1]
    return [
        *(x.new_empty(x.shape) for x in (q, k, v, q, k)),
        *(torch.empty(step.shape, dtype=torch.float32, device=v.device) for _ in range(3)),
        v.new_empty(rows, heads, chunk),
        v.new_empty(rows, heads, keys),
        v.new_empty(v.shape),
        v.new_empty(chunks, heads, values, keys),
        v.new_empty(v.shape),
    ]


def _of_channels(inputs: RecurrentInputs, chunks: int, chunk: int, requests: int) -> list[torch.Tensor]:
    """Normed queries and keys; sums of gates by channel, strengths; the products of a chunk's rows with each
    other, and their triangular systems; three solutions, the state before each chunk, what each writes."""
    k, v = inputs.k, inputs.v
    rows, heads, width = v.shape
    return [
        *(k.new_empty(k.shape) for _ in range(2)),
        torch.empty(k.shape, dtype=torch.float32, device=v.device),
        torch.empty((rows, heads), dtype=torch.float32, device=v.device),
        *(k.new_empty(rows, heads, chunk) for _ in range(2)),
        *(k.new_empty(k.shape) for _ in range(3)),
        k.new_empty(chunks, heads, width, width),
        v.new_empty(v.shape),
    ]


def _of_lightning(inputs: RecurrentInputs, chunks: int, chunk: int, requests: int) -> list[torch.Tensor]:
    """Normed queries and keys, and an answer for each `chunk` channels of a key, which are added up."""
    parts = inputs.k.shape[-1] // chunk
    copies = [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in (inputs.q, inputs.k)]
    return [*copies, inputs.v.new_empty(parts, *inputs.v.shape)]


def _of_mamba(inputs: RecurrentInputs, chunks: int, chunk: int, requests: int) -> list[torch.Tensor]:
    """Steps and the sums of decays by chunk; each chunk's state, and the one before it; products of all keys
    and queries of a chunk; the last states."""
    k, v = inputs.k, inputs.v
    _, heads, values = v.shape
    _, groups, keys = k.shape

    def fp32(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=v.device)

    return [
        fp32(heads, chunks, chunk),
        fp32(heads, chunks, chunk),
        fp32(chunks, heads, values, keys),
        fp32(chunks, heads, values, keys),
        fp32(chunks, groups, chunk, chunk),
        fp32(requests, heads, values, keys),
    ]


_HELD: dict[type, Callable[[RecurrentInputs, int, int, int], list[torch.Tensor]]] = {
    GatedDeltaConfig: _of_delta,
    KimiDeltaConfig: _of_channels,
    LightningConfig: _of_lightning,
    Mamba2Config: _of_mamba,
}


def _without_middle(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.squeeze(1)

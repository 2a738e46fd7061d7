"""The part of a checkpoint's tensor that each parameter of a rank holds: tests load checkpoints by it."""

from collections.abc import Callable, Iterator
from functools import partial, singledispatch
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import nn

from runtime.decoder.convolution import Convolution
from runtime.decoder.decoder import Decoder
from runtime.decoder.experts import Experts
from runtime.decoder.gated_delta import GatedDeltaNet
from runtime.decoder.gqa import GroupedQueryAttention
from runtime.decoder.mamba2 import Mamba2Mixer
from runtime.decoder.mla import Indexer
from runtime.layers.embedding import VocabTable
from runtime.layers.linear import Linear
from runtime.layers.loading import length, moved
from runtime.layers.norm import RMSNorm
from runtime.layers.quantization import BlockFp8, Plain, Scheme
from runtime.layers.recurrence import GatedNorm
from runtime.layers.scaled_linear import dequantize_blocks
from runtime.moe.router import Router

Index = tuple[slice, ...]
_CENTRED = ("qwen3_next", "gemma3_text")  # families whose checkpoints store the weights of norms minus one


class Source(NamedTuple):
    name: str
    index: Index = ()
    view: Callable[[torch.Tensor], torch.Tensor] | None = None


class Piece(NamedTuple):
    """A view of a parameter, and where its values may lie; the first that a checkpoint has is used."""

    target: torch.Tensor
    sources: tuple[Source, ...]


def load(decoder: Decoder, folder: Path) -> None:
    """Fill a rank's parameters from a `save_pretrained` folder."""
    files = [load_file(file) for file in folder.glob("*.safetensors")]
    held = {n.replace(".block_sparse_moe.", ".mlp."): tensor for file in files for n, tensor in file.items()}
    is_centred = decoder.model.model_type in _CENTRED
    for module in decoder.modules():
        for piece in _pieces(module):
            source = next(one for one in piece.sources if one.name in held)
            tensor, scale = held[source.name], held.get(f"{source.name}_scale_inv")
            if scale is not None and piece.target.dtype != torch.float8_e4m3fn:
                tensor = dequantize_blocks(tensor, scale, [tensor.shape[0] // scale.shape[0]] * 2)
            part = tensor[source.index]
            part = source.view(part) if source.view else part
            part = part + 1 if is_centred and isinstance(module, RMSNorm) else part
            assert part.shape == piece.target.shape, source.name
            piece.target.copy_(part)
    decoder.finalize()


def _piece(target: torch.Tensor, name: str, *index: slice) -> Piece:
    return Piece(target, (Source(name, index),))


def _part(scheme: Scheme, name: str, rows: slice, cols: slice) -> Index:
    """Return the index of the block [rows, cols] of a matrix in its tensor `name`."""
    assert isinstance(scheme, (Plain, BlockFp8))
    if name == "weight":
        return (rows, cols)
    assert isinstance(scheme, BlockFp8)
    return tuple(_blocks(part, size) for part, size in zip((rows, cols), scheme.block, strict=True))


def _blocks(part: slice, size: int) -> slice:
    assert part.start % size == 0, "a shard starts inside a block"
    return slice(part.start // size, -(-part.stop // size))


@singledispatch
def _pieces(module: nn.Module) -> Iterator[Piece]:
    """Yield the parameters that a module itself holds."""
    yield from ()


@_pieces.register(RMSNorm)
@_pieces.register(GatedNorm)
def _(part: RMSNorm | GatedNorm) -> Iterator[Piece]:
    yield _piece(part.weight, f"{part.name}.weight", *([] if part.rows is None else [part.rows]))


@_pieces.register
def _(part: VocabTable) -> Iterator[Piece]:
    yield _piece(part.weight[: length(part.real)], f"{part.name}.weight", part.real)


@_pieces.register
def _(part: Linear) -> Iterator[Piece]:
    start = 0
    for one in part.parts:
        local = slice(start, start + length(one.rows))
        for name, tensor in part.tensors.items():
            if name == "bias":
                yield _piece(tensor[local], f"{one.name}.bias", one.rows)
                continue
            target = tensor[_part(part.scheme, name, local, slice(0, length(part.cols)))]
            yield _piece(target, f"{one.name}.{name}", *_part(part.scheme, name, one.rows, part.cols))
        start = local.stop


@_pieces.register
def _(part: Convolution) -> Iterator[Piece]:
    start = 0
    for block in part.blocks:
        local = slice(start, start + length(block))
        without_middle = Source(f"{part.name}.weight", (block,), lambda tensor: tensor.squeeze(1))
        yield Piece(part.weight[local], (without_middle,))
        if part.bias is not None:
            yield _piece(part.bias[local], f"{part.name}.bias", block)
        start = local.stop


@_pieces.register(GatedDeltaNet)
@_pieces.register(Mamba2Mixer)
def _(part: GatedDeltaNet | Mamba2Mixer) -> Iterator[Piece]:
    yield _piece(part.rate, f"{part.name}.A_log", part.heads)
    yield _piece(part.bias, f"{part.name}.dt_bias", part.heads)
    if isinstance(part, Mamba2Mixer):
        yield _piece(part.skip, f"{part.name}.D", part.heads)


@_pieces.register
def _(part: GroupedQueryAttention) -> Iterator[Piece]:
    if part.sinks is not None:
        yield _piece(part.sinks, f"{part.name}.sinks", part.heads)


@_pieces.register
def _(part: Indexer) -> Iterator[Piece]:
    yield _piece(part.key_norm_weight, f"{part.name}.k_norm.weight")
    yield _piece(part.key_norm_bias, f"{part.name}.k_norm.bias")


@_pieces.register
def _(part: Router) -> Iterator[Piece]:
    yield Piece(part.weight, tuple(Source(f"{name}.weight") for name in part.names))
    if part.bias is not None:
        yield Piece(part.bias, tuple(Source(f"{name}.bias") for name in part.names))
    if part.correction is not None:
        places = (*part.names, part.names[0].rpartition(".")[0])
        yield Piece(part.correction, tuple(Source(f"{one}.e_score_correction_bias") for one in places))


@_pieces.register
def _(part: Experts) -> Iterator[Piece]:
    if part.moe.biases and isinstance(part.scheme, Plain):
        yield from _transposed_experts(part)
        return
    for matrix in _matrices(part):
        for slot, number in enumerate(range(part.numbers.start, part.numbers.stop)):
            for name, tensor in matrix.tensors.items():
                local = _part(part.scheme, name, matrix.local, slice(0, length(matrix.cols)))
                yield Piece(tensor[slot][local], tuple(_sources(part, matrix, name, number)))


class _Matrix(NamedTuple):
    """One of an expert's three matrices: the rows it fills here, and its rows and columns in a checkpoint."""

    tensors: dict[str, nn.Parameter]
    local: slice
    rows: slice
    cols: slice
    spellings: tuple[str, str]  # one tensor per expert: Qwen, DeepSeek and GLM; Mixtral and MiniMax
    fused: str  # all experts in one tensor, as transformers 5 holds them in memory
    fused_rows: slice


def _matrices(part: Experts) -> Iterator[_Matrix]:
    inner, hidden, first, up = part.inner, part.hidden, slice(0, length(part.inner)), ("up_proj", "w3")
    if part.is_gated:
        gate, both = ("gate_proj", "w1"), "gate_up_proj"
        behind = moved(inner, part.moe.intermediate_size)
        yield _Matrix(part.up, first, inner, hidden, gate, both, inner)
        yield _Matrix(part.up, moved(first, part.padded), inner, hidden, up, both, behind)
    else:
        yield _Matrix(part.up, first, inner, hidden, up, "up_proj", inner)
    yield _Matrix(part.down, hidden, hidden, inner, ("down_proj", "w2"), "down_proj", hidden)


def _sources(part: Experts, matrix: _Matrix, name: str, number: int) -> Iterator[Source]:
    index = _part(part.scheme, name, matrix.rows, matrix.cols)
    if number >= part.moe.num_experts:
        yield Source(f"{part.shared_name}.{matrix.spellings[0]}.{name}", index)
        return
    for one in matrix.spellings:
        yield Source(f"{part.name}.experts.{number}.{one}.{name}", index)
    whole = f"{part.name}.experts.{matrix.fused}{name.removeprefix('weight')}"
    rows = _part(part.scheme, name, matrix.fused_rows, matrix.cols)
    yield Source(whole, (slice(number, number + 1), *rows), lambda tensor: tensor.squeeze(0))


def _transposed_experts(part: Experts) -> Iterator[Piece]:
    """Yield gpt-oss's pieces: tensors [experts, in, out], in which gate and up columns alternate."""
    name, half = f"{part.name}.experts", length(part.inner)
    both = slice(2 * part.inner.start, 2 * part.inner.stop)
    weight, bias = (part.numbers, part.hidden, both), (part.numbers, both)
    for start, first in ((0, 0), (part.padded, 1)):
        local = slice(start, start + half)
        rows = Source(f"{name}.gate_up_proj", weight, partial(_every_other, first=first, turned=True))
        values = Source(f"{name}.gate_up_proj_bias", bias, partial(_every_other, first=first))
        yield Piece(part.up["weight"][:, local], (rows,))
        yield Piece(part.up["bias"][:, local], (values,))
    down = (part.numbers, part.inner, part.hidden)
    turned = Source(f"{name}.down_proj", down, lambda tensor: tensor.transpose(1, 2))
    yield Piece(part.down["weight"][..., :half], (turned,))
    # The ranks that share an expert sum their outputs, so only one rank adds the bias.
    once = None if part.adds_bias else torch.zeros_like
    yield Piece(part.down["bias"], (Source(f"{name}.down_proj_bias", (part.numbers, part.hidden), once),))


def _every_other(tensor: torch.Tensor, first: int, turned: bool = False) -> torch.Tensor:
    found = tensor[..., first::2]
    return found.transpose(1, 2) if turned else found

"""The experts of one rank: their tensors, and where a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from runtime.layers.linear import register
from runtime.layers.loading import Piece, Source, even_rows, length, odd_rows, shard
from runtime.layers.quantization import BlockFp8, Fp4, Plain, Scheme, Unread, change
from runtime.models.build import Build
from runtime.moe.weights import ExpertWeights
from runtime.server.formats.plain import PLAIN
from runtime.server.formats.tensors import Matrix
from runtime.server.layer_config import NO_CAPS, Caps


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One of an expert's three: the rows it fills here, and its rows and columns in a checkpoint."""

    tensors: dict[str, nn.Parameter]
    local: slice
    rows: slice
    cols: slice
    spellings: tuple[str, str]  # one tensor an expert: Qwen, DeepSeek and GLM; Mixtral
    fused: str  # all experts in one tensor, as transformers 5 holds them in memory
    fused_rows: slice


class Experts(nn.Module):
    """`fused_shared`: shared experts that are kept and run behind the routed ones, `on_each` rank behind its
    own, of which each then counts as many as one more. `behind` so many others, one by one, these stand in a
    checkpoint."""

    def __init__(
        self,
        build: Build,
        name: str,
        fused_shared: int = 0,
        caps: Caps = NO_CAPS,
        behind: int = 0,
        on_each: bool = False,
    ) -> None:
        super().__init__()
        moe, comm = build.model.moe, build.comm
        assert moe is not None
        self.name, self.moe, self.dtype, self.behind = name, moe, build.dtype, behind
        self.limit = moe.swiglu_limit if caps.routed is None else caps.routed
        self.caps_before = caps.before
        self.shared_name, self.beside = build.model.shared_name(name), f"{name.removesuffix('.mlp')}.moe"
        self.total = moe.places + fused_shared * (comm.size("moe_ep") if on_each else 1)
        self.numbers = shard(self.total, comm.size("moe_ep"), comm.rank("moe_ep"), "the number of experts")
        self.stored = tuple(map(moe.expert_at, range(self.numbers.start, self.numbers.stop)))
        if on_each:
            routed = shard(moe.places, comm.size("moe_ep"), comm.rank("moe_ep"), "the number of experts")
            self.stored = (*map(moe.expert_at, range(routed.start, routed.stop)), moe.num_experts)
        self.inner = shard(
            moe.intermediate_size, comm.size("moe_tp"), comm.rank("moe_tp"), "the experts' intermediate size"
        )
        self.hidden = slice(0, moe.latent_size or build.model.hidden_size)
        self.is_gated, self.gelu = build.model.gated_mlps, build.model.gelu
        self.situ = build.model.swiglu if build.model.activation == "situ" else None
        self.adds_bias = comm.rank("moe_tp") == 0
        self.transposed = build.model.model_type == "gpt_oss"
        self.interleaves = build.model.names.interleaves
        count, inner, hidden = length(self.numbers), length(self.inner), length(self.hidden)
        self.scheme: Scheme = build.expert_scheme(build.model.experts_name(name), hidden, inner)
        over, held = comm.size("moe_tp"), (count, self.total)
        self.up_matrix = Matrix((inner,) * (1 + self.is_gated), hidden, hidden, over > 1, *held)
        self.down_matrix = Matrix((hidden,), inner, inner * over, False, *held, is_down=True)
        self.padded = self.up_matrix.padded(self.scheme.format.padding).rows[0]
        up, down = (self._tensors(matrix, build) for matrix in (self.up_matrix, self.down_matrix))
        self._register(up, down)

    def _tensors(self, matrix: Matrix, build: Build) -> dict[str, torch.Tensor]:
        tensors = self.scheme.create(matrix, build.dtype, build.device)
        padded = matrix.padded(self.scheme.format.padding)
        if padded != matrix:
            for tensor in tensors.values():
                tensor.zero_()
        if self.moe.expert_bias and "bias" not in tensors:
            shape = (matrix.experts, sum(padded.rows))
            wide = build.device.type == "meta" and self.scheme.format is PLAIN  # as a server keeps them
            dtype = torch.float32 if wide else build.dtype
            tensors["bias"] = torch.zeros(shape, dtype=dtype, device=build.device)
        return tensors

    def _register(self, up: dict[str, torch.Tensor], down: dict[str, torch.Tensor]) -> None:
        named = {"up": up, "down": down}
        flat = {f"{side}_{name}": held for side, tensors in named.items() for name, held in tensors.items()}
        known = register(self, flat)
        self.up, self.down = ({name: known[f"{side}_{name}"] for name in named[side]} for side in named)

    def relay(self) -> None:
        """As a server lays them out anew after loading, gates and ups before downs: of a prediction."""
        up: dict[str, torch.Tensor] = dict(self.up)
        down: dict[str, torch.Tensor] = dict(self.down)
        made = self.scheme.format
        sides = (up, dict(made.after(self.up_matrix))), (down, dict(made.after(self.down_matrix)))
        for how in made.after_experts:
            for held, found in sides:
                if how in found:
                    change(how, found[how], held, self.dtype)
        self._register(up, down)

    def weights(self) -> ExpertWeights:
        if isinstance(self.scheme, Unread):
            return self._as_if_plain()
        scale = self.scheme.scale if isinstance(self.scheme, BlockFp8 | Fp4) else "weight_scale"
        return ExpertWeights(
            w13=self.up["weight"],
            w2=self.down["weight"],
            num_experts=self.total,
            first=self.numbers.start,
            w13_scale=_one_an_expert(self.up.get(scale)),
            w2_scale=self.down.get(scale),
            block=self.scheme.block if isinstance(self.scheme, BlockFp8) else (),
            w13_global_scale=_one_an_expert(self.up.get("weight_scale_2")),
            w2_global_scale=self.down.get("weight_scale_2"),
            w13_input_scale=self.up.get("input_scale"),
            w2_input_scale=self.down.get("input_scale"),
            w13_bias=self.up.get("bias"),
            w2_bias=self.down.get("bias"),
            swiglu_alpha=self.moe.swiglu_alpha,
            swiglu_limit=self.limit,
            caps_before=self.caps_before,
            is_gated=self.is_gated,
            gelu=self.gelu,
            situ=self.situ,
        )

    def _as_if_plain(self) -> ExpertWeights:
        """Of weights whose sizes alone are known: their shapes, which take no memory."""
        one = torch.empty((), dtype=self.dtype, device="meta")
        hidden, inner, local = length(self.hidden), length(self.inner), length(self.numbers)
        return ExpertWeights(
            w13=one.expand(local, inner * (1 + self.is_gated), hidden),
            w2=one.expand(local, hidden, inner),
            num_experts=self.total,
            first=self.numbers.start,
            w13_bias=one.expand(local, 2 * inner) if self.moe.expert_bias else None,
            w2_bias=one.expand(local, hidden) if self.moe.expert_bias else None,
            swiglu_alpha=self.moe.swiglu_alpha,
            swiglu_limit=self.limit,
            caps_before=self.caps_before,
            is_gated=self.is_gated,
            gelu=self.gelu,
            situ=self.situ,
        )

    def pieces(self) -> Iterator[Piece]:
        if self.transposed and isinstance(self.scheme, Plain):
            yield from self._transposed_pieces()
            return
        if self.interleaves and isinstance(self.scheme, Plain):
            yield from self._interleaved_pieces()
            return
        inner, hidden = self.inner, self.hidden
        down = _Matrix(self.down, hidden, hidden, inner, ("down_proj", "w2"), "down_proj", hidden)
        for matrix in (*self._ups(), down):
            for slot, number in enumerate(self.stored):
                yield from self._expert_pieces(matrix, slot, number)

    def _ups(self) -> Iterator[_Matrix]:
        inner, half, total = self.inner, length(self.inner), self.moe.intermediate_size
        second = slice(self.padded, self.padded + half)
        first, up = slice(0, half), ("up_proj", "w3")
        if not self.is_gated:
            yield _Matrix(self.up, first, inner, self.hidden, up, "up_proj", inner)
            return
        gate, both = ("gate_proj", "w1"), "gate_up_proj"
        behind = slice(total + inner.start, total + inner.stop)
        yield _Matrix(self.up, first, inner, self.hidden, gate, both, inner)
        yield _Matrix(self.up, second, inner, self.hidden, up, both, behind)

    def _expert_pieces(self, matrix: _Matrix, slot: int, number: int) -> Iterator[Piece]:
        for name, tensor in matrix.tensors.items():
            local_cols = slice(0, length(matrix.cols))
            target = tensor[slot][self.scheme.part(name, matrix.local, local_cols)]
            yield Piece(target, self._sources(matrix, name, number))

    def _sources(self, matrix: _Matrix, name: str, number: int) -> tuple[Source, ...]:
        own, other = matrix.spellings
        index = self.scheme.part(name, matrix.rows, matrix.cols)
        if number >= self.moe.num_experts:
            return (Source(f"{self.shared_name}.{own}.{name}", index),)
        if self.behind:
            return (Source(f"{self.name}.experts.{self.behind + number}.{own}.{name}", index),)
        return (
            Source(f"{self.name}.experts.{number}.{own}.{name}", index),
            Source(f"{self.name}.experts.{number}.{other}.{name}", index),
            *self._fused(matrix, name, number),
            *self._stacked(matrix, name, number),
            *self._zaya(matrix, name, number),
            *self._below(matrix, name, number),
            Source(f"{self.beside}.{own}.{name}", (slice(number, number + 1), *index), _first),
        )

    def _stacked(self, matrix: _Matrix, name: str, number: int) -> Iterator[Source]:
        """Granite's, and IQuest Q1's."""
        stem, plain = ("input_linear", "fc") if matrix.tensors is self.up else ("output_linear", "proj")
        index = (slice(number, number + 1), *self.scheme.part(name, matrix.fused_rows, matrix.cols))
        yield Source(f"{self.name}.{stem}.{name}", index, _first)
        if name == "weight":
            yield Source(f"{self.name}.experts.{plain}", index, _first)

    def _below(self, matrix: _Matrix, name: str, number: int) -> Iterator[Source]:
        """DBRX: all experts' rows below each other, those of the last matrix as its columns."""
        if name != "weight":
            return
        first, own, is_down = (
            number * self.moe.intermediate_size,
            matrix.spellings[1],
            matrix.tensors is self.down,
        )
        rows = slice(first + self.inner.start, first + self.inner.stop)
        whole = f"{self.name}.experts.mlp.{'v1' if own == 'w3' else own}"
        yield Source(whole, (rows, self.hidden), torch.t if is_down else None)

    def _zaya(self, matrix: _Matrix, name: str, number: int) -> Iterator[Source]:
        own = "linear_fc1" if matrix.tensors is self.up else "linear_fc2"
        index = self.scheme.part(name, matrix.fused_rows, matrix.cols)
        yield Source(f"{self.name}.experts.local_experts.{number}.{own}.{name}", index)

    def _fused(self, matrix: _Matrix, name: str, number: int) -> Iterator[Source]:
        """[experts, out, in], or [experts, in, out] where that is how large the tensor is."""
        whole = f"{self.name}.experts.{matrix.fused}{name.removeprefix('weight')}"
        one, rows, cols = slice(number, number + 1), matrix.fused_rows, matrix.cols
        if name == "weight":
            hidden, inner = length(self.hidden), self.moe.intermediate_size
            sizes = (hidden, 2 * inner) if matrix.tensors is self.up else (inner, hidden)
            if sizes[0] != sizes[1]:
                yield Source(
                    whole, (one, cols, rows), _first_transposed, shape=(self.moe.num_experts, *sizes)
                )
        yield Source(whole, (one, *self.scheme.part(name, rows, cols)), _first)

    def _interleaved_pieces(self) -> Iterator[Piece]:
        """Inkling's: gates and ups take turns."""
        name, half = f"{self.name}.experts", length(self.inner)
        both = (self.numbers, slice(2 * self.inner.start, 2 * self.inner.stop))
        for local, view in ((slice(0, half), even_rows), (slice(half, 2 * half), odd_rows)):
            yield Piece(self.up["weight"][:, local], (Source(f"{name}.w13_weight", both, view),))
        down = (self.numbers, self.hidden, self.inner)
        yield Piece(self.down["weight"], (Source(f"{name}.w2_weight", down),))

    def _transposed_pieces(self) -> Iterator[Piece]:
        """gpt-oss: [experts, in, out], and gates and ups take turns."""
        name, half, padded = f"{self.name}.experts", length(self.inner), self.padded
        both = slice(2 * self.inner.start, 2 * self.inner.stop)
        weight, bias = (self.numbers, self.hidden, both), (self.numbers, both)
        for local, view, bias_view in (
            (slice(0, half), _gates, _gate_bias),
            (slice(padded, padded + half), _ups, _up_bias),
        ):
            yield Piece(self.up["weight"][:, local], (Source(f"{name}.gate_up_proj", weight, view),))
            yield Piece(self.up["bias"][:, local], (Source(f"{name}.gate_up_proj_bias", bias, bias_view),))
        down = (self.numbers, self.inner, self.hidden)
        yield Piece(self.down["weight"][..., :half], (Source(f"{name}.down_proj", down, _transposed),))
        # The answer is a sum over the ranks that share an expert: one of them adds the bias.
        once = None if self.adds_bias else torch.zeros_like
        down_bias = Source(f"{name}.down_proj_bias", (self.numbers, self.hidden), once)
        yield Piece(self.down["bias"], (down_bias,))


def _one_an_expert(scale: torch.Tensor | None) -> torch.Tensor | None:
    """The larger of gate's and up's, where each has one of its own."""
    return scale.amax(dim=1) if scale is not None and scale.dim() == 2 else scale


def _first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.squeeze(0)


def _first_transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.squeeze(0).T


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(1, 2)


def _gates(tensor: torch.Tensor) -> torch.Tensor:
    return _transposed(_gate_bias(tensor))


def _ups(tensor: torch.Tensor) -> torch.Tensor:
    return _transposed(_up_bias(tensor))


def _gate_bias(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[..., 0::2]


def _up_bias(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[..., 1::2]

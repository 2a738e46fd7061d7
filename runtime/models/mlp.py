"""What follows attention in a layer, dense or of experts: this rank's rows in, finished rows out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import nn

from runtime.devices.graph_break import outside_graph
from runtime.forward.dp_attention import gather, in_parts, scatter
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, even_rows, odd_rows, shard
from runtime.layers.mlp import (
    ClampedMLP,
    GatedMLP,
    GeluMLP,
    QuickGeluMLP,
    ReluMLP,
    ScaledMLP,
    SituMLP,
    SquaredMLP,
    SteppedGeluMLP,
    TwinMLP,
    WholeGeluMLP,
    XieluMLP,
)
from runtime.layers.quantization import PLAIN
from runtime.models.bank import Bank
from runtime.models.build import Build, RowNorm
from runtime.models.closed_gates import ClosedMLP
from runtime.models.experts import Experts
from runtime.models.idle_routers import IdleRouters
from runtime.models.image_experts import ImageExperts
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher
from runtime.moe.half_router import HalfRouter
from runtime.moe.normed_router import NormedRouter
from runtime.moe.router import Router
from runtime.moe.weights import TopK
from runtime.server.call_rules import (
    fused_shared_experts,
    fuses_in_call,
    fuses_on_each_rank,
    router_in_fp32,
)
from runtime.server.errors import Unsupported
from runtime.server.layer_config import NO_CAPS, Caps
from runtime.server.whole_mlps import has_whole_dense, has_whole_shared

_UNGATED: Mapping[str, type[GatedMLP]] = {
    "gelu_tanh": GeluMLP,
    "gelu": WholeGeluMLP,
    "gelu_new": SteppedGeluMLP,
    "relu": ReluMLP,
}


class DenseLayer(nn.Module):
    def __init__(self, build: Build, name: str, intermediate: int, caps: Caps = NO_CAPS) -> None:
        super().__init__()
        self.comm, self.is_whole = build.comm, has_whole_dense(build.model, build.runtime)
        size, rank = (1, 0) if self.is_whole else (build.comm.size("tp"), build.comm.rank("tp"))
        self.mlp = _gated(build, name, intermediate, size, rank, caps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_whole:
            return in_parts(self.mlp, x, self.comm)
        return scatter(self.mlp(gather(x, self.comm)), x.shape[0], self.comm)

    def pieces(self) -> Iterator[Piece]:
        return self.mlp.pieces()


class MoELayer(nn.Module):
    def __init__(
        self,
        build: Build,
        name: str,
        dispatcher: Dispatcher,
        backend: MoEBackend,
        caps: Caps = NO_CAPS,
        is_hashed: bool = False,
        bank: Bank | None = None,
    ) -> None:
        """`bank`: where layers share one."""
        super().__init__()
        model, moe = build.model, build.model.moe
        assert moe is not None
        if is_hashed and build.runtime.moe_a2a_backend != "none":
            raise Unsupported(
                f"--moe-a2a-backend {build.runtime.moe_a2a_backend}: this runtime sends no tokens' numbers "
                "between ranks, and the first layers of this model choose their experts by them"
            )
        self.dispatcher, self.backend, self.comm = dispatcher, backend, build.comm
        whole = dispatcher.replicates_shared_experts, has_whole_shared(model, build.runtime)
        self.has_whole_shared = any(whole)
        self.bank = bank or Bank(name)
        self.is_first = self.bank.router is None
        ranks = build.comm.size("moe_ep")
        each = ranks > 1 and fuses_in_call(model, build.runtime)
        fused = 1 if each else fused_shared_experts(model, build.runtime, ranks)
        self.together, self.has_zero_experts = moe.together, moe.zero_experts > 0
        numbers = model.vocab_size if is_hashed else 0
        sizes = model.hidden_size, moe, build.dtype, build.device
        if self.bank.router is None:
            names, wide = _router_names(self.bank.name), router_in_fp32(model, build.runtime)
            self.bank.router = Router(names, *sizes, fused, numbers, wide)
        self.router = self.bank.router
        if each:
            self.router.spread(ranks, build.comm.rank("moe_ep"))
        self.entry: RowNorm | None = None  # of rows that the router is given as they are
        if moe.beside_dense:
            self.router = NormedRouter(f"{name}.router", *sizes, model.rms_eps)
            self.entry = build.norm_of_rows(f"{name}.pre_feedforward_layernorm_2")
        self.images: ImageExperts | None = None
        if moe.image_intermediate_size is not None:
            self.router = HalfRouter(name, *sizes)
            self.images = ImageExperts(build, name)
        self.others = IdleRouters(build, name) if moe.idle_routers else None
        if self.bank.experts is None:
            self.bank.experts = Experts(build, self.bank.name, fused, caps, on_each=each)
        self.experts = self.bank.experts
        self.latents = _latents(build, name) if moe.latent_size and not moe.sums_latents else None
        self.shared: GatedMLP | TwinMLP | None = None
        if moe.shared_intermediate_size and not fused:
            size, rank, self.share = _spread(build, self.has_whole_shared)
            inner = moe.shared_intermediate_size
            self.shared = _gated(build, model.shared_name(name), inner, size, rank, caps)
        self.shared_gate: Linear | None = None
        if moe.shared_gate:
            gate, hidden = Part(f"{name}.shared_expert_gate", slice(0, 1)), slice(0, model.hidden_size)
            self.shared_gate = build.linear([gate], hidden, scheme=PLAIN)

    def finalize(self) -> None:
        self.router.finish()
        if self.bank.weights is None:
            self.bank.weights = self.backend.prepare(self.experts.weights())
        self.weights = self.bank.weights

    def forward(self, x: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        if self.router.experts_of is not None and tokens is not None:
            self.router.tokens = gather(tokens, self.comm)
        if self.shared is None:
            return self._routed(x)
        if self.has_whole_shared:
            return self._together(self._routed(x), self._shared(self.shared, x))
        rows, topk = self.dispatcher.dispatch(x, self._route)
        out = self._experts(rows, topk)
        return self.dispatcher.combine(self._together(out, self._shared(self.shared, rows)), x.shape[0])

    def _together(self, routed: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        both = routed.add_(shared)
        return both if self.together == 1 else both.mul_(self.together)

    def _routed(self, x: torch.Tensor) -> torch.Tensor:
        if not self.dispatcher.breaks_graphs:
            return self._exchanged(x)
        answer = torch.empty_like(x)
        with outside_graph():
            answer.copy_(self._exchanged(x))
        return answer

    def _exchanged(self, x: torch.Tensor) -> torch.Tensor:
        rows, topk = self.dispatcher.dispatch(x, self._route)
        given_back = self._given_back(rows, topk) if self.has_zero_experts else None
        out = self._experts(rows, topk)
        return self.dispatcher.combine(out if given_back is None else out.add_(given_back), x.shape[0])

    def _given_back(self, rows: torch.Tensor, topk: TopK) -> torch.Tensor:
        """By experts that compute nothing, one rank's share of it. Kernels go on with expert 0, which then
        counts nothing."""
        is_zero = topk.ids >= self.experts.total
        share = (topk.weights * is_zero).sum(dim=-1, keepdim=True) / self.comm.size("tp")
        topk.ids.masked_fill_(is_zero, 0)
        topk.weights.masked_fill_(is_zero, 0)
        return rows * share.to(rows.dtype)

    def _route(self, rows: torch.Tensor) -> TopK:
        """A shared expert that runs as a routed one counts as much as its gate says."""
        topk = self.router(rows)
        if self.shared is None and self.shared_gate is not None:
            topk.weights[:, -1:] = self.shared_gate(rows).sigmoid() / self.router.ranks
        return topk

    def _experts(self, rows: torch.Tensor, topk: TopK) -> torch.Tensor:
        if self.entry is not None:
            rows = self.entry(rows)
        if self.latents is None:
            return self.backend.forward(rows, topk, self.weights)
        down, up = self.latents
        return up(self.backend.forward(down(rows), topk, self.weights))

    def _shared(self, shared: GatedMLP | TwinMLP, x: torch.Tensor) -> torch.Tensor:
        answer = shared(x)
        if self.share != 1:
            answer.mul_(self.share)
        return answer if self.shared_gate is None else answer.mul_(self.shared_gate(x).sigmoid_())

    def pieces(self) -> Iterator[Piece]:
        routed = (self.router, self.experts) if self.is_first else ()
        parts = (*routed, self.entry, self.others, self.images, self.shared)
        for part in (*parts, self.shared_gate, *(self.latents or ())):
            if part is not None:
                yield from part.pieces()


def _router_names(block: str) -> tuple[str, ...]:
    own = ("gate", "router", "router.layer", "gate.wg", "router.gate", "router.classifier")
    return (*(f"{block}.{one}" for one in own), f"{block.removesuffix('.mlp')}.moe.gate")


def _spread(build: Build, is_whole: bool) -> tuple[int, int, float]:
    """How many ranks share out a shared expert, which part is this rank's, and how much its sum counts."""
    comm = build.comm
    if is_whole:
        return 1, 0, 1.0
    if comm.size("moe_ep") > 1 and fuses_on_each_rank(build.model, build.runtime):
        return comm.size("moe_tp"), comm.rank("moe_tp"), 1 / comm.size("moe_ep")
    return comm.size("tp"), comm.rank("tp"), 1.0


def _latents(build: Build, name: str) -> nn.ModuleList:
    """Into the width that experts work on, and out of it: of partial sums, the second's are some too."""
    assert build.model.moe is not None
    hidden, latent = slice(0, build.model.hidden_size), slice(0, build.model.moe.latent_size)
    down = build.linear([Part(f"{name}.fc1_latent_proj", latent)], hidden)
    return nn.ModuleList([down, build.linear([Part(f"{name}.fc2_latent_proj", hidden)], latent)])


def _gated(
    build: Build, name: str, intermediate: int, size: int, rank: int, caps: Caps = NO_CAPS
) -> GatedMLP | TwinMLP:
    rows = shard(intermediate, size, rank, "the MLP's intermediate size")
    hidden = slice(0, build.model.hidden_size)
    names = build.model.names
    both, ups = f"{name}.{names.gate_up}", slice(intermediate + rows.start, intermediate + rows.stop)
    bias, down_part = build.model.mlp_biases, Part(f"{name}.{names.down}", hidden)
    down = build.linear([down_part], rows, bias=bias, adds_bias=rank == 0, columns_over=size)
    if not build.model.gated_mlps:
        alone = build.linear([Part(f"{name}.{names.up}", rows)], hidden, bias=bias, rows_over=size)
        if build.model.activation == "xielu":
            return XieluMLP(name, alone, down, build.dtype, build.device)
        return _UNGATED.get(build.model.activation, SquaredMLP)(alone, down)
    gate = Part(f"{name}.{names.gate}", rows, within=(both, rows))
    up = Part(f"{name}.{names.up}", rows, within=(both, ups))
    if names.interleaves:
        gate, up = replace(gate, stored=both, taken=even_rows), replace(up, stored=both, taken=odd_rows)
    if names.multiplies_apart:
        one, other = (build.linear([part], hidden, rows_over=size) for part in (gate, up))
        return TwinMLP(one, other, down, build.model.activation)
    gate_up = build.linear([gate, up], hidden, bias=bias, rows_over=size)
    activation = build.model.activation
    scales = build.model.multipliers.mlp
    if scales is not None:
        return ScaledMLP(gate_up, down, activation, scales)
    if activation == "gegelu":
        return QuickGeluMLP(gate_up, down)
    if build.model.activation == "situ":
        assert build.model.swiglu is not None
        return SituMLP(gate_up, down, build.model.swiglu)
    if build.model.swiglu is not None:
        return ClampedMLP(gate_up, down, build.model.swiglu)
    if caps.closed is not None:
        return ClosedMLP(gate_up, down, activation, caps.closed, build.comm, size)
    return GatedMLP(gate_up, down, activation, caps.others, caps.before)

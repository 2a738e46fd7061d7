"""The second half of a layer, dense or with experts: takes this rank's rows, returns finished rows."""

from torch import Tensor, nn

from runtime.decoder.build import Build
from runtime.decoder.experts import Experts
from runtime.forward.dp_attention import gather, scatter
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import shard
from runtime.layers.mlp import MLP
from runtime.layers.quantization import PLAIN
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatcher import Dispatcher
from runtime.moe.router import Router
from runtime.moe.weights import TopK
from runtime.server.sizes.call_rules import fused_shared_experts


class DenseLayer(nn.Module):
    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        self.comm = build.comm
        size, rank = build.comm.size("tp"), build.comm.rank("tp")
        self.mlp = make_mlp(build, name, build.model.intermediate_size, size, rank)

    def forward(self, x: Tensor) -> Tensor:
        return scatter(self.mlp(gather(x, self.comm)), x.shape[0], self.comm)


class MoELayer(nn.Module):
    def __init__(self, build: Build, name: str, dispatcher: Dispatcher, backend: MoEBackend) -> None:
        super().__init__()
        model, moe = build.model, build.model.moe
        assert moe is not None
        self.dispatcher, self.backend = dispatcher, backend
        fused = fused_shared_experts(model, build.runtime, build.comm.size("moe_ep"))
        names = tuple(f"{name}.{one}" for one in ("gate", "router"))
        self.router = Router(names, model.hidden_size, moe, build.dtype, build.device, fused)
        self.experts = Experts(build, name, fused)
        self.latents = _latents(build, name) if moe.latent_size else None
        self._make_shared(build, name, fused)

    def _make_shared(self, build: Build, name: str, fused: int) -> None:
        """Make the shared experts that do not run as routed ones, and the gate that weighs them."""
        model, moe, comm = build.model, build.model.moe, build.comm
        assert moe is not None
        self.shared: MLP | None = None
        if moe.shared_intermediate_size and not fused:
            whole = self.dispatcher.replicates_shared_experts
            size, rank = (1, 0) if whole else (comm.size("tp"), comm.rank("tp"))
            inner = moe.shared_intermediate_size
            self.shared = make_mlp(build, model.shared_name(name), inner, size, rank)
        self.shared_gate: Linear | None = None
        if moe.shared_gate:
            gate = Part(f"{name}.shared_expert_gate", slice(0, 1))
            self.shared_gate = build.linear([gate], slice(0, model.hidden_size), scheme=PLAIN)

    def finalize(self) -> None:
        self.weights = self.backend.prepare(self.experts.weights())

    def forward(self, x: Tensor) -> Tensor:
        if self.shared is not None and self.dispatcher.replicates_shared_experts:
            return self._exchanged(x, None).add_(self._answer(self.shared, x))
        return self._exchanged(x, self.shared)

    def _exchanged(self, x: Tensor, shared: MLP | None) -> Tensor:
        """Run the experts; add the output of a `shared` expert that is split over the same ranks."""
        rows, topk = self.dispatcher.dispatch(x, self._route)
        out = self._experts(rows, topk)
        if shared is not None:
            out.add_(self._answer(shared, rows))
        return self.dispatcher.combine(out, x.shape[0])

    def _route(self, rows: Tensor) -> TopK:
        """Route the rows. A shared expert that runs as a routed one is weighted by its gate."""
        topk = self.router(rows)
        if self.shared is None and self.shared_gate is not None:
            topk.weights[:, -1:] = self.shared_gate(rows).sigmoid()
        return topk

    def _experts(self, rows: Tensor, topk: TopK) -> Tensor:
        if self.latents is None:
            return self.backend.forward(rows, topk, self.weights)
        down, up = self.latents
        return up(self.backend.forward(down(rows), topk, self.weights))

    def _answer(self, shared: MLP, x: Tensor) -> Tensor:
        answer = shared(x)
        return answer if self.shared_gate is None else answer.mul_(self.shared_gate(x).sigmoid_())


def _latents(build: Build, name: str) -> nn.ModuleList:
    """Return the projections into the experts' width and back; the second turns partial sums into such."""
    assert build.model.moe is not None
    hidden, latent = slice(0, build.model.hidden_size), slice(0, build.model.moe.latent_size)
    down = build.linear([Part(f"{name}.fc1_latent_proj", latent)], hidden)
    return nn.ModuleList([down, build.linear([Part(f"{name}.fc2_latent_proj", hidden)], latent)])


def make_mlp(build: Build, name: str, intermediate: int, size: int, rank: int) -> MLP:
    """Return one rank's part of an MLP that is split over `size` ranks."""
    rows = shard(intermediate, size, rank, "the MLP's intermediate size")
    hidden, is_gated = slice(0, build.model.hidden_size), build.model.style.gated
    down = build.linear([Part(f"{name}.down_proj", hidden)], rows, columns_over=size)
    ups = ("gate_proj", "up_proj") if is_gated else ("up_proj",)
    up = build.linear([Part(f"{name}.{one}", rows) for one in ups], hidden, rows_over=size)
    return MLP(up, down, build.model.style.activation if is_gated else "relu2")

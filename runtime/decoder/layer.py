"""One layer of a decoder: a mixer over the tokens of a request, an MLP on each token alone, or both."""

from dataclasses import dataclass

from torch import Tensor, nn

from runtime.decoder.build import Build
from runtime.decoder.gated_delta import GatedDeltaNet
from runtime.decoder.gqa import GroupedQueryAttention
from runtime.decoder.mamba2 import Mamba2Mixer
from runtime.decoder.mla import LatentAttention
from runtime.decoder.mlp import DenseLayer, MoELayer
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.norm import RMSNorm
from runtime.layers.rope import RopeTables
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatcher import Dispatcher
from runtime.server.layer_config import GatedDeltaConfig

Mixer = GatedDeltaNet | GroupedQueryAttention | LatentAttention | Mamba2Mixer

# By the model's `norms`: the norm before the mixer and the one after it, and those of the MLP.
_NORMS: dict[str, tuple[tuple[str, str | None], tuple[str, str | None]]] = {
    "before": (("input_layernorm", None), ("post_attention_layernorm", None)),
    "sandwich": (
        ("input_layernorm", "post_attention_layernorm"),
        ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
    ),
    "alone": (("norm", None), ("norm", None)),
}


@dataclass(frozen=True, slots=True, eq=False)
class StageState:
    """What layers and pipeline stages pass on: the last output, not yet added to the residual."""

    hidden: Tensor
    residual: Tensor | None = None  # None before the first layer

    @property
    def parts(self) -> dict[str, Tensor]:
        named = {"hidden": self.hidden, "residual": self.residual}
        return {name: rows for name, rows in named.items() if rows is not None}


class Norms(nn.Module):
    """The norms before and after one part of a layer."""

    def __init__(self, build: Build, layer: str, names: tuple[str, str | None]) -> None:
        super().__init__()
        before, after = names
        self.before = build.norm_of_rows(f"{layer}.{before}")
        self.after: RMSNorm | None = None if after is None else build.norm_of_rows(f"{layer}.{after}")

    def enter(self, state: StageState) -> tuple[Tensor, Tensor]:
        """Return the part's input, and the residual with the last output added."""
        if state.residual is None:
            return self.before(state.hidden), state.hidden
        return self.before.add(state.hidden, state.residual), state.residual

    def leave(self, answer: Tensor) -> Tensor:
        return answer if self.after is None else self.after.in_place(answer)


class DecoderLayer(nn.Module):
    def __init__(
        self,
        build: Build,
        layer_id: int,
        dispatcher: Dispatcher,
        backend: MoEBackend | None,
        ropes: RopeTables,
    ) -> None:
        super().__init__()
        model, name = build.model, build.model.layer_name(layer_id)
        self.number, self.comm, self.kind = layer_id, build.comm, model.kind_of(layer_id)
        of_mixer, of_mlp = _NORMS[model.style.norms]
        self.mixer = _mixer(build, layer_id, name)
        keeps_tokens = model.keeps_tokens(layer_id)
        self.table_name = ropes.lay(model.layer_attention(layer_id).rope) if keeps_tokens else None
        self.mixer_norms = None if self.mixer is None else Norms(build, name, of_mixer)
        self.mlp = _mlp(build, layer_id, f"{name}.{model.names.mlp}", dispatcher, backend)
        self.mlp_norms = None if self.mlp is None else Norms(build, name, of_mlp)

    def forward(
        self, state: StageState, batch: ForwardBatch, pool: KVPool, table: Tensor | None
    ) -> StageState:
        if self.mixer is not None and self.mixer_norms is not None:
            rows, residual = self.mixer_norms.enter(state)
            if rows.shape[0]:
                rows = self.comm.all_reduce(self.mixer(rows, batch, pool, table), "attn_tp")
            state = StageState(self.mixer_norms.leave(rows), residual)
        if self.mlp is not None and self.mlp_norms is not None:
            rows, residual = self.mlp_norms.enter(state)
            state = StageState(self.mlp_norms.leave(self.mlp(rows)), residual)
        return state


def _mixer(build: Build, layer_id: int, layer: str) -> Mixer | None:
    model = build.model
    if model.is_recurrent(layer_id):
        recurrence = GatedDeltaNet if isinstance(model.recurrent, GatedDeltaConfig) else Mamba2Mixer
        return recurrence(build, layer_id, f"{layer}.{model.names.recurrent}")
    if not model.keeps_tokens(layer_id):
        return None
    attention = LatentAttention if model.mla is not None else GroupedQueryAttention
    return attention(build, layer_id, f"{layer}.{model.names.attention}")


def _mlp(
    build: Build, layer_id: int, name: str, dispatcher: Dispatcher, backend: MoEBackend | None
) -> DenseLayer | MoELayer | None:
    kind = build.model.layer_kinds[layer_id]
    if kind == "moe":
        assert backend is not None
        return MoELayer(build, name, dispatcher, backend)
    return DenseLayer(build, name) if kind == "dense" else None

"""What a layer is made of, by its model and its number."""

from __future__ import annotations

from collections.abc import Callable

from runtime.models.apart import apart_attention, apart_mlp
from runtime.models.bank import Banks
from runtime.models.behind import behind_attention, behind_mlp
from runtime.models.block_attention import BlockAttention
from runtime.models.build import Build
from runtime.models.chained_experts import ChainedExperts
from runtime.models.compressed_attention import CompressedAttention
from runtime.models.convolved_attention import ConvolvedAttention
from runtime.models.counted_norms import counted_attention, counted_mlp
from runtime.models.cross_attention import CrossAttention
from runtime.models.distance_attention import DistanceAttention
from runtime.models.dynamic_delta import DynamicDelta
from runtime.models.entered import entered_attention, entered_mlp
from runtime.models.experts_beside import ExpertsBeside
from runtime.models.gated_delta import GatedDeltaNet
from runtime.models.gated_residual import GatedResidual, gated_attention, gated_mlp
from runtime.models.gqa import GroupedQueryAttention
from runtime.models.kimi_delta import KimiDelta
from runtime.models.late import late_attention
from runtime.models.latent_experts import LatentExperts
from runtime.models.lightning import LightningAttention
from runtime.models.loose_experts import LooseExperts
from runtime.models.mamba2 import Mamba2Mixer
from runtime.models.mla import LatentAttention
from runtime.models.mlp import DenseLayer, MoELayer
from runtime.models.normed_experts import NormedExperts
from runtime.models.parallel_mixers import ParallelMixers
from runtime.models.routed_values import RoutedValueAttention
from runtime.models.scaled_dense import ScaledDense
from runtime.models.scaled_entry import ScaledEntry, scaled_entry
from runtime.models.selective_scan import SelectiveScan
from runtime.models.short_conv import ShortConv
from runtime.models.sink_experts import SinkExperts
from runtime.models.sublayer import JoinedNorms, SublayerNorms, around_attention, around_mlp
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher
from runtime.server.call_rules import has_loose_experts_in_file
from runtime.server.config import ModelConfig
from runtime.server.layer_config import RopeConfig
from runtime.server.recurrent import (
    AddedConvolutionsConfig,
    DynamicDeltaConfig,
    GatedDeltaConfig,
    KimiDeltaConfig,
    LightningConfig,
    Mamba2Config,
    ShortConvConfig,
    TwiceConvolvedConfig,
)
from runtime.server.selective_scan import SelectiveScanConfig

_Delta = DynamicDelta | GatedDeltaNet | KimiDelta
RecurrentMixer = _Delta | LightningAttention | Mamba2Mixer | SelectiveScan | ShortConv
_Convolved = ConvolvedAttention | DistanceAttention
HeadAttention = BlockAttention | _Convolved | GroupedQueryAttention | RoutedValueAttention
Attention = CompressedAttention | HeadAttention | LatentAttention
Mixer = Attention | RecurrentMixer | ParallelMixers
_RECURRENT: dict[type, type[RecurrentMixer]] = {
    DynamicDeltaConfig: DynamicDelta,
    GatedDeltaConfig: GatedDeltaNet,
    KimiDeltaConfig: KimiDelta,
    LightningConfig: LightningAttention,
    Mamba2Config: Mamba2Mixer,
    SelectiveScanConfig: SelectiveScan,
    ShortConvConfig: ShortConv,
}

# Where a style has more than norms, of a mixer and of an MLP.
_Own = Callable[[Build, int], SublayerNorms | ScaledEntry | GatedResidual]
_AROUND_MIXER: dict[str, _Own] = {
    "gated": gated_attention,
    "entered": entered_attention,
    "scaled": scaled_entry,
    "counted": counted_attention,
    "behind": behind_attention,
    "apart": apart_attention,
    "late": late_attention,
}
_AROUND_MLP: dict[str, _Own] = {
    "gated": gated_mlp,
    "entered": entered_mlp,
    "scaled": scaled_entry,
    "counted": counted_mlp,
    "behind": behind_mlp,
    "apart": apart_mlp,
}


def rope_of(model: ModelConfig, layer_id: int) -> RopeConfig | None:
    recurrent = model.recurrent
    if isinstance(recurrent, LightningConfig) and model.is_recurrent(layer_id):
        return recurrent.rope
    return model.layer_attention(layer_id).rope if model.keeps_tokens(layer_id) else None


def around_mixer(build: Build, layer_id: int) -> SublayerNorms | JoinedNorms | ScaledEntry | GatedResidual:
    own = _AROUND_MIXER.get(build.model.norms)
    if own is not None:
        return own(build, layer_id)
    return around_attention(build, build.model.layer_name(layer_id), build.model.half_name(layer_id))


def around_own_mlp(build: Build, layer_id: int) -> SublayerNorms | ScaledEntry | GatedResidual | None:
    own = _AROUND_MLP.get(build.model.norms)
    if own is not None:
        return own(build, layer_id)
    return around_mlp(build, build.model.layer_name(layer_id), build.model.half_name(layer_id))


def mixer_of(build: Build, layer_id: int, layer: str) -> Mixer | None:
    """What tells the tokens of a request of each other."""
    model = build.model
    if not model.keeps_tokens(layer_id):
        return _recurrence(build, layer_id, layer) if model.is_recurrent(layer_id) else None
    part = model.attention_name(model.attention_kinds[layer_id])
    name = f"{layer}.{part}{model.half_name(layer_id)}"
    attention = _attention_of(model, layer_id)(build, layer_id, name)
    if not model.is_recurrent(layer_id) or isinstance(attention, _Convolved):
        return attention
    recurrence = _recurrence(build, layer_id, layer)
    assert isinstance(attention, GroupedQueryAttention) and isinstance(recurrence, Mamba2Mixer)
    return ParallelMixers(attention, recurrence, model.multipliers)


def _attention_of(model: ModelConfig, layer_id: int) -> type[Attention]:
    if model.compressed is not None:
        return CompressedAttention
    if isinstance(model.recurrent, TwiceConvolvedConfig):
        return ConvolvedAttention
    if isinstance(model.recurrent, AddedConvolutionsConfig):
        return DistanceAttention
    if model.layer_attention(layer_id).crosses:
        return CrossAttention
    if model.layer_attention(layer_id).blocks is not None:
        return BlockAttention
    if model.layer_attention(layer_id).value_gate_by is not None:
        return RoutedValueAttention
    return LatentAttention if model.is_mla else GroupedQueryAttention


def _recurrence(build: Build, layer_id: int, layer: str) -> RecurrentMixer:
    mixer = _RECURRENT[type(build.model.recurrent)]
    return mixer(build, layer_id, f"{layer}.{build.model.names.recurrent}")


def mlp_of(
    build: Build,
    layer_id: int,
    name: str,
    dispatcher: Dispatcher,
    backend: MoEBackend | None,
    banks: Banks,
) -> DenseLayer | MoELayer | ExpertsBeside | LooseExperts | None:
    kind, caps = build.model.layer_kinds[layer_id], build.model.layer_caps(layer_id)
    build = build.of_layer(layer_id) if kind == "moe" else build
    if kind == "moe" and not build.model.shortcut:
        assert backend is not None and build.model.moe is not None
        if build.model.moe.beside_dense:
            return ExpertsBeside(build, layer_id, dispatcher, backend)
        if has_loose_experts_in_file(build.model, build.method):
            return LooseExperts(build, name)
        if build.model.moe.router_width is not None:
            return ChainedExperts(build, name, dispatcher, backend)
        if build.model.moe.answer_eps is not None:
            return NormedExperts(build, name, dispatcher, backend)
        if build.model.moe.sinks:
            return SinkExperts(build, name, dispatcher, backend)
        if build.model.moe.sums_latents:
            return LatentExperts(build, name, dispatcher, backend)
        bank = banks.of(build.model.block_name(layer_id)) if build.model.moe.banks else None
        return MoELayer(build, name, dispatcher, backend, caps, build.model.moe.is_hashed(layer_id), bank)
    if kind == "none":
        return None
    dense = ScaledDense if build.model.scaled_mlps else DenseLayer
    return dense(build, name, build.model.mlp_size(layer_id), caps)


def beside_of(
    build: Build, layer_id: int, dispatcher: Dispatcher, backend: MoEBackend | None
) -> MoELayer | None:
    """Experts that read what a dense MLP reads."""
    model = build.model
    if not model.shortcut or model.layer_kinds[layer_id] != "moe":
        return None
    assert backend is not None
    return MoELayer(build, model.block_name(layer_id), dispatcher, backend)

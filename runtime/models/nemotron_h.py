"""Nemotron-H and Nemotron 3: each layer is Mamba-2, attention without positions, an MLP, or experts."""

from dataclasses import dataclass
from typing import Any

from runtime.models.parts import SILU, Routed, check_both, heads, model
from runtime.models.reading import members, shown
from runtime.server.asked import Asked
from runtime.server.bounds import LAYERS, check_size
from runtime.server.choices.attention import by_heads
from runtime.server.config import ModelConfig, Traits
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.family import Family, Weights
from runtime.server.gpus import GpuModel
from runtime.server.layer_config import Mamba2Config, TensorNames

_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}
# What mixes tokens in a layer, and what follows.
_KINDS = {
    "mamba": ("recurrent", "none"),
    "attention": ("full", "none"),
    "mlp": ("none", "dense"),
    "moe": ("none", "moe"),
}
_PLACES = {"attention": "mixer", "recurrent": "mixer", "mlp": "mixer"}
_NAMES = TensorNames("backbone.layers", "backbone.embeddings", "backbone.norm_f", **_PLACES)


@dataclass(frozen=True, kw_only=True)
class Mamba2Fields(Routed):
    """The fields of its recurrent layers."""

    SPELLED = members(
        conv_kernel=("mamba_d_conv",), use_conv_bias=("mamba_conv_bias",), time_step_min=("mamba_dt_min",)
    )

    ssm_state_size: int = 128
    mamba_num_heads: int = 128
    mamba_head_dim: int = 64
    n_groups: int = 8
    mamba_n_groups: int = 8
    conv_kernel: int = 4
    use_conv_bias: bool = True
    use_bias: bool = False
    time_step_min: float = 0.001

    def mamba(self) -> Mamba2Config:
        """Return the mixer's sizes. SGLang reads both counts of groups, so they must not differ."""
        if self.n_groups != self.mamba_n_groups:
            other = f"mamba_n_groups {self.mamba_n_groups}, by which SGLang makes matrices"
            self.cannot(f"n_groups is {self.n_groups}, and {other}")
        return Mamba2Config(
            num_heads=self.mamba_num_heads,
            head_dim=self.mamba_head_dim,
            num_groups=self.mamba_n_groups,
            state_size=self.ssm_state_size,
            conv_kernel=self.conv_kernel,
            conv_bias=self.use_conv_bias,
            bias=self.use_bias,
            least_step=self.time_step_min,
        )


@dataclass(frozen=True, kw_only=True)
class NemotronHConfig(Mamba2Fields):
    ONLY = members(
        sliding_window=(),
        mlp_hidden_act=("relu2",),
        mamba_hidden_act=SILU,
        mlp_bias=(False,),
        tie_word_embeddings=(False,),
        n_shared_experts=(1,),
    )
    SPELLED = members(**Mamba2Fields.SPELLED, rms_norm_eps=("layer_norm_epsilon",))

    num_hidden_layers: int = 1  # the number that config.json gives
    intermediate_size: int = 21504
    num_attention_heads: int = 32
    num_key_value_heads: int | None = 8
    head_dim: int | None = 128
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-5
    n_routed_experts: int = 8
    n_shared_experts: int = 1
    moe_intermediate_size: int = 7688
    moe_shared_expert_intermediate_size: int = 7688
    moe_latent_size: int | None = None
    num_experts_per_tok: int = 2
    vocab_size: int = 131072
    hidden_size: int = 4096

    def layers(self) -> list[str]:
        """Return the kind of each layer, from a list of words or from a text with one letter per layer."""
        names = (self.hf.get(name) for name in ("layers_block_type", "layer_types"))
        listed: Any = next((one for one in names if one is not None), None)
        if listed is None:
            pattern = self.hf.get("hybrid_override_pattern", "ME*-")
            if not isinstance(pattern, str):
                raise ConfigError("config.json: hybrid_override_pattern is no text")
            listed = [_LETTERS.get(letter, letter) for letter in pattern]
        if not isinstance(listed, list) or not listed:
            raise ConfigError("config.json: layers_block_type is no list of layers")
        check_size("config.json: the layers of layers_block_type", len(listed), LAYERS)
        kinds = [_WORDS.get(one, one) if isinstance(one, str) else one for one in listed]
        if kinds != listed:
            self.cannot(f"layers_block_type has {', '.join(_WORDS)}: SGLang knows {', '.join(_KINDS)}")
        for one in kinds:
            if not isinstance(one, str) or one not in _KINDS:
                raise Unsupported(f"config.json: a layer of {shown(one)}: here are {', '.join(_KINDS)}")
        return kinds


def nemotron_h(c: NemotronHConfig) -> ModelConfig:
    listed = c.layers()
    mixers, mlps = ([_KINDS[kind][half] for kind in listed] for half in (0, 1))
    check_both(c, mixers)
    shared, latent = c.moe_shared_expert_intermediate_size, c.moe_latent_size
    moe = c.routed(shared_intermediate_size=shared, latent_size=latent) if "moe" in mlps else None
    return model(
        c,
        {"full": heads(c, None)},
        mixers,
        mlps,
        style={"norms": "alone", "gated": False},
        recurrent=c.mamba() if "recurrent" in mixers else None,
        moe=moe,
        traits=Traits(routing="deepseek", draft="last", names=_NAMES),
    )


def attention(asked: Asked, major: int, page: int | None) -> tuple[str, int | None]:
    if major not in (10, 12) or asked.speculative_algorithm is None:
        return by_heads(asked, major), page
    one_branch = major == 10 and asked.speculative_eagle_topk in (None, 1)
    return ("trtllm_mha", page or 64) if one_branch else ("triton", page)


def experts(asked: Asked, weights: Weights, gpu: GpuModel) -> str | None:
    if gpu.major == 10 and asked.moe_a2a_backend == "none":
        return "flashinfer_trtllm"
    return "marlin" if weights.stored == "modelopt_fp4" and gpu.major in (8, 9) else "flashinfer_cutlass"


FAMILIES = (
    Family(
        "nemotron_h",
        "NemotronHForCausalLM",
        "NemotronHConfig",
        NemotronHConfig,
        nemotron_h,
        attention=attention,
        experts=experts,
        writes_modelopt=True,
        keeps_states=True,
    ),
)

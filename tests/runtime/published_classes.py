"""Config classes that are files of their checkpoints: their fields, and what leaving one out says."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from tests.runtime.baichuan import BaichuanConfig
from tests.runtime.chatglm import ChatGLMConfig
from tests.runtime.deepseek_moe import DeepseekConfig
from tests.runtime.dots3_class import Dots3Config
from tests.runtime.exaone import ExaoneConfig
from tests.runtime.gigachat_class import GigaChat35Config
from tests.runtime.grok import GrokConfig
from tests.runtime.inkling_class import InklingModelConfig
from tests.runtime.iquest_loopcoder import IQuestLoopCoderConfig
from tests.runtime.iquest_q1 import IQuestQ1Config
from tests.runtime.jet_nemotron import JetNemotronConfig
from tests.runtime.k2_horizon import K2HorizonConfig
from tests.runtime.minicpm import MiniCPMConfig
from tests.runtime.minicpm_sala import MiniCPMSALAConfig
from tests.runtime.mobius import InternS2MobiusTextConfig
from tests.runtime.moss_vl import MossVLTextConfig
from tests.runtime.nanbeige import NanbeigeConfig
from tests.runtime.nemotron_puzzle import NemotronHPuzzleConfig
from tests.runtime.orion import OrionConfig
from tests.runtime.phi3_small import Phi3SmallConfig
from tests.runtime.small_llamas import QWenConfig, TeleFLMConfig, XverseConfig
from tests.runtime.solar import SolarConfig
from tests.runtime.spark2_5 import Spark2_5Config
from tests.runtime.step3 import Step3TextConfig
from tests.runtime.xverse_moe import XverseMoeConfig
from tests.runtime.zaya import ZayaConfig


class BailingMoeConfig(PreTrainedConfig):
    """Of Ling 1."""

    model_type = "bailing_moe"
    vocab_size: int = 30592
    hidden_size: int = 1024
    intermediate_size: int | None = None
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_key_value_heads: int = 0
    hidden_act: str = "silu"
    use_qkv_bias: bool = False
    use_bias: bool = True
    rms_norm_eps: float = 1e-5
    norm_head: bool = False
    tie_word_embeddings: bool = False
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    output_dropout: float = 0.1
    max_position_embeddings: int = 16384
    rope_parameters: dict[str, Any] | None = None
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    pad_token_id: int | None = 126081
    num_experts: int = 16
    num_shared_experts: int = 0
    num_experts_per_tok: int = 2
    norm_topk_prob: bool = True
    moe_intermediate_size: int | None = None
    first_k_dense_replace: int = 0
    head_dim: int | None = None
    output_router_logits: bool = False


class BailingMoeV2Config(PreTrainedConfig):
    """Of Ling 2.0."""

    model_type = "bailing_moe_v2"
    default_theta = 600000.0
    vocab_size: int = 157184
    hidden_size: int = 2048
    intermediate_size: int = 5120
    num_hidden_layers: int = 20
    num_attention_heads: int = 16
    num_key_value_heads: int = 4
    hidden_act: str = "silu"
    use_qkv_bias: bool = False
    use_bias: bool = False
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    output_dropout: float = 0.0
    max_position_embeddings: int = 32768
    rope_parameters: dict[str, Any] | None = None
    max_window_layers: int = 20
    pad_token_id: int | None = 156892
    eos_token_id: int | None = 156892
    num_experts: int = 256
    num_shared_experts: int = 1
    num_experts_per_tok: int = 8
    n_group: int = 8
    topk_group: int = 4
    moe_intermediate_size: int = 512
    first_k_dense_replace: int = 1
    head_dim: int | None = 128
    output_router_logits: bool = False
    use_qk_norm: bool = True
    num_nextn_predict_layers: int = 0
    mtp_loss_scaling_factor: float = 0.0
    moe_router_enable_expert_bias: bool = True
    routed_scaling_factor: float = 1.0


class SarvamMoEConfig(BailingMoeV2Config):
    """Of Sarvam: its fields are those of the class that serves it."""

    model_type = "sarvam_moe"


class SarvamMLAConfig(PreTrainedConfig):
    """Of Sarvam 105B: its fields are those of the class that serves it."""

    model_type = "sarvam_mla"
    vocab_size: int = 262144
    hidden_size: int = 4096
    intermediate_size: int = 16384
    num_hidden_layers: int = 32
    num_attention_heads: int = 64
    hidden_act: str = "silu"
    max_position_embeddings: int = 131072
    initializer_range: float = 0.006
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    tie_word_embeddings: bool = False
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0
    output_dropout: float = 0.0
    output_router_logits: bool = False
    use_qk_norm: bool = True
    rope_parameters: dict[str, Any] | None = None
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    num_experts: int = 128
    num_experts_per_tok: int = 8
    num_shared_experts: int = 1
    moe_intermediate_size: int = 2048
    first_k_dense_replace: int = 1
    moe_router_enable_expert_bias: bool = True
    routed_scaling_factor: float = 2.5


class LLaDA2MoeConfig(BailingMoeV2Config):
    """Of LLaDA2: its fields are those of the class that serves it."""

    model_type = "llada2_moe"


class BailingMoeV2_5Config(BailingMoeV2Config):
    """Of Ling 2.5."""

    model_type = "bailing_hybrid"
    layer_group_size: int = 5
    group_norm_size: int = 4
    linear_silu: bool = False
    kv_lora_rank: int = 512
    q_lora_rank: int | None = None
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    qk_nope_head_dim: int = 128
    rope_interleave: bool = True
    partial_rotary_factor: float = 0.5
    score_function: str = "sigmoid"
    scoring_func: str = "sigmoid"
    seq_aux: bool = True
    topk_method: str = "noaux_tc"
    router_dtype: str = "fp32"


class InternLM2Config(PreTrainedConfig):
    model_type = "internlm2"
    vocab_size: int = 103168
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    tie_word_embeddings: bool = False
    bias: bool = True
    rope_parameters: dict[str, Any] | None = None


class DeciLMConfig(PreTrainedConfig):
    """Llama's, and what each layer has."""

    model_type = "nemotron-nas"
    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int | None = None
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    pretraining_tp: int | None = 1
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False
    head_dim: int | None = None
    block_configs: list[dict[str, Any]] | None = None


class SDARConfig(PreTrainedConfig):
    """Its fields are Qwen3's."""

    model_type = "sdar"
    vocab_size: int = 151936
    hidden_size: int = 4096
    intermediate_size: int = 22016
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 32
    head_dim: int = 128
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    attention_dropout: float = 0.0


class SDARMoeConfig(SDARConfig):
    """Its fields are Qwen3-MoE's."""

    model_type = "sdar_moe"
    intermediate_size: int = 6144
    num_key_value_heads: int = 4
    decoder_sparse_step: int = 1
    moe_intermediate_size: int = 768
    num_experts_per_tok: int = 8
    num_experts: int = 128
    norm_topk_prob: bool = True
    output_router_logits: bool = False
    router_aux_loss_coef: float = 0.001
    mlp_only_layers: list[int] | None = None


class InternS1ProTextConfig(PreTrainedConfig):
    """Of Intern-S1-Pro."""

    model_type = "interns1_pro_text"
    default_theta = 5e6
    vocab_size: int = 151936
    hidden_size: int = 2048
    intermediate_size: int = 5632
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 16
    hidden_act: str = "silu"
    max_position_embeddings: int = 128000
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    decoder_sparse_step: int = 1
    moe_intermediate_size: int = 1408
    num_experts_per_tok: int = 4
    num_experts: int = 60
    norm_topk_prob: bool = True
    router_aux_loss_coef: float = 0.001
    mlp_only_layers: list[int] | None = None
    head_dim: int | None = None


class KimiK3Config(PreTrainedConfig):
    """SGLang's KimiLinearConfig, as its class of K3 reads it."""

    model_type = "kimi_k3_text"
    vocab_size: int = 163840
    hidden_size: int = 4096
    head_dim: int | None = None
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    hidden_act: str = "silu"
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    tie_word_embeddings: bool = False
    moe_intermediate_size: int | None = None
    moe_renormalize: bool = True
    moe_router_activation_func: str = "sigmoid"
    num_experts: int | None = None
    num_experts_per_token: int | None = None
    num_shared_experts: int = 0
    routed_scaling_factor: float = 1.0
    first_k_dense_replace: int = 0
    moe_layer_freq: int = 1
    use_grouped_topk: bool = True
    num_expert_group: int = 1
    topk_group: int = 1
    topk_method: str = "noaux_tc"
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    mla_use_nope: bool = False
    num_nextn_predict_layers: int = 0
    linear_attn_config: dict[str, Any] | None = None
    attn_res_block_size: int | None = None
    routed_expert_hidden_size: int | None = None
    latent_moe_use_norm: bool = False
    activation_situ_beta: float | None = None
    activation_situ_linear_beta: float | None = None
    mla_use_output_gate: bool = False
    max_position_embeddings: int = 4096


CLASSES: dict[str, Any] = {
    one.model_type: one
    for one in (
        BailingMoeConfig,
        BailingMoeV2Config,
        BailingMoeV2_5Config,
        GigaChat35Config,
        Step3TextConfig,
        DeciLMConfig,
        DeepseekConfig,
        Dots3Config,
        ExaoneConfig,
        GrokConfig,
        InternLM2Config,
        InternS1ProTextConfig,
        InternS2MobiusTextConfig,
        InklingModelConfig,
        IQuestLoopCoderConfig,
        IQuestQ1Config,
        JetNemotronConfig,
        K2HorizonConfig,
        KimiK3Config,
        MiniCPMConfig,
        MiniCPMSALAConfig,
        NanbeigeConfig,
        NemotronHPuzzleConfig,
        OrionConfig,
        QWenConfig,
        ZayaConfig,
        SarvamMLAConfig,
        SarvamMoEConfig,
        SDARConfig,
        LLaDA2MoeConfig,
        SDARMoeConfig,
        Spark2_5Config,
        TeleFLMConfig,
        BaichuanConfig,
        ChatGLMConfig,
        XverseConfig,
        XverseMoeConfig,
        Phi3SmallConfig,
        SolarConfig,
        MossVLTextConfig,
    )
}
# What no model of theirs leaves out.
NEEDED: dict[str, dict[str, Any]] = {
    "bert": {"position_embedding_type": "absolute"},
    "xlm-roberta": {"position_embedding_type": "absolute"},
    "embedding_gemma": {"use_bidirectional_attention": True},
    "bailing_moe": {"num_key_value_heads": 4, "moe_intermediate_size": 1408, "use_bias": False},
    "bailing_moe_v2": {"norm_topk_prob": True},
    "diffusion_gemma_text": {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64},
    "deepseek": {"n_routed_experts": 64, "num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "xverse_moe": {
        **{"num_experts": 64, "num_shared_experts": 2, "moe_top_k": 6, "intermediate_size": 1728},
        **{"max_position_embeddings": 8192, "rms_norm_eps": 1e-6},
    },
    "sarvam_moe": {"norm_topk_prob": True},
    "llada2_moe": {"norm_topk_prob": True, "score_function": "sigmoid"},
    "laguna": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share}
            for kind, theta, share in (("full_attention", 5e5, 0.5), ("sliding_attention", 1e4, 1.0))
        }
    },
    "phimoe": {"lm_head_bias": True},
    "grok": {
        **{"intermediate_size": 128, "num_key_value_heads": 4, "max_position_embeddings": 8192},
        **{"rms_norm_eps": 1e-5, "num_local_experts": 8, "num_experts_per_tok": 2},
        **{"embedding_multiplier_scale": 2.0, "output_multiplier_scale": 0.5},
    },
    "step3_text": {"moe_layers_enum": "1"},
    "moss_vl_text": {"cross_attention_layers": [2, 6, 10]},
    "gigachat3_5": {
        **{"full_attention_layers": [3, 7, 11], "linear_gating_type": "gated_rmsnorm_sigmoid_zero_centered"},
        "rope_scaling": {
            **{"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512},
            **{"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    },
    "k2_horizon": {
        **{"mlp_only_layers": [0, 1, 2], "num_experts": 100, "num_experts_per_tok": 8, "moe_gate_bias": True},
        **{"moe_intermediate_size": 768, "mova_num_experts": 64, "mova_num_experts_per_tok": 4},
        **{"attention_gate_func": "softplus", "xllm_source_router_gemm_partitions": 2},
    },
    "longcat_flash": {"qk_rope_head_dim": 64},
    "afmoe": {"head_dim": 128, "max_position_embeddings": 16384},
    "kimi_k3_text": {
        **{"hidden_act": "situ", "activation_situ_beta": 4.0, "num_experts": 8, "num_experts_per_token": 2},
        **{"moe_intermediate_size": 64, "routed_expert_hidden_size": 32, "attn_res_block_size": 4},
        **dict.fromkeys(("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 32),
        "linear_attn_config": {
            **{"kda_layers": [1, *range(3, 33)], "full_attn_layers": [2], "use_full_rank_gate": True},
            **{"num_heads": 4, "head_dim": 32, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
        },
    },
    "nemotron-nas": {
        "block_configs": [{"attention": {"no_op": False, "n_heads_in_group": 8}, "ffn": {"no_op": True}}] * 31
        + [{"attention": {"no_op": True}, "ffn": {"no_op": False, "ffn_mult": 2.625}}],
    },
    "nemotron_h_puzzle": {
        "layers_block_type": ["mamba", "attention", "mlp", "moe"],
        "block_configs": [{"block_type": kind} for kind in ("mamba", "attention", "mlp", "moe")],
    },
    "dots3_note_text": {"layer_types": ["full_attention", "sliding_attention"] * 15},
    "solar": {
        **{"intermediate_size": 128, "num_key_value_heads": 4, "max_position_embeddings": 4096},
        **{"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "bskcn_1": [1], "bskcn_2": [2]},
        **{"bskcn_3": [3], "bskcn_4": [4], "bskcn_tv": [0.9, 0.8]},
    },
    "inkling_model": {
        **{"head_dim": 128, "swa_num_attention_heads": 12, "swa_num_key_value_heads": 4, "swa_head_dim": 128},
        **{
            "dense_intermediate_size": 3072,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "route_scale": 2.0,
        },
        **{"local_layer_ids": [0, 1, 2, 3, 4], "logits_mup_width_multiplier": 6.0, "use_embed_norm": True},
        **dict.fromkeys(("use_sconv", "use_gate_bias", "use_global_scale", "shared_expert_sink"), True),
    },
    "minicpm_sala": {"mixer_types": ["minicpm4", "lightning-attn"], "lightning_nkv": 32},
    "jet_nemotron": {
        **{"num_hidden_layers": 3, "hidden_size": 1536, "num_attention_heads": 12},
        **{"num_key_value_heads": 2, "intermediate_size": 8960, "max_position_embeddings": 131072},
        **{"rms_norm_eps": 1e-6, "hidden_act": "silu", "rope_theta": 1e6, "tie_word_embeddings": True},
        "layer_types": ["jet", "attn", "swa"],
        "efficient_attention_config": {
            "jet": {
                **{"mode": "chunk", "expand_v": 2, "num_heads": 4, "head_dim": 32, "norm_eps": "1e-5"},
                **{"conv_size": 4, "dconv_generator_reduction": 8, "dconv_implementation": "triton"},
            },
            "swa": {"window_size": 1152},
        },
    },
    "iquestloopcoder": {
        **{"num_key_value_heads": 8, "intermediate_size": 27648, "max_position_embeddings": 131072},
        **{"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu"},
        **{"loop_num": 2, "loop_window_size": 64, "rope_theta": 500000.0},
    },
    "hy_v3": {"first_k_dense_replace": 1, "qk_norm": True, "route_norm": True},
}

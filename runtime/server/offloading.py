"""Layers whose weights lie in the host's memory and are copied for each forward: --cpu-offload-gb.

OffloaderV1 of srt/utils/offloader.py takes one matrix after another, as classes of srt/models make them,
until its budget is spent. make_layers of srt/utils/common.py asks it, which some classes do without.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.shape import Server

FLAGS = (
    *("cpu_offload_gb", "offload_group_size", "offload_num_in_group", "offload_prefetch_step"),
    "offload_mode",
)
# Parts of a layer as it is made here, in the order in which SGLang's class makes them. Norms of rows are as
# large as each other, and are made last.
Walk = tuple[str, ...]
_USUAL: Walk = ("mixer.", "mlp.", "")
_ROUTER_LAST: Walk = ("mixer.", "mlp.experts.", *_USUAL)
_WALKS: dict[str, Walk] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "ernie4_5", "glm4", "phi3", "gemma3_text"), _USUAL),
    **dict.fromkeys(("exaone4", "olmo", "starcoder2", "arcee", "internlm3", "orion", "solar"), _USUAL),
    **dict.fromkeys(("mixtral", "cohere2_moe", "phimoe"), _USUAL),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), _ROUTER_LAST),
    "qwen3": ("mixer.norms.", *_USUAL),
    "olmoe": ("mixer.qkv.", "mixer.norms.", *_USUAL),
    **dict.fromkeys(("olmo2", "olmo3"), ("mixer.qkv.", "mixer.norms.k_norm.", "mixer.norms.", *_USUAL)),
}
# Whose classes keep their layers in a list of their own.
_ASKS_NOBODY = frozenset(
    (
        *("chatglm", "cohere", "cohere2", "dbrx", "exaone", "gemma", "gpt2", "gpt_bigcode", "gptj"),
        *("granite", "granitemoe", "granitemoeshared", "hunyuan_v1_dense", "hunyuan_v1_moe"),
        *("minicpm", "minicpm3", "xverse", "qwen", "stablelm"),
    )
)


def takes_layers(model: ModelConfig) -> bool | None:
    """Whether its class asks an offloader what becomes of its layers, and says nothing of them; None where
    nobody here knows."""
    if model.by_transformers or model.encoder is not None:
        return None
    if model.model_type in _ASKS_NOBODY:
        return False
    return True if model.model_type in _WALKS else None


def walk_of(model: ModelConfig, runtime: RuntimeConfig) -> Walk | None:
    """None where nobody here knows it; an empty one where nothing is taken."""
    takes = takes_layers(model)
    if not takes:
        return None if takes is None else ()
    is_plain = runtime.quantization is None and model.checkpoint_quantization is None
    if not is_plain or model.rounds > 1 or (model.moe is not None and not _stays(model, runtime)):
        return None
    return _WALKS.get(model.model_type)


def _stays(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """Experts, as they were made: some kernels lay them out anew, and TopK keeps a router's correction."""
    moe = model.moe
    is_as_made = runtime.served_by in ("auto", "triton") and runtime.moe_a2a_backend == "none"
    return moe is not None and is_as_made and not moe.correction_bias


def follows_offloading(model: ModelConfig, server: Server) -> bool:
    """Groups of layers are not asked for beside it; by themselves they end what is known of here."""
    if server.asked.cpu_offload_gb <= 0:
        in_groups = server.asked.others.get("offload_group_size", -1) > 0
        return not in_groups or takes_layers(model) is not None
    return server.runtime.offloaded > 0 and walk_of(model, server.runtime) is not None

"""Where servers of MiniMax-M3.1 end: at how a file says it is stored, and on Blackwell at other layers.

SGLang 0.5.23's srt/layers/quantization/minimax_m3_nvfp4.py; there, mem_cache/minimax_m3_nvfp4_pool.py and
layers/attention/minimax_sparse_nvfp4_backend.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runtime.server.families import MINIMAX_NVFP4
from runtime.server.minimax_nvfp4 import BLACKWELL
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_MEGAMOE, _ROUTED = "megamoe", "flashinfer_trtllm_routed"
_SCALES = [1, 32]
_WORDS = {"kv_cache_quant_algo": "FP8", "attention_quant_algo": "FP8", "index_k_quant_type": "NVFP4"}
_HEADS = {"num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128}
_INDEXER = {
    "sparse_index_dim": 128,
    "sparse_block_size": 128,
    "sparse_topk_blocks": 16,
    "sparse_num_index_heads": 4,
}
_TILE = 256  # of MegaMoE's kernels, in nvfp4


def ends_of_minimax_nvfp4(deployment: Deployment) -> Iterator[str]:
    if deployment.quantization != MINIMAX_NVFP4 or deployment.server.is_draft:
        return
    yield from _section(deployment)
    yield from _experts(deployment)
    if deployment.server.gpu.major in BLACKWELL:
        yield from _keys(deployment)


def _section(deployment: Deployment) -> Iterator[str]:
    section = checkpoint_of(deployment).mapping("quantization_config")
    told = {
        "weight_block_size": (section.get("weight_block_size", _SCALES), _SCALES),
        "group_size": (section.get("group_size", 16), 16),
    }
    for name, (found, wanted) in told.items():
        if found != wanted:
            yield f"{name} is {repr(found)[:40]}: SGLang has MiniMax-M3.1 with {wanted!r} alone"
    for name, wanted in _WORDS.items():
        word = section.get(name, wanted)
        if not isinstance(word, str) or word.upper() != wanted:
            yield f"{name} is {repr(word)[:40]}: SGLang has MiniMax-M3.1 with {wanted} alone"


def _experts(deployment: Deployment) -> Iterator[str]:
    server, parallel, model = deployment.server, deployment.parallel, deployment.model
    if server.moe_a2a_backend != _MEGAMOE or model.moe is None:
        return
    if server.moe_runner_backend == _ROUTED and parallel.attn_tp != parallel.moe_ep:
        yield (
            f"--moe-runner-backend {_ROUTED} behind {_MEGAMOE}: MiniMax-M3.1's experts lie on the ranks that "
            f"share its heads, and of these {parallel.attn_tp} do, of those {parallel.moe_ep}"
        )
    sizes = {"hidden_size": model.hidden_size, "intermediate_size": model.moe.intermediate_size}
    for name, size in sizes.items():
        if size % _TILE:
            yield f"{name} is {size}: {_MEGAMOE} takes multiples of {_TILE} in nvfp4"


def _keys(deployment: Deployment) -> Iterator[str]:
    """On Blackwell, keys, values and an indexer's keys are packed, in one kind of layer."""
    text = checkpoint_of(deployment).text
    sparse: Mapping[str, Any] = text.get("sparse_attention_config") or {}
    chosen, plain = (_layers(sparse, "sparse_attention_freq", yes) for yes in (True, False))
    arch = deployment.server.gpu.arch
    if plain:
        yield f"layer {min(plain)} of MiniMax-M3.1 sees all tokens: on {arch} SGLang has none that does"
    if chosen != _layers(sparse, "sparse_disable_index_value", True):
        yield f"sparse_disable_index_value: on {arch} SGLang packs no values of MiniMax-M3.1's indexer"
    for told, wanted in ((sparse, _INDEXER), (text, _HEADS)):
        for name, size in wanted.items():
            if told.get(name) != size:
                found = repr(told.get(name))[:40]
                yield f"{name} is {found}: on {arch} SGLang has MiniMax-M3.1 with {size} alone"


def _layers(sparse: Mapping[str, Any], name: str, yes: bool) -> set[int]:
    listed = sparse.get(name)
    return {at for at, one in enumerate(listed if isinstance(listed, list) else ()) if bool(one) is yes}

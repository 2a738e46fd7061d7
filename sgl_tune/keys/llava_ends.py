"""Where a start of LLaVA's own checkpoints ends: srt/models/llava.py, llavavid.py, yivl.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.decoders.fields import Fields
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

# Of the Llama that transformers' LlavaConfig makes where a file has no text_config.
_SIZES = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}


def ends_of_llava(deployment: Deployment) -> Iterator[str]:
    """Its forward asks each request of a prefill for images, and a capture by torch.compile has no requests;
    others capture the layers alone."""
    encoder, server = deployment.model.encoder, deployment.server
    if encoder is None or not encoder.reads_another:
        return
    if server.compiles_prefills and server.prefill_graphs:
        yield (
            "LLaVA's class ends where prefills are captured by torch.compile: "
            "--cuda-graph-backend-prefill breakable, or none are captured"
        )


def ends_of_yi_vl(deployment: Deployment) -> Iterator[str]:
    """get_hf_text_config of srt/utils/hf_transformers/common.py knows a flat file by its class's name, which
    begins with Llava: of others the pool is made as text_config says, and layers as what stands outside."""
    checkpoint, ranks = checkpoint_of(deployment), deployment.parallel.tp
    if checkpoint.architecture != "YiVLForCausalLM":
        return
    missing = [name for name in _SIZES if not checkpoint.hf.get(name)]
    if missing:
        yield f"{missing[0]} is missing, which SGLang's Yi-VL asks its file for"
        return
    layers, row = _kept(Fields(checkpoint.hf, {}), ranks)
    of_pool = _kept(Fields(checkpoint.mapping("text_config"), _SIZES), ranks)
    if layers > of_pool[0] or row != of_pool[1]:
        yield (
            f"SGLang makes Yi-VL's pool as text_config says, of {of_pool[0]} layers that keep {of_pool[1]} "
            f"values, and it has {layers} of {row}: --json-model-override-args, with a text_config of its own"
        )


def _kept(f: Fields, ranks: int) -> tuple[int, int]:
    """Layers, and how many values of a token's keys a rank keeps in one."""
    heads = f.size("num_attention_heads")
    width = f.size("head_dim", f.size("hidden_size") // heads)
    return f.size("num_hidden_layers"), max(1, f.size("num_key_value_heads", heads) // ranks) * width

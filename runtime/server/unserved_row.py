"""What many a class is not written for: a condition, and what is said where it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runtime.server.config import ModelConfig
from runtime.server.shape import Server
from runtime.server.unserved_when import (
    halves_ungated,
    leaves_experts_plain,
    makes_of_bert,
    not_in_blocks,
    quantizes_towers,
    splits_over_all,
)


@dataclass(frozen=True, slots=True)
class Row:
    """`plans`: what such a server looks up is known all the same, and not what it holds or answers."""

    when: Callable[[ModelConfig, Server], bool]
    said: str
    plans: bool = False


OVER_ALL_RANKS = Row(splits_over_all, "DP attention: its heads are split over all ranks")
PLAIN_EXPERTS = Row(
    leaves_experts_plain,
    "experts quantized by that name: SGLang leaves them plain and reads none; --quantization awq_marlin, or "
    "gptq_marlin, does",
    plans=True,
)
SCALED_KEYS = Row(
    lambda m, s: (
        m.checkpoint_quantization is not None
        and s.asked.kv_cache_dtype == "auto"
        and s.kv_cache_dtype != s.dtype
    ),
    "scales of keys in its file: its class knows no such tensors, or by other names",
    plans=True,
)
UNGATED = Row(
    halves_ungated,
    "experts without gates in fp8 or mxfp8 before 0.5.19: SGLang makes them with gates",
)
A2A = Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its shared experts are partial sums")


def in_bfloat16(why: str) -> Row:
    return Row(lambda _, s: s.dtype != "bfloat16", f"another dtype than bfloat16: {why}")


DRAFTS = Row(lambda _, s: s.speculative is not None, "drafts: here none stands beside its layers")
QUANTIZED_DRAFTS = Row(
    lambda _, s: s.speculative is not None and s.weights_quantization is not None,
    "drafts of quantized weights: their first matrix is quantized, too, and here it is plain",
)
STAGES_THAT_SEE = Row(
    lambda m, s: m.encoder is not None and s.pp_size > 1,
    "--pp beside images: each stage keeps a place for the tokens of all layers",
)
_OTHERS = "quantized weights but those of a checkpoint: what its class makes of others is not known here"
_EXPERTS_ALONE = ("modelopt_fp4", "nvfp4_online")  # of a plain checkpoint
QUANTIZED_AT_ALL = Row(
    lambda m, s: s.weights_quantization is not None and m.checkpoint_quantization is None, _OTHERS
)
QUANTIZED = Row(
    lambda m, s: QUANTIZED_AT_ALL.when(m, s) and s.weights_quantization not in _EXPERTS_ALONE, _OTHERS
)
# srt/arg_groups/dllm_hook.py, srt/dllm, srt/layers/attention/flashinfer_backend.py: of SDAR and LLaDA2
IN_BLOCKS = (
    Row(
        lambda _, s: s.asked.dllm_algorithm is not None,
        "--dllm-algorithm: what its batches of blocks tune and take is not known here",
    ),
    Row(
        lambda _, s: s.prefill_attention_backend == "flashinfer",
        "attention on flashinfer without --dllm-algorithm: it keeps no keys of a prompt, as of an encoder",
    ),
)
BLOCKS_ALONE = Row(
    not_in_blocks,
    "quantized weights but those of a checkpoint in fp8 blocks: of others nothing is known here",
)
FILES_IN_BLOCKS = Row(
    lambda m, s: m.checkpoint_quantization is not None and not_in_blocks(m, s),
    "quantized weights of a checkpoint but in fp8 blocks: of others nothing is known here",
)
PLAIN_ALONE = Row(
    lambda _, s: s.weights_quantization is not None,
    "quantized weights: what its class makes of them is not known here",
)
QUANTIZED_FILES = Row(
    lambda m, _: m.checkpoint_quantization is not None,
    "quantized weights of a checkpoint: what its class makes of them is not known here",
)
UNSHARED = Row(
    lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: which rows its experts share is not known here"
)
# srt/models of what embeds, scores or rewards
WITHOUT_HEAD = (
    Row(lambda _, s: s.attn_dp_size > 1, "DP attention: of a class that generates nothing it is not known"),
    Row(lambda m, s: PLAIN_ALONE.when(m, s) and not makes_of_bert(m, s), PLAIN_ALONE.said),
    DRAFTS,
)


def _beside(tower: str, when: Callable[[ModelConfig, Server], bool], said: str, plans: bool = False) -> Row:
    """A tower of which `tower` is true."""
    return Row(lambda m, s: m.encoder is not None and getattr(m.encoder, tower) and when(m, s), said, plans)


OF_TOWERS = (
    # srt/models/llava.py, llavavid.py: load_weights reads another checkpoint
    _beside(
        "reads_another",
        lambda _, s: s.asked.load_format not in ("auto", "safetensors", "pt", "npcache"),
        "a --load-format but auto, safetensors, pt and npcache: LLaVA's tower comes with the files alone",
    ),
    _beside(
        "reads_another",
        lambda _, s: s.dtype == "float32",
        "--dtype float32: LLaVA's tower is float16 all the same",
    ),
    # srt/models/locate_anything.py, which releases have since 0.5.15, and kimi_vl_moonvit.py
    _beside(
        "is_split_later",
        lambda _, s: s.release.number < (0, 5, 17),
        "releases before 0.5.17: they have no class of it, or its tower whole on every rank",
    ),
    # srt/models/minicpmo.py, where parts of what is dropped name each other; srt/mem_cache then collects
    _beside(
        "is_made_twice",
        lambda _, s: s.release.number < (0, 5, 19),
        "releases before 0.5.19: whether the text that its class makes first is still there when the pool is "
        "sized, Python decides",
        plans=True,
    ),
    # srt/models/llava.py, sarashina2_vision.py, locate_anything.py
    _beside(
        "is_plain_alone",
        quantizes_towers,
        "quantized weights beside its tower: which matrices lists mean is not known here",
    ),
    _beside(
        "is_plain_alone",
        lambda _, s: s.asked.enable_lora or bool(s.asked.lora_paths),
        "adapters beside its tower: what they mean to its class is not known here",
    ),
    _beside("is_plain_alone", DRAFTS.when, "drafts beside its tower: here none stands beside its layers"),
)

"""Servers that write blocks of tokens, by --dllm-algorithm: their attention, their pages, what they turn off.

srt/arg_groups/dllm_hook.py, srt/dllm/config.py
"""

from __future__ import annotations

from typing import Any

from runtime.server.attention import used_backends
from runtime.server.bounds import TOKENS, check_size
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.graph_backends import WHOLE

_LLADA = "LLaDA2MoeModelLM"
_CANVAS = "DiffusionGemmaForBlockDiffusion"
_RENOISE, _EDITS = "Gemma4Renoise", "JointThresholdInDel"
BLOCKS = {_LLADA: 32, "SDARForCausalLM": 4, "SDARMoeForCausalLM": 4}
_MASKS = {_LLADA: 156895, "SDARForCausalLM": 151669, "SDARMoeForCausalLM": 151669}
_USUAL_CANVAS = 256
_EDIT_TOKENS = ("delete_token_id", "split_token_id")
_WHY = "a diffusion LLM"
# Each as it is turned off, whatever was asked for.
_OFF = {"enable_lora": False, "disaggregation_mode": "null", "enable_mixed_chunk": False}
_OFF_WITH_PREFIXES = ("enable_hierarchical_cache", "enable_lmcache", "enable_flexkv")


def settle_diffusion(c: Choices) -> None:
    if c.dllm_algorithm is None:
        return
    rules = c.release.blocks
    if rules.checks_algorithm and c.dllm_algorithm not in rules.algorithms:
        raise _not_with(c, f"SGLang {c.release.version} has no such algorithm", ", ".join(rules.algorithms))
    if _keeps_no_prefixes(c):
        _settle_renoise(c)
    elif c.decode.is_on:
        c.settle("graphs of a diffusion LLM", attention_backend="flashinfer")
    c.settle(_WHY, disable_overlap_schedule=True)
    _settle_pages(c)
    c.settle(_WHY, **_OFF)
    if rules.drops_stages:
        c.settle(_WHY, pp_size=1)


def _settle_pages(c: Choices) -> None:
    rules, keeps_prefixes = c.release.blocks, not (c.disable_radix_cache or _keeps_no_prefixes(c))
    if not (keeps_prefixes or rules.pages_without_prefixes):
        return
    block = block_size(c)
    if (keeps_prefixes and c.page_size % block) or (rules.pages_without_prefixes and c.page_size > block):
        c.settle(f"blocks of {block} tokens", page_size=block)
    if keeps_prefixes:
        c.settle(_WHY, **{one: False for one in _OFF_WITH_PREFIXES if getattr(c, one)})


def block_size(c: Choices) -> int:
    """Of the tokens that are written at once, or why SGLang refuses them."""
    architecture, rules = c.model.architecture, c.release.blocks
    if architecture not in BLOCKS and not (architecture == _CANVAS and rules.checks_algorithm):
        raise _not_with(c, f"SGLang {c.release.version} writes no blocks of {architecture}")
    if rules.checks_algorithm and (architecture == _CANVAS) != (c.dllm_algorithm == _RENOISE):
        raise _not_with(c, f"{architecture} is not written by it")
    if c.dllm_algorithm == _EDITS and rules.checks_algorithm:
        _check_edits(c)
    if c.dllm_algorithm_config is not None:
        raise _not_with(c, f"what {c.dllm_algorithm_config} says of its blocks is not read here")
    block = _canvas(c) if architecture == _CANVAS else BLOCKS[architecture]
    if rules.checks_capacity and c.model.hf.get("expert_capacity") is not None:
        told = c.model.hf.get("block_size")
        if told != block:
            raise _not_with(
                c, f"its experts have room for blocks of {told!r} tokens, and SGLang's are of {block}"
            )
    return block


def _canvas(c: Choices) -> int:
    told = c.model.hf.get("canvas_length", _USUAL_CANVAS)
    if type(told) is not int or told < 1:
        raise _not_with(c, f"canvas_length is {repr(told)[:60]}, not a number of tokens")
    check_size("canvas_length", told, TOKENS)
    return told


def _check_edits(c: Choices) -> None:
    told: list[Any] = [c.model.hf.get(name) for name in _EDIT_TOKENS]
    words = c.model.whole("vocab_size", 0)
    for name, token in zip(_EDIT_TOKENS, told, strict=True):
        if type(token) is not int or not 0 <= token < words:
            raise _not_with(c, f"{name} is {repr(token)[:60]}, no token of {words}")
    if len({*told, _MASKS[c.model.architecture]}) < 3:
        raise _not_with(c, f"{' and '.join(_EDIT_TOKENS)} are not two, or one of them is the mask's")


def _settle_renoise(c: Choices) -> None:
    """srt/dllm/algorithm/gemma4_renoise.py"""
    rules = c.release.blocks
    if c.pp_size > 1 or c.dcp_size > 1 or c.attn_cp_size > 1:
        raise _not_with(c, "DiffusionGemma runs on ranks of tensor parallelism alone")
    if c.model_quantization is not None:
        raise _not_with(c, "DiffusionGemma is not quantized in SGLang")
    if not (c.model.hf.get("tie_word_embeddings", True) and c.model.text.get("tie_word_embeddings", True)):
        raise _not_with(c, "DiffusionGemma's head is its embedding, and tie_word_embeddings is false")
    names = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
    named = {getattr(c, name) for name in names}
    if c.attention_backend is None or not named <= {None, *rules.canvas_on}:
        c.settle(_RENOISE, **dict.fromkeys(names, "triton"))
    _settle_canvas_prefills(c)


def settle_canvas_cache(c: Choices) -> None:
    """Behind the checks of caches and chunks, which it does not ask again."""
    if _keeps_no_prefixes(c):
        c.settle(_RENOISE, disable_radix_cache=True, chunked_prefill_size=-1)


def _keeps_no_prefixes(c: Choices) -> bool:
    return c.dllm_algorithm == _RENOISE and c.release.blocks.checks_algorithm


def _settle_canvas_prefills(c: Choices) -> None:
    if not (c.release.blocks.captures_canvas_prefills and c.prefill.backend == WHOLE):
        c.disable(c.prefill, f"{_RENOISE} encodes its context apart")
    elif used_backends(c)[0] != "fa4":
        raise _not_with(c, "whole prefills of it are captured on fa4 alone")


def _not_with(c: Choices, why: str, way: str | None = None) -> ConfigError:
    said = f"--dllm-algorithm {c.dllm_algorithm}: {why}"
    return ConfigError(said, way, tries=("dllm_algorithm",))

"""The whole name of a flag of SGLang that was shortened; other spellings are refused. Without a server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from runtime.server.nearest import meant
from sgl_tune.errors import UsageError

# Beginnings of the flags that the core reads. No other flag of SGLang begins so.
_BEGINNINGS = """
    attention-b attention-d attn-d chu context-l cuda-graph-bs-d cuda-graph-max-bs-d da decode-a disable-cus
    disable-flashinfer-a disable-pre disable-r disable-s disaggregation-m dist-i dp dt enable-dp-l ep-s
    expert-p flashinfer-au fp4 fp8 kv-cac max-p max-r max-t mem model-p moe-a moe-de moe-r nccl-i nn no
    page- pi pp-s prefill-a speculative-al speculative-draft-model-p speculative-ea speculative-num-d
    speculative-num-s swa-f te tp
"""
# Flags of SGLang that the core does not read, with names close to those that it reads.
_ALIKE = """
    attn-cp-size dcp-size dwdp-size enable-fp32-lm-head mm-attention-backend moe-data-parallel-size
"""
_OURS = """
    against cache-dir compile-only dry-run everything file fit format free gpu gpu-memory html log
    measure model-config no-fold out prove quiet ranks record replace requests server snapshot sweep taken
    target timeout verbose what-if
"""
_CLOSE = 0.87


def value_meant(refusal: str) -> str | None:
    """Return `did you mean ...?` for argparse's refusal of a flag's value, if one of its choices is near."""
    found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", refusal)
    return meant(found[1], (one.strip("' ") for one in found[2].split(","))) if found else None


def whole_name(name: str, known: Iterable[str]) -> str:
    """Return the whole name, as argparse does. `known`: the flags that the core reads."""
    word, begun = name.removeprefix("--"), [one for one in known if one.startswith(name)]
    if name in begun:
        return name
    if word in _OURS.split():
        raise UsageError(f"{name} is sgl-tune's own flag, and SGLang has none", f"put {name} before --")
    if len(begun) == 1 and word.startswith(tuple(_BEGINNINGS.split())):
        return begun[0]
    if begun:
        raise UsageError(f"{name} is short for several flags of SGLang", f"write a whole one: {begun[0]}")
    if word not in _ALIKE.split() and (close := get_close_matches(name, known, 1, _CLOSE)):
        raise UsageError(f"{name} is no flag of SGLang", f"write {close[0]}, or another whole name")
    return name

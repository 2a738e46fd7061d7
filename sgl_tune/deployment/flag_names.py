"""Every flag that the runtime core reads, with its spellings and its type; and the whole name of a flag that
was shortened, found without a server."""

import functools
import re
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, get_args, get_origin, get_type_hints

from runtime.server.asked import Asked
from runtime.server.nearest import meant
from runtime.sglang.releases import Release
from sgl_tune.deployment.options import LONG, OWN_FIELDS, TARGET_FIELDS, ServerFlags, TargetFlags
from sgl_tune.errors import UsageError

_ODD = {
    "attn_dp_size": "--attn-dp-size --attention-data-parallel-size",
    "fp4_gemm_runner_backend": "--fp4-gemm-backend --fp4-gemm-runner-backend",
    "fp8_gemm_runner_backend": "--fp8-gemm-backend --fp8-gemm-runner-backend",
    "cuda_graph_max_bs": "--cuda-graph-max-bs-decode --cuda-graph-max-bs",
    "cuda_graph_bs": "--cuda-graph-bs-decode --cuda-graph-bs",
    "speculative_draft_model_path": "--speculative-draft-model-path --speculative-draft-model",
    "dist_init_addr": "--dist-init-addr --nccl-init-addr",
}
_BESIDE = {"speculative_draft_model_path": str, "dist_init_addr": str}  # flags that `Asked` does not have
_AMOUNT = re.compile(r"(-?\d{1,15})(?:(\.\d{1,15})?([kMGT])|([KMGT]i))?")
_TIMES = {letter: 1000**power for power, letter in enumerate("kMGT", 1)}
_TIMES |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)}
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


@functools.cache
def flag_names() -> dict[str, str]:
    """Return the field of every spelling of a flag: `--tp-size`, `--tp`, `--tensor-parallel-size` -> `tp`."""
    names = {}
    hints = get_type_hints(ServerFlags, include_extras=True)
    hints |= get_type_hints(TargetFlags, include_extras=True)
    for field in flag_types():
        told = getattr(hints.get(field), "__metadata__", None)
        names.update(dict.fromkeys(told[0].names if told else _spellings(field), field))
    return names


def _spellings(field: str) -> list[str]:
    return _ODD.get(field, "--" + field.replace("_", "-")).split()


@functools.cache
def flag_types() -> dict[str, type]:
    """Return the type of every field: bool, int, float, str or list."""
    own, target, asked = (get_type_hints(one) for one in (ServerFlags, TargetFlags, Asked))
    short = {*OWN_FIELDS, *LONG.values()}
    hints = {name: own[name] for name in OWN_FIELDS}
    hints |= {one.name: asked[one.name] for one in fields(Asked) if one.name not in short}
    hints |= {**_BESIDE, **{name: target[name] for name in sorted(TARGET_FIELDS)}}
    return {name: _kind(hint) for name, hint in hints.items()}


def _kind(hint: Any) -> type:
    arms = [one for one in get_args(hint) if one is not type(None)] if get_origin(hint) is not tuple else []
    kind = arms[0] if arms else hint
    return list if get_origin(kind) is tuple else kind


def whole_number(name: str, text: str) -> int:
    """Parse a whole number: `4k` is 4000, `4Ki` is 4096 and `1.5k` is 1500."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise UsageError(f"{name} {text[:80]}: a whole number is needed")
    whole, fraction, decimal, binary = found.groups()
    unit = decimal or binary
    return round(float(whole + (fraction or "")) * _TIMES[unit]) if unit else int(whole)


def spelled(release: Release, argument: str, value: Any) -> str:
    """Return an argument, by SGLang's name, as the release spells it: `--tp-size 8`, or a flag alone."""
    short = {long: name for name, long in LONG.items()}
    field = short.get(argument, argument)
    name = next((name for name, of in flag_names().items() if of == field), _spellings(argument)[0])
    if name.startswith("--cuda-graph") and not release.separates_graphs:
        name = name.replace("-decode", "")
    return name if value is True else f"{name} {value}"


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

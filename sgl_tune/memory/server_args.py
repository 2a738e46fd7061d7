"""The flags of the server whose log it is: SGLang prints all of them, resolved, in its first line."""

from __future__ import annotations

import re
from typing import Any

from sgl_tune.deployment.flag_names import flag_types
from sgl_tune.deployment.options import LONG, TARGET_FIELDS, ServerFlags

# Printed resolved: SGLang reads them from elsewhere when they are not set.
_LEFT_OUT = TARGET_FIELDS | {"dist_init_addr", "flashinfer_autotune_skip_ops", "cuda_graph_bs"}
_MATTER = (
    "cpu_offload_gb",
    "enable_lora",
    "enable_hierarchical_cache",
    "enable_memory_saver",
    "enable_two_batch_overlap",
    "enable_single_batch_overlap",
    "enable_symm_mem",
    "enable_torch_compile",
    "json_model_override_args",
    "ep_num_redundant_experts",
)
_UNSET = ("None", "False", "0", "{}", "")


def flags_of_log(server_args: str, given: ServerFlags) -> ServerFlags:
    """`given` flags win over the log's. The line is a repr of ServerArgs, or of a dict since 0.5.18."""
    logged = {}
    for name, kind in flag_types().items():
        if name not in _LEFT_OUT and (value := _value(server_args, LONG.get(name, name), kind)) is not None:
            logged[name] = value
    if logged.get("enable_dp_attention") and "chunked_prefill_size" in logged:
        # SGLang divides the chunk among DP ranks before it prints it.
        logged["chunked_prefill_size"] *= max(1, logged.get("dp", 1))
    return given.over(ServerFlags.of(**logged))


def not_taken(server_args: str) -> tuple[str, ...]:
    """What the server was set to that takes memory and is none of our flags."""
    said = {name: _word(server_args, name) for name in _MATTER}
    return tuple(f"--{name.replace('_', '-')} {word}" for name, word in said.items() if word not in _UNSET)


def _value(text: str, name: str, kind: type) -> Any:
    word = _word(text, name)
    if word in ("None", "auto"):
        return None
    if kind is bool:
        return {"True": True, "False": False}.get(word)
    try:
        return kind(word)
    except ValueError:
        return None


def _word(text: str, name: str) -> str:
    match = re.search(rf"[(,{{ ]'?{name}'?[=:] ?('[^']{{0,400}}'|[\w.-]{{1,40}})", text)
    return match[1].strip("'") if match else "None"

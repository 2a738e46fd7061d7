"""Whether a phase's CUDA graphs are captured, and how: what was asked for, then what goes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.server import architectures
from runtime.server.bounds import TOKENS, check_size
from runtime.server.choices import ASKED_FOR, Choices, Graphs
from runtime.server.errors import ConfigError
from runtime.server.flags.spelling import name_of
from runtime.server.graphs import prefill_graph_sizes
from runtime.server.traits import (
    has_delta_attention,
    has_dp_attention,
    is_mla,
    is_multimodal,
    is_sparse,
)

BREAKABLE, COMPILED, WHOLE = "breakable", "tc_piecewise", "full"
_DEEPEP_ROWS, _DEEPEP_TOP = 8, 2048
_MUSE_TOP = 512
_ALIGNING = "DeepEP takes rows by eight"

# What a release may list in `compiled_off_with` and `breakable_off_with`.
CONFLICTS: dict[str, Callable[[Choices], bool]] = {
    "this architecture": lambda c: c.model.architecture in c.release.eager_prefill_architectures,
    "a multimodal model": lambda c: is_multimodal(c) and c.model.architecture not in _graphed(c),
    "MLA": is_mla,
    "MLA that is not sparse": lambda c: is_mla(c) and not is_sparse(c),
    "NemotronH": lambda c: c.model.architecture in architectures.NEMOTRON_H,
    "DeepSeek-V4": lambda c: c.model.architecture in architectures.DEEPSEEK_V4,
    "delta attention": has_delta_attention,
    "delta attention but GLM's": lambda c: (
        has_delta_attention(c) and c.model.architecture != "Glm5NextForConditionalGeneration"
    ),
    "DP attention": has_dp_attention,
    "pipeline parallelism": lambda c: c.pp_size > 1,
    "context parallelism": lambda c: c.attn_cp_size > 1,
    "decode context parallelism": lambda c: c.dcp_size > 1,
    "an all-to-all": lambda c: c.moe_a2a_backend != "none",
    "an all-to-all of no proof": lambda c: (
        c.moe_a2a_backend not in ("none", "deepep", "megamoe", "flashinfer")
    ),
    "two-batch overlap": lambda c: c.enable_two_batch_overlap,
    "LoRA": lambda c: c.enable_lora or bool(c.lora_paths),
    "torch.compile": lambda c: c.enable_torch_compile,
    "GGUF": lambda c: "gguf" in (c.load_format, c.quantization) or c.model_path.endswith(".gguf"),
    "a diffusion LLM": lambda c: c.dllm_algorithm is not None,
    "offloaded weights": lambda c: c.cpu_offload_gb > 0,
    "a hierarchical cache": lambda c: c.enable_hierarchical_cache,
    "deterministic inference": lambda c: c.enable_deterministic_inference,
    "disaggregation": lambda c: c.disaggregation_mode != "null",
    "symmetric memory": lambda c: c.enable_symm_mem,
    "recorded experts": lambda c: c.enable_eplb or c.expert_distribution_recorder_mode is not None,
    "debugging graphs": lambda c: c.debug_cuda_graph,
}


def settle_graph_backends(c: Choices) -> None:
    """What was asked for is locked: the rules that follow leave it."""
    c.prefill.backend = c.release.prefill_graph_backend
    _ask(c)
    if "backend" not in c.prefill.locked:
        _settle_prefill(c)
    if c.release.aligns_deepep_graphs and c.moe_a2a_backend == "deepep" and c.prefill.backend == BREAKABLE:
        _align(c.prefill, c)
    if c.release.pd_graphs == "by role":
        _split_by_role(c)


def _ask(c: Choices) -> None:
    """Later flags outrank earlier ones."""
    if c.disable_cuda_graph or _none_in_prefill(c):
        why = "--disable-cuda-graph" if c.disable_cuda_graph else "a server that only does prefill"
        c.decode.lock_off(why)
        if c.release.one_switch_for_graphs:
            c.prefill.lock_off(why)
    if c.enforce_piecewise_cuda_graph:
        c.prefill.lock(backend=COMPILED)
    elif c.disable_prefill_cuda_graph or c.disable_piecewise_cuda_graph:
        c.prefill.lock_off(ASKED_FOR)
    if c.disable_decode_cuda_graph:
        c.decode.lock_off(ASKED_FOR)
    _lock(c.decode, {**_decode_flags(c), **_in_json(c, "decode")}, c.release.decode_graph_backends)
    _lock(c.prefill, {**_prefill_flags(c), **_in_json(c, "prefill")}, c.release.prefill_graph_backends)


def _decode_flags(c: Choices) -> dict[str, Any]:
    return _given(
        backend=c.cuda_graph_backend_decode,
        max_bs=_first(c.cuda_graph_max_bs_decode, c.cuda_graph_max_bs),
        bs=_first(c.cuda_graph_bs_decode, c.cuda_graph_bs),
    )


def _prefill_flags(c: Choices) -> dict[str, Any]:
    largest = _MUSE_TOP if c.model.architecture in architectures.MUSE_GLIMMER else None
    known = architectures.INKLING - c.release.without_rules
    whole = c.model.architecture in known and not c.disable_prefill_cuda_graph
    return _given(
        backend=_first(c.cuda_graph_backend_prefill, WHOLE if whole else None),
        max_bs=_first(_first(c.cuda_graph_max_bs_prefill, c.piecewise_cuda_graph_max_tokens), largest),
        bs=_first(c.cuda_graph_bs_prefill, c.piecewise_cuda_graph_tokens),
    )


def _given(**flags: object) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _lock(graphs: Graphs, given: dict[str, Any], possible: tuple[str, ...]) -> None:
    if "backend" in given:
        graphs.lock(backend=given["backend"])
        graphs.off = ASKED_FOR
    if graphs.backend not in possible:
        raise ConfigError(
            f"{graphs.phase} CUDA graphs: this release has no backend {repr(graphs.backend)[:60]}",
            f"one of {', '.join(possible)}",
        )
    largest, sizes = given.get("max_bs"), given.get("bs")
    if largest is not None:
        check_size(f"the largest {graphs.phase} graph", largest, TOKENS)
        graphs.lock(max_bs=largest)
    if sizes is not None:
        if not sizes or not all(type(size) is int for size in sizes):
            raise ConfigError(f"sizes of {graphs.phase} graphs are whole numbers, not {repr(sizes)[:60]}")
        for size in sizes:
            check_size(f"a {graphs.phase} graph", size, TOKENS)
        graphs.lock(sizes=tuple(sizes))


def _in_json(c: Choices, phase: str) -> dict[str, Any]:
    settings = (c.cuda_graph_config or {}).get(phase, {})
    if not isinstance(settings, dict):
        raise ConfigError(f"--cuda-graph-config: {phase!r} holds {repr(settings)[:60]}, not an object")
    for name, kind in (("backend", str), ("max_bs", int), ("bs", list)):
        if settings.get(name) is not None and type(settings[name]) is not kind:
            raise ConfigError(f"--cuda-graph-config: {phase} {name} is {repr(settings[name])[:60]}")
    return dict(settings)


def _none_in_prefill(c: Choices) -> bool:
    if c.disaggregation_mode != "prefill":
        return False
    if c.release.pd_graphs == "none where piecewise is off":
        return bool(c.disable_piecewise_cuda_graph)
    return c.release.pd_graphs == "none in prefill"


def _settle_prefill(c: Choices) -> None:
    if c.prefill.backend == BREAKABLE and c.model.architecture in c.release.compiled_architectures:
        c.prefill.backend = COMPILED
    listed = {BREAKABLE: c.release.breakable_off_with, COMPILED: c.release.compiled_off_with}
    for name in listed.get(c.prefill.backend, ()):
        if CONFLICTS[name](c):
            c.disable(c.prefill, f"no prefill graphs with {name}")


def _graphed(c: Choices) -> frozenset[str]:
    return c.release.compiled_architectures | c.release.breakable_multimodal


def _align(prefill: Graphs, c: Choices) -> None:
    sizes = prefill.sizes if prefill.sizes is not None else prefill_graph_sizes(prefill.max_bs or _DEEPEP_TOP)
    aligned = tuple(sorted({-(-size // _DEEPEP_ROWS) * _DEEPEP_ROWS for size in sizes}))
    if aligned != tuple(sorted(sizes)):
        prefill.sizes, prefill.max_bs, prefill.limit = aligned, aligned[-1], _ALIGNING


def _split_by_role(c: Choices) -> None:
    for role, graphs in (("prefill", c.decode), ("decode", c.prefill)):
        if c.disaggregation_mode == role and "backend" not in graphs.locked:
            c.disable(graphs, f"a server that only does {role}")


def _first(new: object, old: object) -> object:
    return old if new is None else new


def disable_graphs(c: Choices, why: str) -> None:
    """However they were asked for; of prefills, too, where one switch is for both."""
    c.disable(c.decode, why)
    if c.release.one_switch_for_graphs:
        c.disable(c.prefill, why)


def settle_trtllm_prefill(c: Choices) -> None:
    """Under a captured prefill this backend falls back to a slower one."""
    if c.release.trtllm_mla_has_prefill_graphs or "backend" in c.prefill.locked:
        return
    backend = c.prefill_attention_backend or c.attention_backend
    if backend == "trtllm_mla" and c.model.architecture == "DeepseekV3ForCausalLM":
        c.disable(c.prefill, "DeepSeek-V3's prefill on trtllm_mla is faster without")


def settle_expert_graphs(c: Choices) -> None:
    """What the experts' kernels, all-to-all or pools cannot be captured with."""
    if c.moe_a2a_backend == "deepep" and c.deepep_mode == "normal":
        disable_graphs(c, "DeepEP's normal mode is not captured")
    unified = c.enable_unified_memory and not c.release.unified_memory_has_prefill_graphs
    if unified and "backend" not in c.prefill.locked:  # those that were asked for are refused
        c.disable(c.prefill, "its graphs know no --enable-unified-memory")
    uncompiled = c.moe_runner_backend in c.release.uncompiled_experts and not c.enforce_piecewise_cuda_graph
    if uncompiled and c.model.architecture != "GptOssForCausalLM":
        c.disable(c.prefill, f"{c.moe_runner_backend} is not compiled")
    by_one_kernel = c.model.architecture == architectures.MUSE_SPARK and c.enable_megamoe_for_layernorm_sp
    if by_one_kernel and c.prefill.backend != BREAKABLE:
        c.disable(c.prefill, "Muse Spark's one kernel of experts is captured breakable alone")


def settle_dumped_tensors(c: Choices) -> None:
    """Found in forwards that no graph replays; what memory is left for graphs is settled by then."""
    for flag in ("debug_tensor_dump_output_folder", "msprobe_dump_config"):
        if getattr(c, flag) is not None:
            disable_graphs(c, name_of(c.release, flag))

"""A row a release of SGLang: what it pins, and every switch that ever changed, with the file it was read in.

A row is the one before it and what is new. The next release: one more row, and the flags a tool writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.server.bounds import is_number
from runtime.server.errors import ConfigError

_ALGORITHMS = ("DFLASH", "EAGLE", "EAGLE3", "FROZEN_KV_MTP", "STANDALONE", "NGRAM")
_GOES_WITH = (
    *(("modelopt_fp8", "modelopt"), ("modelopt_fp4", "modelopt"), ("modelopt_mixed", "modelopt")),
    *(("w8a8_int8", "compressed-tensors"), ("w8a8_int8", "compressed_tensors")),
    *(("w8a8_fp8", "compressed-tensors"), ("w8a8_fp8", "compressed_tensors")),
    ("petit_nvfp4", "modelopt"),
)


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    # pyproject.toml
    flashinfer: str
    transformers: str
    # The key's parts: srt/model_executor/runner/flashinfer_autotune.py (before, in model_runner.py)
    candidate_selection: str | None = None
    key_has_skipped_ops: bool = False
    always_skipped_ops: tuple[str, ...] = ()
    key_has_draft_quantization: bool = False
    megamoe_files_by_gpu: bool = False
    # Rank files that differ are all deleted: the same file
    deletes_unequal_ranks: bool = False
    # The file is saved again at every start, so that it must be writable: the same file
    always_saves: bool = False
    # The CUTLASS call's range: srt/layers/moe/moe_runner/flashinfer_cutlass.py
    ranges_by_chunk: bool = False
    # FlashInfer's default, later SGLANG_FLASHINFER_MOE_FUSED_FINALIZE: srt/layers/quantization/unquant.py
    fused_finalize_unset: bool = True
    # SGLANG_FLASHINFER_AUTOTUNE_EXTEND: srt/environ.py
    has_extend_pass: bool = False
    # The gate beside the MoE backend: should_run_flashinfer_autotune of flashinfer_autotune.py
    fp4_gemm_gates: bool = False
    fp8_gemm_gates: bool = False
    # Dense modelopt fp8 through FlashInfer's fp8_gemm, on Hopper too: srt/layers/quantization/fp8_utils.py
    tunes_fp8_gemm: bool = False
    # Majors on which modelopt's fp8 GEMMs are FlashInfer's: the same file
    fp8_gemm_majors: tuple[int, ...] = (10,)
    # A chosen --fp8-gemm-backend flashinfer_cutlass opens it, whatever the weights, but for some
    chosen_fp8_gemm_tunes: bool = False
    never_by_chosen_fp8_gemm: tuple[str, ...] = ()
    # An unset one becomes flashinfer_cutlass for mxfp8 on sm100: the same fp8_utils.py
    mxfp8_runs_cutlass_gemm: bool = False
    # Methods whose GEMMs are mm_mxfp8, tuned on every Blackwell: the same file
    mxfp8_gemm_methods: tuple[str, ...] = ()
    deterministic_never_tunes: bool = False
    tunes_drafts: bool = False
    # A draft's gate asks --speculative-moe-runner-backend, before the target's own
    drafts_gate_by_their_backend: bool = False
    # ModelOpt's quant_algo: srt/configs/model_config.py
    mixed_by_layers: bool = False
    fp8_algorithms_apart: bool = False
    # Pairs of argument and checkpoint that go together: the same file, _verify_quantization
    goes_with: tuple[tuple[str, str], ...] = _GOES_WITH
    # What srt/layers/quantization/__init__.py no longer registers
    dropped_methods: tuple[str, ...] = ()
    # gpt-oss's experts on sm120: srt/arg_groups/model_overrides/gpt_oss.py
    mxfp4_on_sm120: str = "triton_kernel"
    # modelopt_fp4's experts: srt/arg_groups/overrides.py, _moe_runner_backend_quant_constraints
    nvfp4_runs_cutlass_on: tuple[int, ...] = ()
    # srt/arg_groups/moe_hook.py
    flashinfer_a2a_needs_dp: bool = False
    deepep_cutedsl_is_low_latency: bool = False
    dispatch_type_routes: bool = False
    # srt/arg_groups/speculative_hook.py
    algorithms: tuple[str, ...] = _ALGORITHMS
    ngram_counts_steps: bool = False
    dflash_shares_heads: bool = False
    pages_with_topk: tuple[str, ...] = ("flashinfer", "fa3")
    # How trtllm calls are routed: srt/layers/moe/moe_runner/flashinfer_trtllm.py
    routes_fp8_under_ep: bool = False
    routes_apart: bool = False
    defers_finalising: bool = False

    @property
    def number(self) -> tuple[int, ...]:
        return number(self.version)


_12 = Release("0.5.12", flashinfer="0.6.11.post1", transformers="5.6.0")
_13 = replace(
    _12,
    version="0.5.13",
    flashinfer="0.6.12",
    transformers="5.8.1",
    fp4_gemm_gates=True,
    nvfp4_runs_cutlass_on=(12,),
    flashinfer_a2a_needs_dp=True,
    pages_with_topk=("flashinfer", "fa3", "triton"),
)
_14 = replace(
    _13,
    version="0.5.14",
    fp8_gemm_gates=True,
    chosen_fp8_gemm_tunes=True,
    goes_with=(*_GOES_WITH, ("nvfp4_online", "fp8")),
    mxfp4_on_sm120="marlin",
    ngram_counts_steps=True,
)
_15 = replace(
    _14,
    version="0.5.15",
    transformers="5.12.1",
    key_has_draft_quantization=True,
    never_by_chosen_fp8_gemm=("mxfp8",),
    mxfp8_runs_cutlass_gemm=True,
    tunes_drafts=True,
    mixed_by_layers=True,
    goes_with=(
        *_14.goes_with,
        ("auto-round-int8", "compressed-tensors"),
        ("auto-round-int8", "compressed_tensors"),
    ),
)
_16 = replace(
    _15,
    version="0.5.16",
    flashinfer="0.6.14",
    never_by_chosen_fp8_gemm=(),
    dropped_methods=("qoq", "fbgemm_fp8"),
    algorithms=(*_ALGORITHMS, "DSPARK"),
)
_17 = replace(
    _16,
    version="0.5.17",
    flashinfer="0.6.15.post1",
    key_has_skipped_ops=True,
    always_skipped_ops=("mxfp8_gemm",),
    drafts_gate_by_their_backend=True,
    mxfp4_on_sm120="flashinfer_mxfp4",
    deepep_cutedsl_is_low_latency=True,
)
_18 = replace(
    _17,
    version="0.5.18",
    flashinfer="0.6.17",
    always_skipped_ops=(),
    fused_finalize_unset=False,
    has_extend_pass=True,
    tunes_fp8_gemm=True,
    fp8_gemm_majors=(9, 10, 12),
    chosen_fp8_gemm_tunes=False,
    mxfp8_runs_cutlass_gemm=False,
    mxfp8_gemm_methods=("mxfp8",),
    deterministic_never_tunes=True,
    fp8_algorithms_apart=True,
    goes_with=(*_15.goes_with, ("nvfp4_online", "modelopt_fp8"), ("modelopt_fp4", "fp8")),
    routes_fp8_under_ep=True,
    defers_finalising=True,
)
_19 = replace(_18, version="0.5.19", flashinfer="0.6.18", deletes_unequal_ranks=True)
_20 = replace(
    _19,
    version="0.5.20",
    dropped_methods=(*_16.dropped_methods, "gptq"),
    dispatch_type_routes=True,
)
_21 = replace(_20, version="0.5.21", always_saves=True)
_22 = replace(
    _21,
    version="0.5.22",
    flashinfer="0.7.1",
    transformers="5.19.0",
    megamoe_files_by_gpu=True,
    nvfp4_runs_cutlass_on=(11, 12),
    routes_apart=True,
)
_23 = replace(
    _22,
    version="0.5.23",
    flashinfer="0.7.2",
    candidate_selection="v2_default",
    mxfp8_gemm_methods=("mxfp8", "minimax_m3_nvfp4"),
    goes_with=(*_18.goes_with, ("minimax_m3_nvfp4", "mxfp8")),
    algorithms=(*_16.algorithms, "UNO"),
    dflash_shares_heads=True,
    ranges_by_chunk=True,
)

RELEASES = (_12, _13, _14, _15, _16, _17, _18, _19, _20, _21, _22, _23)
NEWEST = RELEASES[-1]


@dataclass(frozen=True, slots=True)
class Named:
    """A release under the very name it was asked by, and what is doubtful about that."""

    release: Release
    note: str | None = None
    warning: str | None = None


def number(version: str) -> tuple[int, ...]:
    """`0.5.12.post1` -> (0, 5, 12): enough to order releases."""
    parts: list[int] = []
    for piece in version.split("."):
        if not is_number(piece):
            break
        parts.append(int(piece))
    return tuple(parts[:3])


def release_named(version: str | None) -> Named:
    """None is the newest known; what is newer than that is taken to be like it."""
    if version is None:
        return Named(NEWEST, note=f"SGLang {NEWEST.version}: the newest known; none is installed here")
    wanted = number(version)
    if len(wanted) < 2:
        raise ConfigError(f"--sglang-version {version!r} is not a version", f"write it as {NEWEST.version}")
    if wanted < RELEASES[0].number:
        raise ConfigError(
            f"SGLang {version} keeps its autotune results in memory only: it has no cache file",
            f"{RELEASES[0].version} is the first version with a cache file",
        )
    known = next((row for row in RELEASES if row.number == wanted), None)
    if known is not None:
        return Named(replace(known, version=version))
    if wanted < NEWEST.number:
        raise ConfigError(
            f"SGLang {version} is not among the releases whose rules are known",
            f"one of {', '.join(row.version for row in RELEASES)}",
        )
    doubt = f"SGLang {version} is newer than {NEWEST.version}, the newest known: the same rules are assumed"
    return Named(replace(NEWEST, version=version), warning=doubt)

"""Which backend runs the experts, and how they are spread over the ranks."""

from __future__ import annotations

from runtime.server.architectures import MUSE_SPARK
from runtime.server.backends import BACKENDS, SPREADS_EXPERTS, MoEBackendRow, Number, backend_row
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.expert_weights import has_nvfp4_experts
from runtime.server.families import GPT_OSS
from runtime.server.family_backends import FAMILY_BACKENDS, FamilyBackend
from runtime.server.quantization import declared_method
from runtime.server.releases import Release
from runtime.server.shape import Server


def settle_moe_runner(c: Choices) -> None:
    if c.moe_runner_backend == "megamoe":
        c.settle("megamoe is an all-to-all", moe_runner_backend="auto", moe_a2a_backend="megamoe")
    _by_family(c)
    _by_quantization(c)
    _check_runner(c)


def _by_family(c: Choices) -> None:
    if c.model.architecture in GPT_OSS:
        _gpt_oss(c)
    row = next((row for row in FAMILY_BACKENDS if _fits(row, c)), None)
    if row is not None:
        c.settle(_rule(row, c), moe_runner_backend=row.backend)


def _rule(row: FamilyBackend, c: Choices) -> str:
    """What it took for this row to fit."""
    method = f" in {_method_for(row, c) or 'its own dtype'}" if row.methods is not None else ""
    experts = f", {row.when.__name__.replace('_', ' ')}" if row.when is not None else ""
    return f"{c.model.architecture}{method}{experts}{f' on {c.gpu.arch}' if row.majors else ''}"


def _fits(row: FamilyBackend, c: Choices) -> bool:
    return (
        c.model.architecture in row.architectures
        and c.moe_runner_backend in ("auto", *row.also_over)
        and row.since <= c.release.number < row.until
        and (not row.majors or c.gpu.major in row.majors)
        and (row.with_a2a or c.moe_a2a_backend == "none")
        and (row.methods is None or _method_for(row, c) in row.methods)
        and (row.when is None or row.when(c.model))
    )


def _method_for(row: FamilyBackend, c: Choices) -> str | None:
    method: str | None = c.quantization if row.of == "argument" else c.model_quantization
    return declared_method(c.model, c.release) if row.of == "declared" else method


def _gpt_oss(c: Choices) -> None:
    mxfp4 = declared_method(c.model, c.release) == "mxfp4"
    if c.moe_runner_backend == "auto":
        if mxfp4 and c.gpu.major == 10:
            c.settle("mxfp4 experts on Blackwell", moe_runner_backend="flashinfer_mxfp4")
        elif mxfp4 and c.gpu.major == 12:
            c.settle("mxfp4 experts on Blackwell", moe_runner_backend=c.release.mxfp4_on_sm120)
        elif c.ep_size == 1 and c.quantization is None:
            c.settle("gpt-oss without expert parallelism", moe_runner_backend="triton_kernel")
    if c.moe_runner_backend == "triton_kernel" and c.ep_size != 1:
        raise ConfigError(
            f"--ep {c.ep_size}: MoE backend triton_kernel has no expert parallelism",
            tries=("ep_size", "moe_runner_backend"),
        )


def _by_quantization(c: Choices) -> None:
    method, backend, release = c.quantization, c.moe_runner_backend, c.release
    if method == "nvfp4_online":
        _nvfp4_online(c)
    if method == "mxfp8" and not _reached(backend_row(backend).mxfp8_since, release):
        megamoe = c.moe_a2a_backend == "flashinfer_megamoe"
        default = "flashinfer_megamoe" if megamoe else "flashinfer_trtllm"
        c.settle("mxfp8 experts", moe_runner_backend=default)
    if backend == "auto" and method == "modelopt_fp4" and c.gpu.major in release.nvfp4_runs_cutlass_on:
        c.settle("nvfp4 experts on this GPU", moe_runner_backend="flashinfer_cutlass")


def _nvfp4_online(c: Choices) -> None:
    if c.gpu.major != 10:
        raise ConfigError(
            f"--quantization nvfp4_online needs sm100 or sm103: this is {c.gpu.arch}", tries=("quantization",)
        )
    if c.moe_runner_backend == "auto":
        c.settle("nvfp4 experts", moe_runner_backend="flashinfer_trtllm")
    elif "nvfp4_online" not in _taken(backend_row(c.moe_runner_backend), c.release):
        able = [row.name for row in BACKENDS.values() if "nvfp4_online" in _taken(row, c.release)]
        raise ConfigError(
            f"--quantization nvfp4_online does not run on MoE backend {c.moe_runner_backend}",
            tries=(*({"moe_runner_backend": name} for name in able), "moe_runner_backend", "quantization"),
        )


def _reached(since: Number | None, release: Release) -> bool:
    return since is not None and release.number >= since


def _taken(row: MoEBackendRow, release: Release) -> list[str | None]:
    return [method for method, since in row.takes.items() if _reached(since, release)]


def _check_runner(c: Choices) -> None:
    row = backend_row(c.moe_runner_backend)
    taken = _taken(row, c.release)
    if taken and c.quantization not in taken and not _is_hybrid(c, row):
        raise ConfigError(
            f"MoE backend {row.name} does not take quantization {c.quantization}",
            tries=("moe_runner_backend", "quantization"),
        )
    if row.spread_over_one_or_all and c.ep_size not in (1, c.tp_size):
        raise ConfigError(
            f"--ep {c.ep_size}: MoE backend {row.name} wants 1 or all TP ranks",
            tries=({"ep_size": c.tp_size}, "ep_size", "moe_runner_backend"),
        )
    knows = c.moe_a2a_backend == "none" or _reached(row.all_to_alls.get(c.moe_a2a_backend), c.release)
    if row.all_to_alls and not knows:
        raise ConfigError(
            f"MoE backend {row.name} does not know all-to-all {c.moe_a2a_backend}",
            tries=("moe_a2a_backend", "moe_runner_backend"),
        )
    if row.name == "cutlass" and c.quantization in ("fp8", "mxfp8") and c.ep_size != 1:
        raise ConfigError(
            f"--ep {c.ep_size}: MoE backend cutlass has no expert parallelism with {c.quantization}",
            tries=("ep_size", "moe_runner_backend"),
        )


def _is_hybrid(c: Choices, row: MoEBackendRow) -> bool:
    return c.release.mixed_by_layers and row.name == "flashinfer_cutedsl" and has_nvfp4_experts(c.model)


def settle_all_to_all(c: Choices) -> None:
    if c.enable_waterfill and c.moe_a2a_backend not in c.release.waterfills_over:
        if c.moe_a2a_backend == "flashinfer" and c.release.checks_a2a_as_asked:
            _flashinfer_a2a(c)
        c.settle("waterfill runs over DeepEP", moe_a2a_backend="deepep")
    if c.moe_a2a_backend in SPREADS_EXPERTS:
        c.settle(f"{c.moe_a2a_backend} spreads the experts over all TP ranks", ep_size=c.tp_size)
    check = {
        "flashinfer": _flashinfer_a2a,
        "flashinfer_megamoe": _megamoe_a2a,
        "deepep": _deepep_a2a,
        "deepep_v2": _deep_gemm_only,
        "pplx": _deep_gemm_only,
    }.get(c.moe_a2a_backend)
    dispatched = c.release.dispatch_type_routes and c.flashinfer_a2a_dispatch_type not in (None, "auto")
    if dispatched and c.moe_a2a_backend != "flashinfer":
        raise ConfigError(
            "--flashinfer-a2a-dispatch-type is for --moe-a2a-backend flashinfer only",
            tries=("flashinfer_a2a_dispatch_type",),
        )
    if check is not None:
        check(c)


def _shares_out_prefills(c: Choices) -> bool:
    """Of Muse Spark, each rank an equal part, without attention DP."""
    is_spread = c.model.architecture == MUSE_SPARK and c.enable_megamoe_for_layernorm_sp
    return bool(is_spread and c.enable_layernorm_sp and c.attn_dp_size == 1 and c.tp_size in (4, 8))


def _flashinfer_a2a(c: Choices) -> None:
    has_groups = c.attn_dp_size > 1 and c.attn_dp_size == c.tp_size
    if c.release.flashinfer_a2a_needs_dp and not (has_groups or _shares_out_prefills(c)):
        raise ConfigError(
            f"--moe-a2a-backend flashinfer needs as many attention-DP groups as TP ranks: {c.attn_dp_size} "
            f"of {c.tp_size}",
            tries=({"dp_size": c.tp_size, "enable_dp_attention": True}, "moe_a2a_backend"),
        )
    if c.release.dispatch_type_routes and c.flashinfer_a2a_dispatch_type is not None:
        if c.moe_runner_backend == "flashinfer_trtllm":
            c.settle("dispatched experts are routed", moe_runner_backend="flashinfer_trtllm_routed")
        _check_dispatch(c)
    if not _reached(backend_row(c.moe_runner_backend).under_flashinfer_a2a_since, c.release):
        able = (row for row in BACKENDS.values() if _reached(row.under_flashinfer_a2a_since, c.release))
        raise ConfigError(
            f"--moe-a2a-backend flashinfer does not work with MoE backend {c.moe_runner_backend}",
            tries=(*({"moe_runner_backend": row.name} for row in able), "moe_a2a_backend"),
        )


def _check_dispatch(c: Choices) -> None:
    wanted = c.flashinfer_a2a_dispatch_type
    if wanted == "mxfp8" and (
        c.quantization != "mxfp8" or c.asked.moe_runner_backend != "flashinfer_trtllm_routed"
    ):
        raise ConfigError(
            "--flashinfer-a2a-dispatch-type mxfp8 needs --quantization mxfp8 and "
            "--moe-runner-backend flashinfer_trtllm_routed"
        )
    if wanted == "nvfp4" and c.quantization != "modelopt_fp4" and not has_nvfp4_experts(c.model):
        raise ConfigError("--flashinfer-a2a-dispatch-type nvfp4 needs nvfp4 experts")


def check_dispatch_chunks(c: Choices) -> None:
    """The workspace of FlashInfer's all-to-all holds a chunk, and no whole prefill."""
    unchunked = c.chunked_prefill_size <= 0 and c.disaggregation_mode != "decode"
    if c.release.flashinfer_a2a_needs_chunks and c.moe_a2a_backend == "flashinfer" and unchunked:
        raise ConfigError(
            "--moe-a2a-backend flashinfer needs chunked prefill, and --chunked-prefill-size is"
            f" {c.chunked_prefill_size}",
            "give a size above 0",
        )


def _megamoe_a2a(c: Choices) -> None:
    if not c.attn_dp_size == c.tp_size > 1:
        raise ConfigError(
            f"--moe-a2a-backend flashinfer_megamoe needs --attn-dp-size {c.tp_size}: it is {c.attn_dp_size}",
            tries=({"dp_size": c.tp_size, "enable_dp_attention": True}, "moe_a2a_backend"),
        )
    if c.moe_runner_backend == "auto":
        c.settle("its all-to-all", moe_runner_backend="flashinfer_megamoe")
    if c.moe_runner_backend != "flashinfer_megamoe":
        raise ConfigError(
            f"--moe-a2a-backend flashinfer_megamoe does not work with MoE backend {c.moe_runner_backend}",
            tries=("moe_runner_backend", "moe_a2a_backend"),
        )
    if c.gpu.major != 10:
        raise ConfigError(
            f"--moe-a2a-backend flashinfer_megamoe needs sm100: this is {c.gpu.arch}",
            tries=("moe_a2a_backend",),
        )


def _deepep_a2a(c: Choices) -> None:
    cutedsl = c.moe_runner_backend == "flashinfer_cutedsl"
    if c.release.deepep_cutedsl_is_low_latency and cutedsl:
        if c.deepep_mode == "normal":
            raise ConfigError(
                "--deepep-mode normal: MoE backend flashinfer_cutedsl dispatches with low latency only",
                tries=({"deepep_mode": "low_latency"}, "deepep_mode"),
            )
        c.settle("flashinfer_cutedsl dispatches so only", deepep_mode="low_latency")


def _deep_gemm_only(c: Choices) -> None:
    if c.moe_runner_backend == "auto":
        c.settle("its all-to-all", moe_runner_backend="deep_gemm")
    if c.moe_runner_backend != "deep_gemm":
        raise ConfigError(
            f"--moe-a2a-backend {c.moe_a2a_backend} does not work with MoE backend {c.moe_runner_backend}",
            tries=({"moe_runner_backend": "deep_gemm"}, "moe_runner_backend", "moe_a2a_backend"),
        )


def runner_behind_deepep(server: Server) -> str:
    """What `auto` comes to where the layers are made: srt/layers/quantization/fp8.py, w4afp8.py."""
    if server.moe_runner_backend != "auto":
        return server.moe_runner_backend
    method = server.weights_quantization
    if method == "fp8" and server.gpu.major >= 9:
        return "deep_gemm"
    return "cutlass" if method == "w4afp8" else "auto"

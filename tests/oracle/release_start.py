"""One server's start, up to its first rank, by the release's own functions. Runs in the oracle's interpreter.

The answers have the names of `warm --dry-run --format json`'s `server`.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.oracle.cut import cut

MORE_TOKENS_THAN_ANY_POOL = 1 << 40


def flashinfer_is(version: str) -> None:
    import flashinfer

    flashinfer.__version__ = version


def server_of(argv: list[str]) -> dict[str, Any]:
    args = _resolved(argv)
    get = _getter(args)
    from sglang.srt.configs.model_config import ModelConfig

    model = ModelConfig.from_server_args(args)
    rank = _first_rank(args, get, model)
    _publish(args)
    answer = _arguments(get) | _model(get, model) | _graphs(get)
    if not model.is_generation:  # which captures no decodes, whatever it has settled
        answer["decode_graphs"] = []
    answer |= {"attn_dp_size": rank.attn_dp_size, "dummy_batch_rows": _dummy_rows(rank, get)}
    tunes, path = _autotune(rank)
    return answer | {"tunes": tunes, "key": path.parent.name, "draft": _draft(rank, get, args)}


def _resolved(argv: list[str]) -> Any:
    from sglang.srt.server_args import prepare_server_args

    args = prepare_server_args(argv)
    logging.disable(logging.CRITICAL)
    if hasattr(args, "resolve_once"):
        args.resolve_once()
    args.check_server_args()
    return args


def _getter(args: Any) -> Callable[..., Any]:
    """Newer releases keep what was resolved beside what was asked."""
    try:
        from sglang.srt.arg_groups.overrides import resolution_result
    except ImportError:
        return lambda name, *default: getattr(args, name, *default)

    def get(name: str, *default: Any) -> Any:
        try:
            return resolution_result(args, name)
        except Exception:
            if default:
                return default[0]
            raise

    return get


def _attention_dp(args: Any, get: Callable[..., Any]) -> int:
    try:
        from sglang.srt.arg_groups.overrides import resolving_view

        return int(resolving_view(args).attn_dp_size)
    except Exception:
        found = get("attn_dp_size", None)
        return int(found or (get("dp_size") if get("enable_dp_attention") else 1))


def _first_rank(args: Any, get: Callable[..., Any], model: Any) -> SimpleNamespace:
    """As much of SGLang's ModelRunner as its autotune functions look at."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    attn_dp = _attention_dp(args, get)
    sizes = {
        "tp_size": get("tp_size"), "pp_size": get("pp_size"), "attn_dp_size": attn_dp, "dp_size": attn_dp,
        "moe_ep_size": get("ep_size"), "attn_tp_size": get("tp_size") // attn_dp,
        "tp_rank": 0, "pp_rank": 0, "dp_rank": 0, "enable_kv_cache_sharding": False,
    }  # fmt: skip
    rank = SimpleNamespace(
        device="cuda", gpu_id=0, server_args=args, model_config=model, dtype=model.dtype,
        is_draft_worker=False,
        spec_algorithm=SpeculativeAlgorithm.from_string(get("speculative_algorithm")),
        ps=SimpleNamespace(**sizes), model=SimpleNamespace(modules=list), mambaish_config=None,
        max_total_num_tokens=MORE_TOKENS_THAN_ANY_POOL, **sizes,
    )  # fmt: skip
    rank.model_runner = rank
    return rank


def _publish(args: Any) -> None:
    """What a scheduler process tells its modules before it loads a model."""
    try:
        from sglang.srt.server_args import set_global_server_args_for_scheduler

        set_global_server_args_for_scheduler(args)
    except ImportError:
        pass
    _publish_context(args)
    from sglang.srt.layers.quantization import fp4_utils, fp8_utils

    for start in ("initialize_fp4_gemm_config", "initialize_fp8_gemm_config"):
        function = getattr(fp4_utils, start, None) or getattr(fp8_utils, start, None)
        if function is None:
            continue
        try:
            function()
        except TypeError:
            function(args)


def _publish_context(args: Any) -> None:
    try:
        from sglang.srt import runtime_context as context
    except ImportError:
        return
    if not hasattr(context, "publish"):
        return
    try:
        ranks = context.SpawnRanks(world_rank=0, gpu_id=0, dp_rank=0)
        context.publish(args, role="scheduler", ranks=ranks)
    except (AttributeError, TypeError):
        context.publish(args, role="scheduler")


def _arguments(get: Callable[..., Any]) -> dict[str, Any]:
    names = (
        *("quantization", "page_size", "moe_runner_backend", "moe_a2a_backend", "ep_size"),
        *("chunked_prefill_size", "max_running_requests", "disaggregation_mode"),
    )
    prefill = get("prefill_attention_backend", None) or get("attention_backend")
    decode = get("decode_attention_backend", None) or get("attention_backend")
    speculative = [get(f"speculative_{name}") for name in ("num_steps", "eagle_topk", "num_draft_tokens")]
    return {name: get(name) for name in names} | {
        "attention_backend": prefill if prefill == decode else f"{prefill}/{decode}",
        "sparse_kernels": [_sparse(get, one) for one in ("prefill", "decode")],
        "mem_fraction_static": round(get("mem_fraction_static"), 3),
        "speculative": speculative if get("speculative_algorithm") else None,
    }


def _sparse(get: Callable[..., Any], phase: str) -> str | None:
    found: str | None = get(f"dsa_{phase}_backend", None) or get(f"nsa_{phase}_backend", None)
    return found


def _model(get: Callable[..., Any], model: Any) -> dict[str, Any]:
    dtype = str(model.dtype).removeprefix("torch.")
    kv_dtype = get("kv_cache_dtype")
    return {
        "config_class": type(model.hf_config).__name__,
        "dtype": dtype,
        "context_length": model.context_len,
        "kv_cache_dtype": (_declared_kv_dtype(model) or dtype) if kv_dtype == "auto" else kv_dtype,
    }


def _declared_kv_dtype(model: Any) -> str | None:
    """What the weights' own configuration says, as ModelRunner.configure_kv_cache_dtype asks it."""
    if model.quantization is None:
        return None
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader.weight_utils import get_quant_config

    try:
        algorithm = getattr(get_quant_config(model, LoadConfig(), {}), "kv_cache_quant_algo", None)
    except Exception:
        return None
    return "fp8_e4m3" if isinstance(algorithm, str) and algorithm.upper() == "FP8" else None


def _graphs(get: Callable[..., Any]) -> dict[str, list[int]]:
    config = get("cuda_graph_config", None)
    if config is not None:
        phases = {f"{name}_graphs": getattr(config, name) for name in ("decode", "prefill")}
        return {
            name: [] if phase.backend == "disabled" else list(phase.bs or [])
            for name, phase in phases.items()
        }
    off = get("disable_cuda_graph")
    decode = [] if off else list(get("cuda_graph_bs") or [])
    prefill = [] if get("disable_piecewise_cuda_graph") else list(get("piecewise_cuda_graph_tokens") or [])
    return {"decode_graphs": decode, "prefill_graphs": prefill}


def _dummy_rows(rank: SimpleNamespace, get: Callable[..., Any]) -> int:
    """Of one attention-DP rank, were its memory endless; a mamba model's state cache is left out."""
    names = ("resolve_max_num_reqs", "_resolve_max_num_reqs")
    function = cut(
        names, "mem_cache/kv_cache_configurator.py", "model_executor/model_runner_kv_cache_mixin.py"
    )
    arguments = [MORE_TOKENS_THAN_ANY_POOL] * (function.__code__.co_argcount - 1)
    width = get("speculative_num_draft_tokens") if get("speculative_algorithm") else 1
    return int(function(rank, *arguments) * (width or 1))


def _autotune(rank: SimpleNamespace, draft: bool = False) -> tuple[bool, Path]:
    """The gate and the cache file."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SGLANG_CACHE_DIR"] = folder
        try:
            from sglang.srt.model_executor.runner import flashinfer_autotune as module
        except ImportError:
            gate, path = _methods()
            return bool(gate(rank)), path(rank)
        _answer_for_groups(module, rank)
        gate = module.should_run_flashinfer_autotune
        tunes = gate(rank, for_speculative_draft=True) if draft else gate(rank)
        return bool(tunes), module.flashinfer_autotune_cache_path(rank)


def _methods() -> list[Callable[..., Any]]:
    """Up to 0.5.14: methods of a class whose module wants kernels."""
    names = ("_should_run_flashinfer_autotune", "_flashinfer_autotune_cache_path")
    return [
        cut((name,), "model_executor/model_runner.py", "model_executor/runner/base_runner.py")
        for name in names
    ]


def _answer_for_groups(module: Any, rank: SimpleNamespace) -> None:
    """Where SGLang asks its process groups for sizes that were not published."""
    if not hasattr(module, "get_parallel"):
        return
    try:
        groups = module.get_parallel()
        assert None not in (groups.attn_dp_size, groups.moe_ep_size, groups.tp_rank)
    except Exception:
        module.get_parallel = lambda: rank.ps


def _draft(rank: SimpleNamespace, get: Callable[..., Any], args: Any) -> dict[str, Any] | None:
    """A model of its own, or the target's own draft layers; n-grams need no model."""
    algorithm, path = get("speculative_algorithm"), get("speculative_draft_model_path", None)
    if not algorithm or algorithm == "NGRAM":
        return None
    from sglang.srt.configs.model_config import ModelConfig

    model = ModelConfig.from_server_args(
        args, model_path=path, model_revision=get("speculative_draft_model_revision"), is_draft_model=True
    )
    draft = SimpleNamespace(
        **vars(rank) | {"is_draft_worker": True, "model_config": model, "dtype": model.dtype}
    )
    draft.model_runner = draft
    tunes, file = _autotune(draft, draft=True)
    return {"key": file.parent.name, "tunes": tunes}

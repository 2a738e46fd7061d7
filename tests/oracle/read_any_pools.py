"""What a release's own pools hold of any model's tokens, on one stage of a server, and how many there are.

Runs in the oracle's interpreter. Reads cases, a JSON object a line: a config.json, arguments, the dtype that
its cache has, the bytes that are left for its pools, and a stage.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.oracle.cut import cut
from tests.oracle.inside import enter, keep_output
from tests.oracle.read_held import _own_class
from tests.oracle.read_pools import _host, _reset_context, _with_groups, _without_gpu, tensors_of

_DTYPES = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
_PHASES = ("prefill", "decode")
_KINDS = (
    *("hybrid_lightning_config", "hybrid_gdn_config", "mamba2_config", "kimi_linear_config"),
    *("mambaish_config", "hybrid_kda_config"),
)
USUAL: dict[str, Any] = {
    "config": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 99, "max_position_embeddings": 128, "torch_dtype": "bfloat16",
    },
    "argv": [], "dtype": "bfloat16", "rest": 1 << 30, "stage": [0, 2],
}  # fmt: skip


def main() -> None:
    enter()
    out = keep_output()
    _answer(USUAL)  # whatever an answer imports, imported before the forks
    for line in sys.stdin:
        print(json.dumps(in_a_fork(_answer, json.loads(line))), file=out, flush=True)


def in_a_fork(answer: Callable[[dict[str, Any]], Any], case: dict[str, Any]) -> dict[str, Any]:
    """For SGLang keeps globals. What there is by now is looked through by no collector again."""
    gc.freeze()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(240)
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(answer(case)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    told: dict[str, Any] = json.loads(text) if text else {"refused": "died"}
    return told


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return _pools(_rank(case))
    except BaseException as error:
        return where_it_ends(error)


def where_it_ends(error: BaseException) -> dict[str, Any]:
    places = traceback.extract_tb(error.__traceback__)
    place = next((one for one in reversed(places) if "/sglang/" in one.filename), places[-1])
    where = f"{place.filename.split('/sglang/')[-1]}:{place.lineno} {place.name}"
    return {"refused": f"{type(error).__name__}: {str(error)[:160]}", "where": where}


def _pools(rank: Any) -> dict[str, Any]:
    config, made = made_by(rank)
    return {**told_of(rank, config, made), "backends": rank.used}


def made_by(rank: Any) -> tuple[Any, Any]:
    """Its sizes, and whoever holds its pools; a draft's sizes are its target's."""
    config = rank.memory_pool_config or rank._resolve_memory_pool_config(0)
    if not hasattr(rank, "_derive_pool_sizes"):
        rank._apply_memory_pool_config(config)
        return config, rank
    sizes = rank._derive_pool_sizes(config=config)
    there = {name: getattr(rank, name) for name in ("req_to_token_pool", "token_to_kv_pool_allocator")}
    return config, rank._init_pools(sizes=sizes, **there)


def told_of(rank: Any, config: Any, made: Any) -> dict[str, Any]:
    table = made.req_to_token_pool
    seen: set[int] = set()
    states = _sizes(getattr(table, "mamba_pool", None), seen)
    _sizes(table.req_to_token, seen)
    kept = _sizes([made.token_to_kv_pool, made.token_to_kv_pool_allocator], seen)
    return {
        "page": rank.page_size,
        "tokens": config.max_total_num_tokens,
        "window": config.swa_max_total_num_tokens or 0,
        "requests": config.max_running_requests,
        "table": list(table.req_to_token.shape),
        "kept": kept[0],
        "states": states[0],
        "indices": kept[1],
        "classes": [type(one).__name__ for one in (made.token_to_kv_pool, made.token_to_kv_pool_allocator)],
    }


def _sizes(held: Any, seen: set[int]) -> tuple[int, int]:
    """Bytes of values, and of what tells where they are."""
    import torch

    found = [0, 0]
    for one in tensors_of(held, seen):
        found[one.dtype in (torch.int64, torch.int32, torch.uint64)] += one.untyped_storage().nbytes()
    return found[0], found[1]


def _rank(case: dict[str, Any]) -> Any:
    from sglang.srt.configs.model_config import ModelConfig

    with served(case) as args:
        return rank_of(case, args, ModelConfig.from_server_args(args))


@contextmanager
def served(case: dict[str, Any]) -> Iterator[Any]:
    """What its server resolved, while its files are there."""
    import torch

    from tests.oracle.release_start import _attention_dp, _getter, _publish, _resolved

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
        own = _own_class(Path(folder), case["config"])
        args = _resolved(["--model-path", folder, *case["argv"], *own])
        _reset_context()
        _publish(args)
        get = _getter(args)
        _without_gpu(torch)
        _with_groups(get("tp_size") // _attention_dp(args, get))
        yield args


def rank_of(case: dict[str, Any], args: Any, model: Any, **told: Any) -> Any:
    """As much of a model runner as its pools look at."""
    import torch
    from sglang.srt.configs.model_config import AttentionArch
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from tests.oracle.release_start import _attention_dp, _getter

    get = _getter(args)
    stages, (first, last) = get("pp_size"), case["stage"]
    groups, algorithm, kept = _attention_dp(args, get), get("speculative_algorithm"), case["dtype"]
    is_mla = model.attention_arch == AttentionArch.MLA
    drafts = SimpleNamespace(
        eagle_draft_num_layers=None, eagle_draft_swa_num_layers=None,
        dflash_draft_num_layers=None, draft_model_config=None, draft_kv_num_layers=None,
    )  # fmt: skip
    own = {
        "device": "meta", "gpu_id": 0, "attn_dp_size": groups, "dp_size": groups, "pp_size": stages,
        "pp_group": SimpleNamespace(rank_in_group=0, world_size=stages), "model": None,
        "model_config": model, "server_args": args, "kv_cache_dtype": getattr(torch, _DTYPES.get(kept, kept)),
        "kv_cache_dtype_str": kept, "model_dtype": model.dtype, "dtype": model.dtype,
        "page_size": get("page_size"), "sliding_window_size": model.sliding_window_size,
        "spec_algorithm": SpeculativeAlgorithm.from_string(algorithm), "is_draft_worker": False,
        "post_capture_kv_active": False, "is_hybrid_swa": model.is_hybrid_swa,
        "is_hybrid_swa_compress": getattr(model, "is_hybrid_swa_compress", False),
        "use_mla_backend": is_mla, "forward_stream": None, "req_to_token_pool": None,
        "token_to_kv_pool_allocator": None, "memory_pool_config": None, "is_hybrid_swa_mtp_draft": False,
        "draft_swa_full_capacity": False, "kv_shard_size": 1, "kv_shard_rank": None, "kv_shard_spec": None,
        "kv_shard_group": None, "draft_model_idx": None, "extra_mamba_cache_bytes_per_req": 0,
        "ps": SimpleNamespace(pp_size=stages, attn_dp_size=groups, tp_size=get("tp_size")),
        "enable_hisparse": get("enable_hisparse", False), "mem_fraction_static": 0.9,
        "spec_aux_config": drafts, "eagle_draft_num_layers": None,
        "is_inkling_mtp_draft": False, "tp_rank": 0, "dcp_size": 1, "start_layer": first, "end_layer": last,
        "num_effective_layers": (last - first) * _loops(model),
        "used": [get(f"{one}_attention_backend", None) or get("attention_backend") for one in _PHASES],
        "dflash_draft_cell_size_per_token": None, "draft_parallel_layout": None,
        **_states(model, args), **told,
    }  # fmt: skip
    return _placed(_host(own, case["rest"]), model, first, last)


def _loops(model: Any) -> int:
    return int(getattr(model.hf_config, "loop_num", getattr(model.hf_config, "num_loops", 1)) or 1)


def _placed(rank: Any, model: Any, first: int, last: int) -> Any:
    try:
        setup = importlib.import_module("sglang.srt.model_executor.model_runner_components.layer_setup")
    except ImportError:
        cut(("adjust_hybrid_swa_layers_for_pp",), "model_executor/model_runner.py")(rank)
        return rank
    place = SimpleNamespace(start_layer=first, end_layer=last)
    told = {"model": place, "model_config": model, "is_draft_worker": rank.is_draft_worker}
    if "spec_algorithm" in inspect.signature(setup.resolve_layer_indices).parameters:
        told["spec_algorithm"] = rank.spec_algorithm
    info = setup.resolve_layer_indices(**told)
    object.__setattr__(rank, "layer_info", info)
    if hasattr(setup, "adjust_hybrid_swa_layer_ids"):
        place = {"start_layer": first, "end_layer": last, "is_hybrid_swa": model.is_hybrid_swa}
        setup.adjust_hybrid_swa_layer_ids(model_config=model, **place)
    return rank


def _states(model: Any, args: Any) -> dict[str, Any]:
    try:
        kinds = importlib.import_module("sglang.srt.configs.hybrid_arch")
    except ImportError:
        return _cut_states(model, args)
    names = [name for name in _KINDS if hasattr(kinds, name)]
    return {name: getattr(kinds, name)(model) for name in names}


def _cut_states(model: Any, args: Any) -> dict[str, Any]:
    """Properties of a class whose module wants kernels."""
    found: dict[str, Any] = {}
    for name in _KINDS:
        try:
            found[name] = cut((name,), "model_executor/model_runner.py")
        except LookupError:
            continue
    kind = type("Kinds", (), found)
    runner = kind()
    registered = importlib.import_module("sglang.srt.configs.linear_attn_model_registry")
    told = registered.get_linear_attn_config(model.hf_config)
    runner._get_linear_attn_registry_result = lambda: told
    runner.model_config, runner.server_args, runner.is_draft_worker = model, args, False
    return {name: getattr(runner, name) for name in found}


if __name__ == "__main__":
    main()

"""What a release's own pools hold of a model's tokens: its sizes, and its buffers, made without data.

Runs in the oracle's interpreter. Reads cases, a JSON object a line: a config.json, arguments, the bytes that
are left for the pools, and a stage of the model.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from tests.oracle.inside import enter, keep_output

_CONFIGURATOR = "sglang.srt.mem_cache.kv_cache_configurator"
_MIXIN = "sglang.srt.model_executor.model_runner_kv_cache_mixin"
_DTYPES = {"fp8_e4m3": "float8_e4m3fn"}
_GIB = 1 << 30
_PLACES = ("sglang.srt.distributed.parallel_state", "sglang.srt.layers.dp_attention")


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=out, flush=True)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return _pools(_rank(case))
    except (RuntimeError, ValueError, AssertionError) as error:
        return {"refused": str(error)[:60]}


def _pools(rank: Any) -> dict[str, Any]:
    config = rank._resolve_memory_pool_config(0)
    if hasattr(rank, "_derive_pool_sizes"):
        sizes = rank._derive_pool_sizes(config=config)
        made = rank._init_pools(sizes=sizes, req_to_token_pool=None, token_to_kv_pool_allocator=None)
    else:
        rank._apply_memory_pool_config(config)
        made = rank
    table = made.req_to_token_pool
    if rank.mambaish_config is not None:
        behind = [made.token_to_kv_pool_allocator] if rank.is_hybrid_swa else []
        return _with_states(config, [made.token_to_kv_pool, *behind], table)
    return {
        "tokens": config.max_total_num_tokens,
        "window": config.swa_max_total_num_tokens,
        "requests": config.max_running_requests,
        "table": list(table.req_to_token.shape),
        "bytes": sum(_storages([made.token_to_kv_pool, made.token_to_kv_pool_allocator, table])),
    }


def _with_states(config: Any, kept: list[Any], table: Any) -> dict[str, Any]:
    """Without what tells where a request's state lies."""
    more = (getattr(table, f"{one}_pool", None) for one in ("short_conv", "ngram"))
    held = [*kept, table.req_to_token, table.mamba_pool, *more]
    return {
        "tokens": config.max_total_num_tokens,
        "requests": config.max_running_requests,
        "table": list(table.req_to_token.shape),
        "bytes": sum(_storages(held)),
    }


def _storages(held: Any) -> Iterator[int]:
    """The bytes of each tensor that is held, once."""
    return (one.untyped_storage().nbytes() for one in tensors_of(held))


def tensors_of(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Each that is held, a storage once."""
    import torch

    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()._cdata
        if storage not in seen and value.device.type == "meta":
            seen.add(storage)
            yield value
        return
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif type(value).__module__.startswith("sglang."):
        inner = getattr(value, "__dict__", {}).values()
    for one in inner:
        yield from tensors_of(one, seen)


def _rank(case: dict[str, Any]) -> Any:
    """As much of a model runner as its pools look at."""
    import torch
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from tests.oracle.release_start import _attention_dp, _getter, _publish, _resolved

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
        args = _resolved(["--model-path", folder, *case["argv"]])
        _reset_context()
        _publish(args)
        model = ModelConfig.from_server_args(args)
    get = _getter(args)
    _without_gpu(torch)
    _with_groups(get("tp_size") // _attention_dp(args, get))
    stages, first, last = get("pp_size"), *case.get("stage", (0, model.num_hidden_layers))
    groups, algorithm = _attention_dp(args, get), get("speculative_algorithm")
    kept, states = case.get("kept", "fp8_e4m3"), _states(model) if "kept" in case else None
    group = SimpleNamespace(rank_in_group=0, world_size=stages)
    place = {"start_layer": first, "end_layer": last, "num_effective_layers": last - first}
    for kind in ("swa_attention_layer_ids", "full_attention_layer_ids"):
        place[kind] = [one for one in getattr(model, kind, None) or () if first <= one < last]
    own = {
        "device": "meta", "gpu_id": 0, "attn_dp_size": groups, "dp_size": groups, "pp_size": stages,
        "pp_group": group, "model": None, "model_config": model, "server_args": args,
        "kv_cache_dtype": getattr(torch, _DTYPES.get(kept, kept)), "kv_cache_dtype_str": kept,
        "model_dtype": torch.bfloat16, "dtype": torch.bfloat16,
        "page_size": get("page_size"), "sliding_window_size": model.sliding_window_size,
        "spec_algorithm": SpeculativeAlgorithm.from_string(algorithm), "is_draft_worker": False,
        "post_capture_kv_active": False, "is_hybrid_swa": model.is_hybrid_swa,
        "is_hybrid_swa_compress": getattr(model, "is_hybrid_swa_compress", False),
        "use_mla_backend": "kept" not in case, "forward_stream": None, "req_to_token_pool": None,
        "token_to_kv_pool_allocator": None, "memory_pool_config": None, "mambaish_config": states,
        "hybrid_gdn_config": states, "hybrid_kda_config": None, "is_hybrid_swa_mtp_draft": False,
        "draft_swa_full_capacity": False, "kv_shard_size": 1, "kv_shard_rank": None, "kv_shard_spec": None,
        "kv_shard_group": None, "draft_model_idx": None, "extra_mamba_cache_bytes_per_req": 0,
        "layer_info": MagicMock(**place), "ps": SimpleNamespace(pp_size=stages, attn_dp_size=groups),
        "enable_hisparse": get("enable_hisparse", False), "mem_fraction_static": 0.9,
        "spec_aux_config": MagicMock(), "is_inkling_mtp_draft": False, "tp_rank": 0, **place,
    }  # fmt: skip
    return _host(own, case["rest"])


def _states(model: Any) -> Any:
    from sglang.srt.configs.hybrid_arch import mambaish_config

    return mambaish_config(model)


def _host(own: dict[str, Any], rest: int) -> Any:
    try:
        base = importlib.import_module(_CONFIGURATOR).KVCacheConfigurator
    except ImportError:
        base = importlib.import_module(_MIXIN).ModelRunnerKVCacheMixin

    def left(self: Any, _: Any) -> int:
        if self.mambaish_config is None:
            return rest
        return int(getattr(self, _handled(self))(rest / _GIB) * _GIB)

    kind = type("Rank", (base,), {"_profile_available_bytes": left})
    rank = object.__new__(kind)
    for name, value in own.items():
        try:
            object.__setattr__(rank, name, value)
        except AttributeError:  # a property
            continue
    return rank


def _handled(rank: Any) -> str:
    """Its name before 0.5.16, and since."""
    names = ("_handle_max_mamba_cache", "handle_max_mamba_cache")
    return next(name for name in names if hasattr(rank, name))


def _reset_context() -> None:
    try:
        importlib.import_module("sglang.srt.runtime_context").reset_context()
    except (ImportError, AttributeError):
        return


def _without_gpu(torch: Any) -> None:
    """Peers agree with this rank, and streams are none."""
    torch.distributed.all_reduce = lambda *_, **__: None
    torch.cuda.Stream = torch.cuda.Event = MagicMock
    torch.get_device_module = lambda *_: MagicMock()
    for module in _PLACES:
        importlib.import_module(module).get_world_group = MagicMock
    try:
        parallel = importlib.import_module("sglang.srt.runtime_context").get_parallel()
        parallel.override_permanently(world_group=MagicMock())
    except (ImportError, AttributeError):  # a release that asks for it by the function above
        return


def _with_groups(ranks: int) -> None:
    """Which releases until 0.5.19 ask how many ranks share heads."""
    state = importlib.import_module(_PLACES[0])
    if hasattr(state, "_ATTN_TP"):
        state._ATTN_TP = MagicMock(world_size=ranks, rank_in_group=0)


if __name__ == "__main__":
    main()

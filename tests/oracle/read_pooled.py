"""What a token costs where a pool of them has one key, and what all hold: SGLang's classes, asked.

Runs in the oracle's interpreter. Reads cases, a JSON object a line: a config.json, arguments, tp, a stage of
the model, tokens and requests.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from tests.oracle.inside import enter, keep_output
from tests.oracle.read_held import _take_place
from tests.oracle.read_pools import _storages


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=out, flush=True)


def _answer(case: dict[str, Any]) -> list[int]:
    """Bytes of a token, of all buffers, and the page."""
    import torch
    from sglang.srt import runtime_context
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.model_config import (
        ModelConfig,
        dsa_layer_skips_topk,
        get_dsa_index_kpool,
        get_dsa_index_kpool_compress,
    )
    from sglang.srt.mem_cache import memory_pool
    from sglang.srt.mem_cache.kv_cache_configurator import calculate_mla_kv_cache_dim
    from sglang.srt.model_executor.pool_configurator import DefaultPoolConfigurator

    from tests.oracle.release_start import _getter, _publish, _resolved

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
        args = _resolved(["--model-path", folder, "--tp", str(case["tp"]), *case["argv"]])
        runtime_context.reset_context()
        _publish(args)
        model = ModelConfig.from_server_args(args)
    _take_place(case["tp"], 1, 0, case["tp"])
    get, (first, last), text = _getter(args), case["stage"], model.hf_config
    dtype = torch.float8_e4m3fn if get("kv_cache_dtype") == "fp8_e4m3" else torch.bfloat16
    states = mambaish_config(model)
    attending = range(model.num_hidden_layers) if states is None else states.full_attention_layer_ids
    layers = [layer for layer in attending if first <= layer < last]
    asked = MagicMock(
        kv_cache_dtype_str=get("kv_cache_dtype"), kv_cache_dtype=dtype, model_config=model, server_args=args,
        layer_info=SimpleNamespace(start_layer=first, end_layer=last, num_effective_layers=last - first),
        mambaish_config=states, page_size=get("page_size"), is_draft_worker=False, kv_shard_size=1,
        use_mla_backend=True, pp_size=1, spec_algorithm=SimpleNamespace(**dict.fromkeys(_NONE, bool)),
    )  # fmt: skip
    cell = DefaultPoolConfigurator(asked)._cell_size
    torch.cuda.Stream = torch.cuda.Event = MagicMock
    pool = memory_pool.DSATokenToKVPool(
        size=case["tokens"], page_size=get("page_size"), kv_lora_rank=model.kv_lora_rank, dtype=dtype,
        qk_rope_head_dim=model.qk_rope_head_dim, layer_num=len(layers), device="meta",
        index_head_dim=text.index_head_dim, enable_memory_saver=False,
        kv_cache_dim=calculate_mla_kv_cache_dim(model_config=model, kv_cache_dtype=dtype),
        index_kpool=get_dsa_index_kpool(text), index_kpool_compress=get_dsa_index_kpool_compress(text),
        skip_topk_layers=[dsa_layer_skips_topk(text, layer) for layer in layers],
        max_running_requests=case["requests"] + 1,
    )  # fmt: skip
    return [int(cell), sum(_storages(pool)), get("page_size")]


_NONE = ("is_eagle", "is_standalone", "is_dflash", "is_dflash_family", "is_none")


if __name__ == "__main__":
    main()

"""What a token of MiniMax-M3.1 costs on Blackwell, and what its pool holds: SGLang's classes, asked.

Runs in the oracle's interpreter. Reads cases, a JSON object a line: a config.json, arguments, tp, a stage of
the model and tokens.
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


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=out, flush=True)


def _answer(case: dict[str, Any]) -> list[int]:
    """Bytes of a token, and of all buffers."""
    import torch
    from sglang.srt import runtime_context
    from sglang.srt.configs.model_config import (
        ModelConfig,
        get_minimax_sparse_attention_config,
        get_minimax_sparse_layer_ids,
    )
    from sglang.srt.mem_cache import minimax_m3_nvfp4_pool as pools
    from sglang.srt.model_executor.pool_configurator import DefaultPoolConfigurator

    from tests.oracle.release_start import _publish, _resolved

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
        args = _resolved(["--model-path", folder, "--tp", str(case["tp"]), *case["argv"]])
        runtime_context.reset_context()
        _publish(args)
        model = ModelConfig.from_server_args(args)
    _take_place(case["tp"], 1, 0, case["tp"])
    (first, last), dtype = case["stage"], torch.float8_e4m3fn
    asked = MagicMock(
        kv_cache_dtype_str="fp8_e4m3", kv_cache_dtype=dtype, model_config=model, server_args=args,
        layer_info=SimpleNamespace(start_layer=first, end_layer=last, num_effective_layers=last - first),
        mambaish_config=None, page_size=128, is_draft_worker=False, kv_shard_size=1, use_mla_backend=False,
        pp_size=1, model_dtype=torch.bfloat16, spec_algorithm=SimpleNamespace(**dict.fromkeys(_NONE, bool)),
    )  # fmt: skip
    cell = DefaultPoolConfigurator(asked)._cell_size
    torch.cuda.Stream = torch.cuda.Event = MagicMock
    torch.equal = MagicMock()
    dense, sparse = get_minimax_sparse_layer_ids(get_minimax_sparse_attention_config(model.hf_config))
    pool = pools.MiniMaxM3Nvfp4KVPool(
        size=case["tokens"], page_size=128, dtype=dtype, head_num=model.get_num_kv_heads(case["tp"]),
        head_dim=model.head_dim, idx_head_dim=128, dense_layer_ids=dense, sparse_layer_ids=sparse,
        disable_value_sparse_layer_ids=sparse, device="meta", start_layer=first, end_layer=last,
    )  # fmt: skip
    held = pool.main_pool, pool.index_k_pool
    return [int(cell), sum(one.slab.nbytes for one in held)]


_NONE = ("is_eagle", "is_standalone", "is_dflash", "is_dflash_family", "is_none")


if __name__ == "__main__":
    main()

"""What one token costs a rank's pools: in a layer that sees all, in one behind a window, in all of them.

SGLang's own configurator of the two pools, asked of a config.json.

Runs in the oracle's interpreter. Reads cases, a JSON object a line: a config.json and tp.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.oracle.inside import enter, keep_output
from tests.oracle.read_held import _take_place


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        print(json.dumps(_cells(json.loads(line))), file=out, flush=True)


def _cells(case: dict[str, Any]) -> list[float]:
    import torch
    from sglang.srt import runtime_context
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_executor.pool_configurator import HybridSWAPoolConfigurator

    from tests.oracle.release_start import _publish, _resolved

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
        args = _resolved(["--model-path", folder, "--tp", str(case["tp"])])
        runtime_context.reset_context()
        _publish(args)
        config = ModelConfig.from_server_args(args)
    _take_place(case["tp"], 1, 0, case["tp"])
    layers = SimpleNamespace(
        full_attention_layer_ids=config.full_attention_layer_ids,
        swa_attention_layer_ids=config.swa_attention_layer_ids,
    )
    asked = SimpleNamespace(
        kv_cache_dtype_str="auto",
        kv_cache_dtype=torch.bfloat16,
        model_config=config,
        layer_info=layers,
        sliding_window_size=config.sliding_window_size,
        page_size=1,
        spec_algorithm=SimpleNamespace(**{name: bool for name in _ALGORITHMS}),
        fused_entry_bytes=lambda _: None,
        is_draft_worker=False,
        server_args=args,
    )
    made = HybridSWAPoolConfigurator(asked)
    return [made._full_per_token, made._swa_per_token, made._cell_size]


_ALGORITHMS = ("is_eagle", "is_standalone", "is_dflash", "is_dflash_family", "is_none")


if __name__ == "__main__":
    main()

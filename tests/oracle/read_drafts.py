"""How large SGLang's own classes make the draft of a config.json, on meta tensors, as one rank of tp.

Runs in the oracle's interpreter. Reads cases, a JSON object a line, and prints the bytes of each.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from tests.oracle.inside import enter, keep_output

MODEL = "models/meta-llama/Llama-3.1-8B-Instruct"


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(_bytes(case["config"], case["tp"])), file=out, flush=True)


def _bytes(section: dict[str, Any], tp: int) -> int:
    import torch
    from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3
    from sglang.srt.runtime_context import get_parallel
    from transformers import AutoConfig

    from tests.oracle.release_start import _publish, _resolved

    _publish(_resolved(["--model-path", MODEL, "--tp-size", str(tp)]))
    torch.set_default_dtype(torch.bfloat16)
    config = AutoConfig.for_model(**section)
    ranks = dict.fromkeys(("tp_rank", "attn_tp_rank"), tp - 1)
    groups = dict.fromkeys(("tp_group", "attn_tp_group"), _group(tp))
    with get_parallel().override(**ranks, **groups, pp_group=_group(1)), torch.device("meta"):
        model = LlamaForCausalLMEagle3(config)
    return sum(one.nbytes for one in model.parameters())


def _group(ranks: int) -> SimpleNamespace:
    return SimpleNamespace(world_size=ranks, rank_in_group=ranks - 1, is_last_rank=True, cpu_group=None)


if __name__ == "__main__":
    main()

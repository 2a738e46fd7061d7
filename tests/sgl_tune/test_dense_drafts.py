"""Families of experts whose layer that drafts has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.plan import make_plan

PUBLISHED = Path(__file__).parents[1] / "memory/data/published_families.json"
_STEP = {
    **{"model_type": "step3p5", "architectures": ["Step3p5ForCausalLM"], "dtype": "bfloat16"},
    **{"num_hidden_layers": 4, "num_attention_heads": 16, "num_attention_groups": 4, "hidden_size": 2048},
    **{"moe_layers_enum": "2,3", "moe_num_experts": 16, "moe_top_k": 2, "vocab_size": 1024},
    **{"moe_intermediate_size": 512, "share_expert_dim": 512, "num_nextn_predict_layers": 1},
    "layer_types": ["full_attention", *["sliding_attention"] * 4],
    "sliding_window": 512,
}
_EAGLE: dict[str, Any] = {
    **{"speculative_algorithm": "EAGLE", "speculative_num_steps": 1, "speculative_num_draft_tokens": 2},
    "speculative_eagle_topk": 1,
}


def _mimo() -> dict[str, Any]:
    told = dict(json.loads(PUBLISHED.read_text())["XiaomiMiMo/MiMo-V2-Flash"])
    return {name: value for name, value in told.items() if name != "quantization_config"}


@pytest.mark.parametrize("config", [_mimo(), _STEP], ids=["MiMo-V2", "Step 3.5"])
def test_a_target_tunes_its_experts_and_its_draft_nothing(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags: dict[str, Any] = {"moe_runner_backend": "flashinfer_cutlass", "gpu": "H200", "tp": 4, **_EAGLE}
    asked = ServerFlags(model_path=str(tmp_path), sglang_version="0.5.23", **flags)
    plan = make_plan(resolve_deployment(asked, environ={}), gpus=())
    assert plan.draft is not None and not plan.draft.ops
    assert [op.op for op in plan.target.ops] == ["trtllm::fused_moe::gemm1", "trtllm::fused_moe::gemm2"]

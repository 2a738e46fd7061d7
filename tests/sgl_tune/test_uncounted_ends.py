"""What a class of SGLang's asks of a file that transformers has no field for: without it a start ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.served_classes import SERVED
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import checkpoints
from tests.runtime.families import make_reference
from tests.runtime.families.reference import config_json
from tests.sgl_tune.ends import OWN_CLASS

_CONFIGS = {one.name: one.config for one in checkpoints()}


def _why(folder: Path, config: dict[str, Any], tp: int = 8) -> str | None:
    (folder / "config.json").write_text(json.dumps(config))
    command = f"python -m sglang.launch_server --model-path {folder} --trust-remote-code --tp {tp}"
    flags = ServerFlags(gpu="H200", sglang_version="0.5.23")
    return never_starts(select_deployments(flags, command=command.split())[0])


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *(("deepseek-ai/DeepSeek-R1", one) for one in ("moe_layer_freq", "scoring_func", "topk_method")),
        *(("zai-org/GLM-5.1", one) for one in ("moe_layer_freq", "scoring_func")),
        ("LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct", "pad_token_id"),
        ("stepfun-ai/Step-3.5-Flash", "num_attention_groups"),
    ],
)
def test_a_field_that_is_missing_ends_the_start(name: str, field: str, tmp_path: Path) -> None:
    config = {**_CONFIGS[name], **(OWN_CLASS if "Step" in name else {})}
    assert _why(tmp_path, config) is None
    why = _why(tmp_path, {one: value for one, value in config.items() if one != field})
    assert why is not None and why.startswith(f"{field} is missing, which SGLang's class asks for")


def test_olmoe_is_of_one_rank(tmp_path: Path) -> None:
    config = {**config_json(make_reference("olmoe")), "architectures": ["OlmoeForCausalLM"]}
    assert _why(tmp_path, config, tp=1) is None
    why = _why(tmp_path, config, tp=2)
    assert why is not None and "norms are as wide as all heads" in why


@pytest.mark.parametrize(
    ("name", "section", "said"),
    [
        ("qwen2_vl", {"in_chans": None}, "in_chans is missing"),
        ("kimi_k25", {"vt_hidden_size": None}, "vt_hidden_size is missing"),
        ("internvl_chat", {"image_size": [448, 448]}, "image_size is a list"),
    ],
)
def test_what_a_tower_asks_for(name: str, section: dict[str, Any], said: str, tmp_path: Path) -> None:
    config = {**config_json(make_reference(name)), "architectures": [SERVED[name][0]]}
    assert _why(tmp_path, config, tp=1) is None
    told = {**config["vision_config"], **section}
    told = {one: value for one, value in told.items() if value is not None}
    why = _why(tmp_path, {**config, "vision_config": told}, tp=1)
    assert why is not None and said in why

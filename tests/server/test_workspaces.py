"""How large attention's workspaces are, and that no variable that a rule reads is kept from it."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.attention_buffers import WORKSPACES, Workspaces
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.releases import release_named
from runtime.server.resolve import ENVIRONMENT, resolve
from runtime.server.units import MIB
from tests.server.servers import H200, LLAMA, checkpoint

QWEN = checkpoint("Qwen3ForCausalLM", "qwen3")
DEEPSEEK = checkpoint("DeepseekV3ForCausalLM", "deepseek_v3", kv_lora_rank=512)
_SIZE, _TILE = "SGLANG_FLASHINFER_WORKSPACE_SIZE", "SGLANG_TRITON_DECODE_SPLIT_TILE_SIZE"
_STEADY = {"enable_deterministic_inference": True}
_MIXED = {"prefill_attention_backend": "trtllm_mha", "decode_attention_backend": "flashinfer"}
_TURNED = {"prefill_attention_backend": "flashinfer", "decode_attention_backend": "trtllm_mha"}
# Read where stores lie, which no rule asks.
_OF_STORES = ("_DIR", "SGLANG_JIT_DEEPGEMM_PRECOMPILE")


def _found(
    model: dict[str, Any],
    environ: dict[str, str],
    draft: dict[str, Any] | None = None,
    version: str = "0.5.22",
    gpu: str = H200,
    **flags: Any,
) -> Workspaces:
    asked, release = Asked(model_path="m", **flags), release_named(version).release
    drafts = Checkpoint(draft) if draft is not None else None
    return resolve(asked, Checkpoint(model), drafts, find_gpu(gpu), release, environ).workspaces


@pytest.mark.parametrize(
    ("model", "environ", "flags", "found"),
    [
        (LLAMA, {}, {}, WORKSPACES),
        (LLAMA, {_SIZE: str(64 * MIB)}, {}, Workspaces(64 * MIB, 64 * MIB)),
        (LLAMA, {_SIZE: str(4096 * MIB)}, {}, Workspaces(4096 * MIB, 4096 * MIB)),
        (LLAMA, {_SIZE: "much"}, {}, Workspaces(384 * MIB, 384 * MIB)),
        (QWEN, {}, {}, Workspaces(512 * MIB)),
        (QWEN, {_SIZE: str(64 * MIB)}, {}, Workspaces(512 * MIB, 64 * MIB)),
        (LLAMA, {}, _STEADY, Workspaces(2048 * MIB, split_tile=256)),
        (LLAMA, {_TILE: "1024"}, _STEADY, Workspaces(2048 * MIB, split_tile=1024)),
        (LLAMA, {_TILE: "1024"}, {}, WORKSPACES),
        (DEEPSEEK, {}, {**_STEADY, "attention_backend": "triton"}, Workspaces(split_tile=256)),
        (LLAMA, {}, {**_STEADY, **_MIXED}, Workspaces(2048 * MIB, 2048 * MIB, split_tile=256)),
        (LLAMA, {}, {**_STEADY, **_TURNED}, Workspaces(2048 * MIB, split_tile=256)),
        (LLAMA, {_SIZE: str(64 * MIB)}, _MIXED, Workspaces(64 * MIB, 64 * MIB)),
        (QWEN, {_SIZE: str(64 * MIB)}, _MIXED, Workspaces(512 * MIB)),
        (QWEN, {_SIZE: str(64 * MIB)}, _TURNED, Workspaces(512 * MIB, 64 * MIB)),
    ],
)
def test_of_whom(
    model: dict[str, Any], environ: dict[str, str], flags: dict[str, Any], found: Workspaces
) -> None:
    gpu = "B200" if "trtllm_mha" in flags.values() else H200
    sizes = replace(_found(model, environ, gpu=gpu, **flags), drafts=WORKSPACES.drafts)
    assert replace(sizes, processors=WORKSPACES.processors) == found


@pytest.mark.parametrize(
    ("target", "draft", "environ", "size"),
    [
        (QWEN, LLAMA, {}, 384),
        (LLAMA, QWEN, {}, 512),
        (LLAMA, QWEN, {_SIZE: str(64 * MIB)}, 512),
        (LLAMA, LLAMA, {_SIZE: str(64 * MIB)}, 64),
        (LLAMA, checkpoint("MiMoForCausalLM", "mimo"), {}, 384),
    ],
)
def test_a_draft_that_makes_it_is_asked(
    target: dict[str, Any], draft: dict[str, Any], environ: dict[str, str], size: int
) -> None:
    """python -m tests.oracle.random_attention --drafts"""
    drafting = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "d"}
    assert _found(target, environ, draft, **drafting).drafts == size * MIB


@pytest.mark.parametrize(
    ("version", "gpu", "size"), [("0.5.22", H200, 512), ("0.5.23", H200, 520), ("0.5.23", "B200", 512)]
)
def test_of_semaphores_beside_it(version: str, gpu: str, size: int) -> None:
    assert _found(LLAMA, {}, version=version, gpu=gpu).trtllm_mha == size * MIB


@pytest.mark.parametrize("told", ["0", "9" * 13])
def test_no_server_has_one_of_nothing_or_of_everything(told: str) -> None:
    with pytest.raises(ConfigError, match=_SIZE):
        _found(LLAMA, {_SIZE: told})


def test_each_variable_of_sglangs_that_a_rule_names_is_given_to_it() -> None:
    """Of others a plan says that nobody looked at them."""
    rules = (Path(__file__).parents[2] / "runtime/server").rglob("*.py")
    named = {
        node.value
        for rule in rules
        if "flags" not in rule.parts
        for node in ast.walk(ast.parse(rule.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch("SGLANG_[A-Z0-9_]+", node.value) and not node.value.endswith(_OF_STORES)
    }
    assert _SIZE in named and named <= set(ENVIRONMENT)

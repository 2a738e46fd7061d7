"""Servers that end at what their drafts share with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import server_ends
from tests.memory.checkpoints import checkpoints

LLAMA, MIXTRAL = "meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1"
_QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("words", "release", "ends"),
    [
        (151936, "0.5.23", True),
        (151936, "0.5.15", True),
        (151936, "0.5.14", False),
        (128256, "0.5.23", False),
    ],
)
def test_a_whole_draft_knows_as_many_words_as_its_target(
    tmp_path: Path, words: int, release: str, ends: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**_QWEN, "vocab_size": words}))
    flags = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": str(tmp_path)}
    found = select_deployments(
        ServerFlags(model_path=LLAMA, gpu="h200", sglang_version=release, **flags)  # type: ignore[arg-type]
    )
    told = server_ends(found[0]) or ""
    assert ("its draft has 151,936 tokens, and its target 128,256" in told) == ends


@pytest.mark.parametrize(
    ("algorithm", "ends"), [("EAGLE", True), ("EAGLE3", True), ("NGRAM", False), (None, False)]
)
def test_a_class_gives_its_draft_its_tables(tmp_path: Path, algorithm: str | None, ends: bool) -> None:
    config = next(one.config for one in checkpoints() if one.name == MIXTRAL)
    (tmp_path / "config.json").write_text(json.dumps(config))
    for release in ("0.5.12", "0.5.23"):
        flags = ServerFlags(
            model_path=str(tmp_path), gpu="h200", sglang_version=release, speculative_algorithm=algorithm
        )
        told = server_ends(select_deployments(flags)[0]) or ""
        assert ("MixtralForCausalLM gives no draft its embedding" in told) == ends


@pytest.mark.parametrize(
    ("architecture", "algorithm", "draft", "release", "ends"),
    [
        ("Qwen2ForCausalLM", "EAGLE3", {}, "0.5.12", False),
        ("Qwen2ForCausalLM", "DFLASH", {}, "0.5.23", True),
        ("Qwen3ForCausalLM", "DFLASH", {}, "0.5.12", False),
        ("Glm4ForCausalLM", "EAGLE3", {}, "0.5.23", True),
        ("Glm4ForCausalLM", "EAGLE3", {"eagle_config": {"use_aux_hidden_state": False}}, "0.5.23", False),
        ("Glm4ForCausalLM", "EAGLE", {}, "0.5.23", False),
        ("ClassOfNobody", "EAGLE3", {}, "0.5.23", True),
    ],
)
def test_a_class_shows_a_draft_its_layers(
    tmp_path: Path, architecture: str, algorithm: str, draft: dict[str, object], release: str, ends: bool
) -> None:
    served, drafts = tmp_path / "served", tmp_path / "draft"
    for folder, told in ((served, {"architectures": [architecture]}), (drafts, draft)):
        folder.mkdir()
        config = {**_QWEN, "vocab_size": 151936, **told}
        (folder / "config.json").write_text(json.dumps(config))
    flags = {"speculative_algorithm": algorithm, "speculative_draft_model_path": str(drafts)}
    found = select_deployments(
        ServerFlags(model_path=str(served), gpu="h200", sglang_version=release, **flags)  # type: ignore[arg-type]
    )
    assert ("what its layers make of tokens" in (server_ends(found[0]) or "")) == ends


def test_layers_that_are_shown_to_whoever_asks_are_no_drafts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**_QWEN, "vocab_size": 151936}))
    for algorithm, layers, ends in (("EAGLE3", (), False), ("DFLASH", ("1", "5"), True)):
        command = ["sglang", "serve", "--model-path", str(tmp_path), "--speculative-algorithm", algorithm]
        command += ["--enable-return-aux-hidden-states"]
        command += ["--return-aux-hidden-state-layer-ids", *layers] if layers else []
        found = select_deployments(ServerFlags(gpu="h200", sglang_version="0.5.23"), command)[0]
        assert found.server.speculative is None and found.draft_deployment is None
        assert ("what its layers make of tokens" in (server_ends(found) or "")) == ends

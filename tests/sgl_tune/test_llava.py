"""Servers of LLaVA's own checkpoints: which end, and which are not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import DATA

_FILES = json.loads((DATA / "published_families.json").read_text())
_OF_LLAMA, _OF_QWEN, _OF_MISTRAL = (
    _FILES[f"a/llava-{name}-from-memory"] for name in ("v1.5-7b", "onevision-qwen2-7b", "v1.6-mistral-7b")
)
_VIDEO = {**_OF_LLAMA, "architectures": ["LlavaVidForCausalLM"]}
_YI = {**_OF_LLAMA, "architectures": ["YiVLForCausalLM"], "num_key_value_heads": 4}
_ALL = (_OF_LLAMA, _OF_QWEN, _OF_MISTRAL, _VIDEO)


def _deployment(folder: Path, told: dict[str, Any], release: str = "0.5.23", words: str = "") -> Deployment:
    (folder / "config.json").write_text(json.dumps(told))
    command = ["python", "-m", "sglang.launch_server", "--model-path", str(folder), *words.split()]
    (found,) = select_deployments(ServerFlags(gpu="H100", sglang_version=release), command=command)
    return found


@pytest.mark.parametrize("told", _ALL)
@pytest.mark.parametrize("release", ["0.5.12", "0.5.17", "0.5.23"])
def test_its_starts_are_known_in_float16_whatever_its_file_says(
    told: dict[str, Any], release: str, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, told, release)
    assert found.server.dtype == "float16" and never_starts(found) is None
    assert not found.shape.unknown


_COMPILED, _BREAKABLE = (f"--cuda-graph-backend-prefill {one}" for one in ("tc_piecewise", "breakable"))


@pytest.mark.parametrize(
    ("told", "release", "words", "why"),
    [
        *((one, "0.5.23", "--pp-size 2", "no pipeline stages") for one in _ALL),
        (_OF_LLAMA, "0.5.19", _COMPILED, "LLaVA's class ends where prefills are captured by torch.compile"),
        (_OF_LLAMA, "0.5.19", "--disable-cuda-graph", None),
        (_OF_LLAMA, "0.5.19", _BREAKABLE, None),
        (_OF_QWEN, "0.5.23", "--tp-size 8", "28 attention heads cannot be divided among 8 ranks"),
    ],
)
def test_which_servers_end(
    told: dict[str, Any], release: str, words: str, why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, told, release, words))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("told", "ends"), [(_OF_LLAMA, True), (_OF_MISTRAL, True), (_VIDEO, True), (_OF_QWEN, False)]
)
def test_a_llamas_class_asks_what_is_padded(told: dict[str, Any], ends: bool, tmp_path: Path) -> None:
    found = never_starts(
        _deployment(tmp_path, {name: one for name, one in told.items() if name != "pad_token_id"})
    )
    assert (found is not None and "pad_token_id is missing" in found) is ends


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--load-format dummy", "LLaVA's tower comes with the files alone"),
        ("--load-format sharded_state", "LLaVA's tower comes with the files alone"),
        ("--dtype float32", "LLaVA's tower is float16 all the same"),
        (
            "--enable-lora --max-lora-rank 8 --lora-target-modules q_proj",
            "adapters beside its tower",
        ),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "drafts beside its tower"),
    ],
)
def test_what_else_is_not_known_is_named(words: str, said: str, tmp_path: Path) -> None:
    assert said in str(_deployment(tmp_path, _OF_QWEN, words=words).shape.unknown)


def test_what_is_kept_free_is_by_the_tower_that_transformers_class_makes(tmp_path: Path) -> None:
    """SGLang's answers, for an H100."""
    found = (_deployment(tmp_path, _OF_LLAMA, words=words) for words in ("", "--tp-size 2"))
    assert [one.server.mem_fraction_static for one in found] == pytest.approx([0.793, 0.792], abs=6e-4)


@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize(
    ("told", "words", "why"),
    [
        ({}, "", "of 32 layers that keep 4096 values, and it has 32 of 512"),
        ({}, "--tp-size 4", "of 32 layers that keep 1024 values, and it has 32 of 128"),
        ({"num_key_value_heads": 32, "num_hidden_layers": 60}, "", "and it has 60 of 4096"),
        ({"num_key_value_heads": 32, "head_dim": 64}, "", "and it has 32 of 2048"),
        ({"num_hidden_layers": None}, "", "num_hidden_layers is missing"),
        ({"num_key_value_heads": 32}, "", None),
        ({"text_config": {"num_key_value_heads": 4}}, "", None),
    ],
)
def test_yi_vl_ends_at_a_pool_that_another_llama_would_have(
    told: dict[str, Any], words: str, why: str | None, release: str, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, {**_YI, **told}, release, words))
    assert found is None if why is None else found is not None and why in found

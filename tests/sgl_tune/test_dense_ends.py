"""Servers that end in the class of a dense family, of what others start with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED, why_it_ends

_TOLD = json.loads(PUBLISHED.read_text())
_SUPER = _TOLD["nvidia/Llama-3_3-Nemotron-Super-49B-v1"]


def _why(folder: Path, told: dict[str, Any], **flags: Any) -> str | None:
    (folder / "config.json").write_text(json.dumps(told))
    return why_it_ends(model_path=str(folder), arch="sm90", **flags)


def _blocks(*told: tuple[int | None, float | None]) -> dict[str, Any]:
    blocks = [
        {
            "attention": {"no_op": group is None, "n_heads_in_group": group},
            "ffn": {"no_op": share is None, "ffn_mult": share},
        }
        for group, share in told
    ]
    return {**_SUPER, "num_hidden_layers": len(blocks), "block_configs": blocks}


@pytest.mark.parametrize(
    ("blocks", "release", "why"),
    [
        (((8, 1.0), (None, 1.0)), "0.5.12", None),
        (((8, 1.0), (16, 1.0)), "0.5.23", "4 or 8 KV heads"),
        (((None, 1.0), (8, 1.0)), "0.5.21", "its first layer does not attend"),
        (((None, 1.0), (8, 1.0)), "0.5.22", None),
        (((None, None), (8, 1.0)), "0.5.21", None),
        (((None, None), (None, 2.0), (8, None)), "0.5.12", "its first layer does not attend"),
    ],
)
def test_llama_nemotrons_layers_differ_as_its_class_expects(
    blocks: Any, release: str, why: str | None, tmp_path: Path
) -> None:
    found = _why(tmp_path, _blocks(*blocks), sglang_version=release)
    assert found is None if why is None else found is not None and why in found, found


@pytest.mark.parametrize("ranks", [1, 2])
def test_gpt_2s_attention_is_told_of_the_heads_of_all_ranks(ranks: int, tmp_path: Path) -> None:
    why = _why(tmp_path, _TOLD["openai-community/gpt2-medium"], tp=ranks)
    assert why is None if ranks == 1 else why is not None and "--tp-size 1" in why


@pytest.mark.parametrize("ranks", [8, 16])
def test_nanbeiges_heads_of_keys_are_on_one_rank_each(ranks: int, tmp_path: Path) -> None:
    why = _why(tmp_path, _TOLD["a/nanbeige-4.2-3b-from-memory"], tp=ranks)
    assert why is None if ranks == 8 else why is not None and "8 KV heads cannot be divided" in why


@pytest.mark.parametrize(
    ("release", "told", "ends"),
    [("0.5.13", {}, True), ("0.5.13", {"tie_word_embeddings": True}, False), ("0.5.14", {}, False)],
)
def test_phi_3_smalls_class_asked_whether_its_head_is_tied(
    release: str, told: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    why = _why(tmp_path, {**_TOLD["microsoft/Phi-3-small-8k-instruct"], **told}, sglang_version=release)
    assert why is not None and "tie_word_embeddings is missing" in why if ends else why is None


def _commanded(folder: Path, told: dict[str, Any], release: str, more: str) -> Deployment:
    (folder / "config.json").write_text(json.dumps(told))
    flags = ServerFlags(sglang_version=release, arch="sm90")
    command = f"python -m sglang.launch_server --model-path {folder} {more}"
    return select_deployments(flags, command=command.split())[0]


_LOOPS = _TOLD["a/iquest-coder-v1-40b-loop-instruct-from-memory"]


@pytest.mark.parametrize(
    ("release", "told", "way"),
    [
        ("0.5.12", "", "--disable-piecewise-cuda-graph"),
        ("0.5.19", "", "--disable-prefill-cuda-graph"),
        ("0.5.19", "--disable-prefill-cuda-graph", None),
        ("0.5.20", "", None),
    ],
)
def test_loop_coders_prefills_are_captured_since_0_5_20(
    release: str, told: str, way: str | None, tmp_path: Path
) -> None:
    why = never_starts(_commanded(tmp_path, _LOOPS, release, f"--trust-remote-code {told}"))
    assert why is None if way is None else why is not None and way in why, why


@pytest.mark.parametrize(("told", "reads"), [("", False), ("--load-format dummy", True)])
def test_loop_coders_gates_are_read_by_no_release(told: str, reads: bool, tmp_path: Path) -> None:
    found = _commanded(tmp_path, _LOOPS, "0.5.23", f"--trust-remote-code {told}")
    assert ("reads none of the gates" in found.not_modelled) is not reads


@pytest.mark.parametrize(
    ("told", "ends"), [("", False), ("--pp-size 2", True), ("--pp-size 2 --load-format dummy", False)]
)
def test_opt_reads_the_layers_of_all_stages(told: str, ends: bool, tmp_path: Path) -> None:
    found = _commanded(tmp_path, _TOLD["facebook/opt-6.7b"], "0.5.23", told)
    why = never_starts(found)
    assert (why is not None and "read into layers that other stages have" in why) is ends, why
    assert ("--pp" in (found.shape.unknown or "")) is told.endswith("dummy")

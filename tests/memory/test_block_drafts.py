"""DFLASH's drafts: their weights, what a target's pool leaves room for, and what is named of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.own_draft import OwnDraftModel
from runtime.server.block_draft import spread
from runtime.server.checkpoint import Checkpoint
from runtime.server.own_draft import OwnDraft
from runtime.server.units import MIB
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import server_ends
from sgl_tune.memory.predict import predict
from sgl_tune.memory.start import starts_of
from tests.oracle.drafts import RECORDED, config_of

META = torch.device("meta")
HELD = json.loads(RECORDED.read_text())
BY_NAME = {draft["name"]: draft for draft in HELD["drafts"]}
CONFIG = config_of(HELD, BY_NAME["DFLASH of Llama 3.1 8B"])
LLAMA, GPT_OSS = "meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b"


@pytest.fixture
def deployed(tmp_path: Path) -> Callable[..., Deployment]:
    def made(changes: dict[str, Any] | None = None, more: str = "", **flags: Any) -> Deployment:
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **(changes or {})}))
        asked = {"model_path": LLAMA, "speculative_algorithm": "DFLASH", **flags}
        asked["speculative_draft_model_path"] = str(tmp_path)
        release = asked.pop("sglang_version", None)
        here: dict[str, Any] = {"gpu": asked.pop("gpu", "h200"), "sglang_version": release}
        if not more:
            return select_deployments(ServerFlags(**here, **asked))[0]
        told = [word for name, one in asked.items() for word in (f"--{name.replace('_', '-')}", one)]
        return select_deployments(ServerFlags(**here), ["sglang", "serve", *told, *more.split()])[0]

    return made


def test_a_target_shows_as_many_layers_as_a_draft_has() -> None:
    """build_target_layer_ids of SGLang 0.5.12 and 0.5.23 answers these."""
    assert spread(36, 5) == (1, 9, 17, 25, 33)
    assert spread(32, 4) == (1, 10, 20, 29)
    assert spread(32, 1) == (16,)


@pytest.mark.parametrize(
    ("section", "layers", "captures"),
    [
        ({}, 5, (2, 9, 16, 23, 30)),
        ({}, 1, (17,)),
        ({"target_layer_ids": [4, 0, 30]}, 5, (1, 5, 31)),
    ],
)
def test_what_a_layer_gives_is_taken_before_the_next(
    deployed: Any, section: dict[str, Any], layers: int, captures: tuple[int, ...]
) -> None:
    own = deployed({"dflash_config": section, "num_hidden_layers": layers, "num_target_layers": 32}).own_draft
    assert isinstance(own, OwnDraft) and own.captures == captures


@pytest.mark.parametrize(
    ("release", "model", "cell", "counted"),
    [
        ("0.5.17", LLAMA, 32 * 4096, 37 * 4096),
        ("0.5.18", LLAMA, 32 * 4096, 32 * 4096 + 5 * 2 * 4 * 128 * 2),
        ("0.5.17", GPT_OSS, 1000, 1000),
        ("0.5.18", GPT_OSS, 1000, 1000 + 5 * 2 * 4 * 128 * 2),
    ],
)
def test_a_token_of_its_target_counts_it(
    deployed: Any, release: str, model: str, cell: int, counted: int
) -> None:
    """Once as layers like the target's, and not beside windows; then as it is."""
    changes = {"hidden_size": 2880, "dflash_config": {"target_layer_ids": [1]}} if model == GPT_OSS else {}
    found = deployed(changes, model_path=model, sglang_version=release)
    layers = found.model.num_layers
    assert found.own_draft.counted_beside(cell, layers, found.model) == counted
    assert found.own_draft.counted_layers == 0


@pytest.mark.parametrize(
    ("changes", "more", "why"),
    [
        ({"dflash_config": {"projector_type": "domino"}}, "", "projector_type is not read here"),
        ({"gating": True}, "", "gating is not read here"),
        ({"model_type": "qwen2"}, "", "DFlashDraftModel of model_type 'qwen2'"),
        ({"architectures": ["DFlash2DraftModel"]}, "", "DFlash2DraftModel is not a draft"),
        ({"hidden_size": 2048}, "", "hidden_size is 2048, and its target's is 4096"),
        ({"torch_dtype": "float16"}, "", "a draft of blocks in float16"),
        (
            {"layer_types": ["sliding_attention"] * 5, "sliding_window": 64},
            "",
            "sliding_attention without a sliding_window",
        ),
        ({"dflash_config": {"target_layer_ids": [3, 3]}}, "", "target_layer_ids tells [3, 3]"),
        ({"dflash_config": {"target_layer_ids": []}}, "", "target_layer_ids tells []"),
        ({"dflash_config": {"target_layer_ids": 0}}, "", "target_layer_ids tells 0"),
        ({"dflash_config": {"target_layer_ids": [1, 31]}}, "", "it is given 2 states"),
        ({}, "--tp 2 --dp 2 --enable-dp-attention --enable-dp-lm-head", "under DP attention"),
        (
            {},
            "--kv-cache-dtype fp8_e4m3 --speculative-draft-attention-backend fa4",
            "in which dtype fa4 keeps a block's keys",
        ),
        ({}, "--speculative-draft-window-size 512", "speculative-draft-window-size"),
        ({"quantization_config": {"quant_method": "fp8"}}, "", "a draft of blocks that is quantized"),
    ],
)
def test_what_is_not_known_of_one_is_named(
    deployed: Any, changes: dict[str, Any], more: str, why: str
) -> None:
    found = deployed(changes, more, sglang_version="0.5.23")
    assert isinstance(found.own_draft, str) and why in found.own_draft
    assert why in found.not_counted


SLIDING = {"layer_types": ["sliding_attention"] * 5, "sliding_window": 64, "use_sliding_window": True}
MIXED = {**SLIDING, "layer_types": ["full_attention"] + ["sliding_attention"] * 4}


@pytest.mark.parametrize(
    ("asked", "changes", "release", "gpu", "backend"),
    [
        ("", {}, "0.5.23", "h200", "fa3"),
        ("--decode-attention-backend flashinfer", {}, "0.5.23", "h200", "fa3"),
        ("--prefill-attention-backend flashinfer", {}, "0.5.12", "h200", "flashinfer"),
        ("--speculative-draft-attention-backend triton", {}, "0.5.12", "h200", "triton"),
        ("--speculative-draft-attention-backend flex_attention", {}, "0.5.23", "h200", "flashinfer"),
        ("--attention-backend trtllm_mha", SLIDING, "0.5.16", "b200", "flashinfer"),
        ("--attention-backend trtllm_mha", SLIDING, "0.5.17", "b200", "trtllm_mha"),
        ("--attention-backend trtllm_mha", MIXED, "0.5.22", "b200", "flashinfer"),
        ("", MIXED, "0.5.23", "b200", "fa4"),
        ("", SLIDING, "0.5.23", "b200", "trtllm_mha"),
    ],
)
def test_its_worker_attends_by_one_backend(
    deployed: Any, asked: str, changes: dict[str, Any], release: str, gpu: str, backend: str
) -> None:
    own = deployed(changes, asked, gpu=gpu, sglang_version=release).own_draft
    assert own.attention_backend == backend
    sees_windows = release > "0.5.13" and "layer_types" in changes
    assert any(kind.window for kind in own.model.attention.values()) == sees_windows


@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize(("bias", "kept"), [(False, 5 * 2 * 2 * 128 * 4096 * 2), (True, 0)])
def test_what_makes_keys_of_all_layers_is_kept_twice(
    deployed: Any, release: str, bias: bool, kept: int
) -> None:
    """Of a rank's heads; where they are biased, a layer after the other makes its own."""
    own = deployed({"attention_bias": bias}, tp=2, sglang_version=release).own_draft
    draft = OwnDraftModel(own, VirtualCommunicator(own.parallel, 1), META)
    assert (0 if draft.stacked is None else draft.stacked.nbytes) == kept
    assert draft.decoder.embedding is None and draft.decoder.head is None


@pytest.mark.parametrize(
    ("section", "release", "why"),
    [
        ({"target_layer_ids": [32]}, "0.5.23", "its draft asks for layer 32, and its target has 32"),
        ({"target_layer_ids": [-1, 4]}, "0.5.23", "its draft asks for layer -1"),
        ({"target_layer_ids": [5]}, "0.5.17", "asks for layer 5, and the target that it tells of has 5"),
        ({"target_layer_ids": [5]}, "0.5.18", ""),
        ({"target_layer_ids": [5], "num_target_layers": 32}, "0.5.17", ""),
        ({"num_target_layers": 3}, "0.5.23", "its draft of 5 layers needs 4 layers or more"),
        (
            {"mask_token_id": 128_256, "num_target_layers": 32},
            "0.5.23",
            "mask_token_id is 128256, and its target has 128,256 tokens",
        ),
        ({"mask_token_id": 128_255, "num_target_layers": 32}, "0.5.23", ""),
    ],
)
def test_a_server_ends_at_what_its_draft_asks_for(
    deployed: Any, section: dict[str, Any], release: str, why: str
) -> None:
    changes = {"dflash_config": section, "num_target_layers": None}
    told = server_ends(deployed(changes, sglang_version=release)) or ""
    assert why in told if why else not told


def test_a_start_with_one(deployed: Any) -> None:
    """By hand: it has no tables at any time, and matrices of keys and values twice; its own pool has as many
    tokens as its target's, and the room that is left for it."""
    flags = {"cuda_graph_max_bs": 8, "max_running_requests": 8, "sglang_version": "0.5.23"}
    report = predict(starts_of(deployed(**flags), "0")[0])
    phases = {phase.name: phase for phase in report.phases}
    weights, stacked = phases["draft weights"], 5 * 2 * 4 * 128 * 4096 * 2
    turned = Checkpoint(CONFIG).model_config().max_position
    held = BY_NAME["DFLASH of Llama 3.1 8B"]["bytes"]["1"] + stacked
    assert weights.persistent_bytes - held in range((turned + 512) * 128 * 4 + 4 * MIB)
    tokens, each = report.sizes.kv_tokens, 2 * 4 * 128 * 2 * 5
    assert tokens is not None and report.sizes.kv_bytes_per_token == 32 * 4096 + each
    pool = phases["draft kv pool"].allocated_bytes - phases["kv pool"].allocated_bytes
    assert pool - (tokens + 1) * each in range(2 * MIB)
    rehearsed = (
        "not counting what rehearsing a verify with samples takes (up to 251 MiB, and kernels of its own)"
    )
    assert deployed(**flags).not_counted.startswith(f"{rehearsed}: not modelled; the draft ")
    assert "not counting" not in deployed(**{**flags, "sglang_version": "0.5.19"}).not_counted


@pytest.mark.parametrize(
    ("release", "tp", "words"),
    [
        ("0.5.13", 1, False),
        ("0.5.14", 1, False),
        ("0.5.15", 2, False),
        ("0.5.16", 1, True),
        ("0.5.23", 2, True),
    ],
)
def test_what_graphs_of_blocks_leave(deployed: Any, release: str, tp: int, words: bool) -> None:
    """By hand: fa3's tables of pages for a decode, a verify and two passes that it has none of, and where
    each page begins; the rows of every graph, and what multiplies; and of all words, what ranks found. Once
    tokens and logits have places of their own, too."""
    asked = f"--max-running-requests 8 --tp {tp}"
    found = deployed(more=asked, sglang_version=release)
    report = predict(starts_of(found, "0")[0])
    left = {phase.name: phase.persistent_bytes for phase in report.phases}["draft graphs"]
    width, context, sizes = 16, 131072, (1, 2, 4, 8)
    tables = 4 * 8 * context * 4 + 3 * context * 8
    rows = sum(sizes) * width * 4096 * 2
    each = 8 if tp == 1 else 8 + 2 + 8 + (2 + 8) * tp + 8 + 8
    counted = max(found.runtime.decode_graphs) * (width - 1) * each if words else 0
    counted += 8 * width * (4096 * 2 + 128256 * 4) if release == "0.5.13" else 0
    rest = left - tables - rows - counted - 32 * MIB
    assert rest in range(4 * MIB)

"""Copies of experts and room for adapters: as many bytes as SGLang's own classes hold, and what is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from runtime.server.adapters import Adapters
from runtime.server.expert_places import Placement
from runtime.server.layer_config import MoEConfig
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.call_shapes import moe_shapes, unknown_experts
from sgl_tune.keys.starts import never_starts
from sgl_tune.memory.predict import predict
from sgl_tune.memory.start import starts_of
from tests.memory.asked_beside import RECORDED, Case, cases, deployed, held

HELD = json.loads(RECORDED.read_text())
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
COPIES = "--ep-num-redundant-experts"


@pytest.mark.parametrize("case", [one for one in cases() if one.key in HELD], ids=lambda one: one.key)
def test_a_rank_holds_as_many_bytes_as_sglangs_own_classes(case: Case) -> None:
    found = deployed(case)
    assert found is not None
    assert held(case, found) == HELD[case.key][0]


def _set(flags: str, model: str = "Qwen/Qwen3-30B-A3B", release: str = "0.5.23", tp: int = 4) -> Deployment:
    command = ("python", "-m", "sglang.launch_server", "--model-path", model, "--tp", str(tp))
    asked = ServerFlags(gpu="h200", sglang_version=release)
    return select_deployments(asked, (*command, *shlex.split(flags)), None)[0]


_EPLB = "--ep 4 --enable-eplb"


@pytest.mark.parametrize(
    ("flags", "release", "tables"),
    [
        (f"{COPIES} 8 --ep 4", "0.5.23", Placement()),
        (_EPLB, "0.5.23", Placement(steps=1000)),
        (_EPLB, "0.5.16", Placement(tells_ranks=True, steps=1000)),
        (f"{_EPLB} --eplb-rebalance-num-iterations 200", "0.5.23", Placement(steps=200)),
        ("--ep 4 --ep-dispatch-algorithm dynamic", "0.5.23", Placement()),
        (
            f"{_EPLB} --moe-a2a-backend deepep --deepep-mode low_latency",
            "0.5.23",
            Placement(tells_ranks=True, steps=1000, counts_own=True),
        ),
        ("--ep 4", "0.5.23", None),
    ],
)
def test_a_rank_keeps_tables_of_where_experts_are(flags: str, release: str, tables: Placement | None) -> None:
    assert _set(flags, release=release).runtime.placement == tables


def test_tables_are_of_all_layers_and_of_every_place() -> None:
    moe = MoEConfig(256, 8, 2048, redundant=32)
    sizes = {name: count for name, _, count in Placement(True, 1000).tables(61, moe, 8)}
    assert sizes["places of experts"] == 61 * 256 * 288 and sizes["experts of places"] == 61 * 288
    assert sizes["how often experts were asked"] == 1000 * 61 * 288


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (f"--ep 4 {COPIES} 6", "128 experts and 6 copies cannot be divided among 4 ranks"),
        (f"{_EPLB} --moe-a2a-backend deepep", "--deepep-mode normal or low_latency"),
        (f"{_EPLB} --moe-a2a-backend deepep --deepep-mode normal", None),
        (f"--ep 4 {COPIES} 8", None),
    ],
)
def test_sglang_ends_where_copies_or_records_do_not_fit(flags: str, why: str | None) -> None:
    ends = never_starts(_set(flags))
    assert ends is None if why is None else why in (ends or "")


def test_a_key_counts_copies_among_a_rank_s_experts() -> None:
    cutlass = "--ep 4 --moe-runner-backend flashinfer_cutlass"
    plain, copied = (moe_shapes(_set(f"{cutlass} {more}", tp=4)) for more in ("", f"{COPIES} 8"))
    assert plain and plain != copied
    assert {one.op for one in plain} == {one.op for one in copied}
    experts = (
        {size[0] for one in each for size in one.profile(8) if len(size) == 3} for each in (plain, copied)
    )
    assert [*experts] == [{32}, {34}]


def test_what_kernels_that_choose_experts_look_up_of_copies_is_not_known() -> None:
    found = _set(f"--ep 4 --moe-runner-backend flashinfer_trtllm {COPIES} 8")
    assert moe_shapes(_set("--ep 4 --moe-runner-backend flashinfer_trtllm"))
    assert not moe_shapes(found) and [*unknown_experts(found)] == [found]


@pytest.mark.parametrize(
    ("flags", "model", "named"),
    [
        (f"--ep 4 {COPIES} 8", "Qwen/Qwen3-30B-A3B", ""),
        (_EPLB, "Qwen/Qwen3-30B-A3B", "what EPLB takes while it moves experts"),
        (f"{_EPLB} --ep-dispatch-algorithm fake", "Qwen/Qwen3-30B-A3B", "what EPLB takes"),
        (f"--ep 4 {COPIES} 8 --expert-distribution-recorder-mode per_token", "Qwen/Qwen3-30B-A3B", COPIES),
        (f"--ep 4 {COPIES} 8 --moe-runner-backend flashinfer_trtllm", "Qwen/Qwen3-30B-A3B", COPIES),
        (
            "--enable-lora --max-lora-rank 16 --lora-target-modules all",
            LLAMA,
            "what adapters take",
        ),
        ("--enable-lora --lora-paths a=/x", LLAMA, "--enable-lora, --lora-paths a=/x"),
        (
            "--enable-lora --max-lora-rank 16 --lora-target-modules all --lora-backend triton_v2",
            LLAMA,
            "--lora-backend triton_v2",
        ),
        (
            "--enable-lora --max-lora-rank 16 --lora-target-modules q_b_proj",
            LLAMA,
            "--lora-target-modules q_b_proj",
        ),
        (
            "--enable-lora --max-lora-rank 16 --lora-target-modules all",
            "deepseek-ai/DeepSeek-V3",
            "--enable-lora",
        ),
    ],
)
def test_what_is_not_counted_is_named(flags: str, model: str, named: str) -> None:
    told = _set(f"{flags} --enforce-disable-flashinfer-allreduce-fusion", model).not_counted
    assert named in told and (named or told == "")
    if named.startswith("what"):
        assert " --" not in told


@pytest.mark.parametrize(
    ("told", "tokens", "read"),
    [
        ({"r": 16, "target_modules": ["q_proj", "v_proj"]}, {"<a>": 5}, True),
        ({"r": 16, "target_modules": ["q_proj", "v_proj"]}, {"<a>": 128256}, False),
        ({"r": 16, "target_modules": "all-linear"}, None, False),
        ({"r": "16", "target_modules": ["q_proj"]}, None, False),
        (None, None, False),
    ],
)
def test_adapters_that_lie_here_say_how_large_they_are(
    tmp_path: Path, told: dict[str, Any] | None, tokens: dict[str, int] | None, read: bool
) -> None:
    for name, file in (("adapter_config", told), ("added_tokens", tokens)):
        if file is not None:
            (tmp_path / f"{name}.json").write_text(json.dumps(file))
    flags = f"--lora-paths a={tmp_path} --max-loras-per-batch 2"
    found = _set(flags, LLAMA)
    assert ("--lora-paths" in found.not_counted) != read
    assert found.runtime.adapters == (Adapters(2, 16, ("qkv_proj",)) if read else None)
    larger = _set(f"{flags} --max-lora-rank 64", LLAMA).runtime.adapters
    assert larger is None or larger.rank == 64


def test_a_class_without_room_for_copies_is_named() -> None:
    found = deployed(Case("0.5.23", "zai-org/GLM-4.5-Air", "4/4", f"{COPIES} 8"))
    assert found is not None and f"{COPIES} 8" in found.not_counted
    assert found.model.moe is not None and found.model.moe.redundant == 0


def test_copies_and_adapters_are_taken_before_the_pool() -> None:
    adapters = "--enable-lora --max-lora-rank 16 --lora-target-modules q_proj gate_proj down_proj"
    flags = f"--ep 4 {COPIES} 16 {adapters}"
    plain, asked = (predict(starts_of(_set(more), "distinct")[0]) for more in ("--ep 4", flags))
    phases = {one.name: one for one in asked.phases}
    grown = (
        phases["weights"].persistent_bytes
        - {one.name: one for one in plain.phases}["weights"].persistent_bytes
    )
    assert 4 * 48 * 3 * 2048 * 768 * 2 <= grown < 4 * 48 * 3 * 2048 * 768 * 2 + (12 << 20)
    assert phases["adapters"].persistent_bytes > 1 << 30
    assert asked.sizes.kv_tokens < plain.sizes.kv_tokens

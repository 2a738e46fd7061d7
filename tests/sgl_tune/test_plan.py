"""Rank files, groups and keys of deployments, through the command line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sgl_tune.deployment.versions import Gpu
from sgl_tune.keys.plan import make_plan
from tests.sgl_tune.planning import BLACKWELL, HOPPER, START, deployment, names, plan


def _ranks(*parts: tuple[int, int, int]) -> list[str]:
    return [f"rank_tp{tp}_pp{pp}_dp{dp}.json" for tp, pp, dp in parts]


# of each layout: the ranks, the key's sizes (tp, pp, attention dp, ep), and how many files a group has
LAYOUTS = {
    "--tp 8 --dp 8 --enable-dp-attention": (_ranks(*((r, 0, r) for r in range(8))), "8 1 8 1", [8]),
    "--tp 8": (_ranks(*((r, 0, 0) for r in range(8))), "8 1 1 1", [8]),
    "--tp 8 --ep 8": (_ranks(*((r, 0, 0) for r in range(8))), "8 1 1 8", [8]),
    "--tp 4 --pp 2": (_ranks(*((t, p, 0) for p in range(2) for t in range(4))), "4 2 1 1", [4, 4]),
    "--tp 16": (_ranks(*((r, 0, 0) for r in range(16))), "16 1 1 1", [16]),
    "--tp 4 --dp 2": (_ranks(*((t, 0, d) for d in range(2) for t in range(4))), "4 1 1 1", [4, 4]),
    "--tp 8 --dp 2 --enable-dp-attention": (_ranks(*((r, 0, r // 4) for r in range(8))), "8 1 2 1", [8]),
    "--tp 8 --dp 4 --pp 2 --ep 8 --enable-dp-attention": (
        _ranks(*((r, p, r // 2) for p in range(2) for r in range(8))), "8 2 4 8", [8, 8],
    ),
}  # fmt: skip
MODELS = ("deepseek-ai/DeepSeek-V3", "zai-org/GLM-5.1-FP8", "openai/gpt-oss-120b")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_has_its_files_groups_and_key(model: str, layout: str) -> None:
    data = plan("--model-path", model, *layout.split(), *BLACKWELL)
    groups = data["groups"]
    assert (names(data), " ".join(data["key_parts"][4:8]), [*map(len, groups)]) == LAYOUTS[layout]
    assert [path for group in groups for path in group] == data["files"]
    assert data["files"][0].startswith("flashinfer/autotune/0.7.2/sm100/")


def test_expert_parallelism_changes_the_key_and_not_the_file_names() -> None:
    model = ("--model-path", "GLM-5.1", "--moe-runner-backend", "flashinfer_cutlass", "--tp", 8)
    tensor, expert = plan(*model, *HOPPER), plan(*model, "--ep", 8, *HOPPER)
    assert names(tensor) == names(expert)
    assert tensor["key"] != expert["key"]


def test_a_path_is_another_key_than_the_id_of_the_same_model(tmp_path: Path) -> None:
    model = {"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936}
    model |= {"num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8}
    model |= {"architectures": ["Qwen3MoeForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps({**model, "moe_intermediate_size": 768}))
    by_path = plan("--model-path", tmp_path, *HOPPER)
    assert by_path["key_parts"][0] == str(tmp_path)
    assert by_path["key"] != plan("--model-path", "Qwen/Qwen3-30B-A3B", *HOPPER)["key"]


def test_a_draft_worker_has_a_key_of_its_own_on_the_same_ranks() -> None:
    server = f"{START} --model-path {MODELS[1]} --tp 8 --dp 8 --enable-dp-attention"
    data = plan(*BLACKWELL, "--", f"{server} --speculative-algorithm EAGLE")
    draft = data["draft"]
    assert draft["key"] != data["key"] and draft["key_parts"][-1] == "draft_quant=fp8"
    assert [path.rsplit("/")[-1] for path in draft["files"]] == names(data)
    assert [op["op"] for op in draft["ops"]] == ["flashinfer::trtllm_fp8_block_scale_moe"]


GPUS = tuple(Gpu("NVIDIA B200", "sm100", 183359, f"1b3c-{number}") for number in range(2))


def test_a_warm_fills_the_drafts_cache_beside_the_targets() -> None:
    two = make_plan(deployment(model_path=MODELS[1], tp=8, speculative_algorithm="EAGLE", arch="sm100"), GPUS)
    assert two.draft is not None and two.draft.ops and two.caches == (two.target, two.draft)
    alone = make_plan(two.deployment, GPUS)
    alone = replace(alone, draft=replace(two.draft, ops=()))
    assert alone.caches == (alone.target,) and replace(alone, draft=None).caches == (alone.target,)


@pytest.mark.parametrize(
    ("flags", "low", "high"),
    [
        # the experts' weights alone are 32 x 3 x 6144 x 2048 in bf16: 2.4 GB, of a 78-layer model's 1.5 TB
        (("--model-path", "GLM-5.1", "--tp", 8, "--ep", 8), 4e9, 8e9),
        (("--model-path", "Qwen3-30B-A3B"), 1.2e9, 3e9),
        (("--model-path", "demo-moe"), 1e6, 1e8),
    ],
)
def test_a_worker_needs_layers_and_not_the_model(flags: tuple[object, ...], low: float, high: float) -> None:
    data = plan(*flags, "--moe-runner-backend", "flashinfer_cutlass", *HOPPER)
    assert low < data["worker_bytes"] < high


def test_workers_are_the_gpus_at_hand() -> None:
    assert make_plan(deployment(model_path="demo-moe"), GPUS).workers == 2
    assert make_plan(deployment(model_path="demo-moe"), ()).workers == 1

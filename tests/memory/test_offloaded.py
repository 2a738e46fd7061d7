"""Weights in the host's memory: a GPU keeps what SGLang's own offloader leaves there, and what is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from sgl_tune.memory.host_memory import wanted_of_host
from sgl_tune.memory.measure import measure
from sgl_tune.memory.predict import predict
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.start import starts_of
from tests.memory.checkpoints import checkpoints
from tests.memory.offloaded import RECORDED, Case, cases, deployed, left

LEFT = json.loads(RECORDED.read_text())
LLAMA, EXPERTS, DEEPSEEK = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"
OFFLOAD, GROUPS = "--cpu-offload-gb", "--offload-group-size"
LAYER = (6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336 + 2 * 4096) * 2  # of LLAMA, bytes


@pytest.mark.parametrize("case", [one for one in cases() if one.key in LEFT], ids=lambda one: one.key)
def test_a_rank_keeps_what_sglangs_own_offloader_leaves(case: Case) -> None:
    assert left(case, deployed(case)) == LEFT[case.key]


def test_every_published_case_is_recorded() -> None:
    known = {one.name for one in checkpoints()}
    assert {one.key for one in cases() if one.model in known} == LEFT.keys()


def _set(flags: str, model: str = LLAMA, release: str = "0.5.23", gpu: str = "h200") -> Deployment:
    command = ("python", "-m", "sglang.launch_server", "--model-path", model, *shlex.split(flags))
    return select_deployments(ServerFlags(gpu=gpu, sglang_version=release), command, None)[0]


def _started(flags: str, release: str = "0.5.23") -> MemoryReport:
    return predict(starts_of(_set(flags, release=release), "0")[0])


@pytest.mark.parametrize(
    ("flags", "model", "named"),
    [
        (f"{OFFLOAD} 4", LLAMA, False),
        (f"{OFFLOAD} 4 {GROUPS} 4 --offload-mode meta", LLAMA, False),
        ("--offload-num-in-group 2 --offload-prefetch-step 3", DEEPSEEK, False),
        (f"{OFFLOAD} 4", EXPERTS, False),
        (f"{OFFLOAD} 4 --moe-runner-backend flashinfer_cutlass", EXPERTS, True),
        (f"{OFFLOAD} 4 --enable-two-batch-overlap --tp 2 --dp 2 --enable-dp-attention", EXPERTS, True),
        (f"{OFFLOAD} 4 --ep-num-redundant-experts 8", EXPERTS, True),
        (f"{OFFLOAD} 4 --quantization fp8", LLAMA, True),
        (f"{OFFLOAD} 4 --enable-torch-compile", LLAMA, True),
        (f"{OFFLOAD} 4 --load-format layered", LLAMA, True),
        (f"{OFFLOAD} 4 --speculative-algorithm NGRAM", LLAMA, True),
        (f"{OFFLOAD} 4 --enable-lora --lora-target-modules all --max-lora-rank 8", LLAMA, True),
        (f"{OFFLOAD} 4 --tp 8", DEEPSEEK, True),
        (f"{GROUPS} 4 --tp 8", DEEPSEEK, True),
        (f"{OFFLOAD} 4", "openai/gpt-oss-20b", True),
    ],
)
def test_what_is_not_followed_is_named_and_nothing_is_taken(flags: str, model: str, named: bool) -> None:
    found = _set(flags, model)
    assert ("offload" in found.not_counted) == named


def test_what_is_named_is_not_counted() -> None:
    plain = _started("")
    asked = _started(f"{OFFLOAD} 4 --enable-torch-compile")
    assert asked.sizes.host_weight_bytes is None
    kept = [one.phase("weights") for one in (plain, asked)]
    assert kept[0] is not None and kept[1] is not None
    assert kept[0].persistent_bytes == kept[1].persistent_bytes


@pytest.mark.parametrize("release", ["0.5.12", "0.5.17", "0.5.23"])
def test_what_is_away_comes_back_for_each_layer(release: str) -> None:
    plain, asked = _started("", release), _started(f"{OFFLOAD} 4", release)
    sizes = asked.sizes
    assert sizes.host_weight_bytes is not None and sizes.kv_tokens is not None
    assert 4 << 30 <= sizes.host_weight_bytes < (4 << 30) + 28672 * 4096 * 2
    kept = [one.phase("weights") for one in (plain, asked)]
    assert kept[0] is not None and kept[1] is not None
    fewer = kept[0].persistent_bytes - kept[1].persistent_bytes
    assert abs(fewer - sizes.host_weight_bytes) < 64 << 20  # what torch's segments are rounded to
    assert sizes.kv_tokens > (plain.sizes.kv_tokens or 0)
    decodes = [one.phase("decode graphs") for one in (plain, asked)]
    assert decodes[0] is not None and decodes[1] is not None
    assert decodes[1].peak_bytes - decodes[0].peak_bytes > 0
    assert any(one.bytes == 28672 * 4096 * 2 for one in decodes[1].largest)


def test_no_more_than_there_is_can_be_away() -> None:
    report = _started(f"{OFFLOAD} 900")
    assert report.sizes.host_weight_bytes == 32 * LAYER


def test_the_host_s_share_is_told_as_torch_asks_for_it() -> None:
    start = starts_of(_set(f"{OFFLOAD} 900 --tp 2"), "0")[0]
    report = predict(start)
    parts = (3072 * 4096, 4096 * 2048, 14336 * 4096, 4096 * 7168, 4096, 4096)
    pages = 32 * sum(1 << (2 * one - 1).bit_length() for one in parts)
    assert report.sizes.host_weight_pages == pages
    tables = {one.name: one.bytes for one in report.constants}["page tables of the host's memory"]
    assert tables == pages // 512
    (note,) = wanted_of_host(start, report)
    assert note.startswith(f"weights take {2 * pages / (1 << 30):.2f} GiB of a node's memory, in 2 ranks")


@pytest.mark.parametrize(
    ("flags", "model", "why"),
    [
        (f"{GROUPS} 4", LLAMA, "llama's class does not say what of its layers"),
        (f"{GROUPS} 4 --offload-num-in-group 0", LLAMA, "no layer of llama leaves the GPU"),
        (f"{GROUPS} 4 --offload-num-in-group 0 --offload-prefetch-step 0", LLAMA, None),
        (f"{GROUPS} 99 --offload-num-in-group 1", LLAMA, "no layer of llama leaves the GPU"),
        (f"{GROUPS} 4 --offload-mode shm_cpu --tp 2", LLAMA, "goes with --tp-size 1 alone"),
        (f"{GROUPS} 4 --offload-mode sharded_gpu --tp 8", DEEPSEEK, "goes with --tp-size 1 alone"),
        (f"{GROUPS} 4 --tp 8", DEEPSEEK, None),
        (f"{GROUPS} 4 {OFFLOAD} 2", LLAMA, None),
        ("--offload-mode shm_cpu --tp 2", LLAMA, None),
    ],
)
def test_groups_of_layers_end_where_their_class_does_not_tell_them(
    flags: str, model: str, why: str | None
) -> None:
    ends = never_starts(_set(flags, model))
    assert ends is None if why is None else why in (ends or "")


def test_a_start_with_weights_elsewhere_is_not_measured(tmp_path: Path) -> None:
    start = starts_of(_set(f"{OFFLOAD} 2"), "0")[0]
    with pytest.raises(UsageError, match="--cpu-offload-gb cannot be measured"):
        measure(start, tmp_path / "run.jsonl", Output(Format.quiet), device="cpu")

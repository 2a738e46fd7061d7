"""A cache of two tiers: as much of the host's memory and of the GPU's as SGLang's own classes take."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from runtime.server.host_cache import HostCache
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.memory.host_memory import wanted_of_host
from sgl_tune.memory.predict import predict
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.start import Start, starts_of
from tests.memory.host_pools import RECORDED, Case, cases, deployed, kept

HELD = json.loads(RECORDED.read_text())
LLAMA = "meta-llama/Llama-3.1-8B"
TIERS = "--enable-hierarchical-cache"


@pytest.mark.parametrize("case", list(cases()), ids=lambda one: one.key)
def test_a_rank_keeps_what_sglangs_own_classes_keep(case: Case) -> None:
    ours, theirs = kept(case, deployed(case)), HELD[case.key]
    assert ours == theirs or (isinstance(ours, str) and isinstance(theirs, str))


def test_all_ways_to_end_are_recorded() -> None:
    ends = {told for told in HELD.values() if isinstance(told, str)}
    assert {one.partition(":")[0] for one in ends} == {"AssertionError", "IndexError", "ValueError"}


def _set(flags: str, model: str = LLAMA, release: str = "0.5.23") -> Deployment:
    command = ("python", "-m", "sglang.launch_server", "--model-path", model)
    asked = ServerFlags(gpu="h200", sglang_version=release)
    return select_deployments(asked, (*command, *shlex.split(flags)), None)[0]


def _started(flags: str, release: str = "0.5.23") -> tuple[Start, MemoryReport]:
    start = starts_of(_set(flags, release=release), "0")[0]
    return start, predict(start)


@pytest.mark.parametrize(
    ("flags", "release", "found"),
    [
        (TIERS, "0.5.13", HostCache(2.0, 0, "layer_first")),
        (TIERS, "0.5.14", HostCache(2.0, 0, "page_first")),
        (TIERS, "0.5.21", HostCache(2.0, 0, "page_first", 0.8)),
        (f"{TIERS} --hicache-host-memory-fraction 0.3", "0.5.23", HostCache(2.0, 0, "page_first", 0.3)),
        (f"{TIERS} --hicache-ratio 1.5", "0.5.23", HostCache(1.5, 0, "page_first")),
        (f"{TIERS} --hicache-size 40", "0.5.23", HostCache(2.0, 40, "page_first")),
        (f"{TIERS} --hicache-io-backend direct", "0.5.23", HostCache(2.0, 0, "page_first_direct", 0.8)),
        (f"{TIERS} --hicache-io-backend kernel_ascend", "0.5.23", None),
        (f"{TIERS} --hicache-mem-layout page_first_kv_split", "0.5.23", None),
        (f"{TIERS} --hicache-storage-backend mooncake", "0.5.23", None),
        (f"{TIERS} --hicache-storage-backend file", "0.5.17", HostCache(2.0, 0, "page_first")),
        (f"{TIERS} --enable-unified-memory", "0.5.23", None),
        (f"{TIERS} --disaggregation-mode prefill", "0.5.23", None),
        ("--hicache-ratio 3", "0.5.23", None),
    ],
)
def test_what_its_flags_become(flags: str, release: str, found: HostCache | None) -> None:
    assert _set(flags, release=release).runtime.host_cache == found


_DRAFT = "--speculative-algorithm EAGLE3 --speculative-draft-model-path meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    ("flags", "model", "named"),
    [
        (f"{TIERS} --hicache-ratio 3 --hicache-write-policy write_back", LLAMA, None),
        (f"{TIERS} --tp-size 8", "deepseek-ai/DeepSeek-V3", None),
        ("--hicache-ratio 3 --hicache-mem-layout layer_first", LLAMA, None),
        (f"{TIERS} --hicache-storage-backend file", LLAMA, "--hicache-storage-backend file"),
        (f"{TIERS} --hicache-ratio 3 {_DRAFT}", LLAMA, f"{TIERS}, --hicache-ratio 3"),
        (f"{TIERS} --hicache-ratio 3", "openai/gpt-oss-20b", None),
        (f"{TIERS} --hicache-size 9", "openai/gpt-oss-20b", f"{TIERS}, --hicache-size 9"),
        (f"{TIERS} --tp-size 8", "deepseek-ai/DeepSeek-V3.2", None),
        (f"{TIERS} --tp-size 8 --hicache-size 9", "deepseek-ai/DeepSeek-V3.2", f"{TIERS}, --hicache-size 9"),
        (f"{TIERS} --pp-size 2 --hicache-size 9", LLAMA, f"{TIERS}, --hicache-size 9"),
    ],
)
def test_what_is_not_followed_is_named(flags: str, model: str, named: str | None) -> None:
    told = _set(flags, model).not_counted
    assert named in told if named else "hi" not in told


def test_its_phase_is_behind_the_graphs() -> None:
    _, report = _started(f"{TIERS} --page-size 64 --hicache-ratio 1.5")
    names = [phase.name for phase in report.phases]
    assert names[-2:] == ["host cache", "ready"] and report.verdict == "fits"
    sizes, phase = report.sizes, report.phase("host cache")
    assert sizes.kv_tokens is not None and phase is not None
    assert sizes.host_cache_tokens == (int(sizes.kv_tokens * 1.5) // 64 + 1) * 64
    assert sizes.host_cache_bytes == sizes.host_cache_tokens * 131072 and not sizes.host_cache_at_most
    assert phase.persistent_bytes == 64 * 64 * 131072 + 2 * 512  # pages on their way, and pointers to layers
    tables = {one.name: one.bytes for one in report.constants}["page tables of the host's memory"]
    assert tables == sizes.host_cache_bytes // 512


def test_a_server_without_one_has_no_phase() -> None:
    _, report = _started("--page-size 64")
    assert report.phase("host cache") is None and report.sizes.host_cache_bytes is None


def test_too_few_tokens_ended_a_start_once() -> None:
    _, report = _started(f"{TIERS} --hicache-ratio 0.5", "0.5.14")
    assert report.verdict == "failed" and report.failure is not None
    assert report.failure.phase == "host cache" and "until 0.5.14" in report.failure.error
    assert _started(f"{TIERS} --hicache-ratio 0.5", "0.5.15")[1].verdict == "fits"


@pytest.mark.parametrize(
    ("flags", "release", "told"),
    [
        (f"{TIERS} --hicache-size 50 --tp-size 4", "0.5.17", "each rank by itself ends where 56.57 GiB"),
        (f"{TIERS} --hicache-size 50 --tp-size 4", "0.5.19", "in 4 ranks; SGLang ends where 196.26 GiB"),
        (f"{TIERS} --hicache-size 50", "0.5.17", "SGLang ends where 56.57 GiB are not available"),
        (TIERS, "0.5.23", "and less where"),
        ("", "0.5.23", None),
    ],
)
def test_a_report_tells_what_the_host_must_have(flags: str, release: str, told: str | None) -> None:
    found: list[Any] = list(wanted_of_host(*_started(flags, release)))
    assert told in found[0] if told else not found
